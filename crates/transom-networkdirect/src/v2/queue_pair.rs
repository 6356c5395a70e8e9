//! IND2QueuePair (ND2 2.9).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use transom_engine::{Data, Flags, Operation, Request, raw};
use transom_memory::{QueuePairId, Rights};

use super::adapter::Sizes;
use super::{Adapter, CompletionQueue, Region, SharedQueue, Window};
use crate::abi::*;
use crate::com::{Alive, AnyPtr, InPtr, class};
use crate::explain;
use crate::guid::{Guid, IID_IND2QueuePair, IID_ITransomExplain};
use crate::os::lock;
use crate::posting::{Captured, capture, flags, list_of, token_of};
use crate::status::*;
use crate::table::nd2;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::QueuePair,
    number: QueuePairId,
    inline_size: u32,
    shared: Option<Arc<SharedQueue>>,
    /// Kept alive (ND2 1.3 rule 3).
    _queues: [Arc<CompletionQueue>; 2],
    _alive: Alive,
}

class!(QueuePair, [IID_IND2QueuePair], {
    fn flush() -> i32;
    fn send(context: usize, list: InPtr<Nd2Sge>, count: u32, flags: u32) -> i32;
    fn receive(context: usize, list: InPtr<Nd2Sge>, count: u32) -> i32;
    fn bind(
        context: usize, region: AnyPtr, window: AnyPtr, buffer: InPtr<u8>, length: usize, flags: u32
    ) -> i32;
    fn invalidate(context: usize, window: AnyPtr, flags: u32) -> i32;
    fn read(
        context: usize, list: InPtr<Nd2Sge>, count: u32, address: u64, token: u32, flags: u32
    ) -> i32;
    fn write(
        context: usize, list: InPtr<Nd2Sge>, count: u32, address: u64, token: u32, flags: u32
    ) -> i32;
}
    fn tear_off(this: &Arc<QueuePair>, iid: Guid) -> Option<NonNull<c_void>> {
        // Not the queue pair itself: its last Release must be its end (ND2 1.3 rule 5).
        let (adapter, number) = (this.adapter.clone(), this.number);
        (iid == IID_ITransomExplain)
            .then(|| explain::Explain::give(move || explain::newest(&adapter.nic.raw, number)))
    }
);

const SEND: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE | OP_SOLICIT | OP_INLINE;
const WRITE: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE | OP_INLINE;
const READ: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE;
const BIND: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE | OP_ALLOW_READ | OP_ALLOW_WRITE;
const INVALIDATE: u32 = OP_SILENT_SUCCESS | OP_READ_FENCE;

impl QueuePair {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        initiator: Arc<CompletionQueue>,
        receive: Arc<CompletionQueue>,
        shared: Option<Arc<SharedQueue>>,
        context: usize,
        sizes: Sizes,
    ) -> Result<Arc<QueuePair>, i32> {
        let depths = [sizes.initiator_depth, sizes.receive_depth];
        let shared_raw = shared.as_ref().map(|shared| &shared.raw);
        let raw = adapter
            .nic
            .queue_pair(
                &initiator.queue.raw,
                &receive.queue.raw,
                shared_raw,
                context,
                depths,
                sizes.inline_size,
            )
            .map_err(nd2)?;
        Ok(Arc::new(QueuePair {
            adapter: adapter.clone(),
            number: raw.config().number,
            raw,
            inline_size: sizes.inline_size,
            shared,
            _queues: [initiator, receive],
            _alive: Alive::new(),
        }))
    }

    fn flush(self: &Arc<Self>) -> Outcome {
        self.raw.flush().map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn post(
        &self,
        context: usize,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
    ) -> Result<(), i32> {
        let request = Request { context: context as u64, operation, flags };
        self.raw.post(&request, data).map_err(|e| nd2(e.status))
    }

    /// Post what has a list; `given` has been checked.
    fn post_list(
        &self,
        context: usize,
        operation: Operation,
        flags: Flags,
        list: Option<&[Nd2Sge]>,
        inline: bool,
    ) -> Outcome {
        if inline {
            // Tokens and the number of entries do not count (ND2 2.9, INLINE).
            let mut captured = Captured::new();
            for sge in list.ok_or(ND_INVALID_PARAMETER_2)? {
                capture(&mut captured, sge.buffer as u64, u64::from(sge.buffer_length))?;
            }
            if captured.as_slice().len() > self.inline_size as usize {
                return Err(ND_BUFFER_OVERFLOW);
            }
            self.post(context, operation, flags, Data::Inline(captured.as_slice()))?;
        } else {
            let list = list_of(list)?;
            self.post(context, operation, flags, Data::Sges(list.as_slice()))?;
        }
        Ok(ND_SUCCESS)
    }

    fn send(
        self: &Arc<Self>,
        context: usize,
        list: InPtr<Nd2Sge>,
        count: u32,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, SEND, ND_INVALID_PARAMETER_4)?;
        let list = list.many(count as usize);
        self.post_list(context, Operation::Send, flags, list, given & OP_INLINE != 0)
    }

    fn receive(self: &Arc<Self>, context: usize, list: InPtr<Nd2Sge>, count: u32) -> Outcome {
        if self.shared.is_some() {
            return Err(ND_INVALID_DEVICE_REQUEST);
        }
        let list = list_of(list.many(count as usize))?;
        self.raw.post_receive(context as u64, list.as_slice()).map_err(|e| nd2(e.status))?;
        Ok(ND_SUCCESS)
    }

    fn bind(
        self: &Arc<Self>,
        context: usize,
        region: AnyPtr,
        window: AnyPtr,
        buffer: InPtr<u8>,
        length: usize,
        given: u32,
    ) -> Outcome {
        let region = region.of::<Region>(&self.adapter, ND_INVALID_PARAMETER_2)?;
        let window = window.of::<Window>(&self.adapter, ND_INVALID_PARAMETER_3)?;
        let flags = flags(given, BIND, ND_INVALID_PARAMETER_6)?;
        let pick = |bit: u32, right: Rights| if given & bit != 0 { right } else { Rights::NONE };
        let rights =
            pick(OP_ALLOW_READ, Rights::REMOTE_READ) | pick(OP_ALLOW_WRITE, Rights::REMOTE_WRITE);
        let registered = lock(&region.registered);
        let (address, length) = (buffer.address() as u64, length as u64);
        if length == 0 {
            return Err(ND_INVALID_BUFFER_SIZE); // 5.3
        }
        window.bind(ND_INVALID_DEVICE_STATE, || {
            // ND2 C8: an unregistered region is answered as a range outside of it.
            let region = registered.ok_or(ND_ACCESS_VIOLATION)?;
            let window = raw::Window { region, base: address, length, rights };
            let posted = self.raw.post_bind(context as u64, flags, &window);
            posted.map_err(|error| nd2(raw::Error::from(error).status))
        })?;
        Ok(ND_SUCCESS)
    }

    fn invalidate(self: &Arc<Self>, context: usize, window: AnyPtr, given: u32) -> Outcome {
        let window = window.of::<Window>(&self.adapter, ND_INVALID_PARAMETER_2)?;
        let flags = flags(given, INVALIDATE, ND_INVALID_PARAMETER_3)?;
        window.invalidate(|window| {
            self.post(context, Operation::Invalidate { window }, flags, Data::Sges(&[]))
        })?;
        Ok(ND_SUCCESS)
    }

    fn read(
        self: &Arc<Self>,
        context: usize,
        list: InPtr<Nd2Sge>,
        count: u32,
        address: u64,
        token: u32,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, READ, ND_INVALID_PARAMETER_6)?;
        let operation = Operation::Read { token: token_of(token), address };
        self.post_list(context, operation, flags, list.many(count as usize), false)
    }

    fn write(
        self: &Arc<Self>,
        context: usize,
        list: InPtr<Nd2Sge>,
        count: u32,
        address: u64,
        token: u32,
        given: u32,
    ) -> Outcome {
        let flags = flags(given, WRITE, ND_INVALID_PARAMETER_6)?;
        let operation = Operation::Write { token: token_of(token), address };
        let list = list.many(count as usize);
        self.post_list(context, operation, flags, list, given & OP_INLINE != 0)
    }
}
