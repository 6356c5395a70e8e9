//! Several requests, posted together.

use transom_engine::{Operation, Sge};

use crate::endpoint::{Endpoint, Run};
use crate::posted::RequestSummary;
use crate::{Error, ErrorKind, Grant, Posted, Result, Slice};
use std::sync::Arc;

/// Requests that are posted together, and have one result: it is there when all of them have
/// completed. For many small ones this is much cheaper than one by one: they take one lock, and
/// what is small leaves in as few calls to the kernel as it fits in.
///
/// Nothing happens before [`post`](Batch::post). The memory a batch names is kept alive from then
/// on until the requests have completed, as with [`QueuePair::write`](crate::QueuePair::write).
///
/// ```no_run
/// # fn f(peer: &transom::QueuePair, theirs: transom::Grant, mine: &transom::Region<Vec<u8>>)
/// # -> transom::Result<()> {
/// let mut batch = peer.batch();
/// for at in (0..1024).step_by(64) {
///     batch.write(theirs.range(at..at + 8), &mine.slice(at..at + 8))?;
/// }
/// let all = batch.post()?;      // one after the other, in this order
/// // ... the same batch can be filled again ...
/// all.wait()?;                  // every one of them is in the peer's memory
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is posted before `post`"]
pub struct Batch<'a> {
    endpoint: &'a Arc<Endpoint>,
    requests: Vec<(Operation, Sge)>,
    runs: Vec<Run>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>) -> Batch<'a> {
        Batch { endpoint, requests: Vec::new(), runs: Vec::new() }
    }

    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Add a Write, as [`QueuePair::write`](crate::QueuePair::write).
    ///
    /// # Errors
    /// [`ErrorKind::TooMuch`] for 4 GiB or more, [`ErrorKind::Invalid`] for memory of another
    /// adapter. The batch is as before then.
    pub fn write(&mut self, to: Grant, from: &Slice) -> Result<()> {
        let operation = Operation::Write { token: to.token(), address: to.address() };
        self.add(operation, from, from.len(), RequestSummary::Write(from.len()))
    }

    /// Add a Read, as [`QueuePair::read`](crate::QueuePair::read).
    ///
    /// # Errors
    /// As [`write`](Batch::write); and [`ErrorKind::Invalid`] if `into` is shorter than `from`.
    pub fn read(&mut self, from: Grant, into: &Slice) -> Result<()> {
        let asked = RequestSummary::Read(from.len());
        into.must_hold(from.len(), asked)?;
        let operation = Operation::Read { token: from.token(), address: from.address() };
        self.add(operation, into, from.len(), asked)
    }

    /// Add a Send from registered memory, as [`QueuePair::send_from`](crate::QueuePair::send_from).
    ///
    /// # Errors
    /// As [`write`](Batch::write).
    pub fn send(&mut self, from: &Slice) -> Result<()> {
        self.add(Operation::Send, from, from.len(), RequestSummary::Send(from.len()))
    }

    #[inline(always)]
    fn add(
        &mut self,
        operation: Operation,
        slice: &Slice,
        len: u64,
        asked: RequestSummary,
    ) -> Result<()> {
        self.endpoint.adapter.owns(&slice.region, &asked)?;
        let sge = slice.entry(len, asked)?;
        self.requests.push((operation, sge));
        let end = self.requests.len();
        match self.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.region, &slice.region) => run.end = end,
            _ => self.runs.push(Run { region: Arc::clone(&slice.region), end, key: None }),
        }
        Ok(())
    }

    /// Post them. The requests execute in the order in which they were added, and the batch is
    /// empty again.
    ///
    /// # Errors
    /// None was posted, and all are still in the batch: e.g. [`ErrorKind::TooMuch`] if there is no
    /// room for all of them beside those under way. If one fails later, that ends the connection,
    /// and the result says why.
    pub fn post(&mut self) -> Result<Posted<()>> {
        if self.is_empty() {
            return Ok(Posted::ready(Ok(())));
        }
        let asked = RequestSummary::Batch(self.len() as u64);
        let key = self.endpoint.post_batch(&self.requests, &mut self.runs, asked)?;
        self.requests.clear();
        self.runs.clear();
        Ok(Posted::cell(self.endpoint, key, asked))
    }
}

impl Slice {
    /// As an entry of a request's list.
    #[inline(always)]
    pub(crate) fn entry(&self, len: u64, asked: RequestSummary) -> Result<Sge> {
        let Ok(length) = u32::try_from(len) else {
            let why = "one request moves less than 4 GiB";
            return Err(Error::caller(ErrorKind::TooMuch, asked.to_string(), why)
                .accepted("several requests"));
        };
        Ok(Sge { token: self.region.token.0, address: self.address(), length })
    }

    /// A Read puts so many bytes into it.
    pub(crate) fn must_hold(&self, len: u64, asked: RequestSummary) -> Result<()> {
        if self.len() >= len {
            return Ok(());
        }
        let why = format!("the slice has {} bytes", self.len());
        Err(Error::caller(ErrorKind::Invalid, asked.to_string(), why)
            .accepted("a slice that is as long as the grant, or the grant's range(..)"))
    }
}
