//! The bytes of rsocket's protocol, version 1, in the form that needs no immediate data: a Write, and
//! a Send of one word behind it.

use std::sync::atomic::{Ordering, fence};

/// Bytes of an [`Introduction`].
pub(crate) const INTRODUCTION: usize = 40;
/// Bytes of a [`Target`] in memory.
pub(crate) const TARGET: usize = 16;
/// Bytes of a [`Mapping`] in memory.
pub(crate) const MAPPING: usize = 24;
/// Bytes of a [`Word`].
pub(crate) const WORD: usize = 4;

const VERSION: u8 = 1;
/// The sender keeps its memory in network order.
const BIG_ENDIAN: u8 = 1;
/// The sender has room for mappings, behind its targets.
const MAPS: u8 = 2;
/// A number of mappings beyond this is told in units of 256.
const SCALED: u8 = 0x80;

/// Memory that the other side may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

impl Target {
    /// As a side of that byte order keeps it.
    pub(crate) fn to_bytes(self, big_endian: bool) -> [u8; TARGET] {
        let mut bytes = [0; TARGET];
        let words = if big_endian {
            (self.address.to_be_bytes(), self.key.to_be_bytes(), self.length.to_be_bytes())
        } else {
            (self.address.to_le_bytes(), self.key.to_le_bytes(), self.length.to_le_bytes())
        };
        let (address, rest) = bytes.split_at_mut(8);
        let (key, length) = rest.split_at_mut(4);
        address.copy_from_slice(&words.0);
        key.copy_from_slice(&words.1);
        length.copy_from_slice(&words.2);
        bytes
    }

    /// The target of a place that the peer may be writing, once the whole of it is there. `read` copies
    /// bytes of the place from an offset on.
    ///
    /// The bytes of a Write appear from the lowest address to the highest, so the length, which is last,
    /// is read first: with it the others are there.
    pub(crate) fn published(mut read: impl FnMut(u32, &mut [u8])) -> Option<Target> {
        const BEFORE: u32 = TARGET as u32 - 4;
        let mut length = [0; 4];
        read(BEFORE, &mut length);
        if length == [0; 4] {
            return None;
        }
        fence(Ordering::Acquire);
        let mut bytes = [0; TARGET];
        read(0, &mut bytes);
        Some(Target::from_bytes(&bytes))
    }

    /// As this host keeps it.
    pub(crate) fn from_bytes(bytes: &[u8; TARGET]) -> Target {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Target {
            address: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_ne_bytes([k0, k1, k2, k3]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
        }
    }
}

/// Memory of a side's program under an offset of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) target: Target,
}

impl Mapping {
    pub(crate) fn to_bytes(self, big_endian: bool) -> [u8; MAPPING] {
        let mut bytes = [0; MAPPING];
        let (offset, target) = bytes.split_at_mut(8);
        let order = |n: u64| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        offset.copy_from_slice(&order(self.offset));
        target.copy_from_slice(&self.target.to_bytes(big_endian));
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; MAPPING]) -> Mapping {
        let (mut offset, mut target) = ([0; 8], [0; TARGET]);
        let (front, back) = bytes.split_at(8);
        offset.copy_from_slice(front);
        target.copy_from_slice(back);
        Mapping { offset: u64::from_ne_bytes(offset), target: Target::from_bytes(&target) }
    }
}

/// A side's own description in the private data of Connect and Accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    pub(crate) big_endian: bool,
    /// Messages of data that it takes before it grants more.
    pub(crate) credits: u16,
    /// Mappings that it has room for.
    pub(crate) mappings: u16,
    /// Where its array of targets is; `length` counts its places.
    pub(crate) targets: Target,
    /// The first target.
    pub(crate) buffer: Target,
}

impl Introduction {
    pub(crate) fn to_bytes(self) -> [u8; INTRODUCTION] {
        let mut bytes = [0; INTRODUCTION];
        let (head, targets) = bytes.split_at_mut(8);
        let order = if self.big_endian { BIG_ENDIAN } else { 0 };
        let [high, low] = self.credits.to_be_bytes();
        head.copy_from_slice(&[VERSION, MAPS | order, high, low, 0, 0, 0, scaled(self.mappings)]);
        let (first, second) = targets.split_at_mut(TARGET);
        first.copy_from_slice(&self.targets.to_bytes(true));
        second.copy_from_slice(&self.buffer.to_bytes(true));
        bytes
    }

    /// `None`: no introduction of this version, or one that names no place for targets.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Introduction> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (first, rest) = rest.split_first_chunk::<TARGET>()?;
        let second = rest.first_chunk::<TARGET>()?;
        let [version, flags, high, low, _, _, _, mappings] = *head;
        let network = |bytes| {
            let target = Target::from_bytes(bytes);
            Target {
                address: u64::from_be(target.address),
                key: u32::from_be(target.key),
                length: u32::from_be(target.length),
            }
        };
        let known = Introduction {
            big_endian: flags & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([high, low]),
            mappings: if flags & MAPS == 0 { 0 } else { unscaled(mappings) },
            targets: network(first),
            buffer: network(second),
        };
        (version == VERSION && known.targets.length > 0).then_some(known)
    }
}

fn scaled(number: u16) -> u8 {
    let small = u8::try_from(number).ok().filter(|small| *small <= SCALED);
    small.unwrap_or(SCALED | (number >> 8) as u8)
}

fn unscaled(byte: u8) -> u16 {
    if byte <= SCALED { byte.into() } else { u16::from(byte & !SCALED) << 8 }
}

/// The number of mappings that a side can tell of, for those asked for.
pub(crate) fn representable(mappings: u32) -> u16 {
    unscaled(scaled(u16::try_from(mappings).unwrap_or(u16::MAX)))
}

/// The word of a Send: three bits of kind, 29 of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The number of bytes in the buffer that is being filled.
    Data(u32),
    /// The count of messages of data up to which the peer may send. A new target may have come, too.
    Credits(u16),
    /// A place in the array of mappings was written.
    Mapping(u32),
    /// The sender neither sends nor takes anything more.
    Disconnect,
    Keepalive,
    /// The sender sends nothing more.
    Shutdown,
}

const VALUE: u32 = (1 << 29) - 1;

impl Word {
    pub(crate) fn to_bytes(self) -> [u8; WORD] {
        let (kind, value) = match self {
            Word::Data(length) => (0, length),
            Word::Credits(count) => (4, count.into()),
            Word::Mapping(place) => (6, place),
            Word::Disconnect => (7, 0),
            Word::Keepalive => (7, 1),
            Word::Shutdown => (7, 2),
        };
        (kind << 29 | value & VALUE).to_ne_bytes()
    }

    /// `None`: there is no such word.
    pub(crate) fn from_bytes(bytes: [u8; WORD]) -> Option<Word> {
        let word = u32::from_ne_bytes(bytes);
        let value = word & VALUE;
        Some(match (word >> 29, value) {
            (0, length) => Word::Data(length),
            (4, count) => Word::Credits(count as u16),
            (6, place) => Word::Mapping(place),
            (7, 0) => Word::Disconnect,
            (7, 1) => Word::Keepalive,
            (7, 2) => Word::Shutdown,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Introduction = Introduction {
        big_endian: false,
        credits: 0x0180,
        mappings: 3,
        targets: Target { address: 0x1122_3344_5566_7788, key: 0x99AA_BBCC, length: 2 },
        buffer: Target { address: 0x0102_0304_0506_0708, key: 0x0A0B_0C0D, length: 65_536 },
    };

    #[test]
    fn v137_an_introduction_byte_for_byte_and_back() {
        let bytes = OWN.to_bytes();
        let expected = [
            1, 2, 0x01, 0x80, 0, 0, 0, 3, // version, flags, credits, mappings
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0, 0, 0, 2, 1,
            2, 3, 4, 5, 6, 7, 8, 0x0A, 0x0B, 0x0C, 0x0D, 0, 1, 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Introduction::from_bytes(&bytes), Some(OWN));
        // rdma_cm pads private data with zeros.
        let padded = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Introduction::from_bytes(&padded), Some(OWN));
    }

    #[test]
    fn v137_other_introductions_are_refused() {
        let good = OWN.to_bytes();
        assert_eq!(Introduction::from_bytes(&good[..39]), None);
        assert_eq!(Introduction::from_bytes(&[0; 56]), None);
        let mut newer = good;
        newer[0] = 2;
        assert_eq!(Introduction::from_bytes(&newer), None);
        let mut placeless = good;
        placeless[20..24].fill(0);
        assert_eq!(Introduction::from_bytes(&placeless), None);
    }

    #[test]
    fn v137_numbers_of_mappings() {
        for exact in [0, 1, 127, 128] {
            assert_eq!(representable(exact), exact as u16);
        }
        assert_eq!([129, 256, 300, 600].map(representable), [128, 256, 256, 512]);
        let none = Introduction::from_bytes(&[&[1, 0][..], &OWN.to_bytes()[2..]].concat());
        assert_eq!(none.map(|without| without.mappings), Some(0));
    }

    /// The peer writes a place word by word while it is read word by word: in whatever order these
    /// happen, the target is whole or not there.
    #[test]
    fn v137_a_target_is_not_taken_before_the_whole_of_it_is_there() {
        const WORDS: usize = TARGET / 4;
        const READS: u32 = 1 + WORDS as u32;
        let whole = OWN.buffer.to_bytes(cfg!(target_endian = "big"));
        let (mut taken, mut missing) = (0, 0);
        for order in 0..(WORDS + 1).pow(READS) {
            // How many words are there when each word is read.
            let there: Vec<usize> =
                (0..READS).map(|read| order / (WORDS + 1).pow(read) % (WORDS + 1)).collect();
            if !there.is_sorted() {
                continue;
            }
            let mut moments = there.iter();
            let target = Target::published(|at, into| {
                for (word, into) in (at as usize / 4..).zip(into.chunks_mut(4)) {
                    let is_there = moments.next().is_some_and(|there| word < *there);
                    into.copy_from_slice(if is_there { &whole[word * 4..][..4] } else { &[0; 4] });
                }
            });
            match target {
                Some(target) => assert_eq!(target, OWN.buffer, "{there:?}"),
                None => assert!(there[0] < WORDS, "{there:?}"),
            }
            taken += u32::from(target.is_some());
            missing += u32::from(target.is_none());
        }
        assert_eq!((taken, missing), (1, 125), "all orders of four writes and five reads");
    }

    #[test]
    fn v137_words_there_and_back_and_no_others() {
        let words = [
            (Word::Data(65_536), 0x0001_0000_u32),
            (Word::Credits(0x0180), 0x8000_0180),
            (Word::Mapping(5), 0xC000_0005),
            (Word::Disconnect, 0xE000_0000),
            (Word::Keepalive, 0xE000_0001),
            (Word::Shutdown, 0xE000_0002),
        ];
        for (word, value) in words {
            assert_eq!(u32::from_ne_bytes(word.to_bytes()), value);
            assert_eq!(Word::from_bytes(value.to_ne_bytes()), Some(word));
        }
        for other in [0x2000_0000_u32, 0x4000_0000, 0x6000_0000, 0xA000_0000, 0xE000_0003] {
            assert_eq!(Word::from_bytes(other.to_ne_bytes()), None);
        }
    }

    #[test]
    fn v137_memory_is_in_the_order_of_who_reads_it() {
        let mapping = Mapping { offset: 0x0102, target: OWN.buffer };
        let (little, big) = (mapping.to_bytes(false), mapping.to_bytes(true));
        assert_eq!(little[..2], [2, 1]);
        assert_eq!(big[6..8], [1, 2]);
        assert_eq!(big[8..], OWN.buffer.to_bytes(true));
        if cfg!(target_endian = "little") {
            assert_eq!(Mapping::from_bytes(&little), mapping);
        }
    }
}
