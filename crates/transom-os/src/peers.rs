//! Unix sockets between processes: the one at the other end, in the kernel's words, and what it may put there.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The process that has connected, or that had begun to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user; one that has no number in this user namespace is 65534, as everywhere.
    pub user: u32,
    /// The number. `None`: a process of another PID namespace has none here.
    pub process: Option<u32>,
}

/// The process at the other end of a connection (SO_PEERCRED, unix(7)).
///
/// # Errors
/// Of the system, for what is no such socket.
pub fn peer(socket: impl AsFd) -> std::io::Result<Peer> {
    let mut found = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for `length` bytes; a structure of integers, of which every value is valid.
    let (done, found) = unsafe {
        let (fd, into) = (socket.as_fd().as_raw_fd(), found.as_mut_ptr().cast());
        let done = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length);
        (done, found.assume_init())
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let process = u32::try_from(found.pid).ok().filter(|number| *number != 0);
    Ok(Peer { user: found.uid, process })
}

/// Have the kernel refuse descriptors that are sent to this socket from now on (SO_PASSRIGHTS, Linux 6.16): EPERM
/// at their sender. They may take as long to close as that one likes. A connection that comes to a listener
/// inherits it.
///
/// # Errors
/// Of the system, which may be older.
pub fn refuse_descriptors(socket: impl AsFd) -> std::io::Result<()> {
    pass_descriptors(socket, false)
}

/// Have the kernel let descriptors through to this socket from now on.
///
/// # Errors
/// Of the system, which may be older than [`refuse_descriptors`], and lets them through.
pub fn take_descriptors(socket: impl AsFd) -> std::io::Result<()> {
    pass_descriptors(socket, true)
}

fn pass_descriptors(socket: impl AsFd, pass: bool) -> std::io::Result<()> {
    /// `asm-generic/socket.h`.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let pass = libc::c_int::from(pass);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an integer that lives as long as the call.
    let done = unsafe {
        let (fd, from) = (socket.as_fd().as_raw_fd(), (&raw const pass).cast());
        libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, from, length)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    use super::*;

    /// In the test's second process: the socket to listen at.
    const AT: &str = "TRANSOM_TEST_AT";

    fn me() -> Peer {
        // SAFETY: a plain call.
        Peer { user: unsafe { libc::geteuid() }, process: Some(std::process::id()) }
    }

    #[test]
    fn each_end_knows_the_other() {
        let path = std::env::temp_dir().join(format!("transom-peers-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let end = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(peer(&end).unwrap(), me());
        assert_eq!(peer(listener.accept().unwrap().0).unwrap(), me());
        assert!(peer(std::fs::File::open("/dev/null").unwrap()).is_err(), "no socket");
    }

    /// A process in a container, and one outside of it or in another one.
    #[test]
    fn a_process_of_another_pid_namespace_has_a_user_and_no_number() {
        if let Some(at) = std::env::var_os(AT) {
            let (end, _) = UnixListener::bind(at).unwrap().accept().unwrap();
            assert_eq!(peer(end).unwrap(), Peer { process: None, ..me() });
            return;
        }
        let path = std::env::temp_dir().join(format!("transom-space-{}", std::process::id()));
        let name = "peers::tests::a_process_of_another_pid_namespace_has_a_user_and_no_number";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name]).env(AT, &path).stdout(Stdio::null());
        let started = std::thread::spawn(move || {
            // SAFETY: children of this thread's get a namespace of their own, and nothing else changes.
            let made = unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0;
            made.then(|| command.spawn().unwrap())
        });
        let Some(mut inside) = started.join().unwrap() else {
            return eprintln!("SKIPPED: only root can make a PID namespace");
        };
        let ended = loop {
            // Held until that process has looked at it.
            let end = UnixStream::connect(&path);
            if end.is_ok() {
                break inside.wait().unwrap();
            }
            if let Some(ended) = inside.try_wait().unwrap() {
                break ended;
            }
            std::thread::yield_now();
        };
        std::fs::remove_file(&path).unwrap();
        assert!(ended.success());
    }
}
