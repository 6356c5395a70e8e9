//! Names in a network namespace that processes hold by an abstract Unix socket, each with a number that it
//! tells.
//!
//! Any user may take any name, so that a name says nothing without its holder's user, whom the kernel names
//! (`unix_diag`, Linux 5.3). A name has as many places as it has holders: one of a user who does not count
//! keeps nobody from it. Nothing can be sent to such a socket, which neither listens nor is connected, so that
//! no holder answers, waits or can be kept waiting.

use std::collections::BTreeSet;

use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, netlink,
};

use super::{Fd, IoError};
use transom_os::answers::{NameHolder, name_holders, question_of_names};

/// Bytes that the kernel puts into one part of its list at most.
const PART: usize = 32 << 10;
/// A list in several parts is read so often: a socket that ends between two of them may hide another.
const MOST_READ: usize = 2;
/// Places that others may take while one is looked for.
const MOST_TRIED: usize = 64;

/// A name that this process holds. Dropping it gives the name back.
#[derive(Debug)]
pub(crate) struct Name(#[allow(dead_code, reason = "held, not used")] Fd);

impl Name {
    /// Hold `name`, and tell `number`. `InUse`: a process whose user `counts` holds it, or, where the kernel
    /// does not say whose names are, any process does.
    pub(crate) fn hold(
        name: &str,
        number: u16,
        counts: impl Fn(u32) -> bool,
    ) -> Result<Name, IoError> {
        let mut found = holders(&[name]);
        for _ in 0..MOST_TRIED {
            let known = found.as_deref().unwrap_or_default();
            if known.iter().any(|one| counts(one.user)) {
                return Err(IoError::InUse);
            }
            let taken: BTreeSet<_> = known.iter().map(|one| one.place).collect();
            let place = (0..).find(|place| !taken.contains(place)).unwrap_or_default();
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let kind = SocketType::STREAM;
            let fd = Fd::from(net::socket_with(AddressFamily::UNIX, kind, flags, None)?);
            let full = format!("{name}={number}#{place}");
            let bound = net::bind(&fd, &SocketAddrUnix::new_abstract_name(full.as_bytes())?);
            match bound.map_err(IoError::from) {
                Err(IoError::InUse) if found.is_ok() => found = holders(&[name]),
                Err(error) => return Err(error),
                Ok(()) => {
                    // At another place another process may have come first.
                    let own = |one: &NameHolder| (one.place, one.number) == (place, number);
                    let all = holders(&[name]).unwrap_or_default();
                    let others = all.iter().any(|one| !own(one) && counts(one.user));
                    return if others { Err(IoError::InUse) } else { Ok(Name(fd)) };
                }
            }
        }
        // Others were faster each time, or the kernel shows names without users.
        Err(IoError::InUse)
    }
}

/// The holders of these names, in their order. The list of the whole namespace is read for them, which takes the longer
/// the more sockets there are.
///
/// # Errors
/// Of the system, which may know no such question.
pub(crate) fn holders(names: &[&str]) -> Result<Vec<NameHolder>, IoError> {
    let mut found = BTreeSet::new();
    for _ in 0..MOST_READ {
        if read_list(names, &mut found)? <= 1 {
            break;
        }
    }
    Ok(found.into_iter().collect())
}

/// Read the kernel's list once; the number of its parts.
fn read_list(names: &[&str], found: &mut BTreeSet<NameHolder>) -> Result<usize, IoError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (family, protocol) = (AddressFamily::NETLINK, Some(netlink::SOCK_DIAG));
    let socket = Fd::from(net::socket_with(family, SocketType::RAW, flags, protocol)?);
    net::send(&socket, &question_of_names(), SendFlags::empty())?;
    let mut part = vec![0; PART];
    let mut parts = 0;
    loop {
        // The kernel writes each part within a call; no other sender can reach this unnamed socket.
        let (length, _) = net::recv(&socket, part.as_mut_slice(), RecvFlags::empty())?;
        let list = name_holders(part.get(..length).unwrap_or_default(), names);
        parts += usize::from(list.sockets > 0);
        found.extend(list.found);
        if let Some(error) = list.refused {
            return Err(IoError::Other(error));
        }
        if list.ended || length == 0 {
            return Ok(parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::user;
    use super::*;

    #[test]
    fn a_name_is_held_once_and_told_with_its_user() {
        let name = format!("transom-test/name/{}", std::process::id());
        let holders = |name: &str| holders(&[name]).unwrap();
        assert_eq!(holders(&name), [], "of none");
        let held = Name::hold(&name, 7, |_| true).unwrap();
        assert_eq!(holders(&name), [NameHolder { name: 0, user: user(), number: 7, place: 0 }]);
        assert_eq!(Name::hold(&name, 7, |_| true).unwrap_err(), IoError::InUse);
        assert_eq!(Name::hold(&name, 8, |_| true).unwrap_err(), IoError::InUse, "any number");
        assert_eq!(holders(&name[..name.len() - 1]), [], "the beginning of it");
        let longer = format!("{name}/at");
        let other = Name::hold(&longer, 9, |_| true).unwrap();
        let both = super::holders(&["x", &longer, &name]).unwrap();
        let numbers: Vec<_> = both.iter().map(|one| (one.name, one.number)).collect();
        assert_eq!(numbers, [(1, 9), (2, 7)]);
        drop((held, other));
        assert_eq!(holders(&name), []);
    }

    #[test]
    fn holders_who_do_not_count_keep_no_one_from_a_name() {
        let name = format!("transom-test/foreign/{}", std::process::id());
        // Enough of them for a list of several parts.
        let foreign: Vec<_> = (0..1000)
            .map(|place| {
                let fd = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
                let full = format!("{name}=1#{place}");
                let at = SocketAddrUnix::new_abstract_name(full.as_bytes()).unwrap();
                net::bind(&fd, &at).unwrap();
                fd
            })
            .collect();
        let own = Name::hold(&name, 2, |_| false).unwrap();
        let found = holders(&[&name]).unwrap();
        assert_eq!(found.len(), foreign.len() + 1);
        let own_one = NameHolder { name: 0, user: user(), number: 2, place: 1000 };
        assert!(found.contains(&own_one));
        drop(own);
    }

    #[test]
    fn other_names_and_answers_cut_short_name_no_holder() {
        let message = |name: &[u8]| {
            let mut bytes = vec![0; 32];
            bytes[4] = 20;
            for (kind, value) in [(0_u16, name), (7, &1000_u32.to_ne_bytes())] {
                bytes.extend((4 + value.len() as u16).to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(value);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes
        };
        let found = |bytes: &[u8]| name_holders(bytes, &["b", "a/1"]).found;
        let good = message(b"\0a/1=7#2");
        let holder = NameHolder { name: 1, user: 1000, number: 7, place: 2 };
        assert_eq!(found(&[good.clone(), good.clone()].concat()), [holder, holder]);
        for length in 0..good.len() {
            assert_eq!(found(&good[..length]), []);
        }
        for name in [
            &b"a/1=7#2"[..],
            b"\0a/12=7#2",
            b"\0a/1",
            b"\0a/1=7",
            b"\0a/1=70000#2",
            b"\0a/1=7#-1",
            b"\0a/1=7#2#3",
            b"\0a/1=\xff#2",
            b"",
        ] {
            assert_eq!(found(&message(name)), [], "{name:?}");
        }
    }
}
