//! IND2Provider (ND2 2.4).

use std::sync::Arc;

use super::Adapter;
use crate::com::{Alive, InPtr, Object, OutPtr, class};
use crate::guid::{Guid, IID_IND2Provider};
use crate::list;
use crate::status::*;

/// The way in. Has no state: addresses are looked up when asked for.
#[derive(Debug)]
pub(crate) struct Provider {
    _alive: Alive,
}

class!(Provider, [IID_IND2Provider], {
    fn query_address_list(out: OutPtr<u8>, length: OutPtr<u32>) -> i32;
    fn resolve_address(address: InPtr<u8>, length: u32, id: OutPtr<u64>) -> i32;
    fn open_adapter(iid: InPtr<Guid>, id: u64, out: OutPtr<usize>) -> i32;
});

impl Provider {
    pub(crate) fn new() -> Arc<Provider> {
        Arc::new(Provider { _alive: Alive::new() })
    }

    fn query_address_list(self: &Arc<Self>, out: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        list::put(&list::local(), out, length)
    }

    fn resolve_address(
        self: &Arc<Self>,
        address: InPtr<u8>,
        length: u32,
        id: OutPtr<u64>,
    ) -> Outcome {
        let address = address.socket_address(length as usize).ok_or(ND_INVALID_ADDRESS)?;
        if !list::is_local(address.ip()) {
            return Err(ND_INVALID_ADDRESS);
        }
        if id.is_null() {
            return Err(ND_INVALID_PARAMETER_3);
        }
        id.put(list::adapter_id(address.ip()));
        Ok(ND_SUCCESS)
    }

    fn open_adapter(self: &Arc<Self>, iid: InPtr<Guid>, id: u64, out: OutPtr<usize>) -> Outcome {
        let out = out.emptied();
        let iid = iid.get().ok_or(ND_INVALID_PARAMETER_1)?;
        let address = list::address_of(id).ok_or(ND_INVALID_PARAMETER)?;
        Object::give(Adapter::open(address)?, iid, out)
    }
}
