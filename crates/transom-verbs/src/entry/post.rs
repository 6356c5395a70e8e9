//! Posting lists of requests and receives.

use std::ffi::c_int;

use arrayvec::ArrayVec;
use transom_engine::raw::{Atomic, ReceiveChain};
use transom_engine::{Data, QueuePairKind, Request, Sge};

use crate::abi::*;
use crate::datagram::{self, To};
use crate::entry::shell::{self, OfQueuePair, OfSharedQueue};
use crate::entry::window::bind_in_queue;
use crate::entry::{address, number};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::{Destination, QueuePair, atomic, limit_length, operation, post_error};
use crate::{explain, limits};

/// A value of the program's, which may lie at any address: libiscsi and tgt have theirs in packed structures,
/// and no processor minds.
#[repr(C, packed)]
struct Unaligned<T>(T);

/// The value at a pointer of the program's, unless it is null.
///
/// # Safety
/// Null, or a value of the program's, at any address.
#[inline]
unsafe fn value<'a, T>(at: *const T) -> Option<&'a Unaligned<T>> {
    // SAFETY: this function's contract; no address is wrong for a packed structure.
    unsafe { at.cast::<Unaligned<T>>().as_ref() }
}

/// An entry of a list in the engine's words.
#[inline]
fn engine_entry(entry: &Unaligned<ibv_sge>) -> Sge {
    let entry = entry.0;
    Sge { token: entry.lkey, address: entry.addr, length: entry.length }
}

/// The entries of one request, in the engine's words.
type List = ArrayVec<Sge, { limits::SGE as usize }>;

/// The bytes of one inline request.
type Captured = ArrayVec<u8, { limits::INLINE as usize }>;

/// The entries of a program's list.
///
/// # Safety
/// `count` entries at `list`.
#[inline]
unsafe fn entries<'a>(list: *mut ibv_sge, count: c_int) -> Result<&'a [Unaligned<ibv_sge>]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !list.is_null() && count <= limits::SGE as usize => {
            // SAFETY: this function's contract.
            Ok(unsafe { std::slice::from_raw_parts(list.cast(), count) })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Whether a request may carry its data inline (Verbs V81).
fn may_be_inline(opcode: u32) -> bool {
    let fetches = [wr::RDMA_READ, wr::ATOMIC_CMP_AND_SWP, wr::ATOMIC_FETCH_AND_ADD];
    !fetches.contains(&opcode)
}

/// The destination of a datagram: address handle, queue pair number and key lie where others have
/// remote operands. A request that is no Send has those, and no handle to look at; it fails in its turn
/// (Verbs V81).
///
/// # Safety
/// A request of the program's to a queue pair of datagrams.
unsafe fn destination(pair: &QueuePair, wr: &ibv_send_wr) -> Result<To> {
    if !matches!(wr.opcode, wr::SEND | wr::SEND_WITH_IMM) {
        return Ok(datagram::nowhere(pair.domain.domain));
    }
    let handle = std::ptr::with_exposed_provenance_mut(wr.wr.remote_addr as usize);
    let (number, key) = (wr.wr.rkey_or_compare as u32, (wr.wr.rkey_or_compare >> 32) as u32);
    // SAFETY: this function's contract.
    unsafe { address::destination(handle, number, key) }
}

#[cold]
#[track_caller]
fn too_many(call: &str, given: usize, most: u32) -> Errno {
    explain::invalid(|| format!("{call}: {given} entries, and the queue takes {most} at most"))
}

/// Have `post` post a request; the bytes that it names.
///
/// # Safety
/// A request of the program's with its list.
#[inline]
unsafe fn post_one(
    pair: &QueuePair,
    wr: &Unaligned<ibv_send_wr>,
    post: impl FnOnce(&Request, Data<'_>, &Destination) -> Result,
) -> Result<u64> {
    let mut bind = None;
    let operation = match wr.0.opcode {
        wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD if !kind().has("atomics") => {
            return Err(Errno::EINVAL);
        }
        wr::ATOMIC_CMP_AND_SWP => {
            let change =
                Atomic::CompareSwap { compare: wr.0.wr.rkey_or_compare, swap: wr.0.wr.swap };
            atomic(wr.0.wr.remote_addr, wr.0.wr.atomic_rkey, change)
        }
        wr::ATOMIC_FETCH_AND_ADD => {
            let change = Atomic::FetchAdd { add: wr.0.wr.rkey_or_compare };
            atomic(wr.0.wr.remote_addr, wr.0.wr.atomic_rkey, change)
        }
        wr::BIND_MW => {
            let asked = wr.0.bind_mw;
            // SAFETY: this function's contract.
            let bound = unsafe { bind_in_queue(asked.mw, asked.rkey, &asked.bind_info) }?;
            bind = Some(bound.1);
            bound.0
        }
        opcode => {
            operation(opcode, wr.0.wr.remote_addr, wr.0.wr.rkey_or_compare as u32, wr.0.imm_data)?
        }
    };
    let flags = pair.flags(wr.0.send_flags);
    let mut request = Request { context: wr.0.wr_id, operation, flags };
    // SAFETY: this function's contract.
    let given = unsafe { entries(wr.0.sg_list, wr.0.num_sge) }?;
    let most = pair.caps.max_send_sge;
    if given.len() > most as usize {
        return Err(too_many("ibv_post_send", given.len(), most));
    }
    let inline = wr.0.send_flags & send::INLINE != 0;
    if inline && !may_be_inline(wr.0.opcode) {
        return Err(Errno::EINVAL);
    }
    let length: u64 = given.iter().map(|entry| u64::from(entry.0.length)).sum();
    if inline && length > u64::from(pair.caps.max_inline_data) {
        return Err(explain::invalid(|| {
            let most = pair.caps.max_inline_data;
            format!("ibv_post_send: {length} bytes inline, and the queue pair takes {most} at most")
        }));
    }
    limit_length(&mut request.operation, length, pair.longest());
    let to = match pair.kind() {
        // SAFETY: this function's contract.
        QueuePairKind::Ud => Destination::Datagram(unsafe { destination(pair, &{ wr.0 }) }?),
        QueuePairKind::XrcSend => Destination::Target(wr.0.remote_srqn),
        _ => Destination::Peer,
    };
    if !request.operation.has_data() {
        post(&request, Data::Sges(&[]), &to)?;
        if let Some(key) = bind {
            // SAFETY: this function's contract.
            unsafe { (*wr.0.bind_mw.mw).rkey = key };
        }
        return Ok(0);
    }
    match given {
        // SAFETY: inline data is the program's to read: that is the contract of IBV_SEND_INLINE.
        [only] if inline => post(&request, Data::Inline(unsafe { bytes(only) }), &to)?,
        _ if inline => {
            let mut captured = Captured::new();
            // SAFETY: as above.
            unsafe { capture(given, &mut captured) }?;
            post(&request, Data::Inline(&captured), &to)?;
        }
        [only] => post(&request, Data::Sges(&[engine_entry(only)]), &to)?,
        _ => {
            let mut list = List::new();
            fill(&mut list, given.iter().map(engine_entry))?;
            post(&request, Data::Sges(&list), &to)?;
        }
    }
    Ok(length)
}

/// The bytes of an entry of inline data.
///
/// # Safety
/// They can be read, and nobody changes them meanwhile.
#[inline]
unsafe fn bytes<'a>(entry: &Unaligned<ibv_sge>) -> &'a [u8] {
    let entry = entry.0;
    if entry.length == 0 {
        return &[];
    }
    let from = std::ptr::with_exposed_provenance(entry.addr as usize);
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts(from, entry.length as usize) }
}

// Both are filled where they lie: to return them is to copy all their room.

fn fill(list: &mut List, entries: impl Iterator<Item = Sge>) -> Result {
    for entry in entries {
        list.try_push(entry).map_err(|_| Errno::EINVAL)?;
    }
    Ok(())
}

/// Copy the bytes of several entries of inline data.
///
/// # Safety
/// As of [`bytes`], for each.
unsafe fn capture(given: &[Unaligned<ibv_sge>], into: &mut Captured) -> Result {
    for entry in given {
        // SAFETY: this function's contract.
        let part = unsafe { bytes(entry) };
        into.try_extend_from_slice(part).map_err(|_| Errno::EINVAL)?;
    }
    Ok(())
}

/// The requests or receives of a chain; beyond `most` they are not counted: the queue has no room for them.
///
/// # Safety
/// A chain of the program's.
unsafe fn count<T>(
    mut first: *const T,
    most: u32,
    next: impl Fn(&Unaligned<T>) -> *const T,
) -> usize {
    let mut count = 0;
    while count < most as usize {
        // SAFETY: this function's contract.
        let Some(one) = (unsafe { value(first) }) else { break };
        (count, first) = (count + 1, next(one));
    }
    count
}

/// Post the requests before the first bad one, which `*bad_wr` names (Verbs V81).
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let done = number(|| {
        // SAFETY: a queue pair of the program's.
        let pair = &unsafe { shell::trust::<OfQueuePair>(qp.cast()) }.body.queue_pair;
        pair.sends()?;
        let mut length = 0;
        // SAFETY: a chain of requests of the program's, each with its list.
        let posted = match unsafe { value(wr) } {
            None => Ok(()),
            Some(only) if only.0.next.is_null() => {
                // SAFETY: as above.
                let posted = unsafe {
                    post_one(pair, only, |request, data, to| pair.post_send(request, data, to))
                };
                posted.map(|bytes| length = bytes)
            }
            Some(_) => {
                // SAFETY: as above.
                let expected = unsafe {
                    count(wr, pair.caps.max_send_wr, |one: &Unaligned<ibv_send_wr>| one.0.next)
                };
                pair.post_chain(expected, |chain| {
                    // SAFETY: as above.
                    while let Some(request) = unsafe { value(wr) } {
                        // Read before: once it is posted, another thread may poll its completion and free it.
                        let next = request.0.next;
                        // SAFETY: as above.
                        length += unsafe {
                            post_one(pair, request, |request, data, to| {
                                chain.post(request, data, to)
                            })
                        }?;
                        wr = next;
                    }
                    Ok(())
                })
            }
        };
        pair.count(length);
        posted
    });
    if done != 0 && !bad_wr.is_null() {
        // SAFETY: the caller's pointer.
        unsafe { bad_wr.write_unaligned(wr) };
    }
    done
}

/// Post receives by `post`, which is a queue pair's call or a shared queue's.
///
/// # Safety
/// A chain of receives of the program's, and room for a pointer.
unsafe fn post_receives(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    (depth, most_sge): (u32, u32),
    post: impl FnOnce(usize, &mut dyn FnMut(&mut ReceiveChain<'_, '_>) -> Result) -> Result,
) -> c_int {
    let done = number(|| {
        // SAFETY: this function's contract.
        let expected = unsafe { count(wr, depth, |one: &Unaligned<ibv_recv_wr>| one.0.next) };
        post(expected, &mut |chain| {
            // SAFETY: this function's contract.
            while let Some(receive) = unsafe { value(wr) } {
                let next = receive.0.next; // as above
                // SAFETY: as above.
                let given = unsafe { entries(receive.0.sg_list, receive.0.num_sge) }?;
                if given.len() > most_sge as usize {
                    return Err(too_many("ibv_post_recv", given.len(), most_sge));
                }
                let (mut list, mut room) = (List::new(), limits::MESSAGE);
                fill(&mut list, given.iter().map(|entry| clipped(entry, &mut room)))?;
                chain.post(receive.0.wr_id, &list).map_err(post_error)?;
                wr = next;
            }
            Ok(())
        })
    });
    if done != 0 && !bad_wr.is_null() {
        // SAFETY: this function's contract.
        unsafe { bad_wr.write_unaligned(wr) };
    }
    done
}

/// An entry of a receive. No message reaches what lies behind the longest one, of which `room` is left.
#[inline]
fn clipped(entry: &Unaligned<ibv_sge>, room: &mut u32) -> Sge {
    let whole = engine_entry(entry);
    let length = whole.length.min(*room);
    *room -= length;
    Sge { length, ..whole }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair and a chain of the program's.
    unsafe {
        let pair = &shell::trust::<OfQueuePair>(qp.cast()).body.queue_pair;
        let most = (pair.caps.max_recv_wr, pair.caps.max_recv_sge.max(1));
        post_receives(wr, bad_wr, most, |expected, post| pair.post_receives(expected, post))
    }
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a shared queue and a chain of the program's.
    unsafe {
        let queue = &shell::trust::<OfSharedQueue>(srq).body;
        let most = (limits::SHARED_DEPTH, queue.max_sge);
        post_receives(wr, bad_wr, most, |expected, post| {
            queue.engine.post_receives(expected, post)?
        })
    }
}
