//! Values of both versions' calls: numbers with a limit, private data, addresses.

use std::net::SocketAddr;

use transom_engine::raw::socket_address;

use crate::com::{InPtr, OutPtr, copy_from_program};
use crate::status::*;

/// A number above its limit is refused by its position among the parameters (ND2 2.5).
pub(crate) fn within<N: TryInto<u32>>(value: N, limit: u32, invalid: i32) -> Result<u32, i32> {
    value.try_into().ok().filter(|value| *value <= limit).ok_or(invalid)
}

/// Private data of the program; larger than `limit` is refused before a byte is read, and changes
/// nothing (ND2 C17).
pub(crate) fn private_data(
    private: InPtr<u8>,
    length: usize,
    limit: usize,
    too_long: i32,
) -> Result<Vec<u8>, i32> {
    if length > limit {
        return Err(too_long);
    }
    let mut bytes = vec![0; length];
    if length > 0 {
        copy_from_program(private.address() as u64, &mut bytes).ok_or(ND_ACCESS_VIOLATION)?;
    }
    Ok(bytes)
}

/// Give out bytes whose number may exceed the room: as many as fit, and the number needed.
pub(crate) fn put_private<C: Copy + TryInto<usize> + TryFrom<usize>>(
    bytes: &[u8],
    out: OutPtr<u8>,
    length: OutPtr<C>,
) -> Outcome {
    let room: usize = length.get().ok_or(ND_INVALID_PARAMETER)?.try_into().unwrap_or(0);
    length.put(C::try_from(bytes.len()).map_err(|_| ND_INTERNAL_ERROR)?);
    let room = if out.is_null() { 0 } else { room };
    out.put_bytes(bytes.get(..room.min(bytes.len())).unwrap_or_default());
    if room < bytes.len() { Err(ND_BUFFER_OVERFLOW) } else { Ok(ND_SUCCESS) }
}

/// Give out an address: all of it or nothing (ND2 C48).
pub(crate) fn put_address<C: Copy + TryInto<usize> + TryFrom<usize>>(
    from: SocketAddr,
    out: OutPtr<u8>,
    length: OutPtr<C>,
) -> Outcome {
    let room: usize = length.get().ok_or(ND_INVALID_PARAMETER)?.try_into().unwrap_or(0);
    let bytes = socket_address::encode(from);
    length.put(C::try_from(bytes.len()).map_err(|_| ND_INTERNAL_ERROR)?);
    if room < bytes.len() {
        return Err(ND_BUFFER_OVERFLOW);
    }
    if out.is_null() {
        return Err(ND_INVALID_PARAMETER);
    }
    out.put_bytes(&bytes);
    Ok(ND_SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd2_4_8_private_data_is_none_one_byte_or_as_many_as_there_may_be() {
        let bytes = [1_u8, 2, 3];
        let data = |length| private_data(InPtr::to(&bytes[0]), length, 3, ND_INVALID_PARAMETER);
        assert_eq!(data(0), Ok(vec![]));
        assert_eq!(data(1), Ok(vec![1]));
        assert_eq!(data(3), Ok(vec![1, 2, 3]));
        assert_eq!(data(4), Err(ND_INVALID_PARAMETER));
    }
}
