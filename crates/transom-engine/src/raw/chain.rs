//! Requests, or receives, that one call posts: one lock, and one pass for all of them.

use super::{Error, Result};
use crate::{Data, Request, Sge, Status};

/// Requests of one call, in order ([`QueuePair::post_chain`](super::QueuePair::post_chain)).
#[derive(Debug)]
pub struct Chain<'a, 'queue>(pub(super) &'a mut crate::Chain<'queue>);

/// `Data::Memory` would open any memory of the process: only `fast_register` may post it.
#[inline]
pub(super) fn no_memory(data: Data<'_>) -> std::result::Result<(), Status> {
    if matches!(data, Data::Memory(_)) { Err(Status::InvalidRequest) } else { Ok(()) }
}

impl Chain<'_, '_> {
    /// Post the next request. After an error the chain is as before, and may go on.
    ///
    /// # Errors
    /// As [`QueuePair::post`](super::QueuePair::post).
    #[inline]
    pub fn post(&mut self, request: &Request, data: Data<'_>) -> Result<()> {
        let posted = no_memory(data).and_then(|()| self.0.post(request, data));
        posted.map_err(|status| Error::post(status, "post a request"))
    }

    /// Post the next request of a queue pair of type [`XrcSend`](crate::QueuePairKind::XrcSend), for the
    /// peer's shared receive queue of this number. The peer judges the number: where it names no queue of the
    /// peer's XRC domain, the request fails (Verbs V155).
    ///
    /// # Errors
    /// As [`Chain::post`].
    pub fn post_to(&mut self, target: u32, request: &Request, data: Data<'_>) -> Result<()> {
        let posted = no_memory(data).and_then(|()| self.0.post_to(target, request, data));
        posted.map_err(|status| Error::post(status, "post a request"))
    }

    /// Post all of them, or, after an error, none of the chain.
    ///
    /// # Errors
    /// As [`Chain::post`], for the first request that is refused.
    pub fn post_all<'data>(
        &mut self,
        list: impl IntoIterator<Item = (Request, Data<'data>)>,
    ) -> Result<()> {
        let mut list = list.into_iter();
        list.try_for_each(|(request, data)| self.post(&request, data))
            .inspect_err(|_| self.cancel())
    }

    /// Take back what was posted so far.
    pub fn cancel(&mut self) {
        self.0.cancel();
    }
}

/// Receives of one call, in order ([`QueuePair::post_receives`](super::QueuePair::post_receives)).
#[derive(Debug)]
pub struct ReceiveChain<'a, 'queue>(pub(super) &'a mut crate::ReceiveChain<'queue>);

impl ReceiveChain<'_, '_> {
    /// Post the next receive. After an error the chain is as before, and may go on.
    ///
    /// # Errors
    /// As [`QueuePair::post_receive`](super::QueuePair::post_receive).
    #[inline]
    pub fn post(&mut self, context: u64, list: &[Sge]) -> Result<()> {
        self.0.post(context, list).map_err(|status| Error::post(status, "post a receive"))
    }
}
