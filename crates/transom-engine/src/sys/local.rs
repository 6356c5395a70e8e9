//! Unix sockets: how two processes of one host meet, prove who they are, hand over memory, and wake
//! each other. Each end has a description of its own, so that the other side can change nothing about
//! it (as it could with a shared eventfd); and the end of a process is the end of its socket.
//!
//! Names are abstract: nothing is left behind in a file system, and they reach as far as the network
//! namespace does.
//!
//! The last close of a descriptor may take as long as its sender likes, and a file of a FUSE file system
//! keeps the process itself from ending, killed or not, as long as its server is silent. So the kernel lets no
//! descriptor through to these sockets (SO_PASSRIGHTS, Linux 6.16) until this side knows who is at the other end and
//! [takes](Local::take_descriptors) them.
//!
//! That process, and with an older kernel every other one, can put descriptors there at any time (SCM_RIGHTS).
//! So each socket is closed by the thread for releases, and bytes are taken out of one only once it is known that
//! none comes with them, or once there is a copy of it: [`Local::receive_handover`]. Bytes out of band are taken in
//! line (SO_OOBINLINE), because a look would pass over them and what comes with them.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use super::releases::is_full;
use super::{Fd, IoError, perturb};

type Result<T> = std::result::Result<T, IoError>;

fn socket() -> Result<Fd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = Fd::make(|| net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None))?;
    // A descriptor that comes nevertheless, with Linux before 6.16, is released as any.
    let _ = transom_os::peers::refuse_descriptors(&fd);
    Ok(fd.foreign())
}

fn named(name: &str) -> Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A socket that accepts. Its name is free when it is dropped, unless that would cost more than may
/// wait to be released.
#[derive(Debug)]
pub(crate) struct LocalListener(Fd);

impl LocalListener {
    /// Open a listener that peers find by `name`.
    pub(crate) fn open(name: &str) -> Result<LocalListener> {
        let fd = socket()?;
        net::bind(&fd, &named(name)?)?;
        net::listen(&fd, 1024)?;
        Ok(LocalListener(fd))
    }

    /// Open a listener at `path`, where a folder has to keep others away. Peers can connect from
    /// the first moment at which the path exists.
    pub(crate) fn open_at(path: &Path) -> Result<LocalListener> {
        let fd = socket()?;
        let unready = path.with_extension("new");
        net::bind(&fd, &SocketAddrUnix::new(&unready)?)?;
        net::listen(&fd, 64)?;
        rustix::fs::rename(&unready, path)?;
        Ok(LocalListener(fd))
    }

    /// The descriptor that epoll waits for.
    pub(crate) fn fd(&self) -> &Fd {
        &self.0
    }

    /// Wait for a connection. `None`: it is [shut](LocalListener::shut).
    pub(crate) fn wait(&self) -> Option<Local> {
        const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        loop {
            match self.accept() {
                Ok(local) => return Some(local),
                Err(IoError::NotNow) => {
                    let mut next = [PollFd::new(&self.0, PollFlags::IN)];
                    let _ = poll(&mut next, None);
                    // A listener that is shut has nothing to accept, and a call that does not wait calls that
                    // EAGAIN for ever.
                    if next.iter().any(|next| next.revents().contains(PollFlags::HUP)) {
                        return None;
                    }
                }
                // Descriptors are short, or too much waits to be released. That it is shut is seen nevertheless.
                Err(IoError::Exhausted) => {
                    let mut end = [PollFd::new(&self.0, PollFlags::empty())];
                    if matches!(poll(&mut end, Some(&RETRY)), Ok(1..)) {
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Take no connection from now on.
    pub(crate) fn shut(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Both);
    }

    /// The next connection, if there is one, and not too much waits to be released.
    pub(crate) fn accept(&self) -> Result<Local> {
        if is_full() {
            return Err(IoError::Exhausted);
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = Fd::take(|| net::accept_with(&self.0, flags).map(Fd::of));
        Local::new(accepted.ok_or(IoError::Exhausted)??.foreign())
    }
}

impl Drop for LocalListener {
    /// Leave nothing in it, and no way into it: then its close, which frees the name, waits for nobody.
    fn drop(&mut self) {
        self.shut();
        loop {
            match self.accept() {
                Ok(_) => {}
                // Nothing is left, and nothing can come.
                Err(IoError::NotNow) => return self.0.close_here(),
                Err(_) => return, // descriptors are short: the thread for releases closes it
            }
        }
    }
}

/// The content of a connection that rings.
#[derive(Debug)]
pub(crate) struct Rung {
    /// The other side has ended.
    pub(crate) ended: bool,
    /// A descriptor, behind which there may be more.
    pub(crate) fd: Option<Fd>,
    /// A descriptor lies there, for which this process has no place. All of it is left.
    pub(crate) starved: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Local(Fd);

impl Local {
    fn new(fd: Fd) -> Result<Local> {
        sockopt::set_socket_oobinline(&fd, true)?;
        Ok(Local(fd))
    }

    /// Connect to the listener that has `name`. Never waits.
    pub(crate) fn connect(name: &str) -> Result<Local> {
        if is_full() {
            return Err(IoError::Exhausted);
        }
        let fd = socket()?;
        net::connect(&fd, &named(name)?)?;
        Local::new(fd)
    }

    /// The user at the other end, as the kernel noted when it connected or began to listen.
    pub(crate) fn user(&self) -> Option<u32> {
        transom_os::peers::peer(&self.0).ok().map(|peer| peer.user)
    }

    /// The process at the other end, of the same moment.
    pub(crate) fn process(&self) -> Option<u32> {
        transom_os::peers::peer(&self.0).ok()?.process
    }

    /// Let descriptors through from now on: the other side is known.
    pub(crate) fn take_descriptors(&self) {
        let _ = transom_os::peers::take_descriptors(&self.0);
    }

    /// Let none through any more. Those that lie there are taken as before.
    pub(crate) fn refuse_descriptors(&self) {
        let _ = transom_os::peers::refuse_descriptors(&self.0);
    }

    /// Send `bytes` (few: they fit) and a descriptor.
    pub(crate) fn hand_over(&self, bytes: &[u8], fd: &Fd) -> Result<()> {
        let fds = [fd.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let runs = [std::io::IoSlice::new(bytes)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = net::sendmsg(&self.0, &runs, &mut control, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(IoError::NotNow) }
    }

    /// Receive what [`Local::hand_over`] sent: bytes, and at most one descriptor with them. `Err` for
    /// more: the other side is none of ours. [`IoError::Exhausted`] if this process has no place for the
    /// descriptor: all of it is left.
    pub(crate) fn receive_handover(&self, bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
        let (count, fd) = self.look(bytes)?;
        let taken = match bytes.get_mut(..count) {
            Some(bytes) if count > 0 => net::recv(&self.0, bytes, RecvFlags::DONTWAIT)?.1,
            _ => 0,
        };
        Ok((taken, fd))
    }

    /// A descriptor that is of no use but for its place: one that comes has it when this process has no other.
    pub(crate) fn reserve_place(&self) -> Result<Fd> {
        Ok(Fd::make(|| rustix::io::fcntl_dupfd_cloexec(&self.0, 0))?.foreign())
    }

    /// Receive what was handed over with one byte, at the place of `reserved`.
    pub(crate) fn receive_at(&self, mut reserved: Fd) -> Result<Fd> {
        reserved.close_here(); // this socket stays open, so that nothing is released
        drop(reserved);
        self.receive_handover(&mut [0])?.1.ok_or(IoError::Forbidden)
    }

    /// The bytes that [`Local::receive_handover`] takes next, and a copy of the descriptor with them. Nothing
    /// leaves the socket, so that no descriptor is released, whichever lie there.
    fn look(&self, bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
        Fd::take(|| self.peek(bytes)).ok_or(IoError::Exhausted)?
    }

    fn peek(&self, bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut runs = [std::io::IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let got = net::recvmsg(&self.0, &mut runs, &mut control, flags)?;
        let messages = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let mut fds = messages.flatten().map(|fd| Fd::of(fd).foreign());
        let (first, more) = (fds.next(), fds.count() > 0);
        match first {
            first if !more && !got.flags.contains(ReturnFlags::CTRUNC) => Ok((got.bytes, first)),
            None => Err(IoError::Exhausted), // this process has no more descriptors now
            Some(_) => Err(IoError::Forbidden),
        }
    }

    /// Receive what comes within `limit`; none: for ever. 0: nothing will.
    pub(crate) fn receive_within(
        &self,
        bytes: &mut [u8],
        limit: Option<Duration>,
    ) -> Result<usize> {
        let limit = limit.map(Timespec::try_from).transpose().map_err(|_| IoError::TimedOut)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], limit.as_ref()) {
            Ok(0) => Err(IoError::TimedOut),
            _ => Ok(self.receive_handover(bytes)?.0),
        }
    }

    /// Send as many of `bytes` as fit now; how many.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize> {
        Ok(net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Wake the other side. If it has been rung so often that no more fits, it will wake anyway.
    pub(crate) fn ring(&self) {
        perturb();
        let _ = net::send(&self.0, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Forget that it rang.
    pub(crate) fn silence(&self) -> Rung {
        let mut room = [0; 256];
        perturb();
        match self.receive_handover(&mut room) {
            Ok((count, fd)) => Rung { ended: count == 0, fd, starved: false },
            Err(IoError::Exhausted) => Rung { ended: self.is_hung_up(), fd: None, starved: true },
            Err(e) => Rung { ended: e != IoError::NotNow, fd: None, starved: false },
        }
    }

    /// Whether the other side will say nothing more, whatever lies here unread.
    fn is_hung_up(&self) -> bool {
        let mut end = [PollFd::new(&self.0, PollFlags::RDHUP)];
        matches!(poll(&mut end, Some(&Timespec::default())), Ok(1..))
    }

    /// Say that no more will come. What was written before still counts.
    pub(crate) fn finish(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Write);
    }

    /// End both directions for every process that holds the descriptor: a forked child may.
    pub(crate) fn shut(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Both);
    }

    /// The descriptor, to wait for.
    pub(crate) fn fd(&self) -> &Fd {
        &self.0
    }

    /// The end of a connection, which is not used afterwards. Where nothing lies in it, as is known once nothing
    /// can come any more, the thread that drops it closes it: that waits for nobody.
    pub(crate) fn close(&mut self) {
        self.shut();
        let mut byte = [0_u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        if matches!(net::recv(&self.0, &mut byte, flags), Ok((_, 0))) {
            self.0.close_here();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::user;
    use super::*;

    fn pair(name: &str) -> (LocalListener, Local, Local) {
        let name = format!("transom-test/{name}/{}", std::process::id());
        let listener = LocalListener::open(&name).unwrap();
        let active = Local::connect(&name).unwrap();
        let passive = listener.accept().unwrap();
        (listener, active, passive)
    }

    #[test]
    fn both_ends_know_each_others_user() {
        let (listener, active, passive) = pair("user");
        assert_eq!((active.user(), passive.user()), (Some(user()), Some(user())));
        assert_eq!(listener.accept().unwrap_err(), IoError::NotNow);
        let nobody = Local::connect("transom-test/nobody-listens-here");
        assert_eq!(nobody.unwrap_err(), IoError::Refused);
    }

    #[test]
    fn a_socket_that_wants_no_descriptors_gets_none() {
        let name = format!("transom-test/refused/{}", std::process::id());
        let listener = LocalListener::open(&name).unwrap();
        let active = Local::connect(&name).unwrap();
        let (one, _two) = rustix::pipe::pipe().unwrap();
        let one = Fd::from(one);
        // The connection that waits to be accepted, and both ends behind that.
        let before = active.hand_over(b"x", &one);
        let passive = listener.accept().unwrap();
        if transom_os::peers::refuse_descriptors(passive.fd()).is_err() {
            return eprintln!("SKIPPED: this system does not know how to refuse descriptors");
        }
        let refused = [before, active.hand_over(b"x", &one), passive.hand_over(b"x", &one)];
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert_eq!(passive.send(b"y"), Ok(1));
        let mut bytes = [0; 8];
        assert_eq!(active.receive_within(&mut bytes, None), Ok(1));
        assert_eq!(bytes[0], b'y');
        assert_eq!(passive.receive_handover(&mut bytes).unwrap_err(), IoError::NotNow);
        // Each side decides for itself, and may change its mind.
        passive.take_descriptors();
        assert!(passive.hand_over(b"x", &one).is_err());
        active.hand_over(b"z", &one).unwrap();
        passive.refuse_descriptors();
        assert!(active.hand_over(b"x", &one).is_err());
        let (count, fd) = passive.receive_handover(&mut bytes).unwrap();
        assert_eq!((&bytes[..count], fd.is_some()), (&b"z"[..], true));
    }

    /// Both a thread that waits already, and one that comes behind the end.
    #[test]
    fn a_listener_that_is_shut_lets_its_threads_go() {
        let name = format!("transom-test/shut/{}", std::process::id());
        let listener = LocalListener::open(&name).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| listener.wait().is_none());
            listener.shut();
            assert!(waits.join().unwrap());
        });
        assert!(listener.wait().is_none());
    }

    #[test]
    fn a_descriptor_arrives_and_more_than_one_is_closed() {
        let (_listener, active, passive) = pair("hand-over");
        passive.take_descriptors();
        let (one, two) = rustix::pipe::pipe().unwrap();
        let (one, two) = (Fd::from(one), Fd::from(two));
        active.hand_over(b"hello", &two).unwrap();
        let mut bytes = [0; 16];
        let (count, fd) = passive.receive_handover(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"hello");
        rustix::io::write(fd.unwrap(), b"x").unwrap();
        drop(two);
        assert_eq!(rustix::io::read(&one, &mut bytes).unwrap(), 1);
        assert_eq!(rustix::io::read(&one, &mut bytes).unwrap(), 0, "no copy is left open");
        active.ring();
        let (count, fd) = passive.receive_handover(&mut bytes).unwrap();
        assert_eq!((count, fd.is_none()), (1, true));
        // Between rings: each comes with its own.
        active.ring();
        active.hand_over(&[1], &one).unwrap();
        active.ring();
        active.hand_over(&[1], &one).unwrap();
        let come = (0..4).filter(|_| passive.silence().fd.is_some()).count();
        assert_eq!((come, passive.silence().ended), (2, false));
    }

    #[test]
    fn it_rings_it_falls_silent_it_ends() {
        let (_listener, active, passive) = pair("bell");
        assert!(!passive.silence().ended, "nothing yet");
        for _ in 0..100_000 {
            active.ring(); // never blocks
        }
        while !passive.silence().ended && active.user().is_some() {
            if rustix::net::recv(passive.fd(), &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)
                .is_err()
            {
                break;
            }
        }
        assert!(!passive.silence().ended);
        drop(active);
        // The thread for releases closes it.
        while !passive.silence().ended {
            std::thread::yield_now();
        }
    }
}
