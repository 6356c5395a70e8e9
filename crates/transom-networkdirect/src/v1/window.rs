//! INDMemoryWindow (ND1 8.6). The interface's identifier is also IND2MemoryWindow's, which has one
//! method more: the table carries that one too, so that the answer is right for either interface
//! (ND1 2.2).

use std::sync::{Arc, Mutex};

use transom_memory::{QueuePairId, Token};

use super::Adapter;
use crate::com::{Alive, class};
use crate::guid::IID_INDMemoryWindow;
use crate::os::lock;
use crate::posting::remote_token;
use crate::status::*;

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) adapter: Arc<Adapter>,
    /// The program's ND_RESULT for an invalidation by the peer.
    pub(crate) invalidated: usize,
    state: Mutex<WindowState>,
    _alive: Alive,
}

#[derive(Debug, Default)]
struct WindowState {
    /// Token and endpoint of a Bind that no Invalidate has followed.
    bound: Option<(Token, QueuePairId)>,
    /// The token before that: its peer may have invalidated it without the program's knowledge.
    earlier: Option<Token>,
}

class!(Window, [IID_INDMemoryWindow], {
    fn get_remote_token() -> u32;
}
    /// ND1 MW-19.
    fn released(this: &Arc<Window>) {
        let WindowState { bound, earlier } = std::mem::take(&mut *lock(&this.state));
        let bound = bound.map(|(token, _)| token);
        for token in bound.into_iter().chain(earlier) {
            lock(&this.adapter.windows).remove(&token.0);
        }
        if let Some(token) = bound {
            let _ = this.adapter.nic.raw.revoke(token); // closed already, by its queue pair's end
        }
    }
);

impl Window {
    pub(crate) fn new(adapter: &Arc<Adapter>, invalidated: usize) -> Arc<Window> {
        let (adapter, _alive) = (adapter.clone(), Alive::new());
        Arc::new(Window { adapter, invalidated, state: Mutex::default(), _alive })
    }

    fn get_remote_token(self: &Arc<Self>) -> u32 {
        lock(&self.state).bound.map_or(0, |(token, _)| remote_token(token.0))
    }

    /// The window is not bound any more, as far as this side is concerned. News of it may still
    /// come.
    fn unbind(&self, state: &mut WindowState) {
        if let Some((token, _)) = state.bound.take()
            && let Some(oldest) = state.earlier.replace(token)
        {
            lock(&self.adapter.windows).remove(&oldest.0);
        }
    }

    /// Whether it is bound on `endpoint`: from the call of Bind to that of Invalidate, or to its end
    /// by the peer.
    pub(crate) fn is_bound_on(&self, endpoint: QueuePairId) -> bool {
        let bound = lock(&self.state).bound;
        bound.is_some_and(|(token, on)| on == endpoint && self.adapter.nic.raw.is_open(token))
    }

    /// Bind it on `endpoint` with what `make` makes.
    pub(crate) fn bind(
        self: &Arc<Self>,
        endpoint: QueuePairId,
        make: impl FnOnce() -> Result<Token, i32>,
    ) -> Result<Token, i32> {
        let mut state = lock(&self.state);
        if let Some((token, _)) = state.bound {
            if self.adapter.nic.raw.is_open(token) {
                return Err(ND_INVALID_DEVICE_STATE);
            }
            self.unbind(&mut state);
        }
        // The map is held meanwhile: the peer may invalidate the window before we return.
        let mut windows = lock(&self.adapter.windows);
        let token = make()?;
        windows.insert(token.0, Arc::downgrade(self));
        state.bound = Some((token, endpoint));
        Ok(token)
    }

    /// Post its Invalidate on `endpoint`. Known not to be bound there: refused (ND1 INV-3). If the
    /// peer comes first, both are notified (ND1 INV-2).
    pub(crate) fn invalidate(
        &self,
        endpoint: QueuePairId,
        post: impl FnOnce(Token) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let mut state = lock(&self.state);
        let bound = state.bound.filter(|(_, on)| *on == endpoint);
        let (token, _) = bound.ok_or(ND_INVALID_DEVICE_STATE)?;
        post(token)?;
        self.unbind(&mut state);
        Ok(())
    }

    /// The program learns that the peer has invalidated it.
    pub(crate) fn note_invalidated(&self, token: Token) {
        let mut state = lock(&self.state);
        state.bound = state.bound.filter(|(bound, _)| bound.0 != token.0);
        state.earlier = state.earlier.filter(|earlier| earlier.0 != token.0);
    }
}
