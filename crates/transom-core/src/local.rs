//! Requests that need no peer: windows bound and closed, regions registered through a queue.

use transom_memory::{
    BindError, DomainId, QueuePairId, Registration, Rights, Scope, Token, WindowSpec,
};

use crate::dialect::{DeadWindow, Dialect};
use crate::queue::{RequestQueue, Slot};
use crate::{Cx, DenialCause, Operation};

const NOT_BOUND: &str = "the window is not bound on this queue pair: its Bind was undone, or it was \
                         closed before (`transom explain bound_window`)";

/// The queue pair that executes them.
pub(crate) struct LocalActor {
    pub(crate) domain: DomainId,
    pub(crate) number: QueuePairId,
    pub(crate) dialect: &'static Dialect,
}

impl LocalActor {
    /// Execute a request in its turn. `None`: it needs a peer, and nothing has happened.
    pub(crate) fn execute(
        &self,
        cx: &mut Cx<'_>,
        requests: &RequestQueue,
        slot: &Slot,
    ) -> Option<Result<(), DenialCause>> {
        Some(match slot.operation {
            Operation::Bind { window } => {
                cx.memory.activate(window).then_some(()).ok_or(DenialCause::Other(NOT_BOUND))
            }
            Operation::BindStanding { .. } => self.bind_standing(cx, slot),
            Operation::Invalidate { window } => {
                let closed = cx.memory.close(window, Some(self.number), cx.now.0).is_ok()
                    || match self.dialect.dead_window {
                        DeadWindow::Fatal => false,
                        DeadWindow::Ignored => true,
                        DeadWindow::Standing => cx.memory.was_closed(window, self.number),
                    };
                closed.then_some(()).ok_or(DenialCause::Other(NOT_BOUND))
            }
            Operation::FastRegister { region, base, rights } => {
                self.fast_register(cx, requests, slot, (region, base, rights))
            }
            _ => return None,
        })
    }

    fn bind_standing(&self, cx: &mut Cx<'_>, slot: &Slot) -> Result<(), DenialCause> {
        let Operation::BindStanding { key, region, base, length, rights, zero_based, wide } =
            slot.operation
        else {
            return Err(DenialCause::Bind(BindError::Standing));
        };
        let domain = self.domain;
        let scope = match wide {
            true => Scope::Domain(domain),
            false => Scope::QueuePair(domain, self.number),
        };
        let window = WindowSpec { region, domain, scope, base, length, rights };
        if wide {
            if length > 0 {
                cx.memory.check_bind(&window, cx.now.0).map_err(DenialCause::Bind)?;
            }
            if !cx.memory.unbind_standing(key, domain, cx.now.0) {
                return Err(DenialCause::Bind(BindError::Standing));
            }
            if length == 0 {
                return Ok(());
            }
        }
        cx.memory.bind_standing(key, &window, zero_based, cx.now.0).map_err(DenialCause::Bind)
    }

    fn fast_register(
        &self,
        cx: &mut Cx<'_>,
        requests: &RequestQueue,
        slot: &Slot,
        (region, base, rights): (Token, u64, Rights),
    ) -> Result<(), DenialCause> {
        let segments = &requests.memory(slot)[..];
        let registration =
            Registration { scope: Scope::Domain(self.domain), rights, base, segments };
        cx.memory.fast_register(region, &registration).map_err(DenialCause::Register)
    }
}
