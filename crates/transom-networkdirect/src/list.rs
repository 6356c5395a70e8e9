//! Local addresses: which there are, and how they are listed (ND2 2.4, 6.3).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use transom_engine::raw::{self, socket_address};

use crate::com::OutPtr;
use crate::status::*;

/// Addresses that adapters can be opened for, those of other machines' interest first.
pub(crate) fn local() -> Vec<IpAddr> {
    let mut found = raw::interfaces().unwrap_or_default();
    found.retain(|one| one.up && !is_link_local(one.address));
    found.sort_by_key(|one| (one.loopback, one.address.is_ipv6()));
    let mut addresses: Vec<IpAddr> = found.into_iter().map(|one| one.address).collect();
    addresses.dedup();
    addresses
}

/// Needs an interface number besides; NetworkDirect has no place for one (ND2 6.3).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether an adapter can be opened for it. All of 127/8 is this machine's, listed or not.
pub(crate) fn is_local(address: IpAddr) -> bool {
    let loopback = matches!(address, IpAddr::V4(v4) if v4.is_loopback());
    (loopback && local().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST))) || local().contains(&address)
}

const HEADER: usize = 8;
const ENTRY: usize = 16;

/// Write SOCKET_ADDRESS_LIST: the count, the entries, then what they point to, all in one buffer.
/// `length`: room on entry, need on return. `C`: the type of the length, which differs by version.
pub(crate) fn put<C: Copy + TryInto<usize> + TryFrom<usize>>(
    addresses: &[IpAddr],
    out: OutPtr<u8>,
    length: OutPtr<C>,
) -> Outcome {
    let room: usize = length.get().ok_or(ND_INVALID_PARAMETER)?.try_into().unwrap_or(0);
    let bodies: usize = addresses.iter().map(|a| socket_address::length(*a)).sum();
    let need = HEADER + ENTRY * addresses.len().max(1) + bodies;
    length.put(C::try_from(need).map_err(|_| ND_INSUFFICIENT_RESOURCES)?);
    if out.is_null() || room < need {
        // With (NULL, 0) on an empty list too: a caller follows its pointer on success (ND2 C20).
        return Err(ND_BUFFER_OVERFLOW);
    }
    let mut bytes = vec![0; HEADER + ENTRY * addresses.len().max(1)];
    let mut tail = Vec::with_capacity(bodies);
    fill(&mut bytes, 0, &(addresses.len() as i32).to_ne_bytes());
    for (index, one) in addresses.iter().enumerate() {
        let body = socket_address::encode(SocketAddr::new(*one, 0));
        let at = out.address() + bytes.len() + tail.len();
        fill(&mut bytes, HEADER + ENTRY * index, &at.to_ne_bytes());
        fill(&mut bytes, HEADER + ENTRY * index + 8, &(body.len() as i32).to_ne_bytes());
        tail.extend(body);
    }
    bytes.extend(tail);
    out.put_bytes(&bytes);
    Ok(ND_SUCCESS)
}

fn fill(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// A number for the adapter of an address, from which the address can be had again.
pub(crate) fn adapter_id(address: IpAddr) -> u64 {
    match address {
        // Bit 1 of the first byte marks a locally administered number, as in a MAC address.
        IpAddr::V4(v4) => 0x0200_0000_0000_0000 | u64::from(u32::from(v4)),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            let folded = (bits >> 64) as u64 ^ (bits as u64).rotate_left(17);
            0x0600_0000_0000_0000 | (folded & 0x0000_FFFF_FFFF_FFFF)
        }
    }
}

/// The address of such a number, if it is (still) this machine's.
pub(crate) fn address_of(id: u64) -> Option<IpAddr> {
    let v4 = IpAddr::V4(Ipv4Addr::from(id as u32));
    if adapter_id(v4) == id {
        return is_local(v4).then_some(v4);
    }
    local().into_iter().find(|one| adapter_id(*one) == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn easy_25_an_empty_list_is_not_success_on_the_size_query() {
        let mut length = 0u32;
        let mut room = [0xFFu8; HEADER + ENTRY];
        let length_at = std::ptr::from_mut(&mut length) as usize;
        assert_eq!(put(&[], OutPtr::at(0), OutPtr::<u32>::at(length_at)), Err(ND_BUFFER_OVERFLOW));
        assert_eq!(length, 24, "C20");
        let room_at = room.as_mut_ptr() as usize;
        assert_eq!(put(&[], OutPtr::at(room_at), OutPtr::<u32>::at(length_at)), Ok(ND_SUCCESS));
        assert_eq!(room.get(..4), Some(&[0u8; 4][..]), "no addresses");
    }
}
