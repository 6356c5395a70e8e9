//! INDMemoryWindow (ND1 8.6). Its identifier is also IND2MemoryWindow's, which has one method more:
//! the table carries that one too, so that the answer is right whoever asks (ND1 2.2).

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
    /// Token and endpoint of a Bind that no Invalidate has followed.
    bound: Mutex<Option<(Token, QueuePairId)>>,
    _alive: Alive,
}

class!(Window, [IID_INDMemoryWindow], {
    fn get_remote_token() -> u32;
}
    /// ND1 MW-19.
    fn released(this: &Arc<Window>) {
        if let Some((token, _)) = lock(&this.bound).take() {
            this.forget(token);
            this.adapter.nic.revoke(token);
        }
    }
);

impl Window {
    pub(crate) fn new(adapter: &Arc<Adapter>, invalidated: usize) -> Arc<Window> {
        let (adapter, _alive) = (adapter.clone(), Alive::new());
        Arc::new(Window { adapter, invalidated, bound: Mutex::new(None), _alive })
    }

    fn get_remote_token(self: &Arc<Self>) -> u32 {
        lock(&self.bound).map_or(0, |(token, _)| remote_token(token.0))
    }

    fn forget(&self, token: Token) {
        lock(&self.adapter.windows).remove(&token.0);
    }

    /// Bind it on `endpoint` with what `make` makes.
    pub(crate) fn bind(
        self: &Arc<Self>,
        endpoint: QueuePairId,
        make: impl FnOnce() -> Result<Token, i32>,
    ) -> Result<Token, i32> {
        let mut bound = lock(&self.bound);
        if let Some((token, _)) = *bound {
            if self.adapter.nic.is_open(token) {
                return Err(ND_INVALID_DEVICE_STATE);
            }
            self.forget(token);
        }
        // The map is held meanwhile: the peer may invalidate the window before we return.
        let mut windows = lock(&self.adapter.windows);
        let token = make()?;
        windows.insert(token.0, Arc::downgrade(self));
        *bound = Some((token, endpoint));
        Ok(token)
    }

    /// Post its Invalidate on `endpoint`. Known not to be bound there: refused (ND1 INV-3).
    pub(crate) fn invalidate(
        &self,
        endpoint: QueuePairId,
        post: impl FnOnce(Token) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let mut bound = lock(&self.bound);
        let (token, _) = bound.filter(|(_, on)| *on == endpoint).ok_or(ND_INVALID_DEVICE_STATE)?;
        post(token)?;
        *bound = None;
        self.forget(token);
        Ok(())
    }
}
