//! Messages of rping programs.
//!
//! Each round: the client Sends a descriptor of its source buffer, the server Reads it and Sends a
//! go-ahead; the client Sends a descriptor of its sink buffer, the server Writes the same bytes
//! there and Sends a go-ahead. Every Send is 16 bytes; of a go-ahead only the length matters. No
//! private data.

use crate::command::exit::{Exit, Failure, Outcome};

/// Port of rping programs.
pub(crate) const PORT: u16 = 7174;
/// Bytes of every Send.
pub(crate) const MESSAGE: usize = 16;
/// Most bytes per round that rping programs accept.
pub(crate) const LARGEST: usize = 64 << 10;
/// Fewest: the text in front with the longest number, and its end.
pub(crate) const SMALLEST: usize = 24;

/// A buffer descriptor: address, key, size, all big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) size: u32,
}

impl Descriptor {
    pub(crate) fn to_bytes(self) -> [u8; MESSAGE] {
        let mut bytes = [0; MESSAGE];
        let (address, rest) = bytes.split_at_mut(8);
        address.copy_from_slice(&self.address.to_be_bytes());
        let (key, size) = rest.split_at_mut(4);
        key.copy_from_slice(&self.key.to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Outcome<Descriptor> {
        match bytes {
            [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, s0, s1, s2, s3] => Ok(Descriptor {
                address: u64::from_be_bytes([*a0, *a1, *a2, *a3, *a4, *a5, *a6, *a7]),
                key: u32::from_be_bytes([*k0, *k1, *k2, *k3]),
                size: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
            }),
            _ => Err(bogus("a buffer descriptor", bytes.len())),
        }
    }
}

/// A message of the wrong length.
pub(crate) fn bogus(expected: &str, got: usize) -> Failure {
    Failure::new(
        Exit::Peer,
        format!("the peer sent {got} bytes where {expected} of {MESSAGE} bytes belongs"),
    )
    .try_this("run an rping program on the other side (rping, krping or transom rping)")
}

/// The bytes of one round: a line of text, then letters that begin one further each time, then 0.
pub(crate) fn payload(round: u64, size: usize) -> Vec<u8> {
    const FIRST: u8 = b'A';
    const COUNT: u64 = (b'z' - FIRST) as u64 + 1;
    let mut bytes = format!("rdma-ping-{round}: ").into_bytes();
    let letters = (0..COUNT).cycle().skip((round % COUNT) as usize);
    bytes.extend(letters.map(|n| FIRST + n as u8).take(size.saturating_sub(bytes.len())));
    bytes.truncate(size);
    if let Some(end) = bytes.last_mut() {
        *end = 0;
    }
    bytes
}

/// How a payload is printed: up to its 0.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    text.iter()
        .map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written down from a session of two Linux kernels, first and third Send of its client.
    const FIRST: [u8; 16] =
        [0, 0, 0x55, 0xd5, 0x43, 0x67, 0x6b, 0x90, 0x9b, 0x14, 0xf3, 0, 0, 0, 0, 0x40];

    #[test]
    fn a_descriptor_is_the_one_on_the_wire() {
        let descriptor = Descriptor::from_bytes(&FIRST).unwrap();
        assert_eq!(
            descriptor,
            Descriptor { address: 0x55d5_4367_6b90, key: 0x9b14_f300, size: 64 }
        );
        assert_eq!(descriptor.to_bytes(), FIRST);
        for length in [0, 15, 17] {
            assert_eq!(Descriptor::from_bytes(&vec![0; length]).unwrap_err().exit, Exit::Peer);
        }
    }

    #[test]
    fn a_payload_is_the_one_on_the_wire() {
        // First and second round of the same session, 64 bytes.
        let first = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0";
        let second = b"rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\0";
        assert_eq!(payload(0, 64), first);
        assert_eq!(payload(1, 64), second);
        assert_eq!(payload(58, 64)[13..16], *b" AB", "58 letters later it begins anew");
        assert_eq!(payload(0, 200)[13 + 58], b'A', "after z comes A");
        assert_eq!(payload(u64::MAX, SMALLEST).len(), SMALLEST);
        assert_eq!(printable(first).len(), 63);
    }
}
