//! `syscall`: a system call by its number, which is served as the call of its name is.

use std::ffi::{c_int, c_long, c_uint};

use super::{calls, descriptors, io, move_bytes, options, sockets, start, waits};
use crate::young;

/// Whether the kernel takes a mask of signals that is so long. Where it does not, it says so itself.
pub(super) fn is_mask(at: usize, length: usize) -> bool {
    at == 0 || length == size_of::<u64>()
}

calls! {
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
    ) -> c_long, -1; |next| {
        let fd = a as c_int;
        match number {
            libc::SYS_read => io::read(fd, b as _, c) as c_long,
            libc::SYS_readv => io::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_preadv2 => io::preadv2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_recvfrom => io::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long,
            libc::SYS_recvmsg => io::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => {
                c_long::from(io::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _))
            }
            libc::SYS_write => io::write(fd, b as _, c) as c_long,
            libc::SYS_writev => io::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_pwritev2 => io::pwritev2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_sendto => {
                io::sendto(fd, b as _, c, d as c_int, e as _, f as libc::socklen_t) as c_long
            }
            libc::SYS_sendmsg => io::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => {
                c_long::from(io::sendmmsg(fd, b as _, c as c_uint, d as c_int))
            }
            libc::SYS_sendfile => move_bytes::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => {
                move_bytes::splice(fd, b as _, c as c_int, d as _, e, f as c_uint) as c_long
            }
            libc::SYS_close => c_long::from(descriptors::close(fd)),
            libc::SYS_close_range => {
                c_long::from(descriptors::close_range(a as c_uint, b as c_uint, c as c_int))
            }
            libc::SYS_dup => c_long::from(descriptors::dup(fd)),
            libc::SYS_dup2 => c_long::from(descriptors::dup2(fd, b as c_int)),
            libc::SYS_dup3 => c_long::from(descriptors::dup3(fd, b as c_int, c as c_int)),
            libc::SYS_fcntl => c_long::from(options::fcntl(fd, b as c_int, c)),
            libc::SYS_ioctl => c_long::from(options::ioctl(fd, b as u64, c)),
            libc::SYS_setsockopt => c_long::from(options::setsockopt(
                fd, b as c_int, c as c_int, d as _, e as libc::socklen_t,
            )),
            libc::SYS_getsockopt => {
                c_long::from(options::getsockopt(fd, b as c_int, c as c_int, d as _, e as _))
            }
            libc::SYS_socket => c_long::from(sockets::socket(fd, b as c_int, c as c_int)),
            libc::SYS_connect => c_long::from(sockets::connect(fd, b as _, c as libc::socklen_t)),
            libc::SYS_listen => c_long::from(sockets::listen(fd, b as c_int)),
            libc::SYS_accept => c_long::from(sockets::accept(fd, b as _, c as _)),
            libc::SYS_accept4 => c_long::from(sockets::accept4(fd, b as _, c as _, d as c_int)),
            libc::SYS_getpeername => c_long::from(sockets::getpeername(fd, b as _, c as _)),
            libc::SYS_shutdown => c_long::from(sockets::shutdown(fd, b as c_int)),
            libc::SYS_poll => c_long::from(waits::poll(a as _, b as libc::nfds_t, c as c_int)),
            libc::SYS_ppoll if is_mask(d, e) => {
                c_long::from(waits::ppoll(a as _, b as libc::nfds_t, c as _, d as _))
            }
            libc::SYS_select => c_long::from(waits::select(fd, b as _, c as _, d as _, e as _)),
            libc::SYS_pselect6 => {
                let sets = [b, c, d].map(|set| set as *mut libc::fd_set);
                match waits::pselect6(fd, sets, e as _, f) {
                    Some(done) => c_long::from(done),
                    None => next(number, a, b, c, d, e, f),
                }
            }
            libc::SYS_epoll_create => c_long::from(waits::epoll_create(fd)),
            libc::SYS_epoll_create1 => c_long::from(waits::epoll_create1(fd)),
            libc::SYS_epoll_ctl => c_long::from(waits::epoll_ctl(fd, b as c_int, c as c_int, d as _)),
            libc::SYS_epoll_wait => {
                c_long::from(waits::epoll_wait(fd, b as _, c as c_int, d as c_int))
            }
            libc::SYS_epoll_pwait if is_mask(e, f) => {
                c_long::from(waits::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _))
            }
            libc::SYS_epoll_pwait2 if is_mask(e, f) => {
                c_long::from(waits::epoll_pwait2(fd, b as _, c as c_int, d as _, e as _))
            }
            libc::SYS_execve => c_long::from(start::execve(a as _, b as _, c as _)),
            libc::SYS_execveat => {
                c_long::from(start::execveat(fd, b as _, c as _, d as _, e as c_int))
            }
            libc::SYS_io_uring_setup if !young::freeze() => {
                crate::sys::fail(super::rings::REFUSED) as c_long
            }
            _ => next(number, a, b, c, d, e, f),
        }
    }
}
