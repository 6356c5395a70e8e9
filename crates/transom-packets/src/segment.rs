//! TCP and IP around bytes.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader, TcpOptionElement};

/// The most bytes of one segment: with headers a little less than an IP packet can hold.
pub(crate) const LARGEST: usize = 65_480;
/// 1 GiB, so that no sender seems to fill it.
const WINDOW: u16 = u16::MAX;
const WINDOW_SCALE: u8 = 14;
const HOPS: u8 = 64;

/// A segment of TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    /// The next byte expected of the other side, once there is one.
    pub(crate) acknowledges: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) payload: &'a [u8],
}

impl Segment<'_> {
    /// The packet, with checksums; and how many bytes of it are headers.
    pub(crate) fn packet(&self) -> (Vec<u8>, usize) {
        let Segment { from, to, payload, .. } = *self;
        let mut tcp = TcpHeader::new(from.port(), to.port(), self.sequence, WINDOW);
        tcp.ack = self.acknowledges.is_some();
        tcp.acknowledgment_number = self.acknowledges.unwrap_or(0);
        (tcp.syn, tcp.fin, tcp.psh) = (self.syn, self.fin, !payload.is_empty());
        if self.syn {
            let segment = TcpOptionElement::MaximumSegmentSize(LARGEST as u16);
            // Two options of seven bytes always fit.
            let _ = tcp.set_options(&[segment, TcpOptionElement::WindowScale(WINDOW_SCALE)]);
        }
        let length = u16::try_from(tcp.header_len() + payload.len()).unwrap_or(u16::MAX);
        let mut packet = Vec::with_capacity(Ipv6Header::LEN + usize::from(length));
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.octets(), to.octets());
                tcp.checksum = tcp.calc_checksum_ipv4_raw(from, to, payload).unwrap_or(0);
                let mut ip =
                    Ipv4Header::new(length, HOPS, IpNumber::TCP, from, to).unwrap_or_default();
                ip.dont_fragment = true;
                ip.header_checksum = ip.calc_header_checksum();
                packet.extend_from_slice(&ip.to_bytes());
            }
            (from, to) => {
                let (source, destination) = (octets(from), octets(to));
                tcp.checksum =
                    tcp.calc_checksum_ipv6_raw(source, destination, payload).unwrap_or(0);
                let ip = Ipv6Header {
                    payload_length: length,
                    next_header: IpNumber::TCP,
                    hop_limit: HOPS,
                    source,
                    destination,
                    ..Ipv6Header::default()
                };
                packet.extend_from_slice(&ip.to_bytes());
            }
        }
        packet.extend_from_slice(&tcp.to_bytes());
        let headers = packet.len();
        packet.extend_from_slice(payload);
        (packet, headers)
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
