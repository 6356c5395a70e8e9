//! The operating system: the module of the engine with `unsafe` in it (the driver's lock has the
//! rest), and the one that a port to another system replaces. On Linux everything goes through raw system
//! calls (rustix), never through libc's socket wrappers, so that an interposed libc cannot call itself
//! through us. Files of this folder are Linux's or every system's; `windows/` has a file of the same
//! name for each that is Linux's.

#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "`raw` decides what of it the public sees")]

#[macro_use]
mod assembly;

#[cfg_attr(windows, path = "windows/addresses.rs")]
mod addresses;
mod atomic;
mod bounds;
#[cfg_attr(windows, path = "windows/capture.rs")]
mod capture;
mod copy;
#[cfg(test)]
#[cfg(not(windows))]
mod corpus;
#[cfg_attr(windows, path = "windows/datagram.rs")]
mod datagram;
#[cfg_attr(windows, path = "windows/diag.rs")]
mod diag;
#[cfg(windows)]
#[path = "windows/doorbell.rs"]
mod doorbell;
#[cfg_attr(windows, path = "windows/event.rs")]
mod event;
#[cfg_attr(windows, path = "windows/exit.rs")]
mod exit;
#[cfg_attr(windows, path = "windows/fault.rs")]
mod fault;
#[cfg_attr(windows, path = "windows/fd.rs")]
mod fd;
pub(crate) mod host;
#[cfg_attr(windows, path = "windows/identity.rs")]
mod identity;
mod interface;
mod io;
mod kill;
#[cfg_attr(windows, path = "windows/lent.rs")]
mod lent;
#[cfg_attr(windows, path = "windows/local.rs")]
mod local;
#[cfg_attr(windows, allow(dead_code, reason = "the text of /proc/self/maps is Linux's"))]
mod maps;
mod message;
#[cfg(not(windows))]
mod names;
#[cfg(test)]
#[cfg_attr(windows, path = "windows/tests/own.rs")]
#[cfg_attr(not(windows), path = "tests/own.rs")]
mod own_tests;
#[cfg_attr(windows, path = "windows/pages.rs")]
mod pages;
mod perturb;
mod place;
#[cfg_attr(windows, path = "windows/process.rs")]
mod process;
mod recently;
#[cfg_attr(windows, path = "windows/region.rs")]
mod region;
#[cfg_attr(windows, path = "windows/releases.rs")]
mod releases;
#[cfg_attr(windows, path = "windows/socket.rs")]
mod socket;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[cfg_attr(windows, path = "windows/vanishing.rs")]
mod vanishing;

pub(crate) use addresses::AddressWatch;
pub use atomic::ATOMICS;
pub(crate) use capture::CaptureFiles;
pub use copy::{Fault, copy_in, copy_out};
pub(crate) use datagram::Datagrams;
pub(crate) use diag::{
    ASKING_TAKES_NO_TIME, is_answered, is_of_this_host, place_of_peer, receive_buffer_of,
};
#[cfg(windows)]
pub use doorbell::Doorbell;
#[cfg(not(windows))]
pub use event::Doorbell;
pub use event::{Alarm, Epoll, poll_any};
pub(crate) use exit::{AtExit, add_exit_hook, call_frames};
#[cfg(test)]
#[cfg(not(windows))]
pub(crate) use fault::hold as hold_handlers;
pub use fault::recheck as recheck_fault_handler;
pub use fd::Fd;
pub(crate) use host::Host;
pub use host::fetch_ahead;
pub use identity::{interfaces, peer_is_same_user};
pub(crate) use identity::{is_our_user, user};
pub use interface::Interface;
pub use io::{IoError, Options, Progress};
#[cfg(test)]
#[cfg(not(windows))]
pub(crate) use kill::hit;
pub(crate) use kill::kill_point;
pub(crate) use lent::{Borrowed, Lent};
pub(crate) use local::{Local, LocalListener, Rung};
pub use maps::PageError;
pub use message::{IpFields, Message};
#[cfg(not(windows))]
pub(crate) use names::{Name, NameHolders, holders};
#[cfg(test)]
#[cfg(not(windows))]
pub(crate) use pages::hold as hold_maps;
pub use pages::{check_pages, check_ranges};
pub(crate) use perturb::perturb;
pub(crate) use place::PeerPlace;
#[cfg(test)]
#[cfg(not(windows))]
pub(crate) use process::cpu_time;
pub(crate) use process::{address_space_limit, descriptors_in_use, host_name, program};
pub use process::{
    descriptor_limit, fork_generation, now, pause, random_seed, spawn_quiet, thread_time,
};
pub(crate) use recently::processors;
pub use recently::recently;
pub(crate) use region::{Region, try_to_share};
pub(crate) use releases::{GivingBack, ReleaseKeeper, is_behind};
pub(crate) use socket::INET6;
pub use socket::{Bytes, Listener, ReservedPort, Stream, check_local, route_to};
pub(crate) use transom_os::answers::ReceiveBuffer;
