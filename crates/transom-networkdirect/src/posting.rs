//! The common part of posting in both versions: flags, lists, inline bytes.

use transom_engine::{Flags, Sge};

use crate::abi::*;
use crate::limits;
use crate::status::*;

/// Flags of ND2 2.9 in the engine's words. `allowed`: those that the operation knows;
/// `position`: the number of the flags among the method's parameters.
pub(crate) fn flags(given: u32, allowed: u32, invalid: i32) -> Result<Flags, i32> {
    if given & !allowed != 0 {
        return Err(invalid);
    }
    let pick = |bit: u32, flag: Flags| if given & bit != 0 { flag } else { Flags::NONE };
    Ok(pick(OP_SILENT_SUCCESS, Flags::SILENT_SUCCESS)
        | pick(OP_READ_FENCE, Flags::READ_FENCE)
        | pick(OP_SOLICIT, Flags::SOLICIT))
}

/// A list in the engine's words, on the stack: nothing on the data path allocates.
#[derive(Debug, PartialEq)]
pub(crate) struct List {
    entries: [Sge; limits::SGE as usize],
    count: usize,
}

impl List {
    /// An empty one.
    pub(crate) fn new() -> List {
        List { entries: [Sge::default(); limits::SGE as usize], count: 0 }
    }

    /// Add an entry; more than an adapter takes are refused (ND2 2.9).
    pub(crate) fn push(&mut self, entry: Sge) -> Result<(), i32> {
        *self.entries.get_mut(self.count).ok_or(ND_DATA_OVERRUN)? = entry;
        self.count += 1;
        Ok(())
    }

    /// From version 2's form.
    pub(crate) fn of(list: Option<&[Nd2Sge]>) -> Result<List, i32> {
        let mut to = List::new();
        for sge in list.ok_or(ND_INVALID_PARAMETER_2)? {
            to.push(Sge {
                token: sge.memory_region_token,
                address: sge.buffer as u64,
                length: sge.buffer_length,
            })?;
        }
        Ok(to)
    }

    /// The entries.
    pub(crate) fn as_slice(&self) -> &[Sge] {
        self.entries.get(..self.count).unwrap_or_default()
    }
}

/// Bytes captured by an inline request.
#[derive(Debug)]
pub(crate) struct Captured {
    bytes: [u8; limits::INLINE as usize],
    count: usize,
}

impl Captured {
    /// None yet.
    pub(crate) fn new() -> Captured {
        Captured { bytes: [0; limits::INLINE as usize], count: 0 }
    }

    /// Copy `length` bytes of the program's memory at `address`; it need not be registered.
    pub(crate) fn add(&mut self, address: u64, length: u64) -> Result<(), i32> {
        if length == 0 {
            return Ok(());
        }
        let length = usize::try_from(length).map_err(|_| ND_BUFFER_OVERFLOW)?;
        let room = self
            .count
            .checked_add(length)
            .and_then(|end| self.bytes.get_mut(self.count..end))
            .ok_or(ND_BUFFER_OVERFLOW)?;
        crate::com::copy_from_program(address, room).ok_or(ND_ACCESS_VIOLATION)?;
        self.count += length;
        Ok(())
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or_default()
    }
}

/// A remote token as programs carry it: its four bytes in memory are wire order (ND2 5.4).
pub(crate) fn remote_token(token: u32) -> u32 {
    token.to_be()
}

/// And back.
pub(crate) fn token_of(remote: u32) -> u32 {
    u32::from_be(remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_flags_are_refused_and_known_ones_kept() {
        assert_eq!(flags(0x20, 0x1F, ND_INVALID_PARAMETER_4), Err(ND_INVALID_PARAMETER_4));
        let both = flags(0x5, 0x7, ND_INVALID_PARAMETER_4).unwrap();
        assert_eq!(both, Flags::SILENT_SUCCESS | Flags::SOLICIT);
    }

    #[test]
    fn inline_bytes_are_gathered_and_bounded() {
        let (a, b) = ([1u8, 2], [3u8; limits::INLINE as usize]);
        let mut captured = Captured::new();
        captured.add(a.as_ptr() as u64, 2).unwrap();
        assert_eq!(captured.add(b.as_ptr() as u64, b.len() as u64), Err(ND_BUFFER_OVERFLOW));
        captured.add(b.as_ptr() as u64, 1).unwrap();
        assert_eq!(captured.as_slice(), [1, 2, 3]);
        assert_eq!(captured.add(8, 1), Err(ND_ACCESS_VIOLATION), "a bad pointer is an answer");
    }
}
