//! Atomic operations (RFC 7306). A [`Stream`](crate::Stream) sends and takes them where both sides have
//! the extension: adapters that say they have them by themselves are not known.

use transom_wire::Atomic;

const FETCH_ADD: u8 = 0;
const COMPARE_SWAP: u8 = 2;

/// Bytes of an atomic's request behind its header.
pub(crate) const ATOMIC_REQUEST: usize = 52;

/// An Atomic Request, behind its untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// 0: fetch and add, 2: compare and swap.
    pub operation: u8,
    /// Comes back in the response.
    pub identifier: u32,
    /// Token of the eight bytes.
    pub stag: u32,
    /// The address of the eight bytes.
    pub offset: u64,
    /// The value to add, or to swap in.
    pub data: u64,
    /// Which bits of the word are swapped; or, of an add, the highest bit of each field but the last.
    pub mask: u64,
    /// The value to compare with.
    pub compare: u64,
    /// Which bits of it.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// The request for an operation on whole words.
    #[must_use]
    pub fn new(identifier: u32, stag: u32, offset: u64, operation: Atomic) -> AtomicRequest {
        let all = u64::MAX;
        let (operation, data, mask, compare, compare_mask) = match operation {
            Atomic::FetchAdd { add } => (FETCH_ADD, add, 0, 0, all),
            Atomic::CompareSwap { compare, swap } => (COMPARE_SWAP, swap, all, compare, all),
        };
        AtomicRequest { operation, identifier, stag, offset, data, mask, compare, compare_mask }
    }

    /// The operation, if it is one on a whole word. RFC 7306 has adds to parts of a word, which carry
    /// nothing over the edges that `mask` names, and swaps of some of its bits; verbs have neither.
    #[must_use]
    pub fn whole(&self) -> Option<Atomic> {
        let whole_sum = self.mask & !(1 << 63) == 0;
        match self.operation {
            FETCH_ADD if whole_sum => Some(Atomic::FetchAdd { add: self.data }),
            COMPARE_SWAP if (self.mask, self.compare_mask) == (u64::MAX, u64::MAX) => {
                Some(Atomic::CompareSwap { compare: self.compare, swap: self.data })
            }
            _ => None,
        }
    }

    /// Reads the 52 bytes.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<AtomicRequest> {
        let payload: &[u8; 52] = payload.try_into().ok()?;
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&payload[at..at + 4]);
            u32::from_be_bytes(bytes)
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Some(AtomicRequest {
            operation: payload[3] & 0x0F,
            identifier: word(4),
            stag: word(8),
            offset: long(12),
            data: long(20),
            mask: long(28),
            compare: long(36),
            compare_mask: long(44),
        })
    }

    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ATOMIC_REQUEST] {
        let mut bytes = [0; ATOMIC_REQUEST];
        bytes[3] = self.operation & 0x0F;
        bytes[4..8].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.stag.to_be_bytes());
        let longs = [self.offset, self.data, self.mask, self.compare, self.compare_mask];
        for (room, long) in bytes[12..].chunks_exact_mut(8).zip(longs) {
            room.copy_from_slice(&long.to_be_bytes());
        }
        bytes
    }
}

/// An Atomic Response, behind its untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request's identifier.
    pub identifier: u32,
    /// The value before the operation.
    pub value: u64,
}

impl AtomicResponse {
    /// Reads the 12 bytes.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<AtomicResponse> {
        let (&identifier, rest) = payload.split_first_chunk::<4>()?;
        let value = u64::from_be_bytes(rest.try_into().ok()?);
        Some(AtomicResponse { identifier: u32::from_be_bytes(identifier), value })
    }

    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[4..].copy_from_slice(&self.value.to_be_bytes());
        bytes
    }
}
