//! The limits of an adapter (ND2 3.3, 7.2).

/// Entries of a list. Every queue pair is granted as many, whatever it asked for (ND2 C23).
pub(crate) const SGE: u32 = 16;
/// Requests, and receives, of one queue pair (both the same: ND2 7.6 point 27).
pub(crate) const QUEUE_DEPTH: u32 = 16_384;
/// Receives of one shared queue.
pub(crate) const SHARED_QUEUE_DEPTH: u32 = 65_536;
/// Entries of a completion queue.
pub(crate) const COMPLETION_QUEUE_DEPTH: u32 = 1 << 20;
/// Bytes of one request.
pub(crate) const TRANSFER: u32 = 1 << 30;
/// Bytes of an inline request.
pub(crate) const INLINE: u32 = 1024;
/// Below this, inline pays off: the bytes are copied anyway.
pub(crate) const INLINE_THRESHOLD: u32 = 256;
/// Above this, Read and Write beat Send and Receive.
pub(crate) const LARGE_THRESHOLD: u32 = 65_536;
/// Bytes of a registration: all that an address space has.
pub(crate) const REGION: u64 = 1 << 46;
/// Our own numbers, of no registry.
pub(crate) const VENDOR: u16 = 0x5452;
pub(crate) const DEVICE: u16 = 0x0001;
