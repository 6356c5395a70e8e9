//! Options of a socket: each is a number that is kept, and a few decide something.

use std::ffi::c_int;

use super::link::Sizes;
use super::wire;
use crate::errno::{Errno, Result};

/// Of `<rdma/rsocket.h>`.
const SOL_RDMA: c_int = 0x10000;
const SQSIZE: c_int = 0;
const RQSIZE: c_int = 1;
const INLINE: c_int = 2;
const IOMAPSIZE: c_int = 3;
const ROUTE: c_int = 4;

/// Options without an effect here, with their values at first: a stream has no Nagle's algorithm, and
/// its connection notices the end of its peer by itself.
const KEPT: [(c_int, c_int, i32); 13] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 0),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 0),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 0),
    (libc::SOL_SOCKET, libc::SO_LINGER, 0),
    (libc::IPPROTO_IP, libc::IP_TOS, 0),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 7200),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 75),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 9),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG, 64 << 10),
    (SOL_RDMA, ROUTE, 0),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) sizes: Sizes,
    changed: Vec<((c_int, c_int), i32)>,
}

impl Options {
    /// `ENOPROTOOPT` for one that there is not; `EINVAL` for a value that makes no sense, and for a
    /// size of the connection once there is one.
    pub(crate) fn set(&mut self, level: c_int, name: c_int, value: i32, begun: bool) -> Result {
        let number = || u32::try_from(value).map_err(|_| Errno::EINVAL);
        let sizes = &mut self.sizes;
        if level == SOL_RDMA && begun {
            return Err(Errno::EINVAL);
        }
        match (level, name) {
            // As the system does: twice what is asked for. It has no effect once there is a ring.
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send = number()?.saturating_mul(2),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive = number()?.saturating_mul(2),
            (SOL_RDMA, SQSIZE) => sizes.requests = number()?,
            (SOL_RDMA, RQSIZE) => sizes.messages = number()?,
            (SOL_RDMA, INLINE) => sizes.inline = number()?,
            (SOL_RDMA, IOMAPSIZE) => sizes.mappings = wire::representable(number()?),
            _ if !is_kept(level, name) => return Err(Errno::ENOPROTOOPT),
            _ => {
                self.changed.retain(|(known, _)| *known != (level, name));
                self.changed.push(((level, name), value));
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, level: c_int, name: c_int) -> Result<i32> {
        let number = |size: u32| i32::try_from(size).unwrap_or(i32::MAX);
        let sizes = &self.sizes;
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => number(sizes.send),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => number(sizes.receive),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (SOL_RDMA, SQSIZE) => number(sizes.requests),
            (SOL_RDMA, RQSIZE) => number(sizes.messages),
            (SOL_RDMA, INLINE) => number(sizes.inline),
            (SOL_RDMA, IOMAPSIZE) => sizes.mappings.into(),
            _ => {
                let changed = self.changed.iter().find(|(known, _)| *known == (level, name));
                let first = KEPT.iter().find(|(l, n, _)| (*l, *n) == (level, name));
                let kept = changed.map(|(_, value)| *value).or(first.map(|(_, _, value)| *value));
                kept.ok_or(Errno::ENOPROTOOPT)?
            }
        })
    }
}

fn is_kept(level: c_int, name: c_int) -> bool {
    KEPT.iter().any(|(l, n, _)| (*l, *n) == (level, name))
}
