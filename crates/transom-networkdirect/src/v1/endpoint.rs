//! INDEndpoint (ND1 8).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use transom_engine::raw::{self, WindowError};
use transom_engine::{Data, Flags, Operation, QueuePairState, Request, Sge};
use transom_memory::{BindError, Purpose, QueuePairId, Rights};
use transom_wire::ReadLimits;

use super::adapter::token_of as local_token;
use super::{Adapter, CompletionQueue, Window};
use crate::abi::*;
use crate::com::{Alive, AnyPtr, InPtr, OutPtr, class};
use crate::explain;
use crate::guid::{Guid, IID_INDEndpoint, IID_ITransomExplain};
use crate::limits;
use crate::os::lock;
use crate::posting::{Captured, List, capture, flags, push};
use crate::status::*;
use crate::table::nd1;

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::QueuePair,
    pub(crate) number: QueuePairId,
    /// The limits it asks for when it connects.
    pub(crate) limits: ReadLimits,
    /// Reads that it may have under way, as agreed.
    reads: AtomicU32,
    /// The endpoint has accepted, no message has been retrieved, and so it may not speak yet (ND1 C-7).
    listens: AtomicBool,
    /// The window that was bound here last, where only one may be at a time (ND1 15.1).
    window: Mutex<Weak<Window>>,
    /// Kept alive while results may arrive.
    _queues: [Arc<CompletionQueue>; 2],
    _alive: Alive,
}

class!(Endpoint, [IID_INDEndpoint], {
    fn flush() -> i32;
    fn start_request_batch() -> ();
    fn submit_request_batch() -> ();
    fn send(result: OutPtr<NdResult>, list: InPtr<NdSge>, count: usize, flags: u32) -> i32;
    fn send_and_invalidate(
        result: OutPtr<NdResult>, list: InPtr<NdSge>, count: usize,
        descriptor: InPtr<NdMwDescriptor>, flags: u32
    ) -> i32;
    fn receive(result: OutPtr<NdResult>, list: InPtr<NdSge>, count: usize) -> i32;
    fn bind(
        result: OutPtr<NdResult>, region: usize, window: AnyPtr, buffer: InPtr<u8>, length: usize,
        flags: u32, descriptor: OutPtr<NdMwDescriptor>
    ) -> i32;
    fn invalidate(result: OutPtr<NdResult>, window: AnyPtr, flags: u32) -> i32;
    fn read(
        result: OutPtr<NdResult>, list: InPtr<NdSge>, count: usize,
        descriptor: InPtr<NdMwDescriptor>, offset: u64, flags: u32
    ) -> i32;
    fn write(
        result: OutPtr<NdResult>, list: InPtr<NdSge>, count: usize,
        descriptor: InPtr<NdMwDescriptor>, offset: u64, flags: u32
    ) -> i32;
}
    fn tear_off(this: &Arc<Endpoint>, iid: Guid) -> Option<NonNull<c_void>> {
        let (adapter, number) = (this.adapter.clone(), this.number);
        (iid == IID_ITransomExplain)
            .then(|| explain::Explain::give(move || explain::newest(&adapter.nic.raw, number)))
    }
);

const SEND: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE | OP_SOLICIT;
const BIND: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE | OP_ALLOW_READ | OP_ALLOW_WRITE;
const OTHER: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE;

/// A list in the engine's words.
fn engine_list(list: &[NdSge]) -> Result<List, i32> {
    let mut to = List::new();
    for sge in list {
        let length = u32::try_from(sge.length).map_err(|_| ND_BUFFER_OVERFLOW)?;
        let (token, address) = (local_token(sge.region), sge.address as u64);
        push(&mut to, Sge { token, address, length })?;
    }
    Ok(to)
}

/// A list of registered memory only: bytes that come later cannot be captured now (ND1 8.8).
fn registered(list: InPtr<NdSge>, count: usize) -> Result<List, i32> {
    let list = list.many(count).ok_or(ND_INVALID_PARAMETER_2)?;
    if list.iter().any(|sge| sge.region == 0 && sge.length > 0) {
        return Err(ND_INVALID_PARAMETER_2);
    }
    engine_list(list)
}

/// Why a window could not be made, by the position of the parameter that is to blame (ND1 8.5.1).
fn bind_error(error: &WindowError) -> i32 {
    let reason = match error {
        WindowError::Unusable(error) => return nd1(error.status),
        WindowError::Refused(reason) => reason,
    };
    match reason {
        BindError::Exhausted => ND_INSUFFICIENT_RESOURCES,
        BindError::Empty => ND_INVALID_PARAMETER_5,
        BindError::Bounds(denial) if denial.begins_inside() => ND_INVALID_PARAMETER_5,
        BindError::Bounds(_) => ND_INVALID_PARAMETER_4,
        BindError::Right(_) => ND_ACCESS_VIOLATION,
        _ => ND_INVALID_PARAMETER_2, // a registration that ended meanwhile
    }
}

/// The place that a peer's descriptor and an offset name: token and address. An address that wraps
/// cannot be inside any window; the last byte of the address space stands for it (ND1 RW-4).
fn remote(descriptor: NdMwDescriptor, offset: u64) -> (u32, u64) {
    let base = u64::from_be(descriptor.base);
    (u32::from_be(descriptor.token), base.saturating_add(offset))
}

impl Endpoint {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        inbound: Arc<CompletionQueue>,
        outbound: Arc<CompletionQueue>,
        receive_depth: u32,
        initiator_depth: u32,
        limits: ReadLimits,
    ) -> Result<Arc<Endpoint>, i32> {
        let depths = [initiator_depth, receive_depth];
        let raw = adapter
            .nic
            .queue_pair(&outbound.queue.raw, &inbound.queue.raw, None, 0, depths, limits::INLINE)
            .map_err(nd1)?;
        let number = raw.config().number;
        let reads = AtomicU32::new(limits.outbound);
        let (adapter, _queues) = (adapter.clone(), [inbound.clone(), outbound.clone()]);
        let _alive = Alive::new();
        let (listens, window) = (AtomicBool::new(false), Mutex::default());
        let endpoint = Arc::new(Endpoint {
            adapter,
            raw,
            number,
            limits,
            reads,
            listens,
            window,
            _queues,
            _alive,
        });
        inbound.serve(number, &endpoint);
        if !Arc::ptr_eq(&inbound, &outbound) {
            outbound.serve(number, &endpoint);
        }
        Ok(endpoint)
    }

    /// The read limits are agreed (ND1 C-1).
    pub(crate) fn agreed(&self, limits: ReadLimits) {
        self.reads.store(limits.outbound, Ordering::Relaxed);
    }

    /// The endpoint accepts a connection (ND1 C-7).
    pub(crate) fn accepts(&self) {
        self.listens.store(self.adapter.strict.speak_first, Ordering::Relaxed);
    }

    /// The program has retrieved a message of its peer.
    pub(crate) fn heard(&self) {
        if self.adapter.strict.speak_first {
            self.listens.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a request to the peer may be posted (ND1 C-7).
    fn may_speak(&self) -> Result<(), i32> {
        let early =
            self.listens.load(Ordering::Relaxed) && self.raw.state() == QueuePairState::Connected;
        if early { Err(ND_INVALID_DEVICE_STATE) } else { Ok(()) }
    }

    fn flush(self: &Arc<Self>) -> Outcome {
        self.raw.flush().map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    /// A hint, and nothing needs one (ND1 8.10).
    fn start_request_batch(self: &Arc<Self>) {}

    fn submit_request_batch(self: &Arc<Self>) {}

    fn post(
        &self,
        result: OutPtr<NdResult>,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
    ) -> Outcome {
        let request = Request { context: result.address() as u64, operation, flags };
        self.raw.post(&request, data).map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    /// Post what has a list of which entries without a handle are copied now (ND1 8.8).
    fn post_list(
        &self,
        result: OutPtr<NdResult>,
        operation: Operation,
        flags: Flags,
        list: InPtr<NdSge>,
        count: usize,
    ) -> Outcome {
        if result.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        let list = list.many(count).ok_or(ND_INVALID_PARAMETER_2)?;
        self.may_speak()?;
        let inline = list.iter().any(|sge| sge.region == 0 && sge.length > 0);
        let in_place = engine_list(list);
        if !inline || in_place == Err(ND_DATA_OVERRUN) {
            return self.post(result, operation, flags, Data::Sges(in_place?.as_slice()));
        }
        let mixed = list.iter().any(|sge| sge.region != 0);
        if mixed
            && let Ok(in_place) = in_place
            && !self.may_read(&in_place)
        {
            // The completion says so (ND1 4.3).
            return self.post(result, operation, flags, Data::Sges(in_place.as_slice()));
        }
        let mut captured = Captured::new();
        for sge in list {
            capture(&mut captured, sge.address as u64, sge.length as u64).map_err(|e| {
                if mixed && e == ND_BUFFER_OVERFLOW { ND_INVALID_PARAMETER_2 } else { e }
            })?;
        }
        self.post(result, operation, flags, Data::Inline(captured.as_slice()))
    }

    /// Whether the entries that name a registration may be read, before they are captured beside
    /// others that name none.
    fn may_read(&self, list: &List) -> bool {
        let mut named = list.as_slice().iter().filter(|sge| sge.token > 0);
        named.all(|sge| self.raw.probe(None, Purpose::LocalSource, sge).is_ok())
    }

    fn send(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        list: InPtr<NdSge>,
        count: usize,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, SEND, ND_INVALID_PARAMETER_4)?;
        self.post_list(result, Operation::Send, flags, list, count)
    }

    fn send_and_invalidate(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        list: InPtr<NdSge>,
        count: usize,
        descriptor: InPtr<NdMwDescriptor>,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, SEND, ND_INVALID_PARAMETER_5)?;
        let (token, _) = remote(descriptor.get().ok_or(ND_INVALID_PARAMETER_4)?, 0);
        self.post_list(result, Operation::SendWithInvalidate { token }, flags, list, count)
    }

    fn receive(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        list: InPtr<NdSge>,
        count: usize,
    ) -> Outcome {
        if result.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        let list = registered(list, count)?;
        let context = result.address() as u64;
        self.raw.post_receive(context, list.as_slice()).map_err(|e| nd1(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn bind(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        region: usize,
        window: AnyPtr,
        buffer: InPtr<u8>,
        length: usize,
        given: u32,
        descriptor: OutPtr<NdMwDescriptor>,
    ) -> Outcome {
        if result.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        if descriptor.is_null() {
            return Err(ND_INVALID_PARAMETER_7);
        }
        let flags = flags(given, BIND, ND_INVALID_PARAMETER_6)?;
        if given & (OP_ALLOW_READ | OP_ALLOW_WRITE) == 0 {
            return Err(ND_INVALID_PARAMETER_6); // ND1 15.13
        }
        let window = window.of::<Window>(&self.adapter, ND_INVALID_PARAMETER_3)?;
        let region = lock(&self.adapter.regions).get(region).ok_or(ND_INVALID_PARAMETER_2)?;
        let (base, length) = (buffer.address() as u64, length as u64);
        let pick = |bit: u32, right: Rights| if given & bit != 0 { right } else { Rights::NONE };
        let rights =
            pick(OP_ALLOW_READ, Rights::REMOTE_READ) | pick(OP_ALLOW_WRITE, Rights::REMOTE_WRITE);
        let spec = raw::Window { region, base, length, rights };
        let mut only = self.adapter.strict.one_window.then(|| lock(&self.window));
        if let Some(last) = only.as_ref().and_then(|last| last.upgrade())
            && last.is_bound_on(self.number)
        {
            return Err(ND_INVALID_DEVICE_STATE); // ND1 15.1
        }
        let token = window.bind(self.number, || {
            let reserved = self.raw.reserve_window(&spec).map_err(|error| bind_error(&error))?;
            let window = reserved.token();
            self.post(result, Operation::Bind { window }, flags, Data::Sges(&[]))?;
            Ok(reserved.posted())
        })?;
        if let Some(last) = &mut only {
            **last = Arc::downgrade(&window);
        }
        descriptor.put(NdMwDescriptor {
            base: base.to_be(),
            length: length.to_be(),
            token: token.0.to_be(),
        });
        Ok(ND_SUCCESS)
    }

    fn invalidate(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        window: AnyPtr,
        given: u32,
    ) -> Outcome {
        if result.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        let window = window.of::<Window>(&self.adapter, ND_INVALID_PARAMETER_2)?;
        let flags = flags(given, OTHER, ND_INVALID_PARAMETER_3)?;
        window.invalidate(self.number, |window| {
            self.post(result, Operation::Invalidate { window }, flags, Data::Sges(&[])).map(drop)
        })?;
        Ok(ND_SUCCESS)
    }

    fn read(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        list: InPtr<NdSge>,
        count: usize,
        descriptor: InPtr<NdMwDescriptor>,
        offset: u64,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, OTHER, ND_INVALID_PARAMETER_6)?;
        let descriptor = descriptor.get().ok_or(ND_INVALID_PARAMETER_4)?;
        if result.is_null() {
            return Err(ND_INVALID_PARAMETER_1);
        }
        let (token, address) = remote(descriptor, offset);
        let list = registered(list, count)?;
        self.may_speak()?;
        if self.reads.load(Ordering::Relaxed) == 0 && self.raw.state() == QueuePairState::Connected
        {
            return Err(ND_INVALID_DEVICE_REQUEST); // ND1 RW-5
        }
        self.post(result, Operation::Read { token, address }, flags, Data::Sges(list.as_slice()))
    }

    fn write(
        self: &Arc<Self>,
        result: OutPtr<NdResult>,
        list: InPtr<NdSge>,
        count: usize,
        descriptor: InPtr<NdMwDescriptor>,
        offset: u64,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, OTHER, ND_INVALID_PARAMETER_6)?;
        let (token, address) = remote(descriptor.get().ok_or(ND_INVALID_PARAMETER_4)?, offset);
        self.post_list(result, Operation::Write { token, address }, flags, list, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd1_t3_a_descriptor_is_the_vector_of_3_3() {
        let descriptor = NdMwDescriptor {
            base: 0x7F12_3456_0000u64.to_be(),
            length: 0x1000u64.to_be(),
            token: 0xA1B2_C3D4u32.to_be(),
        };
        // SAFETY: packed integers, no padding.
        let bytes: [u8; 20] = unsafe { std::mem::transmute(descriptor) };
        assert_eq!(
            bytes,
            [0, 0, 0x7F, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0xA1, 0xB2, 0xC3, 0xD4]
        );
        assert_eq!(remote(descriptor, 16), (0xA1B2_C3D4, 0x7F12_3456_0010));
        assert_eq!(remote(descriptor, u64::MAX).1, u64::MAX, "RW-4");
    }
}
