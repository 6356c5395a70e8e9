//! The programs' steps, of the good ones and the others.
//!
//! | file | what programs do there |
//! |---|---|
//! | `memory` | register, deregister, write their own buffers, use up every token |
//! | `windows` | bind, invalidate, revoke, fast register |
//! | `requests` | read, write, send, receive, poll |
//! | `aim` | what a request names at its peer: what it was given, or what it should not have |
//! | `connections` | open, connect, accept, reject, cancel, disconnect, flush, let go |

mod aim;
mod connections;
mod memory;
mod requests;
mod windows;

use std::time::Duration;

use transom_memory::Rights;

use crate::watch::{EndId, outlives};
use crate::world::World;

/// A token on the board, which programs have handed out. The board never forgets: some programs use
/// what they should not.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The process that has the memory.
    pub process: usize,
    /// The token.
    pub token: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Rights granted.
    pub rights: Rights,
    /// For the peer of this queue pair of its owner; `None`: for any.
    pub pair: Option<usize>,
}

pub(crate) const DOMAINS: u64 = 2;
/// Bytes of a receive, mostly; Sends have half of that at most.
const MESSAGE: u64 = 1000;

impl World {
    /// Let one thing happen.
    pub fn step(&mut self) {
        let faults = self.profile.faults;
        if faults > 0 && self.rng.once_in(faults) {
            return self.fault();
        }
        match self.rng.below(100) {
            0..=24 => {
                if let Some(id) = self.busy_end() {
                    let limit = self.rng.one([1, 500, 1 << 16, 1 << 20, 1 << 20]);
                    self.transmit(id, limit);
                } else {
                    self.quiet();
                }
            }
            25..=53 => {
                if let Some(id) = self.busy_end() {
                    let most = self.rng.one([
                        1,
                        100,
                        1000,
                        usize::MAX,
                        usize::MAX,
                        usize::MAX,
                        usize::MAX,
                        usize::MAX,
                    ]);
                    let next = self.links[id.0].next(id.1).filter(|next| *next > self.now);
                    if let Some(next) = next.filter(|_| self.rng.once_in(2)) {
                        self.pass_time(next.since(self.now));
                    }
                    if most <= 100 {
                        self.hit("partial read");
                    }
                    self.deliver(id, most);
                } else {
                    self.quiet();
                }
            }
            54..=57 => {
                if let Some(id) = self.any_end() {
                    self.call(id, false, |call, _| call.connection.before_blocking());
                    self.transmit(id, 1 << 16);
                    self.sleep(id);
                }
            }
            58..=63 => {
                let by = match self.rng.below(1000) {
                    0 => self.rng.between(1, 6) * 1_000_000_000,
                    1..=15 => self.rng.below(30_000_000),
                    21..=300 => self.rng.below(1_000_000),
                    _ => self.rng.below(40_000),
                };
                self.pass_time(Duration::from_nanos(by));
            }
            _ => self.program(),
        }
    }

    pub(crate) fn any_end(&mut self) -> Option<EndId> {
        let ends = self.ends();
        self.rng.pick(&ends).copied()
    }

    /// Often what a program has asked for happens soon.
    pub(super) fn perhaps_pump(&mut self, process: usize, pair: usize) {
        let end = self.processes[process].pairs[pair].end;
        if let Some((link, _)) = end.filter(|_| self.rng.once_in(2)) {
            self.pump(link);
        }
    }

    /// A link works for a while as links mostly do: without anything in between.
    pub(super) fn pump(&mut self, link: usize) {
        for _ in 0..self.rng.between(1, 4) {
            for side in [0, 1] {
                self.transmit((link, side), 1 << 20);
            }
            let by = self.rng.below(30_000);
            self.pass_time(Duration::from_nanos(by));
            for side in [0, 1] {
                self.deliver((link, side), usize::MAX);
            }
        }
    }

    /// Nothing moves: time passes, until an acknowledgement is due perhaps.
    fn quiet(&mut self) {
        let by = self.rng.below(40_000);
        self.pass_time(Duration::from_nanos(by));
    }

    /// An end with bytes to send or to receive, mostly.
    fn busy_end(&mut self) -> Option<EndId> {
        if self.rng.once_in(5) {
            return self.any_end();
        }
        let mut busy = self.ends();
        busy.retain(|(link, side)| {
            let link = &self.links[*link];
            let speaks = |end: &crate::network::End| {
                end.read_paused || !end.out.is_empty() || end.connection.wants_write()
            };
            link.ends[*side].as_ref().is_some_and(speaks) || link.next(*side).is_some() || {
                let way = &link.ways[*side];
                way.bytes > 0 || way.closed && !way.told
            }
        });
        self.rng.pick(&busy).copied()
    }

    /// Some program does something.
    fn program(&mut self) {
        let place = self.rng.index(self.places.len());
        let process = self.places[place];
        if !self.processes[process].alive {
            return;
        }
        match self.rng.below(100) {
            0..=1 => self.register(process),
            2 => self.deregister(process),
            3..=11 => self.bind(process),
            12..=14 => self.invalidate(process),
            15 => self.revoke(process),
            16..=54 => {
                let Some(pair) = self.any_pair(process) else { return };
                for _ in 0..self.rng.between(1, 5) {
                    self.request(process, pair);
                }
                self.perhaps_pump(process, pair);
            }
            55..=74 => self.receive(process),
            80 | 81 | 83 | 98 | 99 if self.profile.hostile > 0 => self.steal(process),
            76..=80 if outlives(self.processes[process].dialect) => self.change(process),
            75..=82 => self.poll(process),
            83..=92 => self.connections(process),
            93 => self.poke(process),
            94 | 97 => self.fast(process),
            95 if self.profile.vanishing => self.vanish(),
            96 if self.profile.hoarding => self.hoard(process),
            _ => self.poll(process),
        }
    }
}
