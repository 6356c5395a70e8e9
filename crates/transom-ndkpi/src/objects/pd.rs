//! Protection domains.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use transom_engine::raw;
use transom_memory::Token;

use super::{Adapter, Cq, Mr, Mw, Qp, QpLimits, Srq, SrqNotification};
use crate::Status;
use crate::deliver::Call;
use crate::life::Life;

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::Domain,
    /// The privileged token, once it was asked for (NDK PT-1), as what it is: a name for other
    /// tokens.
    pub(crate) aliases: OnceLock<HashSet<u32>>,
}

impl Pd {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Pd>, Status> {
        let raw = adapter.raw.domain()?;
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        let aliases = OnceLock::new();
        Ok(Arc::new(Pd { life, adapter: Arc::clone(adapter), raw, aliases }))
    }

    /// `NdkCreateMr`.
    #[must_use]
    pub fn create_mr(self: &Arc<Self>, fast_register: bool) -> Arc<Mr> {
        Mr::new(self, fast_register)
    }

    /// `NdkCreateMw`.
    #[must_use]
    pub fn create_mw(self: &Arc<Self>) -> Arc<Mw> {
        Mw::new(self)
    }

    /// `NdkCreateQp`. Objects of another adapter are `INVALID_PARAMETER` (NDK 2.1).
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a limit above the adapter's, or a queue of another adapter;
    /// `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn create_qp(
        self: &Arc<Self>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        context: u64,
        limits: QpLimits,
    ) -> Result<Arc<Qp>, Status> {
        Qp::new(self, (receive_cq, initiator_cq), None, context, limits)
    }

    /// `NdkCreateSrq`, whose receives name memory of this domain. A threshold above 0 arms the
    /// notification for when receives have been posted and fewer wait again (NDK SRQ-5).
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a limit above the adapter's, `DEVICE_REMOVED`.
    pub fn create_srq(
        self: &Arc<Self>,
        depth: u32,
        sge: u32,
        threshold: u32,
        notification: Option<SrqNotification>,
    ) -> Result<Arc<Srq>, Status> {
        Srq::new(self, depth, sge, threshold, notification)
    }

    /// `NdkCreateQpWithSrq`: `limits` but those of receives count.
    ///
    /// # Errors
    /// As [`Pd::create_qp`].
    pub fn create_qp_with_srq(
        self: &Arc<Self>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        context: u64,
        limits: QpLimits,
    ) -> Result<Arc<Qp>, Status> {
        Qp::new(self, (receive_cq, initiator_cq), Some(srq), context, limits)
    }

    /// `NdkClosePd`.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        let pd = Arc::clone(self);
        let end = move || {
            let aliases = pd.aliases.get().into_iter().flatten();
            aliases.for_each(|alias| pd.adapter.raw.close_region(Token(*alias)));
        };
        self.life.close(Box::new(end), Box::new(done))
    }
}
