//! XRC domains: shared receive queues that a peer's messages name by number (Verbs V155).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_memory::{DomainId, QueuePairId};

use super::cq::Cq;
use super::srq::Srq;
use crate::driver::link::Link;
use crate::driver::link::notifications::Notifications;
use crate::{Completion, RequestQueue, SharedReceives};

/// A queue of an XRC domain: its receives, where they complete, and the domain of their memory.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) domain: DomainId,
    pub(crate) srq: Arc<Srq>,
    pub(crate) cq: Arc<Cq>,
    /// The number of its receives there.
    member: u32,
}

impl Target {
    pub(crate) fn new(domain: DomainId, srq: Arc<Srq>, cq: Arc<Cq>) -> Target {
        let member = cq.queue().bind(srq.places(), 0);
        Target { domain, srq, cq, member }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.cq.queue().unbind(self.member);
    }
}

/// The queues of a domain, and the links of its queue pairs, which feed all of them.
#[derive(Debug, Default)]
pub(crate) struct XrcDomain(Mutex<Members>);

#[derive(Debug, Default)]
struct Members {
    queues: HashMap<u32, Arc<Target>>,
    links: Vec<Weak<Link>>,
}

impl XrcDomain {
    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a queue; its number, which is the first that `draw` draws and that is neither 0 nor taken.
    pub(crate) fn add(&self, target: Target, mut draw: impl FnMut() -> u32) -> u32 {
        let mut members = self.lock();
        let number = loop {
            let number = draw();
            if number != 0 && !members.queues.contains_key(&number) {
                break number;
            }
        };
        let links: Vec<_> = members.links.iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| target.cq.attach(link));
        members.queues.insert(number, Arc::new(target));
        drop(members); // before the links, of which these may be the last references
        number
    }

    /// No message finds the queue of this number any more.
    pub(crate) fn remove(&self, number: u32) {
        let mut members = self.lock();
        let Some(gone) = members.queues.remove(&number) else { return };
        let others = members.queues.values().any(|queue| Arc::ptr_eq(&queue.cq, &gone.cq));
        let links: Vec<_> = members.links.iter().filter_map(Weak::upgrade).collect();
        if !others {
            // Under the lock: a queue that is added now, and completes there, keeps its links.
            links.iter().for_each(|link| gone.cq.detach(link));
        }
        drop(members);
    }

    fn find(&self, number: u32) -> Option<Arc<Target>> {
        self.lock().queues.get(&number).cloned()
    }

    fn all(&self) -> Vec<Arc<Target>> {
        self.lock().queues.values().cloned().collect()
    }
}

/// The queues of a domain as the connection of one of its queue pairs sees them: one at a time.
#[derive(Debug)]
pub(crate) struct Targets {
    domain: Arc<XrcDomain>,
    aimed: Mutex<Option<Arc<Target>>>,
    /// Queues with completions that were added since the last batch ended.
    touched: Mutex<Vec<Arc<Target>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedReceives for Targets {
    fn aim(&self, number: u32) -> Option<DomainId> {
        let found = self.domain.find(number)?;
        let domain = found.domain;
        *locked(&self.aimed) = Some(found);
        Some(domain)
    }

    fn take(&self, queue_pair: QueuePairId, into: &mut RequestQueue) -> bool {
        locked(&self.aimed).as_ref().is_some_and(|queue| queue.srq.take(queue_pair, into))
    }

    fn give_back(&self, unused: &mut RequestQueue) {
        if let Some(queue) = &*locked(&self.aimed) {
            queue.srq.give_back(unused);
        }
    }
}

impl Targets {
    pub(crate) fn new(domain: &Arc<XrcDomain>) -> Targets {
        let domain = domain.clone();
        Targets { domain, aimed: Mutex::default(), touched: Mutex::default() }
    }

    pub(crate) fn attach(&self, link: &Arc<Link>) {
        let mut members = self.domain.lock();
        members.links.retain(|known| known.strong_count() > 0);
        members.links.push(Arc::downgrade(link));
        members.queues.values().for_each(|queue| queue.cq.attach(link));
    }

    pub(crate) fn detach(&self, link: &Link) {
        let mut members = self.domain.lock();
        members.links.retain(|known| !std::ptr::eq(known.as_ptr(), link));
        drop(members);
        self.domain.all().iter().for_each(|queue| queue.cq.detach(link));
    }

    pub(crate) fn look_again(&self) {
        self.domain.all().iter().for_each(|queue| queue.cq.wake());
    }

    pub(crate) fn purge(&self, queue_pair: QueuePairId) {
        self.domain.all().iter().for_each(|queue| queue.cq.purge(queue_pair));
    }

    pub(crate) fn holds(&self, queue_pair: QueuePairId) -> bool {
        self.domain.all().iter().any(|queue| queue.cq.holds(queue_pair))
    }

    /// Add a completion of the queue with this number; of a queue that is destroyed it is dropped.
    pub(crate) fn complete(&self, number: u32, completion: Completion) {
        let Some(queue) = self.domain.find(number) else { return };
        queue.cq.add(Completion { member: queue.member, ..completion });
        let mut touched = locked(&self.touched);
        if !touched.iter().any(|known| Arc::ptr_eq(known, &queue)) {
            touched.push(queue);
        }
    }

    /// The batch is complete.
    pub(crate) fn finish_batch(&self, notifications: &mut Notifications) {
        if let Some(queue) = &*locked(&self.aimed) {
            queue.srq.collect_fired(notifications);
        }
        let touched = std::mem::take(&mut *locked(&self.touched));
        for queue in touched {
            queue.srq.collect_fired(notifications);
            Cq::finish_batch(&queue.cq, notifications);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capacity;

    /// Numbers 0 and those in use are drawn again; a number that was given back may come again.
    #[test]
    fn a_number_names_one_queue_at_a_time() {
        let domain = XrcDomain::default();
        let target = || {
            let srq = Arc::new(Srq::new(crate::SharedReceiveQueue::new(1, 1, 1)));
            Target::new(DomainId(1), srq, Arc::new(Cq::new(1, Capacity::Exact)))
        };
        let mut drawn = [0, 7, 7, 0, 7, 9, 7].into_iter();
        assert_eq!(domain.add(target(), || drawn.next().unwrap()), 7);
        assert_eq!(domain.add(target(), || drawn.next().unwrap()), 9);
        domain.remove(7);
        assert_eq!(domain.add(target(), || drawn.next().unwrap()), 7);
        assert_eq!(domain.all().len(), 2);
    }
}
