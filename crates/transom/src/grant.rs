//! Grants, which an owner hands to a peer.

use std::ops::{Bound, RangeBounds};

use crate::{Error, ErrorKind, Result, Rights};

/// The facts by which a peer uses a window: token, address, length and rights. Plain data; it
/// travels by whatever means the programs like, most simply in a Send.
///
/// A grant is a *name*, not a key: only the peer for whom the window was opened can use it, only
/// until the owner closes it, and the owner judges every single access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    token: u32,
    address: u64,
    len: u64,
    rights: Rights,
}

/// First byte of the encoding: its version.
const VERSION: u8 = 1;

impl Grant {
    /// Bytes of [`to_bytes`](Grant::to_bytes).
    pub const ENCODED_LEN: usize = 24;

    /// A grant from its parts: for protocols that carry them in a form of their own.
    ///
    /// Nothing is checked here, and nothing needs to be: a wrong guess is refused by the memory's
    /// owner.
    #[must_use]
    pub const fn from_parts(token: u32, address: u64, len: u64, rights: Rights) -> Grant {
        Grant { token, address, len, rights }
    }

    /// The token, which iWARP calls an STag and verbs an rkey.
    #[must_use]
    pub const fn token(&self) -> u32 {
        self.token
    }

    /// The first byte, as the owner's program names it (ND2 R22).
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rights that its owner announced. A reminder for the peer: the owner's own table decides.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// The grant as bytes: version (1), rights (1), zero (2), token (4), address (8), length (8),
    /// big-endian.
    ///
    /// ```
    /// use transom::{Grant, Rights};
    /// let grant = Grant::from_parts(0x1234_5678, 0x7f00_0000_0000, 4096, Rights::READ);
    /// assert_eq!(Grant::from_bytes(&grant.to_bytes())?, grant);
    /// # Ok::<(), transom::Error>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [0; Self::ENCODED_LEN];
        let (head, rest) = bytes.split_at_mut(4);
        head.copy_from_slice(&[VERSION, self.rights.bits(), 0, 0]);
        let (token, rest) = rest.split_at_mut(4);
        token.copy_from_slice(&self.token.to_be_bytes());
        let (address, len) = rest.split_at_mut(8);
        address.copy_from_slice(&self.address.to_be_bytes());
        len.copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decode what a peer sent. The bytes are the peer's, so everything about them is checked.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the bytes are not those of [`to_bytes`](Grant::to_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Result<Grant> {
        let bad = |why: String| {
            Error::peer(ErrorKind::Invalid, "decoding a grant", why).accepted(format!(
                "the {} bytes of Grant::to_bytes, as the owner sent them",
                Self::ENCODED_LEN
            ))
        };
        let [version, rights, 0, 0, t0, t1, t2, t3, rest @ ..] = bytes else {
            return Err(bad(format!("{} bytes are not one", bytes.len())));
        };
        if *version != VERSION {
            return Err(bad(format!("its version is {version}, and this side knows {VERSION}")));
        }
        let Some(rights) = Rights::from_bits(*rights) else {
            return Err(bad(format!("{rights:#04x} are not rights")));
        };
        let (Some(address), Some(len), 16) = (
            rest.first_chunk::<8>().map(|b| u64::from_be_bytes(*b)),
            rest.last_chunk::<8>().map(|b| u64::from_be_bytes(*b)),
            rest.len(),
        ) else {
            return Err(bad(format!("{} bytes are not one", bytes.len())));
        };
        if address.checked_add(len).is_none() {
            return Err(bad(format!("{len} bytes at {address:#x} wrap around the address space")));
        }
        Ok(Grant { token: u32::from_be_bytes([*t0, *t1, *t2, *t3]), address, len, rights })
    }

    /// A part of it: offsets from its beginning.
    ///
    /// Nothing is judged here. A range that reaches past the end names exactly those bytes, so that
    /// the owner's refusal says what was wrong; one that ends before it begins is empty.
    ///
    /// ```
    /// use transom::{Grant, Rights};
    /// let grant = Grant::from_parts(7, 1000, 100, Rights::READ);
    /// assert_eq!((grant.range(10..30).address(), grant.range(10..30).len()), (1010, 20));
    /// assert_eq!(grant.range(90..).len(), 10);
    /// assert_eq!(grant.range(90..190).len(), 100); // the owner will say what it thinks of that
    /// ```
    #[must_use]
    pub fn range(&self, range: impl RangeBounds<u64>) -> Grant {
        let (start, end) = resolve(&range, self.len);
        Grant { address: self.address.wrapping_add(start), len: end.saturating_sub(start), ..*self }
    }
}

/// Start and end of a range over `len` bytes.
pub(crate) fn resolve(range: &impl RangeBounds<u64>, len: u64) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_survives_the_journey() {
        for rights in (0..8).filter_map(Rights::from_bits) {
            let grant = Grant::from_parts(0xfeed_f00d, 0xffff_ffff_0000_0000, 0xffff_ffff, rights);
            assert_eq!(Grant::from_bytes(&grant.to_bytes()).unwrap(), grant);
        }
    }

    #[test]
    fn the_encoding_is_the_documented_one() {
        let grant = Grant::from_parts(0x0102_0304, 0x1112_1314_1516_1718, 0x21, Rights::WRITE);
        assert_eq!(
            grant.to_bytes(),
            [
                1, 2, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 0,
                0, 0, 0, 0x21
            ]
        );
    }

    #[test]
    fn a_peers_bytes_are_hostile() {
        let good = Grant::from_parts(1, 2, 3, Rights::READ).to_bytes();
        for cut in 0..good.len() {
            assert!(Grant::from_bytes(&good[..cut]).is_err(), "{cut} bytes");
        }
        assert!(Grant::from_bytes(&[&good[..], &[0]].concat()).is_err(), "one byte too many");
        for (at, value) in [(0, 0), (0, 2), (1, 8), (1, 0x80), (2, 1), (3, 1)] {
            let mut bad = good;
            bad[at] = value;
            let error = Grant::from_bytes(&bad).unwrap_err();
            assert_eq!(error.blame(), crate::Blame::Peer, "byte {at} = {value}");
        }
        let wraps = Grant::from_parts(1, u64::MAX - 4, 6, Rights::READ);
        assert!(Grant::from_bytes(&wraps.to_bytes()).unwrap_err().to_string().contains("wrap"));
    }

    #[test]
    fn a_range_is_never_judged_here() {
        let grant = Grant::from_parts(1, 1000, 100, Rights::READ);
        assert_eq!(grant.range(..).len(), 100);
        assert_eq!(grant.range(..=9).len(), 10);
        assert_eq!(grant.range(200..).len(), 0);
        assert_eq!(grant.range(200..).address(), 1200);
        assert_eq!(grant.range(..=u64::MAX).len(), u64::MAX);
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let backwards = grant.range(50..20);
        assert!(backwards.is_empty());
    }
}
