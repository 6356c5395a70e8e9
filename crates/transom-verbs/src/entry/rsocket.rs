//! The calls of `<rdma/rsocket.h>`.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::entry::cm::address;
use crate::entry::cm::ids;
use crate::entry::{count, minus_one};
use crate::errno::{Errno, Result};
use crate::memory::Region;
use crate::rsocket::socket::Patience;
use crate::rsocket::wait::Waiter;
use crate::rsocket::{self as sockets, Socket, Span};

/// Done: 0.
fn done(work: impl FnOnce() -> Result) -> c_int {
    minus_one(|| work().map(|()| 0))
}

// ---- connections ---------------------------------------------------------------------------------

/// Streams only. A datagram socket is refused with `ENOTSUP`, and `librspreload` takes the system's.
pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    minus_one(|| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC; // every descriptor closes on exec
        let stream =
            kind & !flags == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol);
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) || !stream {
            return Err(Errno::EOPNOTSUPP);
        }
        let socket = Socket::new(ids::own()?.devices.first())?;
        socket.set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
        Ok(sockets::add(socket))
    })
}

/// # Safety
/// A socket address of the program's.
unsafe fn named(address: *const libc::sockaddr) -> Result<std::net::SocketAddr> {
    // SAFETY: this function's contract.
    unsafe { address::read(address) }?.ok_or(Errno::EAFNOSUPPORT)
}

pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    // SAFETY: an address of the program's.
    done(|| sockets::get(socket)?.bind(unsafe { named(address) }?))
}

pub(crate) extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    done(|| sockets::get(socket)?.listen(backlog))
}

pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    minus_one(|| {
        let accepted = sockets::get(socket)?.accept()?;
        // SAFETY: room of the program's, or null.
        unsafe { give_address(accepted.addresses().1, address, length) }?;
        Ok(sockets::add(accepted))
    })
}

pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    address: *const libc::sockaddr,
    _length: libc::socklen_t,
) -> c_int {
    // SAFETY: an address of the program's.
    done(|| sockets::get(socket)?.connect(unsafe { named(address) }?))
}

pub(crate) extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    done(|| sockets::get(socket)?.shutdown(how))
}

pub(crate) extern "C" fn rclose(socket: c_int) -> c_int {
    done(|| {
        sockets::remove(socket)?.close();
        Ok(())
    })
}

/// Write as much of an address as there is room for, and how long it is.
///
/// # Safety
/// Null, or `*length` bytes at `address`.
unsafe fn give_address(
    found: Option<std::net::SocketAddr>,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> Result {
    if address.is_null() || length.is_null() {
        return Ok(());
    }
    let (storage, whole) = address::write(found.ok_or(Errno::ENOTCONN)?);
    // SAFETY: this function's contract.
    unsafe {
        let room = (*length as usize).min(whole);
        std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), address.cast(), room);
        *length = whole as libc::socklen_t;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: room of the program's.
    done(|| unsafe {
        let any = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        give_address(sockets::get(socket)?.addresses().0.or(Some(any)), address, length)
    })
}

pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    done(|| {
        let peer = sockets::get(socket)?.addresses().1.ok_or(Errno::ENOTCONN)?;
        // SAFETY: room of the program's.
        unsafe { give_address(Some(peer), address, length) }
    })
}

// ---- bytes ---------------------------------------------------------------------------------------

fn patience(flags: c_int) -> Patience {
    if flags & libc::MSG_DONTWAIT != 0 { Patience::None } else { Patience::OfSocket }
}

/// # Safety
/// `length` bytes of the program's at `buffer`, to write.
unsafe fn receive(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
) -> Result<usize> {
    // SAFETY: this function's contract.
    let into = unsafe { Span::new(buffer.cast(), length) }?;
    let (whole, peek) = (flags & libc::MSG_WAITALL != 0, flags & libc::MSG_PEEK != 0);
    sockets::get(socket)?.receive(into, (whole, peek), patience(flags))
}

/// # Safety
/// `length` bytes of the program's at `buffer`, to read.
unsafe fn send(socket: c_int, buffer: *const c_void, length: usize, flags: c_int) -> Result<usize> {
    // SAFETY: this function's contract.
    let from = unsafe { Span::new(buffer.cast(), length) }?;
    sockets::get(socket)?.send(from, patience(flags))
}

pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program's bytes.
    count(|| unsafe { receive(socket, buffer, length, flags) })
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    room: *mut libc::socklen_t,
) -> isize {
    // SAFETY: the program's bytes, and room of its for an address.
    count(|| unsafe {
        let received = receive(socket, buffer, length, flags)?;
        give_address(sockets::get(socket)?.addresses().1, address, room)?;
        Ok(received)
    })
}

pub(crate) unsafe extern "C" fn rread(socket: c_int, buffer: *mut c_void, length: usize) -> isize {
    // SAFETY: the program's bytes.
    count(|| unsafe { receive(socket, buffer, length, 0) })
}

pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program's bytes.
    count(|| unsafe { send(socket, buffer, length, flags) })
}

pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    _address_length: libc::socklen_t,
) -> isize {
    count(|| {
        if !address.is_null() {
            return Err(Errno::EISCONN);
        }
        // SAFETY: the program's bytes.
        unsafe { send(socket, buffer, length, flags) }
    })
}

pub(crate) unsafe extern "C" fn rwrite(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
) -> isize {
    // SAFETY: the program's bytes.
    count(|| unsafe { send(socket, buffer, length, 0) })
}

/// The pieces of a list, one after the other, until one is not done wholly. Behind the first byte
/// nothing fails any more.
///
/// # Safety
/// `count` pieces of the program's at `list`.
unsafe fn each(
    list: *const libc::iovec,
    count: usize,
    mut piece: impl FnMut(&libc::iovec, bool) -> Result<usize>,
) -> Result<usize> {
    if count > 0 && list.is_null() {
        return Err(Errno::EFAULT);
    }
    let mut all = 0;
    for at in 0..count {
        // SAFETY: this function's contract.
        let this = unsafe { &*list.add(at) };
        if this.iov_len == 0 {
            continue;
        }
        match piece(this, all == 0) {
            Ok(some) => {
                all += some;
                if some < this.iov_len {
                    break;
                }
            }
            Err(error) if all == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(all)
}

/// # Safety
/// `pieces` pieces of the program's at `list`, to write.
unsafe fn scatter(socket: c_int, list: *const libc::iovec, pieces: usize, flags: c_int) -> isize {
    count(|| {
        // SAFETY: this function's contract. Only the first byte is waited for.
        unsafe {
            each(list, pieces, |piece, first| {
                let more = if first { 0 } else { libc::MSG_DONTWAIT };
                let flags = if flags & libc::MSG_WAITALL != 0 { flags } else { flags | more };
                receive(socket, piece.iov_base, piece.iov_len, flags)
            })
        }
    })
}

/// # Safety
/// `pieces` pieces of the program's at `list`, to read.
unsafe fn gather(socket: c_int, list: *const libc::iovec, pieces: usize, flags: c_int) -> isize {
    count(|| {
        // SAFETY: this function's contract.
        unsafe { each(list, pieces, |piece, _| send(socket, piece.iov_base, piece.iov_len, flags)) }
    })
}

pub(crate) unsafe extern "C" fn rreadv(
    socket: c_int,
    list: *const libc::iovec,
    pieces: c_int,
) -> isize {
    // SAFETY: the program's list.
    unsafe { scatter(socket, list, usize::try_from(pieces).unwrap_or(0), 0) }
}

pub(crate) unsafe extern "C" fn rwritev(
    socket: c_int,
    list: *const libc::iovec,
    pieces: c_int,
) -> isize {
    // SAFETY: the program's list.
    unsafe { gather(socket, list, usize::try_from(pieces).unwrap_or(0), 0) }
}

pub(crate) unsafe extern "C" fn rrecvmsg(
    socket: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a structure of the program's with its list.
    match unsafe { message.as_mut() } {
        None => count(|| Err(Errno::EFAULT)),
        Some(message) if !message.msg_control.is_null() => count(|| Err(Errno::EOPNOTSUPP)),
        // SAFETY: as above.
        Some(message) => unsafe { scatter(socket, message.msg_iov, message.msg_iovlen, flags) },
    }
}

pub(crate) unsafe extern "C" fn rsendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a structure of the program's with its list.
    match unsafe { message.as_ref() } {
        None => count(|| Err(Errno::EFAULT)),
        Some(message) if !message.msg_control.is_null() => count(|| Err(Errno::EOPNOTSUPP)),
        // SAFETY: as above.
        Some(message) => unsafe { gather(socket, message.msg_iov, message.msg_iovlen, flags) },
    }
}

// ---- mapped memory -------------------------------------------------------------------------------

/// An offset of -1 stands for the address.
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    protection: c_int,
    _flags: c_int,
    offset: libc::off_t,
) -> libc::off_t {
    let mapped = count(|| {
        if protection & !libc::PROT_WRITE != 0 || length == 0 {
            return Err(Errno::EINVAL);
        }
        let host = buffer.expose_provenance() as u64;
        let offset = if offset == -1 { host } else { offset.cast_unsigned() };
        let register = |domain: &Arc<crate::memory::Domain>, rights| {
            // SAFETY: the program's memory, which it leaves in place until it unmaps it.
            unsafe { Region::new(domain, host, length as u64, host, rights) }
        };
        let shared = protection & libc::PROT_WRITE != 0;
        sockets::get(socket)?.map(register, offset, shared)?;
        Ok(offset as usize)
    });
    mapped as libc::off_t
}

pub(crate) extern "C" fn riounmap(socket: c_int, buffer: *mut c_void, length: usize) -> c_int {
    done(|| sockets::get(socket)?.unmap(buffer.expose_provenance() as u64, length as u64))
}

pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
    offset: libc::off_t,
    flags: c_int,
) -> usize {
    let written = count(|| {
        // SAFETY: the program's bytes.
        let from = unsafe { Span::new(buffer.cast(), length) }?;
        sockets::get(socket)?.write_mapped(from, offset.cast_unsigned(), patience(flags))
    });
    written.cast_unsigned()
}

// ---- options -------------------------------------------------------------------------------------

pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    done(|| {
        let socket = sockets::get(socket)?;
        if value.is_null() || (length as usize) < size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a value of the program's with room for a number, which each option begins with.
        socket.set_option(level, name, unsafe { value.cast::<c_int>().read_unaligned() })
    })
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    done(|| {
        let socket = sockets::get(socket)?;
        if value.is_null() || length.is_null() {
            return Err(Errno::EFAULT);
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
            // No TCP that the program could learn of: the state, in the first byte, and zeros.
            let (established, closed) = (1, 7);
            let state = if socket.addresses().1.is_some() { established } else { closed };
            // SAFETY: `*length` bytes of the program's.
            unsafe {
                value.cast::<u8>().write_bytes(0, *length as usize);
                value.cast::<u8>().write_bytes(state, usize::from(*length > 0));
            }
            return Ok(());
        }
        let found = socket.option(level, name)?;
        let linger = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER);
        let whole = if linger { size_of::<libc::linger>() } else { size_of::<c_int>() };
        let structure = libc::linger { l_onoff: found, l_linger: 0 };
        // SAFETY: `*length` bytes of the program's at `value`; the structure begins with the number.
        unsafe {
            let room = (*length as usize).min(whole);
            std::ptr::copy_nonoverlapping((&raw const structure).cast::<u8>(), value.cast(), room);
            *length = room as libc::socklen_t;
        }
        Ok(())
    })
}

/// A variadic function in C: its third argument is a number for each command that there is here.
pub(crate) unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int {
    minus_one(|| {
        let socket = sockets::get(socket)?;
        match command {
            libc::F_GETFL => {
                let nonblocking = if socket.is_nonblocking() { libc::O_NONBLOCK } else { 0 };
                Ok(libc::O_RDWR | nonblocking)
            }
            libc::F_SETFL => {
                socket.set_nonblocking(argument & c_long::from(libc::O_NONBLOCK) != 0);
                Ok(0)
            }
            libc::F_GETFD => Ok(libc::FD_CLOEXEC),
            libc::F_SETFD => Ok(0),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

// ---- polls ---------------------------------------------------------------------------------------

/// Poll sockets and plain descriptors. With plain ones alone it is the system's `poll`.
///
/// # Safety
/// `n` entries of the program's at `fds`.
pub(crate) unsafe extern "C" fn rpoll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int {
    let n = usize::try_from(n).unwrap_or(0);
    if n == 0 || fds.is_null() {
        // SAFETY: as the program says.
        return unsafe { libc::poll(fds, n as libc::nfds_t, ms) };
    }
    // SAFETY: this function's contract.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, n) };
    let found: Vec<Option<Arc<Socket>>> = fds.iter().map(|fd| sockets::find(fd.fd)).collect();
    if found.iter().all(Option::is_none) {
        // SAFETY: the program's entries.
        return unsafe { libc::poll(fds.as_mut_ptr(), n as libc::nfds_t, ms) };
    }
    minus_one(|| poll(fds, &found, ms))
}

/// The events of sockets, and of plain descriptors that a poll without waiting finds; how many have
/// any.
fn look(fds: &mut [libc::pollfd], found: &[Option<Arc<Socket>>]) -> c_int {
    let mut ready = 0;
    for (fd, socket) in fds.iter_mut().zip(found) {
        match socket {
            Some(socket) => fd.revents = socket.events(fd.events),
            // SAFETY: one entry.
            None => unsafe {
                libc::poll(fd, 1, 0);
            },
        }
        ready += c_int::from(fd.revents != 0);
    }
    ready
}

fn poll(fds: &mut [libc::pollfd], found: &[Option<Arc<Socket>>], ms: c_int) -> Result<c_int> {
    let ready = look(fds, found);
    if ready > 0 || ms == 0 {
        return Ok(ready);
    }
    let until = u64::try_from(ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let waiter = Waiter::new()?;
    let _entered: Vec<_> =
        found.iter().flatten().map(|socket| socket.news.enter(&waiter)).collect();
    let plain = |number: RawFd, events| libc::pollfd { fd: number, events, revents: 0 };
    loop {
        for socket in found.iter().flatten() {
            socket.arm()?;
        }
        let ready = look(fds, found);
        if ready > 0 || until.is_some_and(|until| Instant::now() >= until) {
            return Ok(ready);
        }
        let mut waits = vec![plain(waiter.number(), libc::POLLIN)];
        waits.extend(fds.iter().zip(found).map(|(fd, socket)| match socket {
            Some(socket) => plain(socket.awaited().map_or(-1, |fd| fd.as_raw_fd()), libc::POLLIN),
            None => plain(fd.fd, fd.events),
        }));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map_or(-1, |left| {
            c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        });
        // SAFETY: entries of ours.
        if unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as libc::nfds_t, left) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        waiter.clear();
    }
}

/// `select` for sockets and plain descriptors.
pub(crate) unsafe extern "C" fn rselect(
    n: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    let sets = [(read, libc::POLLIN), (write, libc::POLLOUT), (except, libc::POLLPRI)];
    let most = n.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: sets of the program's, or null, and numbers that they have room for.
    let has =
        |set: *mut libc::fd_set, number| unsafe { !set.is_null() && libc::FD_ISSET(number, set) };
    let mut fds: Vec<libc::pollfd> = (0..most)
        .filter_map(|number| {
            let of = |&(set, event)| if has(set, number) { event } else { 0 };
            let events = sets.iter().map(of).fold(0, |all, event| all | event);
            (events != 0).then_some(libc::pollfd { fd: number, events, revents: 0 })
        })
        .collect();
    // SAFETY: a structure of the program's, or null.
    let ms = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let ms = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_usec + 999) / 1000);
        c_int::try_from(ms).unwrap_or(c_int::MAX)
    });
    // SAFETY: entries of ours.
    let polled = unsafe { rpoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
    if polled < 0 {
        return polled;
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return minus_one(|| Err(Errno::EBADF));
    }
    let ends = libc::POLLHUP | libc::POLLERR;
    let mut ready = 0;
    for (set, event) in sets {
        let also = if event == libc::POLLPRI { 0 } else { ends };
        for fd in fds.iter().filter(|fd| fd.events & event != 0) {
            if fd.revents & (event | also) != 0 {
                ready += 1;
            } else {
                // SAFETY: a set of the program's, which named the number.
                unsafe { libc::FD_CLR(fd.fd, set) };
            }
        }
    }
    ready
}
