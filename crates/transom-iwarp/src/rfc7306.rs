//! Atomic operations (RFC 7306). The codec only: a [`Stream`](crate::Stream) neither sends nor
//! accepts them until a front asks for atomics.

/// An Atomic Request, behind its untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// 0: fetch and add, 2: compare and swap.
    pub operation: u8,
    /// Comes back in the response.
    pub identifier: u32,
    /// Token of the eight bytes.
    pub stag: u32,
    /// Their address.
    pub offset: u64,
    /// The value to add, or to swap in.
    pub data: u64,
    /// Which fields of `data`.
    pub mask: u64,
    /// The value to compare with.
    pub compare: u64,
    /// Which bits of it.
    pub compare_mask: u64,
}

impl AtomicRequest {
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
    pub fn to_bytes(&self) -> [u8; 52] {
        let mut bytes = [0; 52];
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
