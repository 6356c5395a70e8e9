//! Flag values (NDK 4.2) and what they mean to the memory table.

use crate::Status;
use transom_memory::Rights;

/// `AdapterFlags`.
pub mod adapter {
    /// Incoming data is written in increasing address order.
    pub const IN_ORDER_DMA_SUPPORTED: u32 = 0x1;
    /// Read sinks need no special right.
    pub const RDMA_READ_SINK_NOT_REQUIRED: u32 = 0x2;
    /// Notifications can be held back.
    pub const CQ_INTERRUPT_MODERATION_SUPPORTED: u32 = 0x4;
    /// Several connections may be faster than one.
    pub const MULTI_ENGINE_SUPPORTED: u32 = 0x8;
    /// Reads can invalidate their sink.
    pub const RDMA_READ_LOCAL_INVALIDATE_SUPPORTED: u32 = 0x10;
    /// Completion queues can be resized.
    pub const CQ_RESIZE_SUPPORTED: u32 = 0x100;
    /// An address can connect to itself.
    pub const LOOPBACK_CONNECTIONS_SUPPORTED: u32 = 0x1_0000;
}

/// Flags of `NdkRegisterMr`.
pub mod mr {
    /// Always granted.
    pub const ALLOW_LOCAL_READ: u32 = 0;
    /// Receives and read sinks.
    pub const ALLOW_LOCAL_WRITE: u32 = 0x1;
    /// Peers may read.
    pub const ALLOW_REMOTE_READ: u32 = 0x2;
    /// Peers may write; has `ALLOW_LOCAL_WRITE` built in.
    pub const ALLOW_REMOTE_WRITE: u32 = 0x5;
    /// May be the sink of a Read.
    pub const RDMA_READ_SINK: u32 = 0x8;
}

/// Flags of queue pair requests.
pub mod op {
    /// No completion if it succeeds.
    pub const SILENT_SUCCESS: u32 = 0x1;
    /// Starts after all earlier Reads.
    pub const READ_FENCE: u32 = 0x2;
    /// The peer's receive counts as solicited.
    pub const SEND_AND_SOLICIT_EVENT: u32 = 0x4;
    /// Bind, FastRegister: peers may read.
    pub const ALLOW_REMOTE_READ: u32 = 0x8;
    /// FastRegister: the adapter may write.
    pub const ALLOW_LOCAL_WRITE: u32 = 0x10;
    /// Bind, FastRegister: peers may write; has `ALLOW_LOCAL_WRITE` built in.
    pub const ALLOW_REMOTE_WRITE: u32 = 0x30;
    /// The data is copied before the call returns.
    pub const INLINE: u32 = 0x40;
    /// FastRegister: may be the sink of a Read.
    pub const RDMA_READ_SINK: u32 = 0x80;
    /// Read: invalidate the first entry's token. (The documentation of NdkRead prints 0x200.)
    pub const RDMA_READ_LOCAL_INVALIDATE: u32 = 0x100;
    /// A hint: more requests follow.
    pub const DEFER: u32 = 0x200;
}

/// The rights that the flags of `NdkRegisterMr` grant (NDK MR-12). `sink_counts`: the adapter
/// requires `RDMA_READ_SINK` and so gives it a meaning; one that does not require it ignores it and
/// must not fail because of it (NDK MR-14, MR-15).
///
/// # Errors
/// `INVALID_PARAMETER` for bits that are not defined, or remote write without the local write built
/// into it.
pub fn region_rights(flags: u32, sink_counts: bool) -> Result<Rights, Status> {
    let [write, remote_read, remote_write, sink] = [0x1, 0x2, 0x4, 0x8].map(|bit| flags & bit != 0);
    if flags > 0xF || (remote_write && !write) {
        return Err(Status::INVALID_PARAMETER);
    }
    let mut rights = Rights::LOCAL_READ | Rights::BIND;
    for (asked, right) in [
        (write, Rights::LOCAL_WRITE),
        (remote_read, Rights::REMOTE_READ),
        (remote_write, Rights::REMOTE_WRITE),
        (sink && sink_counts, Rights::READ_SINK),
    ] {
        if asked {
            rights = rights | right;
        }
    }
    Ok(rights)
}

/// The rights that the flags of `NdkFastRegister` grant (NDK FR-11), as [`region_rights`]. Windows
/// are not bound to what was fast-registered.
///
/// # Errors
/// `INVALID_PARAMETER` for remote write without the local write built into it.
pub fn fast_rights(flags: u32, sink_counts: bool) -> Result<Rights, Status> {
    let [remote_read, write, remote_write, sink] = [0x8, 0x10, 0x20, 0x80].map(|b| flags & b != 0);
    if remote_write && !write {
        return Err(Status::INVALID_PARAMETER);
    }
    let pick = |asked, right| if asked { right } else { Rights::NONE };
    Ok(Rights::LOCAL_READ
        | pick(write, Rights::LOCAL_WRITE)
        | pick(remote_read, Rights::REMOTE_READ)
        | pick(remote_write, Rights::REMOTE_WRITE)
        | pick(sink && sink_counts, Rights::READ_SINK))
}

/// The rights that the flags of `NdkBind` grant. The bits are not those of `NdkRegisterMr` (NDK
/// 12.2): remote write is 0x20 with local write 0x10 built in.
#[must_use]
pub fn window_rights(flags: u32) -> Rights {
    let mut rights = Rights::NONE;
    if flags & op::ALLOW_REMOTE_READ != 0 {
        rights = rights | Rights::REMOTE_READ;
    }
    if flags & 0x20 != 0 {
        rights = rights | Rights::REMOTE_WRITE;
    }
    rights
}

/// `NDK_OPERATION_TYPE`: bits, not numbers in a row.
pub mod operation {
    /// Receive.
    pub const RECEIVE: u32 = 1;
    /// Send, with or without invalidation.
    pub const SEND: u32 = 2;
    /// FastRegister.
    pub const FAST_REGISTER: u32 = 4;
    /// Bind.
    pub const BIND: u32 = 8;
    /// Invalidate.
    pub const INVALIDATE: u32 = 16;
    /// Read.
    pub const READ: u32 = 32;
    /// Write.
    pub const WRITE: u32 = 64;
    /// A Receive whose Send invalidated a token.
    pub const RECEIVE_AND_INVALIDATE: u32 = 0x8001;
}

/// Types of `NdkArmCq`.
pub mod notify {
    /// Only when the queue itself fails.
    pub const ERRORS: u32 = 0;
    /// The next completion.
    pub const ANY: u32 = 1;
    /// The next solicited or failed completion.
    pub const SOLICITED: u32 = 2;
}
