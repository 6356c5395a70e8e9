//! Protection domains.

use std::sync::Arc;

use transom_engine::raw;

use super::{Adapter, Cq, Mr, Mw, Qp, QpLimits};
use crate::deliver::Call;
use crate::life::Life;
use crate::{Status, below};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    pub(crate) life: Arc<Life>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) raw: raw::Domain,
}

impl Pd {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Arc<Pd>, Status> {
        let raw = below::engine(adapter.raw.domain())?;
        let life = Life::new(&adapter.deliverer, &[&adapter.life]);
        Ok(Arc::new(Pd { life, adapter: Arc::clone(adapter), raw }))
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
    pub fn create_qp(
        self: &Arc<Self>,
        receive_cq: &Arc<Cq>,
        initiator_cq: &Arc<Cq>,
        context: u64,
        limits: QpLimits,
    ) -> Result<Arc<Qp>, Status> {
        for cq in [receive_cq, initiator_cq] {
            if !Arc::ptr_eq(&cq.adapter, &self.adapter) {
                return Err(Status::INVALID_PARAMETER);
            }
        }
        Qp::new(self, receive_cq, initiator_cq, context, limits)
    }

    /// `NdkClosePd`.
    pub fn close(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) -> Status {
        let _call = Call::enter();
        self.life.close(Box::new(|| ()), Box::new(done))
    }
}
