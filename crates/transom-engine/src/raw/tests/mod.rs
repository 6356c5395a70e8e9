//! Tests of the handle layer over real sockets.

mod busy;
mod calls;
mod fairness;
mod harness;
mod hostile;
mod many_links;
mod memory;
mod namespace;
mod port_map;
mod short;
mod traffic;
mod verbs;
mod waiters;

// Forks, signals, shared memory, full buffers of other sockets, network namespaces.
#[cfg(not(windows))]
mod datagrams;
#[cfg(not(windows))]
mod descriptors;
#[cfg(not(windows))]
mod forks;
#[cfg(not(windows))]
mod guesses;
#[cfg(not(windows))]
mod ledger;
#[cfg(not(windows))]
mod plain_peers;
#[cfg(not(windows))]
mod processes;
#[cfg(not(windows))]
mod removal;
#[cfg(not(windows))]
mod rings;
#[cfg(not(windows))]
mod shared_memory;
#[cfg(not(windows))]
mod silence;
#[cfg(not(windows))]
mod slow;
#[cfg(not(windows))]
mod spinning;
#[cfg(not(windows))]
mod upgrade;
#[cfg(not(windows))]
mod users;
#[cfg(not(windows))]
mod vanishing;
