//! Blocks of a pcapng file, in little-endian order: the five kinds that a capture needs. The crates that
//! write the format bring a parser's dependencies with them, or cannot name hosts.

use std::net::IpAddr;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const NAMES: u32 = 4;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Packets begin with an IP header (LINKTYPE_RAW).
const RAW_IP: u16 = 101;
/// Nanoseconds (`if_tsresol`).
const NANOSECONDS: u8 = 9;
/// The longest option: its length field has 16 bits.
const LONGEST_OPTION: usize = u16::MAX as usize;

/// A file's first block.
pub(crate) fn section(out: &mut Vec<u8>, application: &str, comment: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&0x1A2B_3C4D_u32.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // length not given
        option(out, 4, application.as_bytes());
        option(out, 1, comment.as_bytes());
        end_of_options(out);
    });
}

/// The interface to which all packets belong.
pub(crate) fn interface(out: &mut Vec<u8>, name: &str, description: &str) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&RAW_IP.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&0_u32.to_le_bytes()); // no limit: each packet says what was kept
        option(out, 2, name.as_bytes());
        option(out, 3, description.as_bytes());
        option(out, 9, &[NANOSECONDS]);
        end_of_options(out);
    });
}

/// Names of addresses.
pub(crate) fn names<'a>(out: &mut Vec<u8>, names: impl Iterator<Item = (IpAddr, &'a str)>) {
    block(out, NAMES, |out| {
        for (address, name) in names {
            let (kind, mut value) = match address {
                IpAddr::V4(address) => (1, address.octets().to_vec()),
                IpAddr::V6(address) => (2, address.octets().to_vec()),
            };
            value.extend_from_slice(name.as_bytes());
            value.push(0);
            option(out, kind, &value);
        }
        out.extend_from_slice(&[0; 4]);
    });
}

/// A packet of a capture.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    /// The bytes that are kept.
    pub(crate) kept: &'a [u8],
    /// The length of the whole packet.
    pub(crate) length: usize,
    pub(crate) outbound: bool,
    pub(crate) comments: &'a [String],
}

impl Packet<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        block(out, PACKET, |out| {
            out.extend_from_slice(&0_u32.to_le_bytes());
            moment(out, self.at);
            for length in [self.kept.len(), self.length] {
                out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
            }
            out.extend_from_slice(self.kept);
            pad(out, self.kept.len());
            let direction: u32 = if self.outbound { 2 } else { 1 };
            option(out, 2, &direction.to_le_bytes());
            for comment in self.comments {
                option(out, 1, comment.as_bytes());
            }
            end_of_options(out);
        });
    }
}

/// How many packets there were, and how many of them are not in the files.
pub(crate) fn statistics(out: &mut Vec<u8>, at: u64, packets: u64, missing: u64) {
    block(out, STATISTICS, |out| {
        out.extend_from_slice(&0_u32.to_le_bytes());
        moment(out, at);
        option(out, 4, &packets.to_le_bytes());
        option(out, 5, &missing.to_le_bytes());
        end_of_options(out);
    });
}

/// How many bytes of the first `limit` are whole blocks, and how many packets lie in the blocks
/// after them.
pub(crate) fn whole_within(blocks: &[u8], limit: usize) -> (usize, u64) {
    let (mut whole, mut at, mut beyond) = (0, 0, 0);
    while let Some((&[kind, length], _)) =
        blocks.get(at..).and_then(|rest| rest.as_chunks::<4>().0.split_first_chunk::<2>())
    {
        let length = u32::from_le_bytes(length) as usize;
        if length < 12 {
            break; // none of ours
        }
        at += length;
        if at <= limit {
            whole = at;
        } else if u32::from_le_bytes(kind) == PACKET {
            beyond += 1;
        }
    }
    (whole, beyond)
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start + 4).unwrap_or(u32::MAX).to_le_bytes();
    if let Some(room) = out.get_mut(start + 4..start + 8) {
        room.copy_from_slice(&length);
    }
    out.extend_from_slice(&length);
}

fn moment(out: &mut Vec<u8>, at: u64) {
    out.extend_from_slice(&((at >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&((at & 0xFFFF_FFFF) as u32).to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..LONGEST_OPTION).unwrap_or(value);
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

fn pad(out: &mut Vec<u8>, length: usize) {
    out.resize(out.len() + length.next_multiple_of(4) - length, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_as_far_as_they_are_whole() {
        let packet = Packet { at: 1, kept: &[7; 5], length: 9, outbound: true, comments: &[] };
        let mut bytes = Vec::new();
        section(&mut bytes, "test", "");
        let first = bytes.len();
        packet.write(&mut bytes);
        let second = bytes.len();
        packet.write(&mut bytes);
        assert_eq!(whole_within(&bytes, bytes.len()), (bytes.len(), 0));
        assert_eq!(whole_within(&bytes, bytes.len() - 1), (second, 1));
        assert_eq!(whole_within(&bytes, second), (second, 1));
        assert_eq!(whole_within(&bytes, second - 1), (first, 2));
        assert_eq!(whole_within(&bytes, first - 1), (0, 2), "the section is no packet");
        assert_eq!(whole_within(&[], 0), (0, 0));
    }
}
