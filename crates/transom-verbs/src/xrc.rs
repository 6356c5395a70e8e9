//! XRC domains: shared receive queues that a peer's messages name (Verbs V155).

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::fstat;
use transom_engine::raw;

use crate::completion::Queue;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Users};

/// The file by which a program finds a domain that it has opened before: device and number.
type File = (u64, u64);

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct XrcDomain {
    pub(crate) engine: raw::XrcDomain,
    /// Objects that the engine's queue pairs need and no program sees: they have neither memory nor requests.
    pub(crate) domain: Arc<Domain>,
    pub(crate) queue: Arc<Queue>,
    file: Option<File>,
    /// Structures of the program's that stand for it, but for the first.
    again: Users,
    /// Shared receive queues and queue pairs that belong to it.
    pub(crate) users: Users,
}

/// The domains of a context that files name.
#[derive(Debug, Default)]
pub(crate) struct XrcDomains(Mutex<Vec<(File, Weak<XrcDomain>)>>);

impl XrcDomain {
    fn new(context: &Arc<Context>, file: Option<File>) -> Result<Arc<XrcDomain>> {
        let queue = Arc::new(Queue::new(context, 1, None, None)?.0);
        Ok(Arc::new(XrcDomain {
            engine: context.adapter.xrc_domain()?,
            domain: Domain::new(context)?,
            queue,
            file,
            again: Users::default(),
            users: Users::default(),
        }))
    }

    /// A new domain, or the one that this context has for the file behind a descriptor. A domain belongs to
    /// one context: another one, or another process, that names the same file, has another domain.
    ///
    /// `EBADF` for what is no descriptor; `EAGAIN` if there is no domain for the file and `create` is not
    /// asked for; `EINVAL` if there is one, and it was to be `exclusive`.
    pub(crate) fn open(
        context: &Arc<Context>,
        file: Option<BorrowedFd<'_>>,
        (create, exclusive): (bool, bool),
    ) -> Result<Arc<XrcDomain>> {
        let Some(file) = file else { return XrcDomain::new(context, None) };
        let about = fstat(file).map_err(|_| Errno::EBADF)?;
        let file = (about.st_dev, about.st_ino);
        let mut named = context.xrc_domains.0.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|(_, domain)| domain.strong_count() > 0);
        let found = named.iter().find(|(known, _)| *known == file);
        match found.and_then(|(_, domain)| domain.upgrade()) {
            Some(_) if exclusive => Err(Errno::EINVAL),
            Some(domain) => {
                domain.again.join();
                Ok(domain)
            }
            None if !create => Err(Errno::EAGAIN),
            None => {
                let domain = XrcDomain::new(context, Some(file))?;
                named.push((file, Arc::downgrade(&domain)));
                Ok(domain)
            }
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.domain.context
    }

    /// A structure of the program's stands for it no longer: `EBUSY` if that is the last one, and queues or
    /// queue pairs belong to it.
    pub(crate) fn close(&self) -> Result {
        let context = self.context().clone();
        let mut named = context.xrc_domains.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.again.none().is_err() {
            self.again.leave();
            return Ok(());
        }
        self.users.none()?;
        named.retain(|(file, _)| Some(*file) != self.file);
        Ok(())
    }
}
