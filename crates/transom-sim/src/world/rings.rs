//! Records between rings and connections: what `bytes` is for links of bytes.

use std::time::Duration;

use transom_core::LinkEnd;
use transom_process::record::{HEADER, LARGEST_TEXT};
use transom_process::ring::Record;
use transom_process::{Records, Stop};

use super::Call;
use crate::rings::Outlet;
use crate::watch::EndId;
use crate::world::World;

/// A side that reads nothing for so long, while there is more for it than fits, is given up.
const SILENCE: Duration = Duration::from_secs(10);

impl World {
    /// Let an end write into its ring.
    pub(super) fn write_records(&mut self, id: EndId, limit: usize) -> bool {
        let over = self.call(id, true, |call, cx| {
            let Call { connection, rings: Some(rings), out, arena, watcher, .. } = call else {
                return false;
            };
            let flowing = rings.duplex.write(out, &mut rings.written);
            let limit = if flowing { limit } else { 0 };
            let mut outlet = Outlet::new(rings, out, limit, (arena, watcher));
            connection.transmit(cx, &mut outlet);
            let ring = rings.duplex.acknowledge(connection.wire().acknowledgement(cx.now));
            let waiting = !out.is_empty() || connection.wants_write();
            let stuck = rings.duplex.stuck_since(waiting, cx.now);
            if stuck.is_some_and(|since| cx.now >= since.after(SILENCE)) {
                watcher.see().counters.hit("a full ring given up");
                connection.link_closed(cx, LinkEnd::TimedOut);
            }
            ring
        });
        self.rung(id, over == Some(true));
        self.bury(id);
        over.is_some()
    }

    /// Let an end read so many records.
    pub(super) fn read_records(&mut self, id: EndId, most: usize) {
        let now = self.now;
        let Some(link) = self.links.get_mut(id.0) else { return };
        let way = &mut link.ways[id.1];
        let Some(end) = link.ends[id.1].as_mut() else { return };
        let Some(rings) = end.rings.as_mut() else { return };
        if way.stalled && self.rng.once_in(10) {
            way.stalled = false;
        }
        if way.stalled || way.lost || !end.connection.wants_read() {
            return;
        }
        if rings.asleep {
            if !(way.bell.is_some_and(|at| at <= now) || way.closed) {
                return;
            }
            self.watcher.see().counters.hit("woken by the bell");
            rings.asleep = false;
            rings.duplex.wake_up();
        }
        way.bell = None;
        let closed = way.closed && !way.told;
        let read = self.call(id, false, |call, cx| {
            let Call { connection, rings: Some(rings), watcher, .. } = call else {
                return (false, false);
            };
            let mut staging = [0; HEADER + LARGEST_TEXT];
            let (mut taken, mut told) = (0, false);
            while taken < most && connection.wants_read() {
                let mut records = Records::new(&mut rings.duplex, most - taken);
                let (count, _) = connection.receive_frames(cx, &mut records);
                taken += count;
                match records.end().1 {
                    Stop::Spent if count == 0 => break,
                    Stop::Spent => {}
                    Stop::Empty if closed => {
                        told = true;
                        connection.link_closed(cx, LinkEnd::Closed);
                        break;
                    }
                    Stop::Empty => break,
                    Stop::Broken(violation) => {
                        connection.broken(cx, violation.text());
                        break;
                    }
                    Stop::Left => match rings.duplex.read() {
                        Some(Ok(Record { header, body })) => {
                            taken += 1;
                            let used = rings.duplex.copy(&header, body, &mut staging);
                            let bytes = staging.get(..used).unwrap_or_default();
                            if connection.receive(cx, bytes).consumed != used {
                                watcher.see().fail("a record is not taken as a whole");
                            }
                        }
                        Some(Err(violation)) => {
                            connection.broken(cx, violation.text());
                            break;
                        }
                        None => watcher.see().fail("a record is left, and is not there"),
                    },
                }
            }
            if taken == 0 && !told {
                connection.idle_pass();
            }
            (rings.duplex.acknowledge(connection.wire().acknowledgement(cx.now)), told)
        });
        let (ring, told) = read.unwrap_or_default();
        if told {
            self.links[id.0].ways[id.1].told = true;
        }
        self.rung(id, ring);
        self.bury(id);
    }

    /// A thread that has nothing more to do sleeps, unless it finds something when it looks once more.
    pub(crate) fn sleep(&mut self, id: EndId) {
        let rings = self.end_mut(id).and_then(|end| end.rings.as_mut());
        let Some(rings) = rings.filter(|rings| !rings.asleep) else { return };
        if rings.duplex.fall_asleep() {
            rings.asleep = true;
            self.hit("fell asleep");
        } else {
            rings.duplex.wake_up();
            self.hit("found something before it slept");
        }
        self.bury(id);
    }

    /// An end rings for the other one.
    fn rung(&mut self, id: EndId, ring: bool) {
        if ring {
            let delay = self.profile.delay(&mut self.rng);
            let at = self.now.after(delay);
            if delay > Duration::ZERO {
                self.hit("late bell");
            }
            if let Some(link) = self.links.get_mut(id.0) {
                link.ways[1 - id.1].bell = Some(at);
            }
        }
    }

    /// An end that has died inside of the ring code takes its process with it.
    fn bury(&mut self, id: EndId) {
        let Some(end) = self.end_mut(id) else { return };
        let ended = end.rings.as_ref().and_then(|rings| rings.duplex.area().ended());
        let process = end.process;
        if let Some(point) = ended {
            self.say(|| format!("process {process} has died: {point}"));
            self.hit("died inside of a ring");
            self.kill(process);
        }
    }
}
