//! Ids that connect, accept and part.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::*;
use crate::cm::{self, Parameters};
use crate::entry::cm::ids::{finish, look, queue_pair, show};
use crate::entry::minus_one;
use crate::entry::queue_pair::show_state;
use crate::errno::{Errno, Result};
use crate::resolution;
use crate::{explain, limits};

/// The program's parameters.
fn parameters(given: Option<&rdma_conn_param>) -> Result<Parameters> {
    let Some(given) = given else { return Ok(Parameters::default()) };
    let count = |name, asked: u8| match asked {
        255 => Ok(limits::READS as u8),
        asked if u32::from(asked) <= limits::READS => Ok(asked),
        _ => Err(explain::invalid(|| {
            format!(
                "rdma_connect, rdma_accept: {name} is {asked}, and may be {} at most",
                limits::READS
            )
        })),
    };
    Ok(Parameters {
        responder_resources: count("responder_resources", given.responder_resources)?,
        initiator_depth: count("initiator_depth", given.initiator_depth)?,
        retry_count: given.retry_count.min(7),
        rnr_retry_count: given.rnr_retry_count.min(7),
        number: given.qp_num & 0xFF_FFFF,
    })
}

/// The private data that comes with the program's parameters, of at most `most` bytes.
///
/// # Safety
/// The structure is the program's, with its data.
unsafe fn private(given: Option<&rdma_conn_param>, most: usize) -> Result<&[u8]> {
    let Some(given) = given else { return Ok(&[]) };
    // SAFETY: this function's contract.
    unsafe { data(given.private_data, given.private_data_len, most) }
}

/// # Safety
/// `length` bytes of the program's.
unsafe fn data<'a>(bytes: *const c_void, length: u8, most: usize) -> Result<&'a [u8]> {
    let length = usize::from(length);
    if length > most || (length > 0 && bytes.is_null()) {
        return Err(explain::invalid(|| {
            format!("rdma_cm: {length} bytes of private data, and {most} may come with this call")
        }));
    }
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
}

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    given: *mut rdma_conn_param,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and parameters of the program's.
        unsafe {
            let shell = look(id)?;
            let datagrams = shell.id.is_datagrams();
            let most = if datagrams { resolution::QUESTION_DATA } else { cm::CONNECT_DATA };
            let given = given.as_ref();
            let (parameters, private) = (parameters(given)?, private(given, most)?);
            let pair = queue_pair((*shell.head()).qp)?;
            shell.id.connect(pair.as_ref(), parameters, private)?;
            finish(shell)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            shell.id.lock().user_context = (*shell.head()).context.expose_provenance();
            let mut shown = Ok(());
            shell.id.listen(backlog, || shown = show(shell))?;
            shown?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    given: *mut rdma_conn_param,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and parameters of the program's.
        unsafe {
            let shell = look(id)?;
            let pair = queue_pair((*shell.head()).qp)?;
            let datagrams = shell.id.is_datagrams();
            let most = if datagrams { resolution::ANSWER_DATA } else { cm::ACCEPT_DATA };
            let given = given.as_ref();
            let parameters = parameters(given)?;
            let private = private(given, most).inspect_err(|_| {
                shell.id.accept_in_vain(pair.as_ref());
                if let Some(pair) = &pair {
                    show_state(pair);
                }
            })?;
            if datagrams {
                let named = given.map(|given| given.qp_num);
                let number = pair.map(|pair| pair.number).or(named).ok_or(Errno::EINVAL)?;
                shell.id.accept_service(number, private)?;
                return Ok(0);
            }
            shell.id.accept(pair.as_ref(), parameters, private)?;
            if let Some(pair) = &pair {
                show_state(pair);
            }
            finish(shell)?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    bytes: *const c_void,
    length: u8,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id and bytes of the program's.
        unsafe { look(id)?.id.reject(data(bytes, length, cm::REJECT_DATA)?)? };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    bytes: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: as for `rdma_reject`.
    unsafe { rdma_reject(id, bytes, length) }
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            let pair = queue_pair((*shell.head()).qp)?;
            shell.id.disconnect(pair.as_ref())?;
            if let Some(pair) = &pair {
                show_state(pair);
            }
            // The peer may have left before: its DISCONNECTED is the event of this call.
            if shell.id.has_unfetched_end() {
                finish(shell)?;
            }
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's.
        unsafe {
            let shell = look(id)?;
            if !(*shell.head()).qp.is_null() {
                return Err(Errno::EINVAL);
            }
            shell.id.establish()?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    minus_one(|| {
        // SAFETY: an id, a structure and a number of the program's.
        unsafe {
            let shell = look(id)?;
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            let (found, bits) = shell.id.attributes(attr.qp_state)?;
            *attr = found;
            *mask.as_mut().ok_or(Errno::EINVAL)? = bits as c_int;
        }
        Ok(0)
    })
}

/// COMM_EST is known already. What there is to hear of it depends on how far the id is (Verbs V173).
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_uint) -> c_int {
    minus_one(|| {
        // SAFETY: an id of the program's.
        unsafe { look(id)? }.id.notify(event)?;
        Ok(0)
    })
}

// ---- extended connection establishment: kept, not sent -------------------------------------------

pub(crate) extern "C" fn rdma_set_local_ece(_id: *mut rdma_cm_id, _ece: *mut c_void) -> c_int {
    0
}

pub(crate) unsafe extern "C" fn rdma_get_remote_ece(
    _id: *mut rdma_cm_id,
    ece: *mut [u32; 3],
) -> c_int {
    minus_one(|| {
        // SAFETY: a structure of the program's.
        *unsafe { ece.as_mut() }.ok_or(Errno::EINVAL)? = [0; 3];
        Ok(0)
    })
}
