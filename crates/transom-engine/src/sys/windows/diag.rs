//! The user behind the other end of a connection of this machine: the system names the process that has
//! the socket, and the process its user. A user is a number of this process's own, one for each SID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{CloseHandle, ERROR_INSUFFICIENT_BUFFER, HANDLE, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GetExtendedTcpTable, MIB_TCP_STATE_ESTAB, MIB_TCP_STATE_LISTEN, MIB_TCP6ROW_OWNER_PID,
    MIB_TCP6TABLE_OWNER_PID, MIB_TCPROW_OWNER_PID, MIB_TCPTABLE_OWNER_PID,
    TCP_TABLE_OWNER_PID_CONNECTIONS,
};
use windows_sys::Win32::Networking::WinSock::{AF_INET, AF_INET6};
use windows_sys::Win32::Security::{
    GetLengthSid, GetTokenInformation, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION,
};

use super::{PeerPlace, ReceiveBuffer, spawn_quiet};

/// The table of all connections is read.
pub(crate) const ASKING_TAKES_NO_TIME: bool = false;

/// Whether a peer's address is certainly one of this host.
#[must_use]
pub(crate) fn is_of_this_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let (from, to) = (end(peer).0, end(local).0);
    from.is_loopback() || from == to
}

/// Where the other end of a connection from `local` to `peer` is. Another address of this host counts as
/// another host's.
#[must_use]
pub(crate) fn place_of_peer(local: SocketAddr, peer: SocketAddr) -> PeerPlace {
    if !is_of_this_host(local, peer) {
        return PeerPlace::Elsewhere;
    }
    user_of_peer(local, peer).map_or(PeerPlace::Here, PeerPlace::HereOf)
}

/// The user whose socket is at the other end of a connection from `local` to `peer`, both addresses
/// of this machine. `None`: no process holds that socket, or it is not on this machine.
#[must_use]
pub(crate) fn user_of_peer(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    if !is_of_this_host(local, peer) {
        return None;
    }
    let (from, to) = (end(peer), end(local));
    let process = in_time(PATIENCE, move || holder(from, to))??;
    NAMES_PROCESSES.store(true, Ordering::Relaxed);
    if process == std::process::id() {
        own_user()
    } else {
        Some(user_of(process).unwrap_or(NOT_OURS))
    }
}

/// The longest that a refusal waits for an answer of the system.
const PATIENCE: Duration = Duration::from_secs(1);

/// A question is under way.
static ASKING: Mutex<bool> = Mutex::new(false);
static ANSWERED: Condvar = Condvar::new();

/// Ends a question when it is dropped, however the question has ended.
struct Question;

impl Drop for Question {
    fn drop(&mut self) {
        *ASKING.lock().unwrap_or_else(PoisonError::into_inner) = false;
        ANSWERED.notify_one();
    }
}

/// The answer to a question, if it comes in time. On a machine with many sockets the system takes long,
/// and the caller holds the lock of a link: so another thread asks. One question is under way at a time,
/// and the next one waits for its end: links that refuse at the same moment all get their answers, and
/// peers cannot cause more than one thread.
fn in_time<T: Send + 'static>(
    patience: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let begun = Instant::now();
    let asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut asking, _) = ANSWERED
        .wait_timeout_while(asking, patience, |asking| *asking)
        .unwrap_or_else(PoisonError::into_inner);
    if *asking {
        return None;
    }
    *asking = true;
    drop(asking);
    let ended = Question;
    let (tell, told) = mpsc::channel();
    let asked = spawn_quiet("transom-user", move || {
        let answer = question();
        drop(ended);
        // The other side may have given up.
        let _ = tell.send(answer);
    });
    asked.ok()?;
    told.recv_timeout(patience.saturating_sub(begun.elapsed())).ok()
}

/// The user of processes that this one may not ask: one of its own user would have answered.
const NOT_OURS: u32 = u32::MAX - 1;

/// The system has named a process once: since then, no answer means that there is no such socket. Wine 8
/// names the process once it has sent or received.
static NAMES_PROCESSES: AtomicBool = AtomicBool::new(false);

/// Nothing is known of the receive buffers of others.
#[must_use]
pub(crate) fn receive_buffer_of(_from: SocketAddr, _to: SocketAddr) -> Option<ReceiveBuffer> {
    None
}

/// Whether the system answers such questions, as far as is known, or can be found out from the end of
/// a connection that is ours.
pub(crate) fn is_answered(local: SocketAddr, peer: SocketAddr) -> bool {
    let answers = || NAMES_PROCESSES.load(Ordering::Relaxed);
    answers() || {
        let _ = user_of_peer(peer, local);
        answers()
    }
}

/// An end of a connection. An IPv4 address is one, whatever socket has it.
type End = (IpAddr, u16);

fn end(a: SocketAddr) -> End {
    (a.ip().to_canonical(), a.port())
}

/// The process that has the socket at `from`, connected to `to`.
fn holder(from: End, to: End) -> Option<u32> {
    // An IPv4 peer may use an IPv6 socket: its row is then in the other table, mapped.
    let of_v4 = |bytes: &[u8]| {
        rows::<MIB_TCPROW_OWNER_PID>(bytes, std::mem::offset_of!(MIB_TCPTABLE_OWNER_PID, table))
            .map(|row| {
                let ip = |word: u32| IpAddr::V4(Ipv4Addr::from(word.to_ne_bytes()));
                let ends = [
                    (ip(row.dwLocalAddr), port(row.dwLocalPort)),
                    (ip(row.dwRemoteAddr), port(row.dwRemotePort)),
                ];
                (ends, row.dwState, row.dwOwningPid)
            })
            .find_map(|row| matching(row, from, to))
    };
    let of_v6 = |bytes: &[u8]| {
        rows::<MIB_TCP6ROW_OWNER_PID>(bytes, std::mem::offset_of!(MIB_TCP6TABLE_OWNER_PID, table))
            .map(|row| {
                let ip = |bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical();
                let ends = [
                    (ip(row.ucLocalAddr), port(row.dwLocalPort)),
                    (ip(row.ucRemoteAddr), port(row.dwRemotePort)),
                ];
                (ends, row.dwState, row.dwOwningPid)
            })
            .find_map(|row| matching(row, from, to))
    };
    let process = table(AF_INET).and_then(|bytes| of_v4(&bytes));
    // A socket that no process holds any more has process 0.
    process.or_else(|| of_v6(&table(AF_INET6)?)).filter(|process| *process != 0)
}

fn matching((ends, state, process): ([End; 2], u32, u32), from: End, to: End) -> Option<u32> {
    let connected = state >= MIB_TCP_STATE_ESTAB as u32 && state != MIB_TCP_STATE_LISTEN as u32;
    (ends == [from, to] && connected).then_some(process)
}

/// A port stands in the low half of a word, in the network's order.
fn port(word: u32) -> u16 {
    u16::from_be_bytes([word.to_le_bytes()[0], word.to_le_bytes()[1]])
}

/// The system's table of TCP connections of a family, with their processes. Listeners are left out: Wine
/// searches the files of every process for each row, and most rows of a busy machine are no connections.
fn table(family: u16) -> Option<Vec<u8>> {
    let mut size = 16 * 1024;
    // The table may grow between two calls.
    for _ in 0..8 {
        let mut bytes = vec![0_u8; size as usize];
        // SAFETY: writes at most as many bytes as `size` says, which `bytes` has.
        let result = unsafe {
            GetExtendedTcpTable(
                bytes.as_mut_ptr().cast(),
                &raw mut size,
                0,
                family.into(),
                TCP_TABLE_OWNER_PID_CONNECTIONS,
                0,
            )
        };
        match result {
            NO_ERROR => return Some(bytes),
            ERROR_INSUFFICIENT_BUFFER => size += 4096,
            _ => return None,
        }
    }
    None
}

/// The rows behind the count of rows, of which the first stands at `first`.
fn rows<T: Copy>(bytes: &[u8], first: usize) -> impl Iterator<Item = T> + '_ {
    let count = bytes.first_chunk().map_or(0, |count| u32::from_ne_bytes(*count) as usize);
    let rows = bytes.get(first..).unwrap_or_default().chunks_exact(size_of::<T>());
    // SAFETY: as many bytes as a `T` has, which is a structure of numbers; it need not be aligned.
    rows.take(count).map(|row| unsafe { row.as_ptr().cast::<T>().read_unaligned() })
}

// ---- users -----------------------------------------------------------------------------------

/// The SIDs that were seen; a user's number is the place of theirs.
static SIDS: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

fn number(sid: Box<[u8]>) -> Option<u32> {
    let mut sids = SIDS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = sids.iter().position(|seen| *seen == sid).unwrap_or_else(|| {
        sids.push(sid);
        sids.len() - 1
    });
    u32::try_from(place).ok()
}

/// This process's user.
pub(super) fn own_user() -> Option<u32> {
    // SAFETY: the handle stands for this process, and need not be closed.
    let process = unsafe { GetCurrentProcess() };
    sid_of(process).and_then(number)
}

/// The user of another process, if this one may ask.
fn user_of(process: u32) -> Option<u32> {
    // SAFETY: asks for a handle, which is closed below.
    let process = Handle(unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, process) });
    if process.0.is_null() {
        return None;
    }
    sid_of(process.0).and_then(number)
}

struct Handle(HANDLE);

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: ours, and not used afterwards.
            unsafe { CloseHandle(self.0) };
        }
    }
}

fn sid_of(process: HANDLE) -> Option<Box<[u8]>> {
    let mut token = Handle(null_mut());
    // SAFETY: a live handle of a process; the token's is closed when it is dropped.
    if unsafe { OpenProcessToken(process, TOKEN_QUERY, &raw mut token.0) } == 0 {
        return None;
    }
    // A TOKEN_USER, and behind it the SID that it points to. Words, so that it is aligned.
    let mut room = [0_u64; 32];
    let mut used = 0;
    let size = size_of_val(&room) as u32;
    // SAFETY: writes at most as many bytes as are said.
    let told = unsafe {
        GetTokenInformation(token.0, TokenUser, room.as_mut_ptr().cast(), size, &raw mut used)
    };
    if told == 0 {
        return None;
    }
    // SAFETY: the system has put such a structure there, whose SID lies in the same room.
    unsafe {
        let sid = (*room.as_ptr().cast::<TOKEN_USER>()).User.Sid.cast::<u8>();
        let length = GetLengthSid(sid.cast()) as usize;
        Some(std::slice::from_raw_parts(sid, length).into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::own_tests::is_wine;
    use super::*;

    #[test]
    fn the_system_knows_whose_the_other_end_is() {
        if is_wine() {
            eprintln!("not shown: Wine 8 names no process whose socket has carried nothing");
            return;
        }
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let at = listener.local_addr().unwrap();
            let active = TcpStream::connect(at).unwrap();
            let (_passive, from) = listener.accept().unwrap();
            let me = own_user();
            assert!(me.is_some());
            assert_eq!(user_of_peer(at, from), me, "seen from the passive side");
            assert_eq!(user_of_peer(from, at), me, "seen from the active side");
            drop(active);
            assert_eq!(user_of_peer(at, ([192, 0, 2, 1], 7).into()), None);
            assert_eq!(user_of_peer(at, (at.ip(), 1).into()), None, "no such socket");
        }
    }

    #[test]
    fn a_question_waits_for_the_one_before() {
        let ages = Duration::from_secs(3600);
        let (release, released) = mpsc::channel::<()>();
        let slow = in_time(Duration::ZERO, move || released.recv());
        assert_eq!(slow, None, "the answer has not come in time");
        assert_eq!(in_time(Duration::ZERO, || 1), None, "another question is under way");
        let begin = std::sync::Barrier::new(5);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    assert_eq!(in_time(ages, move || i), Some(i));
                });
            }
            begin.wait();
            drop(release);
        });
    }

    #[test]
    fn a_sid_has_one_number() {
        let (one, two) = (Box::from([9_u8, 1]), Box::from([9_u8, 2]));
        let first = number(Box::clone(&one));
        assert_ne!(number(two), first);
        assert_eq!(number(one), first);
    }
}
