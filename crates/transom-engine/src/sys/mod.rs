//! The operating system: the module of the engine with `unsafe` in it (the driver's lock has the
//! rest), and the one that a port to another system replaces. Everything goes through raw system calls (rustix), never
//! through libc's socket wrappers, so that an interposed libc cannot call itself through us.

#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "`raw` decides what of it the public sees")]

mod addresses;
mod answers;
mod atomic;
mod capture;
mod copy;
#[cfg(test)]
mod corpus;
mod datagram;
mod diag;
mod event;
mod exit;
mod fault;
mod fd;
pub(crate) mod host;
mod identity;
mod kill;
mod lent;
mod local;
mod maps;
mod pages;
mod perturb;
mod process;
mod region;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use addresses::AddressWatch;
pub(crate) use answers::ReceiveBuffer;
pub use atomic::ATOMICS;
pub(crate) use capture::CaptureFiles;
pub use copy::{Fault, copy_in, copy_out};
pub(crate) use datagram::Datagrams;
pub use datagram::{IpFields, Message};
pub(crate) use diag::{is_answered, receive_buffer_of, user_of_peer};
pub use event::{Alarm, Doorbell, Epoll, poll_any};
pub(crate) use exit::{AtExit, add_exit_hook, call_frames};
#[cfg(test)]
pub(crate) use fault::hold as hold_handlers;
pub use fault::recheck as recheck_fault_handler;
pub use fd::Fd;
pub(crate) use host::Host;
pub use host::fetch_ahead;
pub use identity::{Interface, interfaces, peer_is_same_user};
pub(crate) use identity::{is_our_user, user};
#[cfg(test)]
pub(crate) use kill::hit;
pub(crate) use kill::kill_point;
pub(crate) use lent::{Borrowed, Lent};
pub(crate) use local::{Local, LocalListener};
pub use maps::PageError;
#[cfg(test)]
pub(crate) use pages::hold as hold_maps;
pub use pages::{check_pages, check_ranges};
pub(crate) use perturb::perturb;
#[cfg(test)]
pub(crate) use process::cpu_time;
pub use process::{
    descriptor_limit, fork_generation, now, pause, random_seed, recently, spawn_quiet, thread_time,
};
pub(crate) use process::{host_name, is_trusted, program};
pub(crate) use region::{Region, try_to_share};
pub use socket::{
    Bytes, IoError, Listener, Options, Progress, ReservedPort, Stream, check_local, route_to,
};
