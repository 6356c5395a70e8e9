//! The descriptor that `WSPRegisterRdmaMemory` hands out, to be shipped to the peer (WSD 5.3): 16
//! bytes, always.
//!
//! The descriptor holds no pointer and no handle of this process (WSD A-15): the address in it is
//! one that the provider made up for the registration, and means nothing without the token.

use crate::error::{Error, Result};

/// Bytes of every descriptor.
pub const LENGTH: usize = 16;

const VERSION: [u8; 4] = [b'S', b'A', b'N', 1];

/// A descriptor's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Token at the owner.
    pub token: u32,
    /// Made-up address of byte 0.
    pub base: u64,
}

impl Descriptor {
    /// The bytes, the same on every machine.
    #[must_use]
    pub fn encode(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let parts = VERSION.into_iter().chain(self.token.to_be_bytes());
        let parts = parts.chain(self.base.to_be_bytes());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Read one; any other length or form is `WSAEINVAL` (WSD 5.6). The content is not believed:
    /// its owner judges every use.
    ///
    /// # Errors
    /// `WSAEINVAL` for bytes of another length or form.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor> {
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| Error::WSAEINVAL)?;
        let [v0, v1, v2, v3, t0, t1, t2, t3, base @ ..] = *bytes;
        if [v0, v1, v2, v3] != VERSION {
            return Err(Error::WSAEINVAL);
        }
        let token = u32::from_be_bytes([t0, t1, t2, t3]);
        Ok(Descriptor { token, base: u64::from_be_bytes(base) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WSD 5.3: byte-order-neutral, constant length.
    #[test]
    fn a_descriptor_survives_the_journey() {
        let descriptor = Descriptor { token: 0x0102_0304, base: 0x1122_3344_5566_7788 };
        let bytes = descriptor.encode();
        assert_eq!(&bytes[4..8], &[1, 2, 3, 4]);
        assert_eq!(Descriptor::decode(&bytes), Ok(descriptor));
    }

    /// WSD 5.6: another length or garbage.
    #[test]
    fn another_length_or_form_is_refused() {
        let bytes = Descriptor { token: 1, base: 2 }.encode();
        assert_eq!(Descriptor::decode(&bytes[..15]), Err(Error::WSAEINVAL));
        assert_eq!(Descriptor::decode(&[0; 16]), Err(Error::WSAEINVAL));
    }
}
