//! Calls into the engine, and what they have decided.

use std::sync::Arc;

use transom_core::dialect::Overrun;
use transom_core::{
    Completion, ConnectionEvent, Cx, Effect, Effects, EndReason, Finished, Incoming, LinkWish,
    Offer, QueuePairKind, SharedReceives, Side,
};
use transom_wire::Role;

use super::{Call, Ears};
use crate::network::End;
use crate::process::{Process, Targets};
use crate::watch::{EndId, Stream};

use crate::world::World;

impl World {
    /// A call into the engine on behalf of an end, under its link's lock as it were, and everything
    /// that a driver does around it.
    pub(crate) fn call<R>(
        &mut self,
        id: EndId,
        transmitting: bool,
        then: impl FnOnce(Call<'_>, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let all = self.rng.once_in(8);
        let mut end = self.links.get_mut(id.0)?.ends.get_mut(id.1)?.take()?;
        let process = self.processes.get_mut(end.process)?;
        let Process { memory, lane, arena, denials, pools, pairs, .. } = process;
        let mut pair = end.pair.and_then(|pair| pairs.get_mut(pair));
        if let (Some(pair), Some(execution)) = (pair.as_deref_mut(), end.connection.execution()) {
            pair.front.carry(execution);
        }
        self.watcher.see().enter(id, transmitting);
        let pool = pair.as_deref().and_then(|pair| pair.pool).and_then(|pool| pools.get(pool));
        let several = pair.as_deref().filter(|pair| pair.kind == QueuePairKind::XrcReceive);
        let targets =
            several.map(|pair| Targets { pools: &*pools, aimed: Arc::clone(&pair.aimed) });
        let mut tracer = Ears(&self.watcher, all);
        let mut cx = Cx {
            now: self.now,
            memory,
            lane,
            host: &*arena,
            denials: &*denials,
            shared: match &targets {
                Some(targets) => Some(targets as &dyn SharedReceives),
                None => pool.map(|pool| pool as &dyn SharedReceives),
            },
            effects: &mut end.effects,
            trace: Some(&mut tracer),
        };
        let (connector, front) = match pair {
            Some(pair) => (Some(&mut pair.connector), Some(&mut pair.front)),
            None => (None, None),
        };
        let call = Call {
            connection: &mut end.connection,
            connector,
            front,
            rings: end.rings.as_mut(),
            out: &mut end.out,
            arena,
            watcher: &self.watcher,
        };
        let result = then(call, &mut cx);
        self.watcher.see().leave();
        self.conclude(id, end);
        self.end_overrun();
        Some(result)
    }

    /// Carry out what a call has decided.
    fn conclude(&mut self, id: EndId, mut end: End) {
        let key = end.pair.and_then(|pair| self.pair_id(end.process, pair));
        let effects = std::mem::take(&mut end.effects.list);
        if let Some(over) = end.connection.ended() {
            let mut watch = self.watcher.see();
            // Some ends make no event: a Connect that was canceled.
            if let Some(stream) = watch.ends.get_mut(&id) {
                stream.ended.get_or_insert(over.reason);
            }
            watch.parted(id, end.connection.is_outlived());
        }
        self.watcher.see().effects(Some(id), key, &effects);
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
        let cut = gone && end.rings.is_none();
        let torn = if cut { std::mem::take(&mut end.out) } else { Vec::new() };
        let execution = if gone { end.connection.take_execution() } else { None }.or(unused);
        if gone {
            // Bytes that a torn frame has sent stay sent.
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
        let goes = |stream: &Stream| {
            let outlived = stream.resets || stream.outlived == Some(true);
            outlived || !stream.open && stream.role == Role::Active
        };
        if watch.ends.get(&id).is_some_and(goes) {
            watch.let_go(id, key);
        }
    }

    /// Complete what was posted where no connection is left to do it.
    pub(crate) fn settle(&mut self, process: usize, index: usize) {
        let Some(owner) = self.processes.get_mut(process) else { return };
        let Process { memory, pairs, .. } = owner;
        let Some(pair) = pairs.get_mut(index) else { return };
        let mut effects = Effects::default();
        pair.front.complete_ended(memory, self.now, &mut effects);
        let key = (process, pair.number);
        let due = pair.front.connection_due(self.now);
        self.watcher.see().waits(key, &pair.front, due);
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
                    self.check_private(id, &private);
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
                    if let ConnectionEvent::Accepted { private, .. }
                    | ConnectionEvent::Rejected { private } = &event
                    {
                        self.check_private(id, private);
                        let owner =
                            self.processes.get(process).zip(pair).and_then(|(p, i)| p.pairs.get(i));
                        let kept = owner
                            .and_then(|pair| pair.connector.private_data().ok())
                            .map(<[u8]>::to_vec);
                        if let Some(kept) = kept {
                            self.check_private(id, &kept);
                        }
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

    /// Private data that an end sends along with its Connect, Accept or Reject: no two send the
    /// same.
    pub(crate) fn private(&mut self, id: EndId, length: usize) -> Vec<u8> {
        let word = (id.0 * 2 + id.1) as u32;
        let bytes: Vec<u8> = word.to_le_bytes().into_iter().cycle().take(length).collect();
        self.said.insert(id, bytes.clone());
        bytes
    }

    /// Private data is the peer's, of this connection.
    pub(crate) fn check_private(&mut self, id: EndId, private: &[u8]) {
        let said = self.said.get(&(id.0, 1 - id.1)).map_or(&[][..], |said| said);
        if said != private {
            let text = format!("link {} brings private data {private:x?}, not {said:x?}", id.0);
            self.watcher.see().fail(text);
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
        let receives = usize::from(side != Side::Initiator);
        let cq = pair.cqs[receives];
        let Some(queue) = process.cqs.get_mut(cq) else { return };
        let named = |number| {
            process.pools.iter().position(|pool| pool.name.is_some_and(|(name, _)| name == number))
        };
        let pool = match side {
            Side::Initiator => None,
            Side::Receive => pair.pool,
            Side::Target(number) => named(number),
        };
        let member = match pool.and_then(|at| Some((at, process.pools.get(at)?))) {
            None => pair.members[receives],
            Some((at, pool)) => *queue.pools.entry(at).or_insert_with(|| {
                let pool = pool.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                queue.queue.bind(pool.0.places(), 0)
            }),
        };
        let entry = Completion { member, ..entry };
        let dead = queue.queue.failure().is_some();
        match queue.queue.push(entry) {
            Ok(()) => queue.mirror.push_back(entry),
            Err(_) if dead => {}
            Err(_) => {
                if process.dialect.overrun == Overrun::Clear {
                    queue.mirror.clear();
                }
                self.overrun.push((process.index, cq));
                self.watcher.see().counters.hit("completion queue ran over");
                let shared = !queue.pools.is_empty();
                if !shared && queue.queue.bound() <= queue.queue.capacity() {
                    let why = "a queue as deep as those that complete in it runs over (V82)";
                    self.watcher.see().fail(why);
                }
            }
        }
    }

    /// Carry out what it means that completion queues have run over.
    pub(crate) fn end_overrun(&mut self) {
        while let Some((process, cq)) = self.overrun.pop() {
            self.end_all(process, cq);
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

    /// No program will take the request that came over it.
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
}
