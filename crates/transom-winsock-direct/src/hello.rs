//! The private data of start-up that two providers exchange.
//!
//! The provider's ports are another space than TCP's, so the ports of the applications' sockets
//! travel here. So does what it takes to continue the connection from another process (WSD D-4): the
//! number that names it, known to its two ends alone, and the port where the other end takes it.

/// Names a connection at one end of it.
pub(crate) type Secret = [u8; 16];

const MAGIC: [u8; 5] = *b"TWSD\x01";
/// The connection is one that another process had (WSD 12.1 step 8).
const CONTINUES: u8 = 1;
/// Bytes of a greeting.
pub(crate) const LENGTH: usize = 44;

/// A provider's greeting, in the private data of a Request or of its Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Port of the application's socket; 0: that of the connection.
    pub(crate) port: u16,
    /// TCP port where this end takes a connection that moves to another process; 0: nowhere.
    pub(crate) takes_at: u16,
    /// The connection's name at this end.
    pub(crate) secret: Secret,
    /// The name at the other end of the connection that this one continues.
    pub(crate) continues: Option<Secret>,
}

impl Hello {
    pub(crate) fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[6..8].copy_from_slice(&self.port.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.takes_at.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.secret);
        if let Some(continues) = self.continues {
            bytes[5] = CONTINUES;
            bytes[28..].copy_from_slice(&continues);
        }
        bytes
    }

    /// `None`: no greeting of a provider.
    pub(crate) fn read(bytes: &[u8]) -> Option<Hello> {
        // Private data may be longer: padding is the wire's.
        let bytes: &[u8; LENGTH] = bytes.first_chunk()?;
        let part = |at: usize| bytes.get(at..at + 16).and_then(|part| Secret::try_from(part).ok());
        if bytes[..5] != MAGIC || bytes[5] > CONTINUES {
            return None;
        }
        Some(Hello {
            port: u16::from_be_bytes([bytes[6], bytes[7]]),
            takes_at: u16::from_be_bytes([bytes[8], bytes[9]]),
            secret: part(12)?,
            continues: if bytes[5] == CONTINUES { Some(part(28)?) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s04_a_greeting_byte_for_byte_and_back() {
        let first = Hello { port: 0x1234, takes_at: 0x5678, secret: [7; 16], continues: None };
        let head = [b"TWSD\x01\0\x12\x34\x56\x78\0\0".as_slice(), &[7; 16]].concat();
        assert_eq!(first.to_bytes()[..], [&head[..], &[0; 16]].concat());
        assert_eq!(Hello::read(&first.to_bytes()), Some(first));
        let second = Hello { continues: Some([9; 16]), ..first };
        assert_eq!(second.to_bytes()[5], 1);
        assert_eq!(second.to_bytes()[28..], [9; 16]);
        assert_eq!(Hello::read(&second.to_bytes()), Some(second));
    }

    #[test]
    fn s04_other_private_data_is_no_greeting() {
        let good = Hello { port: 1, takes_at: 2, secret: [3; 16], continues: None }.to_bytes();
        assert_eq!(Hello::read(&good[..LENGTH - 1]), None);
        assert_eq!(Hello::read(&[]), None);
        for (at, byte) in [(0, b'X'), (4, 2), (5, 2)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Hello::read(&bad), None);
        }
    }
}
