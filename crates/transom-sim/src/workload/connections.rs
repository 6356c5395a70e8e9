//! The lives of connections.

use std::time::Duration;

use transom_core::tables::{ConnectorState, QueuePairState};
use transom_core::{
    Capacity, Connector, Limits, LinkEnd, QueuePair, QueuePairConfig, QueuePairKind, Status,
};
use transom_memory::{DomainId, QueuePairId, Rights};
use transom_wire::ReadLimits;

use super::DOMAINS;
use crate::process::{Pair, Process};
use crate::watch::{EndId, outlives};
use crate::world::World;

impl World {
    pub(crate) fn connections(&mut self, process: usize) {
        let pairs = &self.processes[process].pairs;
        let alive: Vec<usize> = (0..pairs.len()).filter(|i| !pairs[*i].released).collect();
        // Those that wait for their program come first, mostly.
        let waits = |i: &usize| {
            use ConnectorState::{Bound, Disconnected, PeerGone, Replied, Requested};
            let state = pairs[*i].connector.state();
            matches!(state, Bound | Disconnected | PeerGone | Replied | Requested)
        };
        let waiting: Vec<usize> = alive.iter().copied().filter(waits).collect();
        let first = !waiting.is_empty() && !self.rng.once_in(4);
        let chosen = self.rng.pick(if first { &waiting } else { &alive }).copied();
        if let Some(index) = chosen.filter(|_| first) {
            self.connection(process, index);
            return self.perhaps_pump(process, index);
        }
        let Some(index) = chosen.filter(|_| alive.len() >= 4 || self.rng.once_in(2)) else {
            self.open(process);
            let newest = self.processes[process].pairs.len() - 1;
            return self.perhaps_pump(process, newest);
        };
        self.connection(process, index);
    }

    fn connection(&mut self, process: usize, index: usize) {
        use ConnectorState::{Bound, Disconnected, PeerGone};
        let outlives = outlives(self.processes[process].dialect);
        let pair = &self.processes[process].pairs[index];
        match pair.connector.state() {
            // A queue pair that was connected before, and may be again.
            PeerGone | Disconnected if outlives && !self.rng.once_in(4) => {
                self.renew(process, index);
            }
            Bound if outlives && pair.front.state() != QueuePairState::Idle => {
                self.renew(process, index);
            }
            ConnectorState::Bound => self.connect(process, index),
            ConnectorState::Requested if self.rng.once_in(12) => self.reject(process, index),
            ConnectorState::Requested => self.accept(process, index),
            ConnectorState::Replied if self.rng.once_in(12) => self.reject(process, index),
            ConnectorState::Replied => self.complete_connect(process, index),
            ConnectorState::Connecting | ConnectorState::Accepting | ConnectorState::Queued => {
                if outlives && self.rng.once_in(30) {
                    self.reset_pair(process, index);
                } else if self.rng.once_in(15) {
                    self.cancel(process, index);
                }
            }
            ConnectorState::Connected if self.is_hurt(process, index) && self.rng.once_in(4) => {
                self.disconnect(process, index);
            }
            ConnectorState::Connected => match self.rng.below(100) {
                0 => self.disconnect(process, index),
                1 => self.flush_pair(process, index),
                2 => self.release(process, index),
                3 => {
                    let waiter = self.processes[process].waiter();
                    if let Some(id) = self.processes[process].pairs[index].end {
                        let result = self.call(id, false, |call, cx| {
                            call.connector.map(|c| c.notify_disconnect(waiter, cx.effects))
                        });
                        if !matches!(result, Some(Some(Ok(())))) {
                            self.processes[process].waiting.pop();
                        }
                    }
                }
                4 if self.profile.careless => {
                    let pair = &mut self.processes[process].pairs[index];
                    pair.lazy = !pair.lazy;
                }
                5 if outlives => self.reset_pair(process, index),
                _ => {}
            },
            ConnectorState::PeerGone => self.disconnect(process, index),
            ConnectorState::Disconnected | ConnectorState::Disconnecting => {
                if self.rng.once_in(3) {
                    self.release(process, index);
                }
            }
            ConnectorState::Idle => {}
        }
    }

    /// Nothing has come for a while, and the network is to blame: some programs do not wait.
    fn is_hurt(&self, process: usize, index: usize) -> bool {
        let end = self.processes[process].pairs[index].end;
        let watch = self.watcher.see();
        end.and_then(|id| watch.ends.get(&id)).is_some_and(|stream| stream.hurt)
    }

    /// A new queue pair, to connect with or to be connected to.
    fn open(&mut self, index: usize) {
        let kind = match self.profile.xrc {
            true => self.rng.one([QueuePairKind::XrcSend, QueuePairKind::XrcReceive]),
            false => QueuePairKind::Rc,
        };
        let shared = match kind {
            QueuePairKind::Rc => self.rng.once_in(4),
            kind => kind == QueuePairKind::XrcReceive,
        };
        let process = &self.processes[index];
        // Those of a domain complete in one queue.
        let last = if self.profile.xrc { 1 } else { process.cqs.len() };
        let cqs = [0, 1].map(|_| self.rng.index(last));
        let pool = shared.then(|| self.rng.index(process.pools.len()));
        let pair = self.queue_pair(index, kind, cqs, pool);
        for _ in 0..self.rng.below(4) {
            self.receive_one(index, pair);
        }
        self.meet(index, pair);
    }

    /// A connector that has just been made connects, or is to be connected to.
    fn meet(&mut self, index: usize, pair: usize) {
        let passive = match self.processes[index].pairs[pair].kind {
            QueuePairKind::XrcReceive => true,
            QueuePairKind::XrcSend => false,
            _ => self.rng.once_in(2),
        };
        if passive {
            let process = &mut self.processes[index];
            let waiter = process.waiter();
            let owner = &mut process.pairs[pair];
            let taken = process.listener.take_request(&mut owner.connector, pair as u64, waiter);
            if let Ok(Some(incoming)) = taken {
                self.hand_over(index, pair, incoming);
            }
        } else {
            let _ = self.processes[index].pairs[pair].connector.bind();
            self.connect(index, pair);
        }
    }

    /// A queue pair with these completion queues, and perhaps a shared receive queue.
    fn queue_pair(
        &mut self,
        index: usize,
        kind: QueuePairKind,
        cqs: [usize; 2],
        pool: Option<usize>,
    ) -> usize {
        let shared = pool.is_some();
        let (depth, sges) = (self.profile.depth, self.profile.sges);
        let number = self.rng.below(1 << 24) as u32;
        let domain = DomainId(self.rng.below(DOMAINS) as u32 + 1);
        let process = &mut self.processes[index];
        let config = QueuePairConfig {
            number: QueuePairId(number),
            domain,
            context: u64::from(number) << 8,
            kind,
            dialect: process.dialect,
            initiator_depth: depth,
            receive_depth: if shared { 0 } else { depth },
            initiator_sge: sges,
            receive_sge: sges,
            inline_size: 256,
            largest_transfer: 1 << 20,
            shared,
            receive_domain: domain,
        };
        let front = QueuePair::new(config);
        let (requests, receives) = front.places();
        let members = [
            process.cqs[cqs[0]].queue.bind(requests, depth as usize),
            process.cqs[cqs[1]].queue.bind(receives, depth as usize),
        ];
        let pair = process.pairs.len();
        let connector = Connector::new(process.dialect, process.caps);
        process.pairs.push(Pair {
            number,
            kind,
            aimed: Default::default(),
            domain,
            front,
            connector,
            cqs,
            members,
            pool,
            end: None,
            released: false,
            tried: false,
            lazy: self.profile.careless && self.rng.once_in(3),
            signal: None,
        });
        let mut watch = self.watcher.see();
        let record = crate::watch::Pair::new(domain, config.dialect, kind, config.context, pool);
        watch.pairs.insert((index, number), record);
        drop(watch);
        if outlives(config.dialect) {
            self.change_limits(index, pair);
        }
        pair
    }

    fn connect(&mut self, index: usize, pair: usize) {
        // A process with a listener or connector that waits for it, mostly.
        let waits = |process: &usize| {
            let pairs = &self.processes[*process].pairs;
            pairs.iter().any(|p| !p.released && p.connector.state() == ConnectorState::Queued)
        };
        let others = self.places.iter().copied().filter(|process| *process != index);
        let ready: Vec<usize> = others.filter(waits).collect();
        let from = if ready.is_empty() || self.rng.once_in(4) { &self.places } else { &ready };
        let Some(to) = self.rng.pick(from).copied() else { return };
        if to == index || !self.processes[to].alive {
            return;
        }
        let reads =
            ReadLimits { inbound: self.rng.one([0, 4, 99]), outbound: self.rng.one([0, 4, 99]) };
        let length = self.rng.one([0, 1, 56, 500]);
        let waiter = self.processes[index].waiter();
        let owner = &mut self.processes[index].pairs[pair];
        let began = owner.connector.connect(&mut owner.front, waiter, reads, length);
        if outlives(self.processes[index].dialect)
            && matches!(began, Ok(_) | Err(Status::ConnectionActive))
        {
            let key = (index, self.processes[index].pairs[pair].number);
            self.watcher.see().connects(key, began.is_ok());
        }
        let Ok((execution, limits)) = began else {
            self.processes[index].waiting.pop();
            return;
        };
        if std::mem::replace(&mut self.processes[index].pairs[pair].tried, true) {
            self.hit("reconnected");
        }
        let link = self.link(index, pair, to);
        let private = self.private((link, 0), length);
        self.say(|| format!("process {index} connects to {to}: link {link}"));
        self.call((link, 0), false, |call, cx| {
            let _ = call.connection.connect(cx, execution, limits, &private);
        });
        self.transmit((link, 0), 1 << 16);
    }

    fn accept(&mut self, process: usize, index: usize) {
        let Some(id) = self.processes[process].pairs[index].end else {
            return self.release(process, index);
        };
        if self.end_mut(id).is_none() {
            return self.release(process, index);
        }
        self.join(id, index);
        let asked = self.processes[process].pairs[index].connector.private_data();
        if let Ok(asked) = asked.map(<[u8]>::to_vec) {
            self.check_private(id, &asked);
        }
        let private = self.private(id, 3);
        let waiter = self.processes[process].waiter();
        let reads =
            ReadLimits { inbound: self.rng.one([1, 4, 99]), outbound: self.rng.one([1, 4, 99]) };
        let result = self.call(id, false, |call, cx| {
            let (Some(connector), Some(front)) = (call.connector, call.front) else {
                return Err(Status::InternalError);
            };
            connector.accept(cx, Some(call.connection), front, waiter, reads, &private)
        });
        if !matches!(result, Some(Ok(()))) {
            self.processes[process].waiting.retain(|w| *w != waiter);
            let pair = &self.processes[process].pairs[index];
            if outlives(self.processes[process].dialect) && !pair.front.is_attached() {
                // The queue pair is another connection's next.
                self.watcher.see().let_go(id, (process, pair.number));
            }
        }
        self.transmit(id, 1 << 16);
    }

    fn complete_connect(&mut self, process: usize, index: usize) {
        let Some(id) = self.processes[process].pairs[index].end else { return };
        self.call(id, false, |call, cx| {
            call.connector.map(|connector| connector.complete_connect(cx, Some(call.connection)))
        });
        self.transmit(id, 1 << 16);
    }

    fn reject(&mut self, process: usize, index: usize) {
        let Some(id) = self.processes[process].pairs[index].end else { return };
        let private = self.private(id, 1);
        self.call(id, false, |call, cx| {
            call.connector.map(|connector| connector.reject(cx, Some(call.connection), &private))
        });
        self.transmit(id, 1 << 16);
    }

    fn cancel(&mut self, process: usize, index: usize) {
        self.hit("connect canceled");
        let end = self.processes[process].pairs[index].end;
        match end.filter(|id| self.end_mut(*id).is_some()) {
            Some(id) => {
                self.call(id, false, |call, cx| {
                    call.connector.map(|connector| connector.cancel(cx, Some(call.connection)))
                });
                self.transmit(id, 1 << 16);
            }
            _ => {
                let process_of = &mut self.processes[process];
                process_of.listener.forget(index as u64);
                let mut effects = transom_core::Effects::default();
                process_of.pairs[index].connector.unqueue(Status::Canceled, &mut effects);
                for effect in effects.list {
                    if let transom_core::Effect::Finished(finished) = effect {
                        self.finished(process, finished);
                    }
                }
            }
        }
    }

    fn disconnect(&mut self, process: usize, index: usize) {
        let Some(id) = self.processes[process].pairs[index].end else {
            return self.release(process, index);
        };
        let waiter = self.processes[process].waiter();
        let result = self.call(id, false, |call, cx| {
            call.connector.map(|connector| connector.disconnect(cx, Some(call.connection), waiter))
        });
        if matches!(result, Some(Some(Ok(())))) {
            self.hit("disconnected");
        } else {
            self.processes[process].waiting.retain(|w| *w != waiter);
        }
        self.transmit(id, usize::MAX);
    }

    pub(crate) fn flush_pair(&mut self, process: usize, index: usize) {
        self.hit("flushed");
        let pair = &mut self.processes[process].pairs[index];
        let key = (process, pair.number);
        match pair.end {
            Some(id) if pair.front.is_attached() => {
                // Before it is established, a flush leaves it be.
                let over = |world: &World, over: bool| {
                    let mut watch = world.watcher.see();
                    let ended = watch.ends.get(&id).is_some_and(|stream| stream.ended.is_some());
                    if let Some(pair) = watch.pairs.get_mut(&key) {
                        pair.over = over || ended;
                    }
                };
                over(self, true);
                self.call(id, false, |call, cx| call.connection.flush(cx));
                over(self, false);
                self.transmit(id, usize::MAX);
                if !self.processes[process].pairs[index].front.is_attached() {
                    self.flush_unattached(process, index);
                }
            }
            _ => self.flush_unattached(process, index),
        }
    }

    fn flush_unattached(&mut self, process: usize, index: usize) {
        let Process { memory, pairs, .. } = &mut self.processes[process];
        let pair = &mut pairs[index];
        let key = (process, pair.number);
        {
            let mut watch = self.watcher.see();
            if let Some(pair) = watch.pairs.get_mut(&key) {
                pair.over = true;
            }
            // Windows of a queue pair without a connection stand, if it outlives its connections.
            if pair.front.state() == QueuePairState::Idle {
                watch.close_windows(key);
            }
        }
        let mut effects = transom_core::Effects::default();
        pair.front.flush(memory, self.now, &mut effects);
        self.watcher.see().effects(None, Some(key), &effects.list);
        self.settled(process, index, effects.list);
    }

    /// A queue pair that outlives its connections begins anew, whatever is under way (V68).
    fn reset_pair(&mut self, process: usize, index: usize) {
        let pair = &self.processes[process].pairs[index];
        let (key, cqs) = ((process, pair.number), pair.cqs);
        if let Some(id) = pair.end.filter(|_| pair.front.is_attached()) {
            if let Some(stream) = self.watcher.see().ends.get_mut(&id) {
                stream.resets = true;
            }
            self.call(id, false, |call, cx| call.connection.reset(cx));
            self.transmit(id, usize::MAX);
        }
        let Process { memory, pairs, cqs: queues, .. } = &mut self.processes[process];
        let pair = &mut pairs[index];
        let done = pair.front.reset(memory, self.now);
        for cq in cqs {
            if let Some(cq) = queues.get_mut(cq) {
                cq.queue.purge(QueuePairId(key.1));
                cq.mirror.retain(|entry| entry.queue_pair.0 != key.1);
            }
        }
        pair.front.clear_places();
        let state = (pair.front.state(), pair.front.occupied(), pair.front.is_waiting());
        let mut watch = self.watcher.see();
        if done.is_err() || state != (QueuePairState::Idle, (0, 0), false) {
            watch.fail(format!("a queue pair that is reset ({done:?}) is {state:?} (V68)"));
        }
        watch.reset(key);
    }

    /// Another connection for a queue pair that outlives its connections: with what waits for it, or
    /// anew.
    fn renew(&mut self, process: usize, index: usize) {
        let pair = &self.processes[process].pairs[index];
        let ended = pair.front.is_attached() || pair.front.state() != QueuePairState::Idle;
        if ended || self.rng.once_in(4) {
            self.reset_pair(process, index);
        }
        let key = (process, self.processes[process].pairs[index].number);
        if let Some(old) = self.processes[process].pairs[index].end.take() {
            if let Some(end) = self.end_mut(old) {
                end.pair = None;
            }
            self.watcher.see().let_go(old, key);
        }
        let owner = &mut self.processes[process];
        owner.pairs[index].connector = Connector::new(owner.dialect, owner.caps);
        self.meet(process, index);
    }

    /// Change what a queue pair that outlives its connections may have changed at any time.
    pub(super) fn change(&mut self, process: usize) {
        let answers: Vec<usize> = {
            let watch = self.watcher.see();
            let pairs = &self.processes[process].pairs;
            let stream = |index: &usize| watch.ends.get(&pairs[*index].end?);
            let answers = |index: &usize| stream(index).is_some_and(|s| !s.serving.is_empty());
            (0..pairs.len()).filter(answers).collect()
        };
        // Also in the middle of an answer.
        let busy = self.rng.pick(&answers).copied().filter(|_| self.rng.once_in(2));
        let pairs = &self.processes[process].pairs;
        let all: Vec<usize> = (0..pairs.len()).filter(|i| !pairs[*i].released).collect();
        let wide = self.profile.xrc.then(|| self.rng.pick(&all).copied()).flatten();
        let some = busy.or(wide).or_else(|| self.any_pair(process));
        let Some(index) = some else { return };
        let mut access = Rights::REMOTE;
        if busy.is_some() {
            access = Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        } else if self.rng.once_in(2) {
            return self.change_limits(process, index);
        } else if self.rng.once_in(3) {
            access = self.rng.one([
                Rights::REMOTE_READ | Rights::REMOTE_WRITE,
                Rights::REMOTE_READ | Rights::REMOTE_ATOMIC,
                Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
            ]);
        }
        self.change_access(process, index, access);
        self.perhaps_pump(process, index);
    }

    /// Change how long a queue pair's requests may wait, and whether it serves Reads (V77, V79, V92, V94).
    fn change_limits(&mut self, process: usize, index: usize) {
        let mut limit = |least| {
            let limit = self.rng.one([None, None, None, Some(least), Some(20), Some(1500)]);
            limit.map(Duration::from_millis)
        };
        let limits = Limits {
            connection: limit(0),
            reconnection: limit(1),
            receive: limit(2),
            one_try: false,
            refuses_reads: self.rng.once_in(8),
        };
        let pair = &mut self.processes[process].pairs[index];
        pair.front.set_limits(limits);
        let (key, end) = ((process, pair.number), pair.end.filter(|_| pair.front.is_attached()));
        if let Some(pair) = self.watcher.see().pairs.get_mut(&key) {
            pair.limits = limits;
        }
        if let Some(id) = end {
            self.hit("limits changed beneath a connection");
            self.call(id, false, |_, _| ()); // its deadline may have changed
        }
    }

    /// Change what its peer may do at all (V93).
    fn change_access(&mut self, process: usize, index: usize, access: Rights) {
        let pair = &mut self.processes[process].pairs[index];
        pair.front.set_access(access);
        let (key, end) = ((process, pair.number), pair.end.filter(|_| pair.front.is_attached()));
        if let Some(pair) = self.watcher.see().pairs.get_mut(&key) {
            pair.access = access;
        }
        if end.is_some() {
            self.hit("access changed beneath a connection");
        }
    }

    /// A program that does not look at a completion queue of this end (of a careless one, sometimes any)
    /// loses it now, by what does not touch its connection: receives of another queue pair are canceled.
    pub(super) fn run_over(&mut self, id: EndId) {
        let Some((process, pair)) = self.end_mut(id).and_then(|end| Some((end.process, end.pair?)))
        else {
            return;
        };
        let wide = self.profile.careless && self.rng.once_in(3);
        let owner = &self.processes[process];
        // Some dialects' queues grow with what is bound to them.
        let can = owner.alive && owner.dialect.completion_queues == Capacity::Exact;
        let loses = |cq: &usize| {
            let cq = owner.cqs.get(*cq);
            cq.is_some_and(|cq| can && (wide || cq.neglected) && cq.queue.failure().is_none())
        };
        let Some(cq) = owner.pairs[pair].cqs.iter().copied().find(loses) else { return };
        for _ in 0..self.profile.cq_depth {
            let lone = self.queue_pair(process, QueuePairKind::Rc, [cq; 2], None);
            for _ in 0..self.profile.depth {
                self.receive_one(process, lone);
            }
            self.flush_pair(process, lone);
            self.end_overrun();
            self.release(process, lone);
            if self.processes[process].cqs[cq].queue.failure().is_some() {
                return self.hit("ran over beside a connection");
            }
        }
    }

    /// The last references to a queue pair and its connector go.
    pub(crate) fn release(&mut self, process: usize, index: usize) {
        if self.processes[process].pairs[index].released {
            return;
        }
        self.hit("released");
        let end = self.processes[process].pairs[index].end;
        if let Some(id) = end.filter(|id| self.end_mut(*id).is_some()) {
            self.call(id, false, |call, cx| {
                call.connector.map(|connector| connector.release(cx, Some(call.connection)))
            });
            self.transmit(id, usize::MAX);
        } else {
            self.released_without(process, index);
        }
        self.flush_pair(process, index);
        self.processes[process].listener.forget(index as u64);
        self.processes[process].pairs[index].released = true;
        // The queue pair's last handle closes what is left of its windows (a Bind that never ran
        // among them).
        let number = self.processes[process].pairs[index].number;
        self.processes[process].memory.close_queue_pair(QueuePairId(number), self.now.0);
        let nowhere = transom_memory::ConnectionId { number: u32::MAX, epoch: 0 };
        self.watcher.see().books[process].over(Some(QueuePairId(number)), nowhere);
    }

    /// The network gives up on a link.
    pub(crate) fn give_up(&mut self, id: EndId) {
        {
            let mut watch = self.watcher.see();
            if let Some(stream) = watch.ends.get_mut(&id) {
                stream.hurt = true;
            }
        }
        self.call(id, false, |call, cx| call.connection.link_closed(cx, LinkEnd::TimedOut));
    }
}
