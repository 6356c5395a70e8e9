//! Tests of the handle layer over real sockets.

mod busy;
mod calls;
mod datagrams;
mod fairness;
mod forks;
mod guesses;
mod harness;
mod hostile;
mod many_links;
mod memory;
mod namespace;
mod port_map;
mod processes;
mod removal;
mod rings;
mod shared_memory;
mod short;
mod silence;
mod traffic;
mod upgrade;
mod users;
mod vanishing;
mod verbs;
mod waiters;
