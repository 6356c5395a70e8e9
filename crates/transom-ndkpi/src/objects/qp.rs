//! Queue pairs and what is posted to them (NDK 7).

use std::sync::Arc;

use transom_engine::{Data, Flags, Operation, Request, Sge, raw};
use transom_memory::paged;

use super::{Cq, Mr, Mw, Pd, Srq};
use crate::Status;
use crate::deliver::Call;
use crate::flags::{fast_rights, op, window_rights};
use crate::life::Life;
use crate::table::bind_error;

/// Depths and sizes of a queue pair, each at most the adapter's limit.
#[derive(Clone, Copy, Debug)]
pub struct QpLimits {
    /// Receives outstanding.
    pub receive_depth: u32,
    /// Other requests outstanding.
    pub initiator_depth: u32,
    /// Entries of a receive's list.
    pub receive_sge: u32,
    /// Entries of a request's list.
    pub initiator_sge: u32,
    /// Bytes of an inline request.
    pub inline: u32,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    pub(crate) life: Arc<Life>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) raw: raw::QueuePair,
    inline: u32,
}

const REMOTE: u32 = op::ALLOW_REMOTE_READ | 0x20;
const FAST_REGISTER: u32 = op::ALLOW_REMOTE_READ | op::ALLOW_REMOTE_WRITE | op::RDMA_READ_SINK;
const ANY_REQUEST: u32 = op::SILENT_SUCCESS | op::READ_FENCE | op::DEFER;

/// The flags that the engine knows; any bit outside `allowed` is the caller's mistake (NDK 6.5).
/// `DEFER` is a hint that nothing is lost by not following (NDK DF-1): what is posted is processed.
fn flags(given: u32, allowed: u32) -> Result<Flags, Status> {
    if given & !(ANY_REQUEST | allowed) != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    let mut flags = Flags::NONE;
    for (bit, flag) in [
        (op::SILENT_SUCCESS, Flags::SILENT_SUCCESS),
        (op::READ_FENCE, Flags::READ_FENCE),
        (op::SEND_AND_SOLICIT_EVENT, Flags::SOLICIT),
    ] {
        if given & bit != 0 {
            flags = flags | flag;
        }
    }
    Ok(flags)
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(Status::SUCCESS)
}

impl Qp {
    pub(crate) fn new(
        pd: &Arc<Pd>,
        (receive_cq, initiator_cq): (&Arc<Cq>, &Arc<Cq>),
        srq: Option<&Arc<Srq>>,
        context: u64,
        limits: QpLimits,
    ) -> Result<Arc<Qp>, Status> {
        let info = pd.adapter.info();
        let fits = limits.receive_depth <= info.max_receive_queue_depth
            && limits.initiator_depth <= info.max_initiator_queue_depth
            && limits.receive_sge <= info.max_receive_request_sge
            && limits.initiator_sge <= info.max_initiator_request_sge
            && limits.inline <= info.max_inline_data_size;
        if !fits {
            return Err(Status::INVALID_PARAMETER);
        }
        let (receive, initiator) = (&receive_cq.raw, &initiator_cq.raw);
        let options = raw::QueuePairOptions {
            context,
            initiator_depth: limits.initiator_depth,
            receive_depth: limits.receive_depth,
            initiator_sge: limits.initiator_sge,
            receive_sge: limits.receive_sge,
            inline_size: limits.inline,
            ..raw::QueuePairOptions::default()
        };
        let shared = srq.map(|srq| &srq.raw);
        let raw = pd.adapter.raw.queue_pair(pd.raw, initiator, receive, shared, &options)?;
        let mut antecedents = vec![&pd.life, &receive_cq.life, &initiator_cq.life];
        antecedents.extend(srq.map(|srq| &srq.life));
        let life = Life::new(&pd.adapter.deliverer, &antecedents);
        Ok(Arc::new(Qp { life, pd: Arc::clone(pd), raw, inline: limits.inline }))
    }

    /// Bytes that an inline request may have.
    pub(crate) fn inline_limit(&self) -> u32 {
        self.inline
    }

    /// Post a request whose data are `data`.
    fn post(
        &self,
        context: u64,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
    ) -> Result<(), Status> {
        let _call = Call::enter();
        let request = Request { context, operation, flags };
        let resolved = match data {
            Data::Sges(list) => self.pd.resolved(list),
            _ => None,
        };
        let data = resolved.as_deref().map_or(data, Data::Sges);
        Ok(self.raw.post(&request, data)?)
    }

    /// Post a request without data.
    fn post_empty(&self, context: u64, operation: Operation, flags: Flags) -> Result<(), Status> {
        Ok(self.raw.post(&Request { context, operation, flags }, Data::Sges(&[]))?)
    }

    /// `NdkSend` and, with a token, `NdkSendAndInvalidate`.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for flags, `CONNECTION_INVALID` without a connection, `NO_MORE_ENTRIES`
    /// for a full queue, `DATA_OVERRUN` for a list that is too long, `BUFFER_OVERFLOW` for too many
    /// bytes, `DEVICE_REMOVED`. Nothing is posted then, and nothing completes.
    pub fn send(
        &self,
        context: u64,
        data: &Data<'_>,
        given: u32,
        invalidate: Option<u32>,
    ) -> Status {
        let operation = match invalidate {
            None => Operation::Send,
            Some(token) => Operation::SendWithInvalidate { token },
        };
        let flags = flags(given, op::SEND_AND_SOLICIT_EVENT | op::INLINE);
        status(flags.and_then(|flags| self.post(context, operation, flags, *data)))
    }

    /// `NdkReceive`: at any time, connected or not (NDK WR-7).
    ///
    /// # Errors
    /// `NO_MORE_ENTRIES` for a full queue, `DATA_OVERRUN` for a list that is too long,
    /// `BUFFER_OVERFLOW` for too many bytes, `DEVICE_REMOVED`.
    pub fn receive(&self, context: u64, sges: &[Sge]) -> Status {
        let _call = Call::enter();
        let resolved = self.pd.resolved(sges);
        let posted = self.raw.post_receive(context, resolved.as_deref().unwrap_or(sges));
        status(posted.map_err(Status::from))
    }

    /// `NdkRead`. `RDMA_READ_LOCAL_INVALIDATE` is ignored, as the adapter does not set its flag
    /// (NDK INV-10).
    ///
    /// # Errors
    /// As [`send`](Qp::send).
    pub fn read(&self, context: u64, sges: &[Sge], address: u64, token: u32, given: u32) -> Status {
        let operation = Operation::Read { token, address };
        let flags = flags(given, op::RDMA_READ_LOCAL_INVALIDATE);
        let data = Data::Sges(sges);
        status(flags.and_then(|flags| self.post(context, operation, flags, data)))
    }

    /// `NdkWrite`.
    ///
    /// # Errors
    /// As [`send`](Qp::send).
    pub fn write(
        &self,
        context: u64,
        data: &Data<'_>,
        address: u64,
        token: u32,
        given: u32,
    ) -> Status {
        let operation = Operation::Write { token, address };
        let flags = flags(given, op::INLINE);
        status(flags.and_then(|flags| self.post(context, operation, flags, *data)))
    }

    /// `NdkBind`. The token can be read as soon as it returns (NDK MW-6).
    ///
    /// # Errors
    /// As [`send`](Qp::send); and `INVALID_PARAMETER` for no right, objects of another domain, or a
    /// range outside the region, `INVALID_DEVICE_STATE` for a region that is not registered,
    /// `ACCESS_VIOLATION` for remote write without local write, `INSUFFICIENT_RESOURCES`.
    pub fn bind(
        &self,
        context: u64,
        mr: &Arc<Mr>,
        mw: &Arc<Mw>,
        address: u64,
        length: u64,
        given: u32,
    ) -> Status {
        let _call = Call::enter();
        status(self.try_bind(context, mr, mw, address, length, given))
    }

    fn try_bind(
        &self,
        context: u64,
        mr: &Arc<Mr>,
        mw: &Arc<Mw>,
        address: u64,
        length: u64,
        given: u32,
    ) -> Result<(), Status> {
        let flags = flags(given, op::ALLOW_REMOTE_READ | op::ALLOW_REMOTE_WRITE)?;
        let asked = given & (op::ALLOW_REMOTE_READ | op::ALLOW_REMOTE_WRITE);
        // NDK MW-4: at least one; 0x20 only together with the 0x10 built into it.
        if !matches!(asked, op::ALLOW_REMOTE_READ | op::ALLOW_REMOTE_WRITE | 0x38) {
            return Err(Status::INVALID_PARAMETER);
        }
        let together = Arc::ptr_eq(&mr.pd, &self.pd) && Arc::ptr_eq(&mw.pd, &self.pd);
        if !together {
            return Err(Status::INVALID_PARAMETER); // NDK MW-8
        }
        let region = mr.region()?;
        if let Some(window) = mw.still_bound() {
            // NDK MW-9: it is the request that fails, when its turn comes.
            return self.post_empty(context, Operation::Bind { window }, flags);
        }
        let window = raw::Window { region, base: address, length, rights: window_rights(given) };
        // Both halves: the token, and the request that lets it live (NDK MW-2, MW-5, MW-6).
        let window = self.raw.post_bind(context, flags, &window).map_err(bind_error)?;
        mw.set_bound(window, mr);
        Ok(())
    }

    /// `NdkInvalidate` of a window.
    ///
    /// # Errors
    /// As [`send`](Qp::send); and `INVALID_PARAMETER` for a window of another domain.
    pub fn invalidate(&self, context: u64, mw: &Arc<Mw>, given: u32) -> Status {
        let _call = Call::enter();
        if !Arc::ptr_eq(&mw.pd, &self.pd) {
            return Status::INVALID_PARAMETER;
        }
        status(flags(given, 0).and_then(|flags| {
            mw.take_invalidated(|window| {
                self.post_empty(context, Operation::Invalidate { window }, flags)
            })
        }))
    }

    /// `NdkInvalidate` of a fast registration. A normal region is never invalidated (NDK INV-1).
    ///
    /// # Errors
    /// As [`send`](Qp::send); and `INVALID_PARAMETER` for a region of another domain,
    /// `INVALID_DEVICE_REQUEST` for one that is not for fast registration, `INVALID_DEVICE_STATE`
    /// for one that was not initialised.
    pub fn invalidate_fast(&self, context: u64, mr: &Arc<Mr>, given: u32) -> Status {
        let _call = Call::enter();
        if !Arc::ptr_eq(&mr.pd, &self.pd) {
            return Status::INVALID_PARAMETER;
        }
        status(mr.fast().and_then(|fast| {
            let operation = Operation::Invalidate { window: fast.region };
            self.post_empty(context, operation, flags(given, 0)?)
        }))
    }

    /// `NdkFastRegister`: `pages` are logical addresses (NDK FR-7). Registering what is still
    /// registered fails as a request (NDK FR-14).
    ///
    /// # Safety
    /// Until the registration ends: as [`Mr::register`].
    ///
    /// # Errors
    /// As [`send`](Qp::send); and `INVALID_PARAMETER` for pages, offset, length or base that cannot
    /// be, or a region of another domain, `ACCESS_VIOLATION` for remote rights of a region that was
    /// initialised without, `INVALID_DEVICE_REQUEST` and `INVALID_DEVICE_STATE` as
    /// [`invalidate_fast`](Qp::invalidate_fast).
    #[allow(unsafe_code, reason = "hands the caller's promise on")]
    pub unsafe fn fast_register(
        &self,
        context: u64,
        mr: &Arc<Mr>,
        pages: &[u64],
        (offset, length, base): (u64, u64, u64),
        given: u32,
    ) -> Status {
        let _call = Call::enter();
        let post = || {
            let flags = flags(given, FAST_REGISTER)?;
            let adapter = &self.pd.adapter;
            let rights = fast_rights(given, adapter.options.read_sink_needed)?;
            if !Arc::ptr_eq(&mr.pd, &self.pd) {
                return Err(Status::INVALID_PARAMETER);
            }
            let fast = mr.fast()?;
            if pages.len() > fast.pages as usize {
                return Err(Status::INVALID_PARAMETER); // NDK FR-7
            }
            if given & REMOTE != 0 && !fast.remote {
                return Err(Status::ACCESS_VIOLATION); // NDK FR-3
            }
            let hosts: Option<Vec<u64>> =
                pages.iter().map(|page| adapter.lams.page(*page)).collect();
            let found = hosts.and_then(|hosts| paged(base, offset, length, &hosts).ok());
            let found = found.ok_or(Status::INVALID_PARAMETER)?; // NDK FR-7 to FR-9
            let (base, segments) = (found.base, &found.segments[..]);
            let registration = raw::FastRegistration { base, rights, segments };
            // SAFETY: this function's contract.
            Ok(unsafe { self.raw.fast_register(context, flags, fast.region, &registration) }?)
        };
        status(post())
    }

    /// `NdkFlush`.
    pub fn flush(&self) {
        let _call = Call::enter();
        // A forked child has nothing to flush.
        let _ = self.raw.flush();
    }

    /// `NdkCloseQp`: flushes; the completions stay in their queues (NDK LT-14).
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        self.flush();
        self.life.close(Box::new(|| ()), Box::new(done))
    }
}
