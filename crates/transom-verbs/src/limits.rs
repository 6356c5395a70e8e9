//! The limits of the device, advertised and granted (Verbs V28).

/// Queue pairs of a context.
pub(crate) const QUEUE_PAIRS: u32 = 32_768;
/// Requests, or receives, of a queue pair.
pub(crate) const DEPTH: u32 = 16_384;
/// Entries of a list.
pub(crate) const SGE: u32 = 32;
/// Completion queues, and completions in one.
pub(crate) const QUEUES: u32 = 65_536;
pub(crate) const COMPLETIONS: u32 = (1 << 22) - 1;
/// Microseconds for which the event of a completion queue may be held back: those of mlx5.
pub(crate) const MODERATION_PERIOD: u16 = 4095;
/// Memory regions; memory windows; protection domains; address handles.
pub(crate) const REGIONS: u32 = 1 << 20;
pub(crate) const WINDOWS: u32 = 65_536;
pub(crate) const DOMAINS: u32 = 65_536;
pub(crate) const ADDRESS_HANDLES: u32 = 65_536;
/// Queue pairs attached to multicast groups, each as often as it is.
pub(crate) const ATTACHMENTS: u32 = 4_096;
/// Shared receive queues, and receives in one.
pub(crate) const SHARED_QUEUES: u32 = 32_768;
pub(crate) const SHARED_DEPTH: u32 = 65_536;
/// Reads served, or under way, of a queue pair.
pub(crate) const READS: u32 = 16;
/// Bytes of a region, of a message, and of an inline request: the least and the most granted.
pub(crate) const REGION: u64 = 1 << 46;
pub(crate) const MESSAGE: u32 = 1 << 30;
pub(crate) const INLINE: u32 = 4096;
pub(crate) const INLINE_LEAST: u32 = 256;
/// Entries of the GID table, or as many as there are addresses.
pub(crate) const GIDS: u32 = 32;
