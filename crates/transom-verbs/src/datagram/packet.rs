//! Datagrams as RoCEv2 lays them out behind the UDP header: base transport header, datagram header,
//! immediate data, payload, checksum, which is 0 here (Verbs V138).

use std::net::IpAddr;

use transom_engine::raw::{IpFields, Message};

/// Operation codes of the base transport header.
const SEND_ONLY: u8 = 0x64;
const SEND_ONLY_WITH_IMMEDIATE: u8 = 0x65;
/// Bits of the second byte: a solicited event, and how many bytes the payload was padded by.
const SOLICITED: u8 = 0x80;
const PAD_SHIFT: u8 = 4;
const DEFAULT_PARTITION: [u8; 2] = [0xff, 0xff];
/// Bytes of both headers, of immediate data, of the checksum.
const HEADERS: usize = 20;
const IMMEDIATE: usize = 4;
const CHECKSUM: usize = 4;

/// A datagram on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) destination: u32,
    pub(crate) source: u32,
    pub(crate) key: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Append it to `out`. Numbers are below 2^24.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let pad = self.payload.len().wrapping_neg() % 4;
        let opcode = if self.immediate.is_some() { SEND_ONLY_WITH_IMMEDIATE } else { SEND_ONLY };
        let solicited = if self.solicited { SOLICITED } else { 0 };
        out.extend([opcode, solicited | (pad as u8) << PAD_SHIFT]);
        out.extend(DEFAULT_PARTITION);
        out.extend(self.destination.to_be_bytes());
        out.extend([0; 4]); // no acknowledgement, sequence number 0
        out.extend(self.key.to_be_bytes());
        out.extend(self.source.to_be_bytes());
        if let Some(immediate) = self.immediate {
            out.extend(immediate.to_be_bytes());
        }
        out.extend(self.payload);
        out.extend([0; CHECKSUM + 3].iter().take(CHECKSUM + pad));
    }

    /// `None` for bytes that are no such datagram.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let (headers, rest) = bytes.split_at_checked(HEADERS)?;
        let (rest, _checksum) = rest.split_at_checked(rest.len().checked_sub(CHECKSUM)?)?;
        let word = |at: usize| {
            headers.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes)
        };
        let [opcode, bits, ..] = *headers else { return None };
        let (immediate, padded) = match opcode {
            SEND_ONLY => (None, rest),
            SEND_ONLY_WITH_IMMEDIATE => {
                let (immediate, rest) = rest.split_first_chunk::<IMMEDIATE>()?;
                (Some(u32::from_be_bytes(*immediate)), rest)
            }
            _ => return None,
        };
        let pad = usize::from(bits >> PAD_SHIFT & 3);
        let payload = padded.get(..padded.len().checked_sub(pad)?)?;
        let (destination, source) = (word(4)? & 0xff_ffff, word(16)? & 0xff_ffff);
        let solicited = bits & SOLICITED != 0;
        Some(Packet { destination, source, key: word(12)?, immediate, solicited, payload })
    }
}

/// Bytes of an IPv4 header, and of a UDP header.
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
/// The 40 bytes in front of a datagram's payload in its receive: the IPv6 header, or an IPv4 header
/// behind 20 zeros, of the packet that the message was in (Verbs V140).
pub(crate) fn route(message: &Message) -> [u8; 40] {
    let mut bytes = [0; 40];
    let udp = UDP_HEADER + message.length;
    let IpFields { traffic_class, hop_limit } = message.fields;
    match (message.from.ip(), message.to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = &mut bytes[40 - IPV4_HEADER..];
            header[0] = 0x45; // version 4, five words
            header[1] = traffic_class;
            header[2..4].copy_from_slice(&((IPV4_HEADER + udp) as u16).to_be_bytes());
            header[6] = 0x40; // not to be fragmented
            header[8] = hop_limit;
            header[9] = UDP;
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&destination.octets());
            let checksum = checksum(header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            bytes[..2].copy_from_slice(&(0x6000 | u16::from(traffic_class) << 4).to_be_bytes());
            bytes[4..6].copy_from_slice(&(udp as u16).to_be_bytes());
            bytes[6] = UDP;
            bytes[7] = hop_limit;
            bytes[8..24].copy_from_slice(&crate::gid::bytes_of(source));
            bytes[24..].copy_from_slice(&crate::gid::bytes_of(destination));
        }
    }
    bytes
}

/// Source and destination in the 40 bytes in front of a payload (Verbs V142).
pub(crate) fn ends(route: &[u8; 40]) -> (IpAddr, IpAddr) {
    let [_, _, _, _, v6 @ ..] = route;
    let (_, v4) = route.split_at(40 - IPV4_HEADER);
    let four = |at: usize| v4.get(at..at + 4).and_then(|octets| octets.try_into().ok());
    let sixteen = |at: usize| v6.get(at..at + 16).and_then(|octets| octets.try_into().ok());
    let plausible = v4.first().is_some_and(|first| *first == 0x45) && checksum(v4) == 0;
    let found = if plausible {
        let of = |at| four(at).map(|octets: [u8; 4]| IpAddr::from(octets));
        of(12).zip(of(16))
    } else {
        let of = |at| sixteen(at).map(crate::gid::address_of);
        of(4).zip(of(20))
    };
    let none = IpAddr::from([0; 16]);
    found.unwrap_or((none, none))
}

/// The checksum of an IPv4 header; 0 for one that holds its own.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Packet<'static> = Packet {
        destination: 0x12_3456,
        source: 0x65_4321,
        key: 0x8899_aabb,
        immediate: None,
        solicited: false,
        payload: b"hello",
    };

    /// Laid out by hand from the format (InfiniBand 9.2, 9.3.2; annex 17).
    const BYTES: [u8; 32] = [
        0x64, 0x30, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0, //
        0x88, 0x99, 0xaa, 0xbb, 0, 0x65, 0x43, 0x21, //
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn v138_a_datagram_is_laid_out_as_roce_does() {
        let mut out = vec![1, 2, 3];
        PLAIN.encode(&mut out);
        assert_eq!(out, [&[1, 2, 3], &BYTES[..]].concat(), "behind what is there");
        assert_eq!(Packet::decode(&BYTES), Some(PLAIN));
    }

    #[test]
    fn v138_immediate_data_and_a_solicited_event() {
        let packet =
            Packet { immediate: Some(0x0102_0304), solicited: true, payload: b"four", ..PLAIN };
        let mut out = Vec::new();
        packet.encode(&mut out);
        assert_eq!(out[..2], [0x65, 0x80]);
        assert_eq!(out[20..], [1, 2, 3, 4, b'f', b'o', b'u', b'r', 0, 0, 0, 0]);
        assert_eq!(Packet::decode(&out), Some(packet));
    }

    #[test]
    fn v138_every_length_comes_back() {
        let bytes: Vec<u8> = (0..9).collect();
        for length in 0..bytes.len() {
            let mut out = Vec::new();
            let packet = Packet { payload: &bytes[..length], ..PLAIN };
            packet.encode(&mut out);
            assert_eq!(out.len() % 4, 0);
            assert_eq!(Packet::decode(&out), Some(packet));
        }
    }

    #[test]
    fn bytes_that_are_no_datagram_are_dropped() {
        for length in 0..24 {
            assert_eq!(Packet::decode(&BYTES[..length]), None, "{length} bytes");
        }
        let with = |at: usize, value: u8| {
            let mut bytes = BYTES;
            bytes[at] = value;
            bytes
        };
        assert_eq!(Packet::decode(&with(0, 0x04)), None); // a Send of a reliable connection
        assert_eq!(Packet::decode(&with(0, 0x65)[..27]), None); // immediate data cut off
        assert!(Packet::decode(&with(0, 0x65)[..28]).is_none()); // less than its padding
        assert_eq!(Packet::decode(&BYTES[..24]), None); // padded by more than there is
    }

    fn message(from: IpAddr, to: IpAddr) -> Message {
        let fields = IpFields { traffic_class: 0xb9, hop_limit: 61 };
        Message { length: 32, from: (from, 4791).into(), to, fields }
    }

    #[test]
    fn v140_the_header_of_ipv4_lies_behind_zeros() {
        let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let bytes = route(&message(a, b));
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!(bytes[20..30], [0x45, 0xb9, 0, 60, 0, 0, 0x40, 0, 61, 17]);
        assert_eq!(bytes[32..], [192, 0, 2, 1, 192, 0, 2, 2]);
        // RFC 791: the sum of all words, the checksum among them, is 0xffff.
        let sum: u32 = bytes[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!(sum % 0xffff, 0);
        assert_eq!(ends(&bytes), (a, b));
    }

    #[test]
    fn v140_the_header_of_ipv6_fills_the_area() {
        let (a, b) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let bytes = route(&message(a, b));
        assert_eq!(bytes[..8], [0x6b, 0x90, 0, 0, 0, 40, 17, 61]);
        assert_eq!(bytes[8..24], [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(ends(&bytes), (a, b));
    }
}
