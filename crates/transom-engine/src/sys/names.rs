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

use super::{Fd, IoError, random_seed};
use transom_os::answers::{NameHolder, name_holders, question_of_names};

/// Bytes that the kernel puts into one part of its list at most.
const PART: usize = 32 << 10;
/// A list in several parts is read so often: a socket that ends between two of them may hide another.
const MOST_READ: usize = 2;
/// Parts of a list that are read, each of some hundreds of sockets: any user may have as many as memory allows.
/// Reading so many takes some milliseconds.
const MOST_PARTS: usize = 16;
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
            let known = found.as_ref().map(|list| list.found.as_slice()).unwrap_or_default();
            if known.iter().any(|one| counts(one.user)) {
                return Err(IoError::InUse);
            }
            let taken: BTreeSet<_> = known.iter().map(|one| one.place).collect();
            let place = match &found {
                // Others may hold any of the first ones.
                Ok(list) if !list.whole => random_place(),
                _ => (0..).find(|place| !taken.contains(place)).unwrap_or_default(),
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let kind = SocketType::STREAM;
            let fd = Fd::make(|| net::socket_with(AddressFamily::UNIX, kind, flags, None))?;
            let full = format!("{name}={number}#{place}");
            let bound = net::bind(&fd, &SocketAddrUnix::new_abstract_name(full.as_bytes())?);
            match bound.map_err(IoError::from) {
                Err(IoError::InUse) if found.is_ok() => found = holders(&[name]),
                Err(error) => return Err(error),
                Ok(()) => {
                    // At another place another process may have come first.
                    let own = |one: &NameHolder| (one.place, one.number) == (place, number);
                    let all = holders(&[name]).map(|list| list.found).unwrap_or_default();
                    let others = all.iter().any(|one| !own(one) && counts(one.user));
                    return if others { Err(IoError::InUse) } else { Ok(Name(fd)) };
                }
            }
        }
        // Others were faster each time, or the kernel shows names without users.
        Err(IoError::InUse)
    }
}

/// A place that nobody can foresee.
fn random_place() -> u32 {
    let seed = random_seed().unwrap_or_default();
    seed.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).unwrap_or_default()
}

/// Holders of names.
#[derive(Debug)]
pub(crate) struct NameHolders {
    /// In the order of the names.
    pub(crate) found: Vec<NameHolder>,
    /// No others exist. `false`: this namespace has more sockets than are looked at.
    pub(crate) whole: bool,
}

/// The holders of these names. The list of the whole namespace is read for them, which takes the longer the more
/// sockets there are, up to a bound.
///
/// # Errors
/// Of the system, which may know no such question.
pub(crate) fn holders(names: &[&str]) -> Result<NameHolders, IoError> {
    let (mut found, mut whole) = (BTreeSet::new(), true);
    for _ in 0..MOST_READ {
        let parts = read_list(names, &mut found)?;
        whole = parts.is_some();
        if parts.is_none_or(|parts| parts <= 1) {
            break;
        }
    }
    Ok(NameHolders { found: found.into_iter().collect(), whole })
}

/// Read the kernel's list once; the number of its parts. `None`: it has more than are read.
fn read_list(names: &[&str], found: &mut BTreeSet<NameHolder>) -> Result<Option<usize>, IoError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (family, protocol) = (AddressFamily::NETLINK, Some(netlink::SOCK_DIAG));
    let socket = Fd::make(|| net::socket_with(family, SocketType::RAW, flags, protocol))?;
    net::send(&socket, &question_of_names(), SendFlags::empty())?;
    let mut part = vec![0; PART];
    for parts in 0..=MOST_PARTS {
        // The kernel writes each part within a call; no other sender can reach this unnamed socket.
        let (length, _) = net::recv(&socket, part.as_mut_slice(), RecvFlags::empty())?;
        let list = name_holders(part.get(..length).unwrap_or_default(), names);
        found.extend(list.found);
        if let Some(error) = list.refused {
            return Err(IoError::Other(error));
        }
        if list.ended || length == 0 {
            return Ok(Some(parts + usize::from(list.sockets > 0)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::user;
    use super::*;

    #[test]
    fn a_name_is_held_once_and_told_with_its_user() {
        let name = format!("transom-test/name/{}", std::process::id());
        let holders = |name: &str| holders(&[name]).unwrap().found;
        assert_eq!(holders(&name), [], "of none");
        let held = Name::hold(&name, 7, |_| true).unwrap();
        assert_eq!(holders(&name), [NameHolder { name: 0, user: user(), number: 7, place: 0 }]);
        assert_eq!(Name::hold(&name, 7, |_| true).unwrap_err(), IoError::InUse);
        assert_eq!(Name::hold(&name, 8, |_| true).unwrap_err(), IoError::InUse, "any number");
        assert_eq!(holders(&name[..name.len() - 1]), [], "the beginning of it");
        let longer = format!("{name}/at");
        let other = Name::hold(&longer, 9, |_| true).unwrap();
        let both = super::holders(&["x", &longer, &name]).unwrap().found;
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
        let NameHolders { found, whole } = holders(&[&name]).unwrap();
        assert_eq!((found.len(), whole), (foreign.len() + 1, true));
        let own_one = NameHolder { name: 0, user: user(), number: 2, place: 1000 };
        assert!(found.contains(&own_one));
        drop(own);
    }

    /// Of a namespace with very many sockets a part is looked at, and a name is held all the same.
    #[test]
    fn very_many_sockets_of_others_cost_a_bounded_time() {
        // With names as long as these, a part lists fewer than 300.
        const MANY: usize = (MOST_PARTS + 1) * 300;
        let name = format!("transom-test/many/{}", std::process::id());
        let test = || {
            // SAFETY: other threads keep the namespace and the descriptors that they have.
            if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_FILES) } != 0 {
                return eprintln!("SKIPPED: only root can make a network namespace");
            }
            let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let limits = rustix::process::Rlimit { current: limits.maximum, ..limits };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
            if limits.maximum.is_some_and(|most| most < MANY as u64 + 1000) {
                return eprintln!("SKIPPED: it takes {MANY} descriptors");
            }
            let others = |from: usize, count: usize| -> Vec<_> {
                let bound = |place| {
                    let fd = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
                    // The first places of the name among them.
                    let full = format!("{name}=1#{place}");
                    let full = if place < 100 { full } else { format!("{full:x>107}") };
                    let at = SocketAddrUnix::new_abstract_name(full.as_bytes()).unwrap();
                    net::bind(&fd, &at).unwrap();
                    fd
                };
                (from..from + count).map(bound).collect()
            };
            let mut parts = Vec::new();
            let mut all = others(0, 1000);
            for _ in 0..2 {
                parts.push(read_list(&[&name], &mut BTreeSet::new()).unwrap());
                all.extend(others(all.len(), MANY));
            }
            assert!(matches!(parts[..], [Some(2..), None]), "{parts:?}");
            assert!(!holders(&[&name]).unwrap().whole);
            let held = Name::hold(&name, 2, |user| user != super::super::user()).unwrap();
            // Once the others have left, everybody sees it.
            drop(all);
            let NameHolders { found, whole } = holders(&[&name]).unwrap();
            assert!(whole && found.len() == 1 && found[0].number == 2, "{found:?}");
            drop(held);
        };
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
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
