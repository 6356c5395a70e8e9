//! Names of regions and windows, for messages. The private interface.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use transom_engine::raw;
use transom_memory::Token;

use crate::com::{Alive, InPtr, Object, class};
use crate::guid::{Guid, IID_ITransomNames};
use crate::posting::token_of;
use crate::status::*;

/// ITransomNames: an object of its own, as ITransomExplain is.
pub(crate) struct Names {
    adapter: raw::Adapter,
    _alive: Alive,
}

class!(Names, [IID_ITransomNames], {
    fn name_local_token(token: u32, name: InPtr<u8>) -> i32;
    fn name_remote_token(token: u32, name: InPtr<u8>) -> i32;
});

impl Names {
    /// The interface of an adapter, if `iid` asks for it.
    pub(crate) fn give(adapter: &raw::Adapter, iid: Guid) -> Option<NonNull<c_void>> {
        let names = || Names { adapter: adapter.clone(), _alive: Alive::new() };
        (iid == IID_ITransomNames).then(|| Object::create(Arc::new(names())))
    }

    fn name(&self, token: u32, name: InPtr<u8>) -> Outcome {
        let name = name.text().ok_or(E_POINTER)?;
        if self.adapter.set_name(Token(token), &name) { Ok(S_OK) } else { Err(ND_INVALID_HANDLE) }
    }

    fn name_local_token(self: &Arc<Self>, token: u32, name: InPtr<u8>) -> Outcome {
        self.name(token, name)
    }

    fn name_remote_token(self: &Arc<Self>, token: u32, name: InPtr<u8>) -> Outcome {
        self.name(token_of(token), name)
    }
}
