//! Posting lists of requests and receives.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use transom_engine::raw::Atomic;
use transom_engine::{Data, QueuePairKind, Request, Sge};

use crate::abi::*;
use crate::datagram::{self, To};
use crate::entry::shell::{self, OfQueuePair, OfSharedQueue};
use crate::entry::window::bind_in_queue;
use crate::entry::{address, number};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::{Destination, QueuePair, atomic, of_length, operation};
use crate::{explain, limits};

/// An entry of a list in the engine's words.
#[inline]
fn engine_entry(entry: &ibv_sge) -> Sge {
    Sge { token: entry.lkey, address: entry.addr, length: entry.length }
}

/// A list in the engine's words, on the stack.
pub(crate) struct List {
    entries: [MaybeUninit<Sge>; limits::SGE as usize],
    count: usize,
}

impl List {
    #[inline]
    pub(crate) fn new() -> List {
        List { entries: [const { MaybeUninit::uninit() }; limits::SGE as usize], count: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: &ibv_sge) -> Result {
        let to = self.entries.get_mut(self.count).ok_or(Errno::EINVAL)?;
        to.write(engine_entry(entry));
        self.count += 1;
        Ok(())
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Sge] {
        // SAFETY: the first `count` entries were written by `push`.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().cast(), self.count) }
    }
}

/// The entries of a program's list.
///
/// # Safety
/// `count` entries at `list`.
#[inline]
unsafe fn entries<'a>(list: *mut ibv_sge, count: c_int) -> Result<&'a [ibv_sge]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !list.is_null() && count <= limits::SGE as usize => {
            // SAFETY: this function's contract.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes of an inline request.
pub(crate) struct Captured {
    bytes: [MaybeUninit<u8>; limits::INLINE as usize],
    count: usize,
}

impl Captured {
    #[inline]
    pub(crate) fn new() -> Captured {
        Captured { bytes: [MaybeUninit::uninit(); limits::INLINE as usize], count: 0 }
    }

    /// Copy `length` bytes of the program's: `EINVAL` beyond what the queue pair takes.
    ///
    /// # Safety
    /// `length` bytes at `address` that can be read.
    #[inline]
    pub(crate) unsafe fn add(&mut self, address: u64, length: usize, most: u32) -> Result {
        let end = self.count.checked_add(length).filter(|end| *end <= most as usize);
        let end = end.ok_or(Errno::EINVAL)?;
        let room = self.bytes.get_mut(self.count..end).ok_or(Errno::EINVAL)?;
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        if !room.is_empty() {
            // SAFETY: this function's contract; the room has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr().cast(), length) };
        }
        self.count = end;
        Ok(())
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `count` bytes were written by `add`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.count) }
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

/// The bytes that it names.
///
/// # Safety
/// A request of the program's with its list.
#[inline]
unsafe fn post_one(pair: &QueuePair, wr: &ibv_send_wr) -> Result<u64> {
    let to = &wr.wr;
    let mut bind = None;
    let operation = match wr.opcode {
        wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD if !kind().has("atomics") => {
            return Err(Errno::EINVAL);
        }
        wr::ATOMIC_CMP_AND_SWP => {
            let change = Atomic::CompareSwap { compare: to.rkey_or_compare, swap: to.swap };
            atomic(to.remote_addr, to.atomic_rkey, change)
        }
        wr::ATOMIC_FETCH_AND_ADD => {
            let change = Atomic::FetchAdd { add: to.rkey_or_compare };
            atomic(to.remote_addr, to.atomic_rkey, change)
        }
        wr::BIND_MW => {
            let asked = &wr.bind_mw;
            // SAFETY: this function's contract.
            let bound = unsafe { bind_in_queue(asked.mw, asked.rkey, &asked.bind_info) }?;
            bind = Some(bound.1);
            bound.0
        }
        opcode => operation(opcode, to.remote_addr, to.rkey_or_compare as u32, wr.imm_data)?,
    };
    // SAFETY: this function's contract.
    let given = unsafe { entries(wr.sg_list, wr.num_sge) }?;
    let most = pair.caps.max_send_sge;
    if given.len() > most as usize {
        return Err(too_many("ibv_post_send", given.len(), most));
    }
    let inline = wr.send_flags & send::INLINE != 0;
    if inline && !may_be_inline(wr.opcode) {
        return Err(Errno::EINVAL);
    }
    let length: u64 = given.iter().map(|entry| u64::from(entry.length)).sum();
    if inline && length > u64::from(pair.caps.max_inline_data) {
        return Err(explain::invalid(|| {
            let most = pair.caps.max_inline_data;
            format!("ibv_post_send: {length} bytes inline, and the queue pair takes {most} at most")
        }));
    }
    let operation = of_length(operation, length, pair.longest());
    let to = match pair.kind() {
        // SAFETY: this function's contract.
        QueuePairKind::Ud => Destination::Datagram(unsafe { destination(pair, wr) }?),
        QueuePairKind::XrcSend => Destination::Target(wr.remote_srqn),
        _ => Destination::Peer,
    };
    let request = Request { context: wr.wr_id, operation, flags: pair.flags(wr.send_flags) };
    if !operation.has_data() {
        pair.post_send(&request, Data::Sges(&[]), to)?;
        if let Some(key) = bind {
            // SAFETY: this function's contract.
            unsafe { (*wr.bind_mw.mw).rkey = key };
        }
        return Ok(0);
    }
    match given {
        _ if inline => {
            // SAFETY: inline data is the program's to read: that is the contract of IBV_SEND_INLINE.
            unsafe { post_inline(pair, &request, given, to) }?;
        }
        [only] => pair.post_send(&request, Data::Sges(&[engine_entry(only)]), to)?,
        _ => post_entries(pair, &request, given, to)?,
    }
    Ok(length)
}

// The room for many entries, and for inline data, is on the stack of calls that need it only.

#[inline(never)]
fn post_entries(pair: &QueuePair, request: &Request, given: &[ibv_sge], to: Destination) -> Result {
    let mut list = List::new();
    for entry in given {
        list.push(entry)?;
    }
    pair.post_send(request, Data::Sges(list.as_slice()), to)
}

/// # Safety
/// Entries of the program's, whose bytes can be read.
#[inline(never)]
unsafe fn post_inline(
    pair: &QueuePair,
    request: &Request,
    given: &[ibv_sge],
    to: Destination,
) -> Result {
    let mut captured = Captured::new();
    for entry in given {
        let most = pair.caps.max_inline_data;
        // SAFETY: this function's contract.
        unsafe { captured.add(entry.addr, entry.length as usize, most) }?;
    }
    pair.post_send(request, Data::Inline(captured.as_slice()), to)
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
        // SAFETY: a chain of requests of the program's, each with its list.
        while let Some(request) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let bytes = unsafe { post_one(pair, request) }?;
            pair.count(bytes);
            wr = request.next;
        }
        Ok(())
    });
    if done != 0 && !bad_wr.is_null() {
        // SAFETY: the caller's pointer.
        unsafe { bad_wr.write(wr) };
    }
    done
}

/// Post receives, to a queue pair or to a shared queue.
///
/// # Safety
/// A chain of receives of the program's, and room for a pointer.
unsafe fn post_receives(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    most_sge: u32,
    post: impl Fn(u64, &[Sge]) -> Result,
) -> c_int {
    let done = number(|| {
        // SAFETY: this function's contract.
        while let Some(receive) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let given = unsafe { entries(receive.sg_list, receive.num_sge) }?;
            if given.len() > most_sge as usize {
                return Err(too_many("ibv_post_recv", given.len(), most_sge));
            }
            let mut list = List::new();
            // No message reaches what lies behind the longest one.
            let mut room = limits::MESSAGE;
            for entry in given {
                let length = entry.length.min(room);
                room -= length;
                list.push(&ibv_sge { length, ..*entry })?;
            }
            post(receive.wr_id, list.as_slice())?;
            wr = receive.next;
        }
        Ok(())
    });
    if done != 0 && !bad_wr.is_null() {
        // SAFETY: this function's contract.
        unsafe { bad_wr.write(wr) };
    }
    done
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair and a chain of the program's.
    unsafe {
        let pair = &shell::trust::<OfQueuePair>(qp.cast()).body.queue_pair;
        post_receives(wr, bad_wr, pair.caps.max_recv_sge.max(1), |wr_id, list| {
            pair.post_receive(wr_id, list)
        })
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
        post_receives(wr, bad_wr, limits::SGE, |wr_id, list| queue.post(wr_id, list))
    }
}
