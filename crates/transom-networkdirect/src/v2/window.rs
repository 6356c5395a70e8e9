//! IND2MemoryWindow (ND2 2.8, 5.2).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use transom_memory::Token;

use super::Adapter;
use crate::com::{Alive, class};
use crate::guid::IID_IND2MemoryWindow;
use crate::os::lock;
use crate::posting::remote_token;

/// A memory window. The memory table knows its rights; only its name is here.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) adapter: Arc<Adapter>,
    /// The token of the last Bind, kept for the getter when it is dead (ND2 C14); 0 before the
    /// first.
    token: AtomicU32,
    /// That of a Bind that no Invalidate has followed.
    bound: Mutex<Option<Token>>,
    _alive: Alive,
}

class!(Window, [IID_IND2MemoryWindow], {
    fn get_remote_token() -> u32;
}
    fn released(this: &Arc<Window>) {
        this.close();
    }
);

impl Window {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Arc<Window> {
        Arc::new(Window {
            adapter: adapter.clone(),
            token: AtomicU32::new(0),
            bound: Mutex::new(None),
            _alive: Alive::new(),
        })
    }

    fn get_remote_token(self: &Arc<Self>) -> u32 {
        remote_token(self.token.load(Ordering::Acquire))
    }

    /// Bind it with what `make` makes; refused by `taken` while an earlier Bind is in force (ND2
    /// C9).
    pub(crate) fn bind(
        &self,
        taken: i32,
        make: impl FnOnce() -> Result<Token, i32>,
    ) -> Result<(), i32> {
        let mut bound = lock(&self.bound);
        if bound.is_some_and(|token| self.adapter.nic.raw.is_open(token)) {
            return Err(taken);
        }
        let token = make()?;
        self.token.store(token.0, Ordering::Release);
        *bound = Some(token);
        Ok(())
    }

    /// Post its Invalidate with `post`, which is given the token, dead or alive; afterwards it may
    /// be bound again.
    pub(crate) fn invalidate(
        &self,
        post: impl FnOnce(Token) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let mut bound = lock(&self.bound);
        post(Token(self.token.load(Ordering::Acquire)))?;
        *bound = None;
        Ok(())
    }

    /// The window's last Release (ND2 W21).
    fn close(&self) {
        if let Some(token) = lock(&self.bound).take() {
            let _ = self.adapter.nic.raw.revoke(token); // closed already, by its queue pair's end
        }
    }
}
