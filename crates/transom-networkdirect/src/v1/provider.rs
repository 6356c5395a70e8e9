//! INDProvider (ND1 6.2).

use std::sync::Arc;

use super::Adapter;
use crate::com::{Alive, InPtr, Object, OutPtr, class};
use crate::guid::{IID_INDAdapter, IID_INDProvider};
use crate::list;
use crate::status::*;

/// The way in.
#[derive(Debug)]
pub(crate) struct Provider {
    _alive: Alive,
}

class!(Provider, [IID_INDProvider], {
    fn query_address_list(out: OutPtr<u8>, length: OutPtr<usize>) -> i32;
    fn open_adapter(address: InPtr<u8>, length: usize, out: OutPtr<usize>) -> i32;
});

impl Provider {
    pub(crate) fn new() -> Arc<Provider> {
        Arc::new(Provider { _alive: Alive::new() })
    }

    fn query_address_list(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<usize>) -> Outcome {
        list::put(&list::local(), out, length)
    }

    fn open_adapter(
        self: &Arc<Self>,
        address: InPtr<u8>,
        length: usize,
        out: OutPtr<usize>,
    ) -> Outcome {
        let out = out.emptied();
        let address = address.socket_address(length).ok_or(ND_INVALID_ADDRESS)?.ip();
        if !list::is_local(address) {
            return Err(ND_INVALID_ADDRESS);
        }
        Object::give(Adapter::open(address)?, IID_INDAdapter, out)
    }
}
