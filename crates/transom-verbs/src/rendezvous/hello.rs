//! The start-up between two queue pairs: each sends its number and what it expects (Verbs V75).

use transom_engine::QueuePairKind;

use crate::abi::qpt;
use crate::queue_pair::QueuePair;

const MAGIC: [u8; 4] = *b"TVQP";
const VERSION: u8 = 1;

/// The private data of the start-up (Verbs V75), as the side that sends it sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) kind: u8,
    pub(super) destination: u32,
    pub(super) source: u32,
    pub(super) sq_psn: u32,
    pub(super) rq_psn: u32,
    pub(super) path_mtu: u8,
}

impl Hello {
    pub(super) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [self.destination, self.source, self.sq_psn, self.rq_psn];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind;
        for (to, word) in bytes[8..24].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes[24] = self.path_mtu;
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let word = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map_or(0, u32::from_be_bytes)
        };
        Some(Hello {
            kind: bytes[5],
            destination: word(8),
            source: word(12),
            sq_psn: word(16),
            rq_psn: word(20),
            path_mtu: bytes[24],
        })
    }

    /// The attributes that a queue pair sends to its peer.
    pub(super) fn of(queue_pair: &QueuePair) -> Hello {
        let attr = queue_pair.attributes();
        Hello {
            kind: type_of(queue_pair),
            destination: attr.dest_qp_num,
            source: queue_pair.number,
            sq_psn: attr.sq_psn,
            rq_psn: attr.rq_psn,
            path_mtu: attr.path_mtu as u8,
        }
    }
}

/// The type of a queue pair, as the start-up names it.
fn type_of(queue_pair: &QueuePair) -> u8 {
    let of = match queue_pair.kind() {
        QueuePairKind::Uc => qpt::UC,
        QueuePairKind::XrcSend => qpt::XRC_SEND,
        QueuePairKind::XrcReceive => qpt::XRC_RECV,
        QueuePairKind::Rc | QueuePairKind::Ud => qpt::RC, // datagrams have no start-up
    };
    of as u8
}

/// The type that its peer has.
pub(super) fn type_of_peer(queue_pair: &QueuePair) -> u8 {
    let of = match queue_pair.kind() {
        QueuePairKind::XrcSend => qpt::XRC_RECV,
        QueuePairKind::XrcReceive => qpt::XRC_SEND,
        _ => return type_of(queue_pair),
    };
    of as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v75_private_data_byte_for_byte_and_back() {
        let hello = Hello {
            kind: 2,
            destination: 0x00ab_cd01,
            source: 0x0012_3402,
            sq_psn: 0x0055_6677,
            rq_psn: 0x0000_0001,
            path_mtu: 5,
        };
        let bytes = hello.to_bytes();
        let mut expected = b"TVQP".to_vec();
        expected.extend([1, 2, 0, 0]);
        expected.extend([0, 0xab, 0xcd, 1, 0, 0x12, 0x34, 2, 0, 0x55, 0x66, 0x77, 0, 0, 0, 1]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.as_slice(), expected);
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
    }

    #[test]
    fn v75_other_private_data_has_no_token() {
        let good = [b"TVQP\x01\x02".as_slice(), &[0; 26]].concat();
        assert!(Hello::from_bytes(&good).is_some());
        assert!(Hello::from_bytes(&good[..31]).is_none());
        assert!(Hello::from_bytes(&[&good[..], &[0]].concat()).is_none());
        for (at, byte) in [(0, b'X'), (4, 2)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Hello::from_bytes(&bad).is_none());
        }
    }
}
