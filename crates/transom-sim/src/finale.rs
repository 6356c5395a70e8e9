//! The end of a world: everything settles, is taken down, and nothing may be left.

use std::time::Duration;

use transom_core::{Effect, Effects, QueuePairKind, SharedReceives};
use transom_memory::Token;

use crate::model::Life;
use crate::process::Pair;
use crate::watch::{Stream, outlives, wants_receive};
use crate::world::World;

impl World {
    /// The tables say what the model says.
    pub(crate) fn check_tables(&mut self, everything: bool) {
        let mut watch = self.watcher.see();
        let mut wrong = None;
        for process in self.processes.iter().filter(|process| process.alive) {
            let Some(books) = watch.books.get(process.index) else { continue };
            if process.memory.passes() != 0 {
                wrong = Some("a pass is held outside of a call (rule 5)".into());
            }
            for (token, object) in &books.objects {
                if !everything && object.life == Life::Dead {
                    continue;
                }
                let open = process.memory.is_open(Token(*token));
                if open != (object.life != Life::Dead) {
                    wrong = Some(format!("token {token:#010x} is open: {open}; {:?}", object.life));
                }
                if object.window_of.is_none() && object.life != Life::Dead {
                    let counts = process.memory.counts(Token(*token)).unwrap_or_default();
                    let windows = books.windows(*token);
                    if counts.guards != 0 || counts.windows as usize != windows {
                        wrong = Some(format!("region {token:#010x}: {counts:?}, bound: {windows}"));
                    }
                }
            }
        }
        if let Some(wrong) = wrong {
            watch.fail(wrong);
        }
        drop(watch);
        for process in self.processes.iter().filter(|process| process.alive && everything) {
            process.arena.compare();
        }
    }

    /// Let everything run, with time, until nothing more can happen.
    fn run_out(&mut self) {
        let micro = Duration::from_micros;
        let rounds =
            [(12, micro(30)), (8, micro(5_000)), (8, micro(250_000)), (12, micro(1_000_000))];
        for (count, by) in rounds {
            for _ in 0..count {
                for _ in 0..100 {
                    for id in self.ends() {
                        self.transmit(id, 1 << 20);
                    }
                    let moves = |link: &crate::network::Link| {
                        [0, 1].iter().any(|side| link.next(*side).is_some_and(|at| at <= self.now))
                    };
                    if !self.links.iter().any(moves) {
                        break;
                    }
                    for id in self.ends() {
                        self.deliver(id, usize::MAX);
                    }
                }
                for id in self.ends() {
                    self.call(id, false, |call, _| call.connection.before_blocking());
                    self.transmit(id, 1 << 20);
                    self.sleep(id);
                }
                if self.failure().is_some() {
                    return;
                }
                self.pass_time(by);
                self.poll_all();
            }
        }
    }

    fn poll_all(&mut self) {
        for place in 0..self.places.len() {
            let process = self.places[place];
            for cq in 0..self.processes[process].cqs.len() {
                self.poll_one(process, cq, 1 << 11);
            }
        }
    }

    /// Heal the network, wait, take everything down, look.
    pub fn finish(&mut self) {
        (self.profile.late, self.profile.partial, self.profile.instant) = (false, false, true);
        for link in &mut self.links {
            link.window = 1 << 20;
            for way in &mut link.ways {
                way.stalled = false;
            }
        }
        self.watcher.see().healed = true;
        self.run_out();
        if self.failure().is_some() {
            return;
        }
        self.check_progress();
        self.check_tables(true);
        for place in 0..self.places.len() {
            let process = self.places[place];
            for index in 0..self.processes[process].pairs.len() {
                self.release(process, index);
            }
            let (_, links) = self.processes[process].listener.close();
            for link in links {
                self.turn_away((link as usize, 1));
            }
        }
        self.run_out();
        if self.failure().is_none() {
            self.check_empty();
        }
    }

    /// A request that can complete has completed (availability: nothing is forgotten).
    fn check_progress(&mut self) {
        let mut watch = self.watcher.see();
        let keys: Vec<_> = watch.pairs.keys().copied().collect();
        for key in keys {
            if !self.processes.get(key.0).is_some_and(|process| process.alive) {
                continue;
            }
            let Some(pair) = watch.pairs.get(&key) else { continue };
            let Some(request) = watch.oldest(pair) else { continue };
            let Some(id) = pair.end else { continue };
            let Some(stream) = watch.ends.get(&id) else { continue };
            let open = |stream: &Stream| stream.open && stream.ended.is_none();
            let both = open(stream) && watch.peer(id).is_some_and(open);
            // A plain peer must speak first when no ready-to-receive frame was agreed (iW 1.2 rule 4).
            let mute =
                !stream.extension && watch.peer(id).is_some_and(|peer| peer.messages.is_empty());
            if !both || stream.hurt || mute || stream.waits.is_some() {
                continue;
            }
            // A message that names a queue waits there.
            let waits = watch.peer(id).is_some_and(|peer| {
                let limits = peer.pair.and_then(|pair| watch.pairs.get(&pair)).map(|p| p.limits);
                peer.waits.is_some() && limits.is_none_or(|limits| limits.receive.is_none())
            });
            if pair.kind == QueuePairKind::XrcSend && waits {
                continue;
            }
            let send = wants_receive(request.operation);
            let starved = watch.peer(id).and_then(|peer| peer.pair).is_none_or(|peer| {
                watch.pairs.get(&peer).is_none_or(|p| {
                    let pool = p.shared.and_then(|pool| watch.pools.get(&(peer.0, pool)));
                    p.receives.is_empty() && pool.is_none_or(|pool| pool.is_empty())
                })
            });
            let patient = !outlives(pair.dialect) || pair.limits.receive.is_none();
            if !(send && starved && (patient || !stream.extension)) {
                let text = format!("{request:?} never completes");
                watch.current = Some(id);
                watch.fail(text);
                watch.current = None;
            }
        }
    }

    /// Nothing leaks.
    fn check_empty(&mut self) {
        self.poll_all();
        let left = self.ends();
        if !left.is_empty() {
            self.watcher.see().fail(format!("connections that never end: {left:?}"));
        }
        for place in 0..self.places.len() {
            let process = self.places[place];
            for index in 0..self.processes[process].pairs.len() {
                let pair = &self.processes[process].pairs[index];
                let key = (process, pair.number);
                let outstanding = pair.front.outstanding();
                let mut watch = self.watcher.see();
                watch.skip_silent(key);
                let known = watch.pairs.get(&key).map_or((0, 0), |pair| pair.outstanding());
                // Completions that were lost with their queue are never retrieved.
                let dead = |cq: &usize| self.processes[process].cqs[*cq].queue.failure().is_some();
                let lost = pair.cqs.iter().any(dead);
                if outstanding != (0, 0) && !lost || known != (0, 0) {
                    watch.fail(format!("pair {key:x?} keeps {outstanding:?}; the model {known:?}"));
                }
            }
            let waiting = self.processes[process].waiting.clone();
            if !waiting.is_empty() {
                self.watcher
                    .see()
                    .fail(format!("calls of process {process} never end: {waiting:?}"));
            }
            for number in 0..self.processes[process].pools.len() {
                let pool = &self.processes[process].pools[number];
                let queue = pool.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let outstanding = queue.0.outstanding();
                drop(queue);
                let _: &dyn SharedReceives = pool;
                let mut watch = self.watcher.see();
                let known = watch.pools.get(&(process, number)).map_or(0, |pool| pool.len());
                if outstanding != known {
                    watch.fail(format!(
                        "a shared queue has {outstanding} receives; posted: {known}"
                    ));
                }
            }
            for index in 0..self.processes[process].regions.len() {
                if self.processes[process].regions[index].live {
                    self.deregister_one(process, index, true);
                }
            }
        }
        self.check_tables(true);
        self.poll_all();
        let full = self
            .places
            .iter()
            .flat_map(|p| &self.processes[*p].cqs)
            .any(|cq| !cq.mirror.is_empty());
        let stuck = self.links.iter().any(|link| {
            let waits = |side: usize| link.ends[side].is_some() && link.ways[side].bytes > 0;
            waits(0) || waits(1)
        });
        let mut watch = self.watcher.see();
        if full {
            watch.fail("completions that were never reported");
        }
        if stuck {
            watch.fail("bytes that were never delivered");
        }
        if watch.failure.is_none() {
            watch.counters.hit("nothing left at the end");
        }
    }

    /// Effects of a call on a queue pair that has no connection.
    pub(crate) fn settled(&mut self, process: usize, index: usize, effects: Vec<Effect>) {
        self.carry_out((usize::MAX, 0), process, Some(index), effects);
    }

    /// A connector without a connection is let go.
    pub(crate) fn released_without(&mut self, process: usize, index: usize) {
        let mut effects = Effects::default();
        self.bare(process, index, &mut effects, |pair: &mut Pair, cx| {
            pair.connector.release(cx, None);
        });
        self.settled(process, index, effects.list);
    }
}
