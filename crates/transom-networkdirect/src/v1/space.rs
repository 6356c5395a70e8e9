//! Port spaces. Version 1 has one for each IANA protocol number; here all of them lie in the TCP
//! ports of the address, and those of protocols other than TCP under another number: the same port
//! of two protocols is two TCP ports (ND1 10, T30). Both sides compute the same; a port that
//! another program has is in use.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::status::ND_INVALID_PARAMETER;

const TCP: u8 = 6;

/// The space of one protocol.
#[derive(Debug)]
pub(crate) struct Space(AtomicU8);

impl Space {
    /// The space of `protocol`; 0 is TCP's. `None`: no protocol number.
    pub(crate) fn of(protocol: i32) -> Option<Space> {
        let number = u8::try_from(protocol).ok()?;
        Some(Space(AtomicU8::new(if number == 0 { TCP } else { number })))
    }

    /// TCP's.
    pub(crate) fn tcp() -> Space {
        Space(AtomicU8::new(TCP))
    }

    /// Become what `other` is.
    pub(crate) fn set(&self, other: &Space) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The TCP port of one of its ports, and back. 0, for "any", stays what it is.
    pub(crate) fn map(&self, port: u16) -> u16 {
        // Reversed, so that UDP's ports (17) that would need privileges are few, and high.
        let mask = (self.0.load(Ordering::Relaxed) ^ TCP).reverse_bits();
        if port == 0 { 0 } else { port ^ u16::from(mask) << 8 }
    }

    /// Map an address of version 1. A port that has no twin is refused.
    pub(crate) fn map_address(&self, mut address: SocketAddr) -> Result<SocketAddr, i32> {
        let port = self.map(address.port());
        if port == 0 && address.port() != 0 {
            return Err(ND_INVALID_PARAMETER);
        }
        address.set_port(port);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd1_t30_protocols_have_ports_of_their_own() {
        let [tcp, udp] = [6, 17].map(|protocol| Space::of(protocol).unwrap());
        for port in [1, 5000, 65535] {
            assert_eq!(tcp.map(port), port);
            assert_ne!(udp.map(port), port);
            assert_eq!(udp.map(udp.map(port)), port, "and back");
        }
        assert_eq!(udp.map(0), 0, "any port");
        assert_eq!(Space::of(0).unwrap().map(5000), 5000);
        assert!(Space::of(256).is_none() && Space::of(-1).is_none());
        let mut seen: Vec<u16> = (1..=255).map(|p| Space::of(p).unwrap().map(5000)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 255, "no two protocols share one");
    }
}
