//! The world: processes, links, one clock, one thread. What a driver does with sockets and threads is
//! done here with chance.

use std::time::Duration;

use transom_core::trace::{TraceEvent, Tracer, What};
use transom_core::{
    Completion, Connection, ConnectionConfig, ConnectionEvent, Connector, Cx, Effect, Effects,
    EndReason, Finished, Incoming, LinkEnd, LinkWish, Offer, QueuePair, SharedReceives, Side,
    Status,
};
use transom_iwarp::{Config, Stream as Wire};
use transom_memory::{Actor, ConnectionId, DomainId, QueuePairId};
use transom_wire::{Role, Time};

use crate::arena::Arena;
use crate::network::{End, Link, Outlet, Straight, Way};
use crate::process::Process;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::spy::Spy;
use crate::watch::{EndId, PairId, Stream, Watcher};

/// Everything.
#[derive(Debug)]
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) watcher: Watcher,
    pub(crate) now: Time,
    pub(crate) profile: Profile,
    pub(crate) processes: Vec<Process>,
    /// The process that is running in each place.
    pub(crate) places: Vec<usize>,
    pub(crate) links: Vec<Link>,
    pub(crate) board: Vec<crate::workload::Grant>,
    epochs: u32,
    /// Completion queues that ran over: their connections are to be ended.
    overrun: Vec<(usize, usize)>,
}

/// What a call on one end may use.
pub(crate) struct Call<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) connector: Option<&'a mut Connector>,
    pub(crate) front: Option<&'a mut QueuePair>,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) arena: &'a Arena,
    pub(crate) watcher: &'a Watcher,
}

impl World {
    /// A world from a seed.
    #[must_use]
    pub fn new(seed: u64, aloud: bool) -> World {
        let mut rng = Rng::new(seed);
        let profile = Profile::new(&mut rng);
        let watcher = Watcher::default();
        watcher.see().aloud = aloud;
        let mut world = World {
            rng,
            watcher,
            now: Time(1_000_000_000),
            profile,
            processes: Vec::new(),
            places: Vec::new(),
            links: Vec::new(),
            board: Vec::new(),
            epochs: 0,
            overrun: Vec::new(),
        };
        for place in 0..world.profile.processes {
            world.places.push(place);
            world.start_process();
        }
        world
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        self.watcher.see().say(what);
    }

    pub(crate) fn hit(&self, name: &'static str) {
        self.watcher.see().counters.hit(name);
    }

    /// Whether a rule was broken.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.watcher.see().failure.clone()
    }

    /// A process begins.
    pub(crate) fn start_process(&mut self) -> usize {
        let index = self.processes.len();
        let process = self.profile.process(&mut self.rng, index, &self.watcher);
        self.processes.push(process);
        index
    }

    /// All of it: steps, and the end.
    pub fn run(&mut self) {
        for _ in 0..self.profile.opening {
            // A world in which some have met already.
            let place = self.rng.index(self.places.len());
            self.connections(self.places[place]);
            self.register(self.places[place]);
            for id in self.ends() {
                self.transmit(id, 1 << 16);
                self.deliver(id, usize::MAX);
            }
            self.pass_time(Duration::from_micros(100));
        }
        for step in 0..self.profile.steps {
            self.step();
            self.check_tables(step % 64 == 0);
            if self.failure().is_some() {
                return;
            }
        }
        self.finish();
    }

    /// What became of it.
    #[must_use]
    pub fn outcome(&self) -> crate::Outcome {
        let watch = self.watcher.see();
        let mut counters = watch.counters.clone();
        counters.0.insert("steps", u64::from(self.profile.steps));
        counters.0.insert("seeds", 1);
        crate::Outcome { failure: watch.failure.clone(), counters }
    }

    // ---- links --------------------------------------------------------------------------------

    /// A link between two processes; its active side has a queue pair.
    pub(crate) fn link(&mut self, from: usize, pair: usize, to: usize) -> usize {
        self.epochs += 1;
        let epoch = self.epochs;
        let link = self.links.len();
        let both = [(from, Role::Active), (to, Role::Passive)];
        let mut checksum = false;
        let ends = [0, 1].map(|side| {
            let (process, role) = both[side];
            let process = self.processes.get(process)?;
            checksum |= process.wire.checksum;
            let number = self.epochs % 2;
            let id = ConnectionId { number, epoch };
            let wire = Config { role, ..process.wire.clone() };
            let spy = Spy::new(Wire::new(wire, self.now), self.watcher.clone());
            let dialect = process.dialect;
            let config = ConnectionConfig { id, role, dialect, explain: process.explain };
            let stream = Stream::new(process, role, id, self.now);
            self.watcher.see().ends.insert((link, side), stream);
            Some(End {
                process: process.index,
                pair: (role == Role::Active).then_some(pair),
                connection: Connection::new(config, Box::new(spy), self.now),
                out: Vec::new(),
                held: Vec::new(),
                paused: false,
                shut: false,
                effects: Effects::default(),
            })
        });
        self.links.push(Link {
            ends,
            ways: [Way::default(), Way::default()],
            window: self.profile.window,
            checksum,
        });
        self.join((link, 0), pair);
        *self.watcher.see().counters.0.entry("connections").or_default() += 1;
        link
    }

    /// A queue pair goes to an end.
    pub(crate) fn join(&mut self, id: EndId, pair: usize) {
        let Some(end) = self.end_mut(id) else { return };
        end.pair = Some(pair);
        let index = end.process;
        let Some(pair) = self.processes.get_mut(index).and_then(|p| p.pairs.get_mut(pair)) else {
            return;
        };
        pair.end = Some(id);
        let (number, domain) = (pair.number, pair.domain);
        let mut watch = self.watcher.see();
        if let Some(stream) = watch.ends.get_mut(&id) {
            stream.pair = Some((index, number));
            stream.actor.domain = domain;
            stream.actor.queue_pair = QueuePairId(number);
        }
        if let Some(pair) = watch.pairs.get_mut(&(index, number)) {
            pair.end = Some(id);
        }
    }

    pub(crate) fn end_mut(&mut self, (link, side): EndId) -> Option<&mut End> {
        self.links.get_mut(link)?.ends.get_mut(side)?.as_mut()
    }

    /// Every end that exists.
    pub(crate) fn ends(&self) -> Vec<EndId> {
        let both = self.links.iter().enumerate();
        both.flat_map(|(link, l)| [0, 1].map(|side| (link, side, l.ends[side].is_some())))
            .filter(|(.., exists)| *exists)
            .map(|(link, side, _)| (link, side))
            .collect()
    }

    pub(crate) fn pair_id(&self, process: usize, pair: usize) -> Option<PairId> {
        let pair = self.processes.get(process)?.pairs.get(pair)?;
        Some((process, pair.number))
    }

    // ---- calls into the engine -----------------------------------------------------------------

    /// One call into the engine on behalf of an end, under its link's lock as it were, and everything
    /// that a driver does around it.
    pub(crate) fn call<R>(
        &mut self,
        id: EndId,
        transmitting: bool,
        then: impl FnOnce(Call<'_>, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let mut end = self.links.get_mut(id.0)?.ends.get_mut(id.1)?.take()?;
        let process = self.processes.get_mut(end.process)?;
        let Process { memory, lane, arena, denials, pools, pairs, .. } = process;
        let mut pair = end.pair.and_then(|pair| pairs.get_mut(pair));
        if let (Some(pair), Some(execution)) = (pair.as_deref_mut(), end.connection.execution()) {
            pair.front.exchange(execution);
        }
        self.watcher.see().enter(id, transmitting);
        let pool = pair.as_deref().and_then(|pair| pair.pool).and_then(|pool| pools.get(pool));
        let mut tracer = Ears(&self.watcher);
        let mut cx = Cx {
            now: self.now,
            memory,
            lane,
            host: &*arena,
            denials: &*denials,
            shared: pool.map(|pool| pool as &dyn SharedReceives),
            effects: &mut end.effects,
            trace: Some(&mut tracer),
        };
        let (connector, front) = match pair.as_deref_mut() {
            Some(pair) => (Some(&mut pair.connector), Some(&mut pair.front)),
            None => (None, None),
        };
        let call = Call {
            connection: &mut end.connection,
            connector,
            front,
            out: &mut end.out,
            arena,
            watcher: &self.watcher,
        };
        let result = then(call, &mut cx);
        if let (Some(pair), Some(execution)) = (pair, end.connection.execution()) {
            pair.front.exchange(execution);
        }
        self.watcher.see().leave();
        self.conclude(id, end);
        while let Some((process, cq)) = self.overrun.pop() {
            self.end_all(process, cq);
        }
        Some(result)
    }

    /// Carry out what a call has decided.
    fn conclude(&mut self, id: EndId, mut end: End) {
        let key = end.pair.and_then(|pair| self.pair_id(end.process, pair));
        let effects = std::mem::take(&mut end.effects.list);
        self.watcher.see().effects(Some(id), key, &effects);
        if let Some(over) = end.connection.ended() {
            // Some ends make no event: a Connect that was canceled.
            if let Some(stream) = self.watcher.see().ends.get_mut(&id) {
                stream.ended.get_or_insert(over.reason);
            }
        }
        let (process, pair) = (end.process, end.pair);
        let unused = end.connection.take_unused();
        let wish = end.connection.link_wish();
        let other = &mut self.links[id.0].ways[1 - id.1];
        let mut gone = false;
        match wish {
            LinkWish::Keep => {}
            LinkWish::Finish if end.out.is_empty() && !end.shut => {
                end.shut = true;
                other.closed = true;
            }
            LinkWish::Finish => {}
            LinkWish::Close => gone = true,
        }
        let torn = if gone { std::mem::take(&mut end.out) } else { Vec::new() };
        let execution = if gone { end.connection.take_execution() } else { None }.or(unused);
        if gone {
            // What a torn frame has sent has been sent.
            other.push(self.now, torn);
            other.closed = true;
            self.links[id.0].ways[id.1].clear();
        } else {
            self.links[id.0].ends[id.1] = Some(end);
        }
        self.carry_out(id, process, pair, effects);
        if gone {
            let mut told = Effects::default();
            let owner = self.processes.get_mut(process).zip(pair);
            if let Some(pair) = owner.and_then(|(process, index)| process.pairs.get_mut(index)) {
                pair.connector.link_gone(&mut told);
                pair.end = None;
            }
            self.carry_out(id, process, pair, told.list);
        }
        if let (Some(execution), Some(index)) = (execution, pair) {
            self.detach(id, process, index, execution);
        }
    }

    fn detach(
        &mut self,
        id: EndId,
        process: usize,
        index: usize,
        execution: transom_core::Execution,
    ) {
        let Some(pair) = self.processes.get_mut(process).and_then(|p| p.pairs.get_mut(index))
        else {
            return;
        };
        pair.front.detach(execution);
        pair.end = None;
        let key = (process, pair.number);
        self.settle(process, index);
        if let Some(end) = self.end_mut(id) {
            end.pair = None;
        }
        let mut watch = self.watcher.see();
        if let Some(stream) = watch.ends.get_mut(&id)
            && !stream.open
            && stream.role == Role::Active
        {
            stream.pair = None;
            if let Some(pair) = watch.pairs.get_mut(&key) {
                pair.end = None;
            }
        }
    }

    /// Complete what was posted where no connection is left to do it.
    pub(crate) fn settle(&mut self, process: usize, index: usize) {
        let Some(owner) = self.processes.get_mut(process) else { return };
        let Process { memory, pairs, .. } = owner;
        let Some(pair) = pairs.get_mut(index) else { return };
        let mut effects = Effects::default();
        pair.front.settle(memory, self.now, &mut effects);
        let key = (process, pair.number);
        self.watcher.see().effects(None, Some(key), &effects.list);
        self.carry_out((usize::MAX, 0), process, Some(index), effects.list);
    }

    /// A call on a queue pair that has no connection.
    pub(crate) fn bare(
        &mut self,
        process: usize,
        index: usize,
        effects: &mut Effects,
        then: impl FnOnce(&mut crate::process::Pair, &mut Cx<'_>),
    ) {
        let Some(process) = self.processes.get_mut(process) else { return };
        let Process { memory, lane, arena, denials, pairs, .. } = process;
        let Some(pair) = pairs.get_mut(index) else { return };
        let mut cx = Cx {
            now: self.now,
            memory,
            lane,
            host: &*arena,
            denials: &*denials,
            shared: None,
            effects,
            trace: None,
        };
        then(pair, &mut cx);
    }

    pub(crate) fn carry_out(
        &mut self,
        id: EndId,
        process: usize,
        pair: Option<usize>,
        effects: Vec<Effect>,
    ) {
        for effect in effects {
            match effect {
                Effect::Complete(side, completion) => {
                    self.complete(process, pair, side, completion)
                }
                Effect::Finished(finished) => self.finished(process, finished),
                Effect::Event(ConnectionEvent::Requested { limits, private }) => {
                    let incoming = Incoming { link: id.0 as u64, offer: Offer { limits, private } };
                    self.arrived(process, incoming);
                }
                Effect::Event(event) => {
                    self.say(|| format!("  event {event:?}"));
                    let mut more = Effects::default();
                    let process_of = self.processes.get_mut(process);
                    let owner = process_of.zip(pair).and_then(|(p, index)| p.pairs.get_mut(index));
                    if let Some(pair) = owner {
                        pair.connector.on_event(&event, &mut more);
                    }
                    if matches!(event, ConnectionEvent::Rejected { .. }) {
                        self.hit("rejected");
                    }
                    for effect in more.list {
                        if let Effect::Finished(finished) = effect {
                            self.finished(process, finished);
                        }
                    }
                    if pair.is_none()
                        && let Some(process) = self.processes.get_mut(process)
                    {
                        process.listener.gone(id.0 as u64);
                    }
                }
            }
        }
    }

    /// An asynchronous call has ended, which it does once.
    pub(crate) fn finished(&mut self, process: usize, finished: Finished) {
        self.say(|| format!("  process {process}: {finished:?}"));
        let Some(process) = self.processes.get_mut(process) else { return };
        match process.waiting.iter().position(|waiter| *waiter == finished.waiter) {
            Some(at) => {
                process.waiting.swap_remove(at);
            }
            None => self.watcher.see().fail(format!("{finished:?} ends no call, or one again")),
        }
    }

    fn complete(&mut self, process: usize, pair: Option<usize>, side: Side, entry: Completion) {
        let Some(process) = self.processes.get_mut(process) else { return };
        let Some(pair) = pair.and_then(|pair| process.pairs.get(pair)) else { return };
        let cq = pair.cqs[usize::from(side == Side::Receive)];
        let Some(queue) = process.cqs.get_mut(cq) else { return };
        let dead = queue.queue.failure().is_some();
        match queue.queue.push(entry) {
            Ok(()) => queue.mirror.push_back(entry),
            Err(_) if dead => {}
            Err(_) => {
                queue.mirror.clear();
                self.overrun.push((process.index, cq));
                self.watcher.see().counters.hit("completion queue ran over");
            }
        }
    }

    /// A completion queue ran over: every queue pair bound to it ends (ND2 4.4).
    fn end_all(&mut self, process: usize, cq: usize) {
        let Some(owner) = self.processes.get(process) else { return };
        let bound = owner.pairs.iter().filter(|pair| pair.cqs.contains(&cq));
        let ends: Vec<EndId> = bound.filter_map(|pair| pair.end).collect();
        for id in ends {
            self.call(id, false, |call, cx| call.connection.fail(cx, EndReason::Overrun));
            self.transmit(id, usize::MAX);
        }
    }

    fn arrived(&mut self, index: usize, incoming: Incoming) {
        let link = incoming.link as usize;
        let Some(process) = self.processes.get_mut(index) else { return };
        if !process.listener.has_room() {
            self.hit("backlog full");
            self.turn_away((link, 1));
            return;
        }
        if let Some((name, incoming)) = process.listener.arrived(incoming) {
            self.hand_over(index, name as usize, incoming);
        }
    }

    /// Nobody will take the request that came over it.
    pub(crate) fn turn_away(&mut self, id: EndId) {
        self.call(id, false, |call, cx| {
            if call.connection.reject(cx, &[]).is_err() {
                call.connection.give_up(cx);
            }
        });
        self.transmit(id, usize::MAX);
    }

    /// A connector gets a request.
    pub(crate) fn hand_over(&mut self, index: usize, pair: usize, incoming: Incoming) {
        let id = (incoming.link as usize, 1);
        let exists = self.end_mut(id).is_some();
        let Some(process) = self.processes.get_mut(index) else { return };
        let Some(owner) = process.pairs.get_mut(pair) else { return };
        let mut effects = Effects::default();
        owner.connector.request(incoming.offer, &mut effects);
        owner.end = exists.then_some(id);
        if let Some(end) = self.end_mut(id) {
            end.pair = Some(pair);
        }
        self.carry_out(id, index, Some(pair), effects.list);
    }

    // ---- bytes ---------------------------------------------------------------------------------

    /// Let an end write, and the link take what it takes.
    pub(crate) fn transmit(&mut self, id: EndId, limit: usize) {
        let straight = match self.rng.below(8) {
            0 => Straight::No,
            1 | 2 => Straight::Torn,
            _ => Straight::Yes,
        };
        let over = self.call(id, true, |call, cx| {
            let Call { connection, out, arena, watcher, .. } = call;
            let mut outlet = Outlet { out, limit, arena, straight, watcher };
            connection.transmit(cx, &mut outlet);
        });
        if over.is_none() {
            return;
        }
        // What was posted behind the end has been canceled by now.
        {
            let mut watch = self.watcher.see();
            let over = watch.ends.get(&id).and_then(|stream| {
                let kept = stream.keeps && stream.ended == Some(EndReason::PeerDisconnected);
                stream.pair.filter(|_| stream.ended.is_some() && !kept)
            });
            if let Some(key) = over.filter(|key| watch.pairs.get(key).is_some_and(|p| p.over)) {
                watch.flushed(key);
            }
        }
        self.flush_out(id);
    }

    /// The link takes some of what waits.
    pub(crate) fn flush_out(&mut self, id: EndId) {
        let delay = self.profile.delay(&mut self.rng);
        let partial = self.profile.partial && self.rng.once_in(3);
        let Some(link) = self.links.get_mut(id.0) else { return };
        let room = link.window.saturating_sub(link.ways[1 - id.1].bytes);
        let peer_gone = link.ends[1 - id.1].is_none();
        let Some(end) = link.ends[id.1].as_mut() else { return };
        let mut count = end.out.len().min(room);
        if partial && count > 1 {
            count = 1 + self.rng.index(count - 1);
            self.watcher.see().counters.hit("partial write");
        }
        let bytes: Vec<u8> = end.out.drain(..count).collect();
        if !peer_gone {
            link.ways[1 - id.1].push(self.now.after(delay), bytes);
        }
        let finish = end.out.is_empty() && end.connection.link_wish() == LinkWish::Finish;
        if finish && !end.shut {
            end.shut = true;
            link.ways[1 - id.1].closed = true;
        }
    }

    /// Let an end read at most so many bytes.
    pub(crate) fn deliver(&mut self, id: EndId, most: usize) {
        let now = self.now;
        let Some(link) = self.links.get_mut(id.0) else { return };
        let way = &mut link.ways[id.1];
        let Some(end) = link.ends[id.1].as_mut() else {
            way.clear();
            return;
        };
        if way.stalled || !end.connection.wants_read() {
            return;
        }
        let fresh = way.take(now, most);
        let ends = way.bytes == 0 && way.closed && !way.told && !way.lost;
        let paused = std::mem::take(&mut end.paused);
        if !fresh.is_empty() || paused {
            let mut held = std::mem::take(&mut end.held);
            held.extend_from_slice(&fresh);
            let received = self.call(id, false, |call, cx| call.connection.receive(cx, &held));
            let Some(received) = received else { return };
            if let Some(end) = self.end_mut(id) {
                held.drain(..received.consumed.min(held.len()));
                end.held = held;
                end.paused = received.paused;
            }
        } else if ends {
            way.told = true;
            self.call(id, false, |call, cx| call.connection.link_closed(cx, LinkEnd::Closed));
        } else {
            self.call(id, false, |call, cx| call.connection.idle_pass(cx.now));
        }
    }

    /// Let time pass, and see to what is due.
    pub(crate) fn pass_time(&mut self, by: Duration) {
        self.now = self.now.after(by);
        self.watcher.see().now = self.now;
        for id in self.ends() {
            let now = self.now;
            let due = self
                .end_mut(id)
                .and_then(|end| end.connection.deadline())
                .is_some_and(|deadline| deadline <= now);
            if due && !(self.profile.late && self.rng.once_in(3)) {
                self.call(id, false, |call, cx| call.connection.on_deadline(cx));
                self.transmit(id, 1 << 16);
            } else if due {
                self.hit("late timer");
            }
        }
    }
}

/// Listens to the event stream.
struct Ears<'a>(&'a Watcher);

impl Tracer for Ears<'_> {
    fn event(&mut self, event: &TraceEvent) {
        let mut watch = self.0.see();
        watch.say(|| format!("  engine {:?} connection {}", event.what, event.connection));
        match event.what {
            What::Established => watch.established(),
            What::FrameOut { .. } => watch.frame_out(),
            What::Ended { reason } => watch.ended(reason),
            _ => {}
        }
    }
}

impl Stream {
    /// One end, before its first byte.
    #[must_use]
    pub fn new(process: &Process, role: Role, id: ConnectionId, now: Time) -> Stream {
        let dialect = process.dialect;
        Stream {
            process: process.index,
            role,
            pair: None,
            actor: Actor { domain: DomainId(0), queue_pair: QueuePairId(0), connection: Some(id) },
            id,
            sink: dialect.sink,
            keeps: dialect.peer_gone == transom_core::dialect::PeerGone::Keep,
            ignores: dialect.dead_window == transom_core::dialect::DeadWindow::Ignored,
            extension: false,
            reads: 0,
            open: false,
            ended: None,
            messages: Vec::new(),
            frame: None,
            flight: Default::default(),
            serving: Default::default(),
            inbox: Default::default(),
            waits: None,
            refused: false,
            faulted: false,
            spoilt: false,
            hurt: false,
            heard: now,
        }
    }
}

/// Whether a status says that there is no room.
pub(crate) fn is_full(status: Status) -> bool {
    status == Status::NoMoreEntries
}
