//! The extension functions, by GUID (WSD 2.4).

use crate::abi::Guid;
use crate::error::{Error, Result};

/// A function of those beyond Winsock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// `WSPRegisterMemory`.
    RegisterMemory,
    /// `WSPDeregisterMemory`.
    DeregisterMemory,
    /// `WSPRegisterRdmaMemory`.
    RegisterRdmaMemory,
    /// `WSPDeregisterRdmaMemory`.
    DeregisterRdmaMemory,
    /// `WSPRdmaWrite`.
    RdmaWrite,
    /// `WSPRdmaRead`; a provider may lack it.
    RdmaRead,
    /// `WSPMemoryRegistrationCacheCallback`; a provider may lack it.
    MemoryRegistrationCacheCallback,
}

const fn family(data1: u32) -> Guid {
    let data4 = [0xAD, 0x6C, 0x00, 0xC0, 0x4F, 0xA3, 0x4A, 0x2D];
    Guid { data1, data2: 0xF58C, data3: 0x11D1, data4 }
}

/// Every extension and its GUID.
pub const EXTENSIONS: [(Guid, Extension); 7] = [
    (family(0xC0B4_22F5), Extension::RegisterMemory),
    (family(0xC0B4_22F6), Extension::DeregisterMemory),
    (family(0xC0B4_22F7), Extension::RegisterRdmaMemory),
    (family(0xC0B4_22F8), Extension::DeregisterRdmaMemory),
    (family(0xC0B4_22F9), Extension::RdmaWrite),
    (family(0xC0B4_22FA), Extension::RdmaRead),
    (
        Guid {
            data1: 0xE5DA_4AF8,
            data2: 0xD824,
            data3: 0x48CD,
            data4: [0xA7, 0x99, 0x63, 0x37, 0xA9, 0x8E, 0xD2, 0xAF],
        },
        Extension::MemoryRegistrationCacheCallback,
    ),
];

/// The optional parts that a provider offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// `WSPRdmaRead`.
    pub rdma_read: bool,
    /// `WSPMemoryRegistrationCacheCallback`.
    pub cache_callback: bool,
}

impl Default for Offers {
    fn default() -> Offers {
        Offers { rdma_read: true, cache_callback: true }
    }
}

impl Offers {
    /// From the bits of `SIO_TRANSOM_OFFER`: 1 is `WSPRdmaRead`, 2 is
    /// `WSPMemoryRegistrationCacheCallback`.
    ///
    /// # Errors
    /// `WSAEINVAL` for any other bit.
    pub fn from_bits(bits: u32) -> Result<Offers> {
        match bits {
            0..=3 => Ok(Offers { rdma_read: bits & 1 != 0, cache_callback: bits & 2 != 0 }),
            _ => Err(Error::WSAEINVAL),
        }
    }
}

/// Which function a GUID names (WSD W1): unknown ones are `WSAEINVAL`, absent ones `WSAEOPNOTSUPP`.
///
/// # Errors
/// `WSAEINVAL` for an unknown identifier, `WSAEOPNOTSUPP` for a function that is not offered.
pub fn find(guid: &Guid, offers: Offers) -> Result<Extension> {
    let found = EXTENSIONS.iter().find(|(known, _)| known == guid);
    match found.map(|&(_, extension)| extension) {
        None => Err(Error::WSAEINVAL),
        Some(Extension::RdmaRead) if !offers.rdma_read => Err(Error::WSAEOPNOTSUPP),
        Some(Extension::MemoryRegistrationCacheCallback) if !offers.cache_callback => {
            Err(Error::WSAEOPNOTSUPP)
        }
        Some(extension) => Ok(extension),
    }
}
