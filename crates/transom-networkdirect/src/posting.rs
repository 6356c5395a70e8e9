//! The common part of posting in both versions: flags, lists, inline bytes.

use arrayvec::ArrayVec;
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
pub(crate) type List = ArrayVec<Sge, { limits::SGE as usize }>;

/// Add an entry; more than an adapter takes are refused (ND2 2.9).
pub(crate) fn push(list: &mut List, entry: Sge) -> Result<(), i32> {
    list.try_push(entry).map_err(|_| ND_DATA_OVERRUN)
}

/// The list of version 2's form.
pub(crate) fn list_of(list: Option<&[Nd2Sge]>) -> Result<List, i32> {
    let mut to = List::new();
    for sge in list.ok_or(ND_INVALID_PARAMETER_2)? {
        let (token, address) = (sge.memory_region_token, sge.buffer as u64);
        push(&mut to, Sge { token, address, length: sge.buffer_length })?;
    }
    Ok(to)
}

/// Bytes captured by an inline request.
pub(crate) type Captured = ArrayVec<u8, { limits::INLINE as usize }>;

/// Copy `length` bytes of the program's memory at `address`; it need not be registered.
pub(crate) fn capture(captured: &mut Captured, address: u64, length: u64) -> Result<(), i32> {
    let length = usize::try_from(length).map_err(|_| ND_BUFFER_OVERFLOW)?;
    if length > captured.remaining_capacity() {
        return Err(ND_BUFFER_OVERFLOW);
    }
    if length == 0 {
        return Ok(());
    }
    let before = captured.len();
    captured.extend(std::iter::repeat_n(0, length));
    let room = captured.get_mut(before..).unwrap_or_default();
    let copied = crate::com::copy_from_program(address, room);
    if copied.is_none() {
        captured.truncate(before);
    }
    copied.ok_or(ND_ACCESS_VIOLATION)
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
        capture(&mut captured, a.as_ptr() as u64, 2).unwrap();
        assert_eq!(
            capture(&mut captured, b.as_ptr() as u64, b.len() as u64),
            Err(ND_BUFFER_OVERFLOW)
        );
        capture(&mut captured, b.as_ptr() as u64, 1).unwrap();
        assert_eq!(captured.as_slice(), [1, 2, 3]);
        assert_eq!(
            capture(&mut captured, 8, 1),
            Err(ND_ACCESS_VIOLATION),
            "a bad pointer is an answer"
        );
    }
}
