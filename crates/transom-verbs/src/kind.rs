//! The kind of the device (Verbs V32): an adapter of RoCE v2, or one of iWARP, for programs
//! that are to be tried on one. The wire and the engine are the same.

use std::sync::OnceLock;

use crate::cm::REJECTED_BY_PROGRAM;
use crate::{environment, explain};

/// All that differs between the kinds.
#[derive(Debug)]
pub(crate) struct DeviceKind {
    /// The node type, as a number and as the kernel writes it.
    pub(crate) node_type: (i32, &'static str),
    pub(crate) transport: i32,
    pub(crate) port_capabilities: u32,
    /// Whether there is what only the InfiniBand transport has: immediate data, atomics, unreliable queue
    /// pairs, datagrams, queue pairs that are connected by their numbers, GIDs that are addresses.
    pub(crate) infiniband: bool,
    /// The status of REJECTED for want of a listener, and by the program (Verbs V124).
    pub(crate) no_listener: i32,
    pub(crate) rejected: i32,
}

/// CM_SUP.
const CONNECTIONS: u32 = 1 << 16;
/// IP_BASED_GIDS.
const IP_GIDS: u32 = 1 << 26;

static ROCE: DeviceKind = DeviceKind {
    node_type: (1, "1: CA"),
    transport: 0,
    port_capabilities: CONNECTIONS | IP_GIDS,
    infiniband: true,
    no_listener: 8,
    rejected: REJECTED_BY_PROGRAM,
};

static IWARP: DeviceKind = DeviceKind {
    node_type: (4, "4: RNIC"),
    transport: 1,
    port_capabilities: CONNECTIONS,
    infiniband: false,
    no_listener: -rustix::io::Errno::CONNREFUSED.raw_os_error(),
    rejected: -rustix::io::Errno::CONNREFUSED.raw_os_error(),
};

/// The kind of this process's device.
pub(crate) fn kind() -> &'static DeviceKind {
    static KIND: OnceLock<&'static DeviceKind> = OnceLock::new();
    KIND.get_or_init(|| if environment::iwarp() { &IWARP } else { &ROCE })
}

impl DeviceKind {
    /// Whether the device has an operation of the InfiniBand transport. A line says that `what` is
    /// missing.
    #[inline]
    pub(crate) fn has(&self, what: &str) -> bool {
        if !self.infiniband {
            explain::line(&format!("--as iwarp: an adapter of iWARP has no {what}"));
        }
        self.infiniband
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v32_the_numbers_of_both_kinds() {
        assert_eq!((ROCE.node_type.0, ROCE.transport), (1, 0));
        assert_eq!((IWARP.node_type.0, IWARP.transport), (4, 1));
        assert_eq!((ROCE.no_listener, ROCE.rejected), (8, 28));
        assert_eq!((IWARP.no_listener, IWARP.rejected), (-111, -111));
    }
}
