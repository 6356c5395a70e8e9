//! The exports of a provider's library (ND2 6.1, ND1 6.1).
#![allow(non_upper_case_globals)] // identifiers of interfaces in patterns

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::com::{Alive, AnyPtr, InPtr, Object, OutPtr, class, guard, live_objects};
use crate::guid::{Guid, IID_IClassFactory, IID_IND2Provider, IID_INDProvider, IID_IUnknown};
use crate::os::stay_loaded;
use crate::status::*;
use crate::{v1, v2};

/// LockServer calls in force.
static LOCKS: AtomicU32 = AtomicU32::new(0);

/// For version 2 the object handed out is the provider itself, whatever the class (ND2 7.6 point
/// 2); version 1 asks for a factory first.
#[unsafe(no_mangle)]
extern "system" fn DllGetClassObject(
    _class: InPtr<Guid>,
    iid: InPtr<Guid>,
    out: OutPtr<usize>,
) -> i32 {
    guard(|| {
        stay_loaded();
        if out.is_null() {
            return E_POINTER;
        }
        out.put(0);
        let result = match iid.get() {
            Some(IID_IClassFactory) => {
                Object::give(Arc::new(Factory { _alive: Alive::new() }), IID_IClassFactory, out)
            }
            Some(iid @ (IID_IND2Provider | IID_IUnknown)) => {
                Object::give(v2::Provider::new(), iid, out)
            }
            Some(_) => Err(CLASS_E_CLASSNOTAVAILABLE),
            None => Err(E_POINTER),
        };
        result.unwrap_or_else(|status| status)
    })
}

/// S_OK when no object is alive and no lock in force. The library stays loaded all the same.
#[unsafe(no_mangle)]
extern "system" fn DllCanUnloadNow() -> i32 {
    if live_objects() == 0 && LOCKS.load(Ordering::Acquire) == 0 { S_OK } else { S_FALSE }
}

/// Winsock itself must fail cleanly if it ever loads the catalogue entry: WSASYSNOTREADY.
#[unsafe(no_mangle)]
extern "system" fn WSPStartup() -> i32 {
    10091
}

/// Makes version 1 providers.
#[derive(Debug)]
struct Factory {
    _alive: Alive,
}

class!(Factory, [IID_IClassFactory], {
    fn create_instance(outer: AnyPtr, iid: InPtr<Guid>, out: OutPtr<usize>) -> i32;
    fn lock_server(lock: i32) -> i32;
});

impl Factory {
    fn create_instance(
        self: &Arc<Self>,
        outer: AnyPtr,
        iid: InPtr<Guid>,
        out: OutPtr<usize>,
    ) -> Outcome {
        if !outer.is_null() {
            return Err(CLASS_E_NOAGGREGATION);
        }
        match iid.get() {
            Some(iid @ (IID_INDProvider | IID_IUnknown)) => {
                Object::give(v1::Provider::new(), iid, out)
            }
            Some(IID_IND2Provider) => Object::give(v2::Provider::new(), IID_IND2Provider, out),
            _ => Err(E_NOINTERFACE),
        }
    }

    fn lock_server(self: &Arc<Self>, lock: i32) -> Outcome {
        let change =
            |locks: u32| if lock != 0 { locks.checked_add(1) } else { locks.checked_sub(1) };
        match LOCKS.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) {
            Ok(_) => Ok(S_OK),
            Err(_) => Err(E_UNEXPECTED),
        }
    }
}
