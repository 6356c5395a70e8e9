//! Queue pairs.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use transom_memory::{
    Access, Actor, ConnectionId, Lane, Purpose, QueuePairId, Rights, Segment, Token,
};

use super::adapter::Owner;
use super::chain::{Chain, ReceiveChain, no_memory};
use super::memory::refused;
use super::{
    Adapter, CompletionQueue, Domain, Error, Resets, Result, SharedReceiveQueue, XrcDomain,
};
#[cfg(doc)]
use crate::dialect::PeerGone;
use crate::driver::{Notifications, Qp, Targets};
use crate::{
    Data, Datagram, DenialCause, Departure, Destination, Flags, Limits, Operation, QueuePairConfig,
    QueuePairKind, QueuePairState, Request, Settle, Sge, Status,
};

/// The parameters of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairOptions {
    /// Comes back in every completion.
    pub context: u64,
    /// Requests outstanding at a time.
    pub initiator_depth: u32,
    /// Receives outstanding at a time; ignored with a shared queue.
    pub receive_depth: u32,
    /// Entries of a request's list.
    pub initiator_sge: u32,
    /// Entries of a receive's list.
    pub receive_sge: u32,
    /// Bytes of an inline request.
    pub inline_size: u32,
    /// The queue pair's number; `None`: any. Peers learn it only from the program.
    pub number: Option<QueuePairId>,
    /// The kind. A queue pair of datagrams takes part in no connection: see [`QueuePair::post_datagrams`].
    pub kind: QueuePairKind,
}

/// The memory of a fast registration.
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration<'a> {
    /// The address of its first byte, as programs and peers name it.
    pub base: u64,
    /// The rights that the window grants.
    pub rights: Rights,
    /// Where the bytes lie, in order.
    pub segments: &'a [Segment],
}

impl Default for QueuePairOptions {
    fn default() -> QueuePairOptions {
        QueuePairOptions {
            context: 0,
            initiator_depth: 128,
            receive_depth: 128,
            initiator_sge: 16,
            receive_sge: 16,
            inline_size: 4096,
            number: None,
            kind: QueuePairKind::Rc,
        }
    }
}

/// A queue pair. Dropping the last clone disconnects it (ND2 4.9).
#[derive(Clone, Debug)]
pub struct QueuePair(pub(super) Arc<Handle>);

#[derive(Debug)]
pub(super) struct Handle {
    pub(super) owner: Arc<Owner>,
    pub(super) qp: Arc<Qp>,
    /// For [`QueuePair::probe`].
    lane: OnceLock<Mutex<Lane>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.owner.shared.is_foreign() {
            return;
        }
        if let Some(link) = self.qp.link() {
            link.release();
        }
        // Requests that the dialect has kept beyond the link (ND2 1.3 rule 5).
        let mut notifications = Notifications::default();
        self.qp.disconnected(&mut notifications);
        notifications.fire();
        // Windows that were bound without a connection; before another one may have the number.
        self.owner.shared.memory.close_queue_pair(self.qp.number, crate::sys::now().0);
        self.owner.shared.remove_queue_pair(self.qp.number);
    }
}

impl Adapter {
    /// A queue pair in `domain`, whose requests complete at `initiator` and whose receives at
    /// `receive`.
    ///
    /// # Errors
    /// `InvalidParameter` for a queue of another adapter, or a number that is reserved; `SharingViolation`
    /// for a number in use; `InsufficientResources`; `DeviceRemoved` once the address has gone,
    /// `Forked` in a forked child.
    pub fn queue_pair(
        &self,
        domain: Domain,
        initiator: &CompletionQueue,
        receive: &CompletionQueue,
        shared_receives: Option<&SharedReceiveQueue>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair> {
        self.make_queue_pair(domain, (initiator, receive), shared_receives, None, None, options)
    }

    /// A queue pair with one completion queue, which requests that succeed do not enter.
    ///
    /// # Errors
    /// As [`Adapter::queue_pair`].
    pub fn settling_queue_pair(
        &self,
        domain: Domain,
        queue: &CompletionQueue,
        settle: Arc<dyn Settle>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair> {
        self.make_queue_pair(domain, (queue, queue), None, None, Some(settle), options)
    }

    pub(super) fn make_queue_pair(
        &self,
        domain: Domain,
        (initiator, receive): (&CompletionQueue, &CompletionQueue),
        shared_receives: Option<&SharedReceiveQueue>,
        targets: Option<&XrcDomain>,
        settle: Option<Arc<dyn Settle>>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair> {
        let shared = self.0.present()?;
        let strangers = !Arc::ptr_eq(&initiator.owner, &self.0)
            || !Arc::ptr_eq(&receive.owner, &self.0)
            || shared_receives.is_some_and(|srq| !Arc::ptr_eq(&srq.owner, &self.0));
        let shares = shared_receives.is_some() || targets.is_some();
        if strangers {
            return Err(Error::caller(
                Status::InvalidParameter(2),
                "create a queue pair: its queues belong to another adapter; make them with this one",
            ));
        }
        let make = |number| {
            let config = QueuePairConfig {
                number,
                domain: domain.0,
                context: options.context,
                kind: options.kind,
                dialect: shared.options.dialect,
                initiator_depth: options.initiator_depth,
                receive_depth: if shares { 0 } else { options.receive_depth },
                initiator_sge: options.initiator_sge,
                receive_sge: options.receive_sge,
                inline_size: options.inline_size,
                largest_transfer: shared.options.largest_transfer,
                shared: shares,
                receive_domain: shared_receives
                    .and_then(|srq| srq.domain)
                    .map_or(domain.0, |domain| domain.0),
            };
            let pair = crate::QueuePair::settling(config, settle.clone());
            let srq = shared_receives.map(|srq| srq.srq.clone());
            let targets = targets.map(|domain| Targets::new(&domain.members));
            let adapter = shared.clone();
            let queues = (initiator.cq.clone(), receive.cq.clone());
            Arc::new(Qp::new(pair, queues, (srq, targets), adapter))
        };
        let qp = shared.add_queue_pair(options.number, make).map_err(|status| match status {
            Status::SharingViolation => Error::caller(
                status,
                "create a queue pair: another one has this number; choose one that is free",
            ),
            Status::InvalidParameter(_) => Error::caller(
                status,
                "create a queue pair: its number must be from 2 to 16,777,215",
            ),
            status => Error::system(
                status,
                "create a queue pair: the system is out of numbers or of randomness",
            ),
        })?;
        qp.register();
        let lane = OnceLock::new();
        Ok(QueuePair(Arc::new(Handle { owner: self.0.clone(), qp, lane })))
    }
}

impl QueuePair {
    /// Post a request. Arguments are judged now, memory when the request executes; either way the
    /// outcome is a completion (ND2 4.5: never inline).
    ///
    /// # Errors
    /// `ConnectionInvalid` in a state without posts; `NoMoreEntries`; `DataOverrun`;
    /// `BufferOverflow`; `NotSupported`; `InvalidRequest` for `Data::Memory`; `Forked` in a
    /// forked child. Nothing is posted.
    pub fn post(&self, request: &Request, data: Data<'_>) -> Result<()> {
        self.0.owner.here()?;
        no_memory(data).map_err(|status| Error::post(status, "post a request"))?;
        self.0.qp.post(request, data).map_err(|status| Error::post(status, "post a request"))
    }

    /// Have `post` post requests, in order, of which `expected` are expected: they cost one lock and one pass,
    /// and what is small leaves in as few calls to the kernel as it fits in. Its result is returned.
    ///
    /// `post` is called once, with a lock held: it may use neither the queue pair nor its peers.
    ///
    /// # Errors
    /// `Forked` in a forked child: `post` is not called.
    pub fn post_chain<R>(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut Chain<'_, '_>) -> R,
    ) -> Result<R> {
        self.0.owner.here()?;
        Ok(self.0.qp.post_chain(expected, |chain| post(&mut Chain(chain))))
    }

    /// Post a fast registration: when it executes, in queue order, `region` (see
    /// [`Adapter::reserve_region`]) gets its memory. An Invalidate takes it away again, as often as
    /// wanted, and the token stays. Pages are not looked at: one that is missing, or read-only where
    /// it should be written, fails the request that touches it.
    ///
    /// # Safety
    /// As [`Adapter::register`], from this call until the region's Invalidate has completed, or the
    /// request has failed, or [`Adapter::deregister`] has returned.
    ///
    /// # Errors
    /// As [`QueuePair::post`]; `DeviceBusy` while windows are bound to the region.
    #[allow(unsafe_code)] // the promise is the caller's; nothing here relies on it
    pub unsafe fn fast_register(
        &self,
        context: u64,
        flags: Flags,
        region: Token,
        registration: &FastRegistration<'_>,
    ) -> Result<()> {
        self.0.owner.here()?;
        crate::sys::recheck_fault_handler();
        let FastRegistration { base, rights, segments } = *registration;
        let operation = Operation::FastRegister { region, base, rights };
        let request = Request { context, operation, flags };
        let posted = self.0.qp.post(&request, Data::Memory(segments));
        posted.map_err(|status| Error::post(status, "post a fast registration"))
    }

    /// [`Adapter::deregister`] for a region that no other queue pair's peer can reach: refused, too,
    /// while a message of the peer's that names it is being executed, a Write from its first frame to
    /// its last, a Read until its whole answer has left (WSD A-18). A message of which nothing has
    /// arrived does not count.
    ///
    /// # Errors
    /// As [`Adapter::deregister`]; `DeviceBusy` during such a message.
    pub fn deregister_unused(&self, region: Token) -> Result<()> {
        self.0.owner.here()?;
        let adapter = Adapter(self.0.owner.clone());
        let deregister = || adapter.deregister(region);
        let done = match self.0.qp.link() {
            Some(link) => link.unless_executing(region, deregister),
            None => Some(deregister()),
        };
        done.unwrap_or_else(|| {
            Err(Error::caller(
                Status::DeviceBusy,
                "deregister: a Read or Write of the peer's on this region is under way; wait for its \
                 end, or disconnect",
            ))
        })
    }

    /// Post a receive.
    ///
    /// # Errors
    /// `InvalidRequest` with a shared queue; `ConnectionInvalid`; `NoMoreEntries`; `DataOverrun`;
    /// `BufferOverflow`; `Forked` in a forked child.
    pub fn post_receive(&self, context: u64, list: &[Sge]) -> Result<()> {
        self.post_receives(1, |chain| chain.post(context, list))?
    }

    /// Have `post`, which is called once, post receives, in order, of which `expected` are expected: they cost
    /// one lock and one pass. Its result is returned.
    ///
    /// `post` is called with a lock held: it may use neither the queue pair nor its peers.
    ///
    /// # Errors
    /// `Forked` in a forked child: `post` is not called.
    pub fn post_receives<R>(
        &self,
        expected: usize,
        mut post: impl FnMut(&mut ReceiveChain<'_, '_>) -> R,
    ) -> Result<R> {
        self.0.owner.here()?;
        Ok(self.0.qp.post_receives(expected, |chain| post(&mut ReceiveChain(chain))))
    }

    /// Post Sends of a queue pair of datagrams, in order: all of them, or, after an error, none. Bytes
    /// are read now, and each request has completed when this returns. `depart` sends a datagram; it is
    /// called with the queue pair locked, so it must neither wait nor use the queue pair.
    ///
    /// A request fails by itself with `LocalAccess`, with `InvalidRequest` if its destination is of
    /// another domain, with `NotSupported` if it is no Send. Those behind it are `Canceled`, until
    /// [`QueuePair::resume_sends`] (Verbs V70).
    ///
    /// # Errors
    /// As [`QueuePair::post`]; `InvalidRequest` for a queue pair of another kind.
    pub fn post_datagrams<'a, T>(
        &self,
        list: impl Iterator<Item = (Request, Data<'a>, Destination<T>)> + Clone,
        depart: impl FnMut(Departure<'_, T>),
    ) -> Result<()> {
        self.0.owner.here()?;
        list.clone()
            .try_for_each(|(_, data, _)| no_memory(data))
            .and_then(|()| self.0.qp.post_datagrams(list, depart))
            .map_err(|status| Error::post(status, "post datagrams"))
    }

    /// Deliver a datagram that has come for it. `false`: it is dropped, because its key is another one,
    /// or there is no receive (Verbs V139).
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn deliver(&self, datagram: &Datagram<'_>) -> Result<bool> {
        self.0.owner.here()?;
        Ok(self.0.qp.deliver(datagram))
    }

    /// Set the key that datagrams to it have to carry; 0 at first, and after a reset.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn set_queue_key(&self, key: u32) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.front().pair.set_queue_key(key);
        Ok(())
    }

    /// Whether a datagram of its own has failed, so that those posted since are cancelled (Verbs V70).
    #[must_use]
    pub fn sends_failed(&self) -> bool {
        self.0.owner.here().is_ok() && self.0.qp.front().pair.sends_failed()
    }

    /// Send again what is posted from now on.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn resume_sends(&self) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.resume_sends();
        Ok(())
    }

    /// Make progress on its connection without retrieving anything: as
    /// [`CompletionQueue::progress`], for a program whose completion queue is fed by no other queue pair.
    pub fn progress(&self) {
        if self.0.owner.here().is_ok() {
            self.0.qp.progress();
        }
    }

    /// Process what has arrived on its connection before this returns: the completion of every receive
    /// whose sender has had its own completion is in the queue then. [`QueuePair::progress`] leaves the
    /// work to a thread that is at it; this waits for that thread.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn process_arrived(&self) -> Result<()> {
        self.0.owner.here()?;
        if let Some(link) = self.0.qp.link() {
            link.process_arrived();
        }
        Ok(())
    }

    /// Whether the memory table permits this use of an entry to this queue pair's own program.
    /// Nothing is held by a yes: the request itself is judged again. `connection`: the one that the
    /// entry's region belongs to, if it belongs to any.
    ///
    /// # Errors
    /// `ConnectionInvalid` if the region has ended with its connection; `LocalAccess` if the use is
    /// refused for any other reason; `Forked`.
    pub fn probe(
        &self,
        connection: Option<ConnectionId>,
        purpose: Purpose,
        entry: &Sge,
    ) -> Result<()> {
        let shared = self.0.owner.here()?;
        let memory = &shared.memory;
        let config = &self.0.qp.config;
        let actor = Actor { domain: config.domain, queue_pair: config.number, connection };
        let (token, address) = (Token(entry.token), entry.address);
        let access = Access { actor, purpose, token, address, length: u64::from(entry.length) };
        let lane = self.0.lane.get_or_init(|| Mutex::new(memory.lane()));
        let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
        let probed = memory.probe(&mut lane, &access, crate::sys::now().0);
        drop(lane);
        probed.map_err(|denial| {
            let error = refused(&denial);
            shared.refuse_call(Some(config.number), DenialCause::Own(denial));
            error
        })
    }

    /// Cancel everything that is outstanding, in one batch, before this returns (ND2 4.9). A
    /// connected queue pair cannot be used afterwards.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn flush(&self) -> Result<()> {
        self.0.owner.here()?;
        let qp = &self.0.qp;
        if let Some(link) = qp.link() {
            let mut notifications = Notifications::default();
            link.flush(&mut notifications);
            notifications.fire();
            link.catch_up();
        }
        // Without a connection, or when that has just given it back.
        let mut notifications = Notifications::default();
        qp.flush(&mut notifications);
        notifications.fire();
        Ok(())
    }

    /// Begin anew, under the same number: its connection ends in order, what is posted is dropped without
    /// completions, completions that were not retrieved leave their queues, its windows end. Finished
    /// when this returns.
    ///
    /// # Errors
    /// `ConnectionActive` if another thread is just connecting it; try again. `Forked`.
    pub fn reset(&self) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.reset().map_err(|status| Error::state(status, "reset a queue pair"))
    }

    /// How often it has begun anew.
    #[must_use]
    pub fn resets(&self) -> Resets {
        Resets(self.0.qp.resets())
    }

    /// Run `work` unless the queue pair has begun anew since `resets`: a [reset](QueuePair::reset) of another
    /// thread waits meanwhile. `work` may call nothing of the queue pair.
    pub fn unless_reset<R>(&self, resets: Resets, work: impl FnOnce() -> R) -> Option<R> {
        self.0.owner.here().ok()?;
        self.0.qp.unless_reset(resets, work)
    }

    /// Whether its queues have completions of it that were not retrieved. Looks through both queues, under
    /// their locks.
    #[must_use]
    pub fn has_unretrieved(&self) -> bool {
        self.0.owner.here().is_ok() && self.0.qp.has_unretrieved()
    }

    /// End its connection in order, as if the peer had left: requests and receives stay posted, and the
    /// next connection may take the queue pair when this returns. For dialects whose queue pairs
    /// outlive their connections ([`PeerGone::Await`]); without a connection nothing happens.
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn part(&self) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.part();
        Ok(())
    }

    /// For how long its requests may wait for a connection and for receives, from now on. Counts only
    /// in dialects whose queue pairs outlive their connections ([`PeerGone::Await`]).
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.change(|pair| pair.set_limits(limits));
        Ok(())
    }

    /// Set what the peer may do at all, from now on, whatever tokens grant: remote rights, all of
    /// them at first (Verbs V93). Judged before the token, with a record of its own
    /// ([`DenialCause::QueuePair`](crate::DenialCause)).
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub fn set_access(&self, access: Rights) -> Result<()> {
        self.0.owner.here()?;
        self.0.qp.change(|pair| pair.set_access(access));
        Ok(())
    }

    /// The queue pair's state; in a forked child, `Error`.
    #[must_use]
    pub fn state(&self) -> QueuePairState {
        match self.0.owner.here() {
            Ok(_) => self.0.qp.front().pair.state(),
            Err(_) => QueuePairState::Error,
        }
    }

    /// The parameters that the queue pair was made with.
    #[must_use]
    pub fn config(&self) -> QueuePairConfig {
        self.0.qp.config
    }

    /// Requests and receives that take up places in the queues: those that have not completed, and those
    /// whose completions were not retrieved (Verbs V82); none in a forked child.
    #[must_use]
    pub fn occupied(&self) -> (u32, u32) {
        let here = self.0.owner.here();
        here.map_or((0, 0), |_| self.0.qp.front().pair.occupied())
    }

    /// Requests and receives that have not completed; none in a forked child.
    #[must_use]
    pub fn outstanding(&self) -> (u32, u32) {
        let here = self.0.owner.here();
        here.map_or((0, 0), |_| self.0.qp.front().pair.outstanding())
    }
}
