//! XRC domains, and the receive sides of their queue pairs (Verbs V155).

use std::sync::Arc;

use super::adapter::Owner;
use super::{
    Adapter, CompletionQueue, Domain, Error, QueuePair, QueuePairOptions, Result,
    SharedReceiveQueue,
};
use crate::driver;
use crate::{QueuePairKind, Status};

/// Shared receive queues with numbers, by which messages over the connections of the domain's queue pairs
/// name them. A number says nothing outside of its domain.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    pub(super) owner: Arc<Owner>,
    pub(super) members: Arc<driver::XrcDomain>,
    /// The domain of its queue pairs until a message says whose it is: no memory is registered there.
    pub(super) nothing: Domain,
    /// The completion queue of its queue pairs, which have no requests.
    pub(super) unused: CompletionQueue,
}

/// The largest number of a shared receive queue: numbers have 24 bits.
const LARGEST: u32 = (1 << 24) - 1;

impl Adapter {
    /// An XRC domain without queues.
    ///
    /// # Errors
    /// `InsufficientResources` when the numbers of domains are used up; `DeviceRemoved` once the address
    /// has gone, `Forked` in a forked child.
    pub fn xrc_domain(&self) -> Result<XrcDomain> {
        let (owner, members) = (self.0.clone(), Arc::default());
        Ok(XrcDomain { owner, members, nothing: self.domain()?, unused: self.completion_queue(1)? })
    }

    /// A queue pair that receives over all queues of `domain` ([`QueuePairKind::XrcReceive`], whatever
    /// `options` say), and has no requests.
    ///
    /// # Errors
    /// As [`Adapter::queue_pair`].
    pub fn xrc_receive_side(
        &self,
        domain: &XrcDomain,
        options: &QueuePairOptions,
    ) -> Result<QueuePair> {
        let options = QueuePairOptions { kind: QueuePairKind::XrcReceive, ..*options };
        let queues = (&domain.unused, &domain.unused);
        self.make_queue_pair(domain.nothing, queues, None, Some(domain), None, &options)
    }
}

impl XrcDomain {
    /// Let messages find `queue`, whose receives complete at `completions`: its number.
    ///
    /// # Errors
    /// `InvalidParameter` for a queue of another adapter, or without a domain of its own for its memory;
    /// `Forked` in a forked child.
    pub fn add(&self, queue: &SharedReceiveQueue, completions: &CompletionQueue) -> Result<u32> {
        let shared = self.owner.here()?;
        let foreign = !Arc::ptr_eq(&queue.owner, &self.owner)
            || !Arc::ptr_eq(&completions.owner, &self.owner);
        let (false, Some(Domain(domain))) = (foreign, queue.domain) else {
            return Err(Error::caller(
                Status::InvalidParameter(0),
                "add a queue to an XRC domain: both queues must be this adapter's, and the receives have a \
                 protection domain of their own; make them so",
            ));
        };
        let draw = || (shared.new_key() & u64::from(LARGEST)) as u32;
        let (srq, cq) = (queue.srq.clone(), completions.cq.clone());
        Ok(self.members.add(driver::Target::new(domain, srq, cq), draw))
    }

    /// No message finds the queue of this number any more.
    pub fn remove(&self, number: u32) {
        if self.owner.here().is_ok() {
            self.members.remove(number);
        }
    }
}
