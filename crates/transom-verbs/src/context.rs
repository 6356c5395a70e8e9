//! An opened device: the engine's adapter, and what objects share.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use transom_engine::{QueuePairEvent, dialect, raw};
use transom_memory::QueuePairId;

use crate::abi::{event, qps};

use crate::channel::{Acknowledged, Channel};
use crate::cm::Id;
use crate::errno::{Errno, Result};
use crate::exit;
use crate::gid::Table;
use crate::limits;
use crate::memory::{Domain, Region};
use crate::port::{self, Port};
use crate::queue_pair::QueuePair;
use crate::rendezvous::Ports;
use crate::xrc::XrcDomains;

/// How many objects of a kind there are.
#[derive(Debug)]
pub(crate) struct Counter {
    used: AtomicU32,
    most: u32,
}

impl Counter {
    const fn new(most: u32) -> Counter {
        Counter { used: AtomicU32::new(0), most }
    }

    /// Counts an object more: `ENOMEM` beyond what is advertised.
    pub(crate) fn take(&self) -> Result {
        let more = |used| (used < self.most).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| Errno::ENOMEM)
    }

    pub(crate) fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many objects of each kind.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) domains: Counter,
    pub(crate) regions: Counter,
    pub(crate) windows: Counter,
    pub(crate) queues: Counter,
    pub(crate) shared_queues: Counter,
    pub(crate) queue_pairs: Counter,
    pub(crate) address_handles: Counter,
    /// Queue pairs attached to multicast groups.
    pub(crate) attachments: Counter,
}

/// An asynchronous event, before the program has fetched it.
#[derive(Debug)]
pub(crate) enum AsyncEvent {
    QueuePair(Arc<QueuePair>, u32),
    Completions(Arc<crate::completion::Queue>, u32),
    SharedReceives(Arc<crate::receive::SharedQueue>, u32),
}

impl AsyncEvent {
    fn object(&self) -> *const () {
        match self {
            AsyncEvent::QueuePair(object, _) => Arc::as_ptr(object).cast(),
            AsyncEvent::Completions(object, _) => Arc::as_ptr(object).cast(),
            AsyncEvent::SharedReceives(object, _) => Arc::as_ptr(object).cast(),
        }
    }

    /// The count that the end of its object waits for.
    pub(crate) fn acknowledged(&self) -> &Acknowledged {
        match self {
            AsyncEvent::QueuePair(object, _) => &object.async_events,
            AsyncEvent::Completions(object, _) => &object.async_events,
            AsyncEvent::SharedReceives(object, _) => &object.async_events,
        }
    }
}

/// Objects of a kind by number. The list keeps none of them alive.
#[derive(Debug)]
pub(crate) struct Known<T>(Mutex<HashMap<u32, Weak<T>>>);

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known(Mutex::default())
    }
}

impl<T> Known<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, number: u32, object: &Arc<T>) {
        self.lock().insert(number, Arc::downgrade(object));
    }

    fn remove(&self, number: u32) {
        self.lock().remove(&number);
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<T>> {
        self.lock().get(&number)?.upgrade()
    }

    fn all(&self) -> Vec<Arc<T>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }
}

/// An opened device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) adapter: raw::Adapter,
    /// The number of the device in the list.
    pub(crate) device: usize,
    /// As of the device list.
    pub(crate) gids: Table,
    pub(crate) counters: Counters,
    pub(crate) events: Channel<AsyncEvent>,
    /// Counters of its port.
    pub(crate) port: Port,
    pub(crate) ports: Ports,
    /// Requests that no queue pair takes yet.
    pub(crate) early: raw::DescriptorShare,
    /// A file that nothing is read from. Programs duplicate the descriptor; the file's number names
    /// this context, whatever the descriptor's (Verbs V154).
    cmd: OwnedFd,
    /// How many structures of the program's stand for it: more than one if it was imported.
    shells: AtomicU32,
    handles: AtomicU32,
    queue_pairs: Known<QueuePair>,
    pub(crate) domains: Known<Domain>,
    pub(crate) regions: Known<Region>,
    pub(crate) xrc_domains: XrcDomains,
    /// Ids that have accepted, and whose peers may have completed the connection.
    pub(crate) accepting: Mutex<Vec<Weak<Id>>>,
}

impl Context {
    /// Open the device: one adapter for every address of the host.
    pub(crate) fn open(device: usize, gids: Table) -> Result<Arc<Context>> {
        // The sink is made before the context that it reports to.
        let reported: Arc<OnceLock<Weak<Context>>> = Arc::default();
        let reports = reported.clone();
        let sink = move |number: QueuePairId, event, resets| {
            if let Some(context) = reports.get().and_then(Weak::upgrade) {
                context.report(number, event, resets);
            }
        };
        let options = raw::Options {
            dialect: &dialect::VERBS,
            asks_front_word: true,
            events: Some(raw::EventSink(Arc::new(sink))),
            largest_region: limits::REGION,
            largest_transfer: u64::from(limits::MESSAGE),
            ..raw::Options::from_env()
        };
        let adapter = raw::Adapter::open(IpAddr::V4(Ipv4Addr::UNSPECIFIED), options)?;
        let context = Arc::new(Context {
            adapter,
            device,
            gids,
            counters: Counters {
                domains: Counter::new(limits::DOMAINS),
                regions: Counter::new(limits::REGIONS),
                windows: Counter::new(limits::WINDOWS),
                queues: Counter::new(limits::QUEUES),
                shared_queues: Counter::new(limits::SHARED_QUEUES),
                queue_pairs: Counter::new(limits::QUEUE_PAIRS),
                address_handles: Counter::new(limits::ADDRESS_HANDLES),
                attachments: Counter::new(limits::ATTACHMENTS),
            },
            events: Channel::new()?,
            port: Port::new(),
            ports: Ports::default(),
            early: raw::DescriptorShare::default(),
            cmd: memfd_create(c"transom", MemfdFlags::CLOEXEC)?,
            shells: AtomicU32::new(1),
            handles: AtomicU32::new(0),
            queue_pairs: Known::default(),
            domains: Known::default(),
            regions: Known::default(),
            xrc_domains: XrcDomains::default(),
            accepting: Mutex::default(),
        });
        let _ = reported.set(Arc::downgrade(&context));
        exit::remember(&context);
        Ok(context)
    }

    /// Something has happened to a queue pair.
    fn report(&self, number: QueuePairId, event: QueuePairEvent, resets: raw::Resets) {
        let Some(queue_pair) = self.queue_pair(number.0) else { return };
        let kind = match event {
            QueuePairEvent::FirstMessage => {
                // A message from before a reset says nothing about the peer that is awaited now.
                let raise = || self.raise(&queue_pair, event::COMM_EST);
                if queue_pair.state() == qps::RTR {
                    let _ = queue_pair.engine.unless_reset(resets, raise);
                }
                return;
            }
            QueuePairEvent::AccessError => event::QP_ACCESS_ERR,
            QueuePairEvent::RequestError => event::QP_REQ_ERR,
            QueuePairEvent::LastReceive => event::QP_LAST_WQE_REACHED,
            _ => event::QP_FATAL,
        };
        self.raise(&queue_pair, kind);
    }

    /// Raise an event of a queue pair, unless its program is destroying it: what was raised before the
    /// queue pair has left the list is taken back, and nothing is raised afterwards.
    pub(crate) fn raise(&self, queue_pair: &Arc<QueuePair>, kind: u32) {
        let all = self.queue_pairs.lock();
        if all
            .get(&queue_pair.number)
            .is_some_and(|known| known.as_ptr() == Arc::as_ptr(queue_pair))
        {
            self.events.push(AsyncEvent::QueuePair(queue_pair.clone(), kind));
        }
    }

    pub(crate) fn cmd_fd(&self) -> i32 {
        self.cmd.as_raw_fd()
    }

    /// A handle for a new object.
    pub(crate) fn handle(&self) -> u32 {
        self.handles.fetch_add(1, Ordering::Relaxed) + 1
    }

    // ---- asynchronous events --------------------------------------------------------------------

    /// Take back the events of an object that is being destroyed.
    pub(crate) fn take_back_events(&self, object: *const ()) {
        self.events.take_back(|event| std::ptr::eq(event.object(), object));
    }

    // ---- what closing must end ------------------------------------------------------------------

    pub(crate) fn add_queue_pair(self: &Arc<Context>, queue_pair: &Arc<QueuePair>) {
        self.queue_pairs.add(queue_pair.number, queue_pair);
        port::watch(self);
    }

    pub(crate) fn has_queue_pairs(&self) -> bool {
        !self.queue_pairs.lock().is_empty()
    }

    pub(crate) fn remove_queue_pair(&self, number: u32) {
        self.forget(&self.queue_pairs, number);
    }

    /// Bytes that the requests of its queue pairs have named.
    pub(crate) fn bytes(&self) -> u64 {
        self.queue_pairs.all().iter().map(|queue_pair| queue_pair.bytes()).sum()
    }

    /// The queue pair of a number.
    pub(crate) fn queue_pair(&self, number: u32) -> Option<Arc<QueuePair>> {
        self.queue_pairs.get(number)
    }

    /// The program closes a structure of the device. With the last one ends what the program has left
    /// open (Verbs V38). Nothing of the parent's ends in a forked child (Verbs V146).
    pub(crate) fn close(&self) {
        if self.shells.fetch_sub(1, Ordering::AcqRel) > 1 || self.adapter.is_forked() {
            return;
        }
        for queue_pair in self.queue_pairs.all() {
            queue_pair.end();
        }
        for region in self.regions.all() {
            region.close();
        }
        self.ports.close();
        let _ = self.adapter.finish(exit::PATIENCE);
        let _ = self.adapter.stop();
        port::finish(self);
    }

    /// A number of `known` stands for nothing any more. A forked child leaves the list alone: its lock may
    /// be another thread's, which the child does not have.
    pub(crate) fn forget<T>(&self, known: &Known<T>, number: u32) {
        if !self.adapter.is_forked() {
            known.remove(number);
        }
    }

    /// The context whose [`Context::cmd_fd`] a descriptor is a copy of; another structure of the
    /// program's stands for it from now on. `EINVAL` for any other descriptor, and for a context that
    /// is closed.
    pub(crate) fn import(descriptor: BorrowedFd<'_>) -> Result<Arc<Context>> {
        let file = |descriptor: BorrowedFd<'_>| {
            fstat(descriptor).map(|about| (about.st_dev, about.st_ino)).map_err(|_| Errno::EINVAL)
        };
        let asked = file(descriptor)?;
        let found =
            exit::contexts().into_iter().find(|context| file(context.cmd.as_fd()) == Ok(asked));
        let found = found.ok_or(Errno::EINVAL)?;
        let more = |shells: u32| (shells > 0).then_some(shells + 1);
        let open = found.shells.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        open.map(|_| found).map_err(|_| Errno::EINVAL)
    }

    // ---- addresses ------------------------------------------------------------------------------

    /// The address of a GID index, if there is one.
    pub(crate) fn address(&self, index: usize) -> Option<IpAddr> {
        self.gids.get(index).map(|gid| gid.address)
    }

    /// The GID index of an address of this host.
    pub(crate) fn index_of(&self, address: IpAddr) -> Option<usize> {
        self.gids.index_of(address)
    }
}

#[cfg(test)]
mod tests {
    use transom_engine::QueuePairKind;

    use super::*;
    use crate::abi::{ibv_qp_attr, ibv_qp_cap, mask};
    use crate::completion::Queue;
    use crate::gid;
    use crate::queue_pair::Parts;

    /// COMM_EST says that the peer of now is there. What the one before a reset has sent does not say so,
    /// also if that is reported when the queue pair is in RTR again.
    #[test]
    fn v104_a_message_from_before_a_reset_establishes_nothing() {
        let context = Context::open(0, gid::tables().remove(0)).unwrap();
        let domain = Domain::new(&context).unwrap();
        let queue = Arc::new(Queue::new(&context, 4, None, None).unwrap().0);
        let (send, receive, kind) = (queue.clone(), queue, QueuePairKind::Rc);
        let parts =
            Parts { domain, send, receive, shared: None, xrc: None, signal_all: false, kind };
        let queue_pair = QueuePair::new(parts, ibv_qp_cap::default()).unwrap();
        let to_rtr = || {
            let dgid = u128::from_be_bytes(gid::bytes_of(context.address(0).unwrap()));
            let mut attr = ibv_qp_attr { port_num: 1, path_mtu: 3, ..ibv_qp_attr::default() };
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            attr.ah_attr.grh.dgid = [(dgid >> 64) as u64, dgid as u64].map(u64::to_be);
            attr.dest_qp_num = queue_pair.number + 1;
            let init = mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
            let rtr = mask::AV
                | mask::PATH_MTU
                | mask::DEST_QPN
                | mask::RQ_PSN
                | mask::MAX_DEST_RD_ATOMIC
                | mask::MIN_RNR_TIMER;
            for (state, mask) in [(qps::RESET, 0), (qps::INIT, init), (qps::RTR, rtr)] {
                attr.qp_state = state;
                queue_pair.modify(&attr, mask | mask::STATE).unwrap();
            }
            queue_pair.engine.resets()
        };
        let (before, now) = (to_rtr(), to_rtr());
        let report = |resets| {
            context.report(QueuePairId(queue_pair.number), QueuePairEvent::FirstMessage, resets);
            context.events.try_fetch().is_some()
        };
        assert_eq!((report(before), report(now)), (false, true));
    }
}
