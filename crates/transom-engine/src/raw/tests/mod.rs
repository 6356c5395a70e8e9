//! Tests of the handle layer over real sockets.

mod calls;
mod door;
mod fairness;
mod forks;
mod guesses;
mod harness;
mod hostile;
mod many_links;
mod processes;
mod rings;
mod traffic;
mod users;
mod vanishing;
mod waiters;
