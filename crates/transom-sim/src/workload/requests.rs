//! Requests, receives and completions.

use transom_core::tables::{ConnectorState, QueuePairState};
use transom_core::{
    Completion, CompletionKind, Data, Flags, Operation, QueuePairKind, Request, Sge, Status,
};
use transom_memory::{DomainId, Purpose, Rights, Scope};
use transom_wire::Atomic;

use super::aim::first_word;
use super::{Grant, MESSAGE};
use crate::network::End;
use crate::process::Pair;
use crate::watch::{EndId, outlives, written_to};
use crate::world::{World, is_full};

impl World {
    pub(super) fn any_pair(&mut self, process: usize) -> Option<usize> {
        // A request without a connection waits for one, in some dialects.
        let waits = outlives(self.processes[process].dialect) && self.rng.once_in(4);
        let wide = self.rng.once_in(12);
        let pairs = &self.processes[process].pairs;
        let usable = |pair: &Pair, wide: bool| {
            let waits = waits && pair.front.state() == QueuePairState::Idle;
            let posts = pair.kind != QueuePairKind::XrcReceive && !pair.released;
            posts && (wide || waits || pair.connector.state() == ConnectorState::Connected)
        };
        let some: Vec<usize> = (0..pairs.len()).filter(|i| usable(&pairs[*i], wide)).collect();
        self.rng.pick(&some).copied()
    }

    pub(super) fn flags(&mut self) -> Flags {
        let mut flags = Flags::NONE;
        for flag in [Flags::SILENT_SUCCESS, Flags::READ_FENCE, Flags::SOLICIT] {
            if self.rng.once_in(4) {
                flags = flags | flag;
            }
        }
        flags
    }

    /// A list of so many bytes of the process's own memory.
    fn list(
        &mut self,
        process: usize,
        domain: DomainId,
        length: u64,
        rights: [Rights; 2],
        end: Option<EndId>,
    ) -> Vec<Sge> {
        let connection = end.and_then(|end| self.watcher.see().ends.get(&end).map(|s| s.id));
        let mut list = Vec::new();
        let mut left = length;
        let entries = self.rng.between(1, u64::from(self.profile.sges));
        for entry in 0..entries {
            let hostile = self.profile.hostile;
            let wrong = hostile > 0 && self.rng.once_in(hostile * 4);
            let regions = &self.processes[process].regions;
            let fit = |i: &usize| {
                let region = &regions[*i];
                let right = rights.iter().any(|right| region.rights.contains(*right));
                let ours = right
                    && match region.scope {
                        Scope::Connection(_, whose) => Some(whose) == connection,
                        scope => scope.domain() == domain,
                    };
                wrong || region.live && region.length > 0 && ours
            };
            let some: Vec<usize> = (0..regions.len()).filter(fit).collect();
            // Mostly a region that is long enough.
            let long: Vec<usize> =
                some.iter().copied().filter(|i| regions[*i].length >= left).collect();
            let from = if long.is_empty() || self.rng.once_in(8) { &some } else { &long };
            let Some(index) = self.rng.pick(from).copied() else { break };
            let region = self.processes[process].regions[index].clone();
            let want = if entry + 1 == entries { left } else { self.rng.below(left + 1) };
            let count = want.min(region.length);
            left -= count;
            let past = if wrong { 2 } else { 0 };
            let skip = self.rng.below(region.length - count + 1 + past);
            list.push(Sge {
                token: region.token.0,
                address: region.base.wrapping_add(skip),
                length: count as u32,
            });
        }
        list
    }

    fn length(&mut self) -> u64 {
        match self.rng.below(10) {
            0 => 0,
            1..=2 => self.rng.between(1, 32),
            3..=4 => self.rng.between(1, 64),
            _ => self.rng.between(1, self.profile.buffer),
        }
    }

    pub(super) fn request(&mut self, process: usize, pair: usize) {
        let (domain, id) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.domain, pair.end)
        };
        let length = self.length();
        let flags = self.flags();
        if self.rng.once_in(if self.profile.careless { 6 } else { 12 }) {
            return self.once_more(process, pair);
        }
        match self.rng.below(11) {
            10 => self.atomic(process, pair),
            0..=3 => {
                let inline = self.rng.once_in(4);
                let length = length.min(self.fitting(id));
                let operation = if self.rng.once_in(8) {
                    let Some(grant) = self.target(id, Rights::NONE) else { return };
                    Operation::SendWithInvalidate { token: grant.token }
                } else if self.brings_immediate(process, id) {
                    Operation::SendWithImmediate { immediate: self.rng.word() as u32 }
                } else {
                    Operation::Send
                };
                self.post_data(process, pair, domain, operation, flags, length, inline);
            }
            kind => {
                let limit = id.and_then(|id| self.watcher.see().ends.get(&id).map(|s| s.reads));
                let reads = kind >= 7 && (limit != Some(0) || self.rng.once_in(30));
                let right = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
                let Some(grant) = self.target(id, right) else { return };
                let mut length =
                    if self.rng.once_in(2) { length.min(grant.length) } else { grant.length };
                let slack = grant.length.saturating_sub(length);
                let mut address = grant.address.wrapping_add(self.rng.below(slack + 1));
                let hostile = self.profile.hostile;
                if hostile > 0 && self.rng.once_in(hostile) {
                    if self.rng.once_in(3) {
                        address = u64::MAX - self.rng.below(length.max(1));
                        self.hit("wrapped around");
                    } else if self.rng.once_in(3) {
                        // The least that can be too much.
                        length = 1;
                        address = grant.address.wrapping_add(grant.length);
                        self.hit("one byte behind the end");
                    } else {
                        let by = self.rng.between(1, 3);
                        let end = grant.address.wrapping_add(grant.length).wrapping_sub(length);
                        address = if self.rng.once_in(3) {
                            grant.address.wrapping_sub(by)
                        } else {
                            end.wrapping_add(by)
                        };
                        self.hit("went off the end");
                    }
                }
                let token = grant.token;
                let with_immediate = !reads && self.brings_immediate(process, id);
                let (operation, inline) = if reads {
                    (Operation::Read { token, address }, false)
                } else if with_immediate {
                    let immediate = self.rng.word() as u32;
                    let operation = Operation::WriteWithImmediate { token, address, immediate };
                    (operation, self.rng.once_in(6))
                } else {
                    (Operation::Write { token, address }, self.rng.once_in(6))
                };
                if !reads && !with_immediate {
                    self.processes[process].pairs[pair].signal = Some((operation, length));
                }
                self.post_data(process, pair, domain, operation, flags, length, inline);
            }
        }
    }

    /// Whether a Send or Write brings immediate data: if both programs know it, or if the sender does
    /// not care.
    fn brings_immediate(&mut self, process: usize, end: Option<EndId>) -> bool {
        let takes = {
            let watch = self.watcher.see();
            let peer = end.and_then(|end| watch.peer(end));
            peer.is_some_and(|peer| peer.immediate && peer.extension)
        };
        let known = takes && self.processes[process].dialect.immediate;
        self.rng.once_in(if known { 4 } else { 300 })
    }

    /// Change a word of the peer, which lies where a word belongs, mostly.
    fn atomic(&mut self, process: usize, pair: usize) {
        let (domain, id) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.domain, pair.end)
        };
        let limit = id.and_then(|id| self.watcher.see().ends.get(&id).map(|s| s.reads));
        if limit == Some(0) && !self.rng.once_in(30) {
            return;
        }
        let Some(grant) = self.target(id, Rights::REMOTE_ATOMIC) else { return };
        let Grant { token, address, length, .. } = grant;
        let word = first_word(address);
        let room = length.saturating_sub(word - address) / 8;
        let mut address = word.wrapping_add(8 * self.rng.below(room.max(1)));
        if room == 0 || self.profile.hostile > 0 && self.rng.once_in(self.profile.hostile) {
            address = grant.address.wrapping_add(self.rng.below(length.max(1)));
        }
        let (compare, swap) = (self.rng.below(3), self.rng.below(3));
        let change = match self.rng.below(2) {
            0 => Atomic::FetchAdd { add: self.rng.word() },
            _ => Atomic::CompareSwap { compare, swap },
        };
        let operation = Operation::Atomic { token, address, change };
        // Several in a row: what one leaves the next one finds.
        for _ in 0..self.rng.between(1, 4) {
            let flags = self.flags();
            self.post_data(process, pair, domain, operation, flags, 8, false);
        }
    }

    /// The habits of programs that signal, or poll: the last Write again, to the very same place,
    /// whatever has become of it, and another one in between; or several Reads of nothing, and then
    /// word that they are over.
    fn once_more(&mut self, process: usize, pair: usize) {
        let Pair { domain, end, signal, .. } = self.processes[process].pairs[pair];
        if let Some(signal) = signal.filter(|_| self.rng.once_in(2)) {
            let other = self.target(end, Rights::REMOTE_WRITE).map_or(signal, |grant| {
                let Grant { token, address, length, .. } = grant;
                (Operation::Write { token, address }, length)
            });
            let (silent, loud) = (Flags::SILENT_SUCCESS, Flags::NONE);
            for ((operation, length), flags) in [(signal, silent), (other, loud), (signal, loud)] {
                self.post_data(process, pair, domain, operation, flags, length, false);
            }
            return;
        }
        let limit = end.and_then(|end| self.watcher.see().ends.get(&end).map(|s| s.reads));
        if limit.unwrap_or(0) > 0 {
            for _ in 0..self.rng.between(1, 12) {
                let (operation, flags) = (Operation::Read { token: 0, address: 0 }, self.flags());
                let _ = self.post(process, pair, operation, flags, &[], None);
            }
            if let Some(end) = end.filter(|_| self.profile.careless || self.rng.once_in(2)) {
                self.last_word(process, pair, end);
            }
        }
    }

    /// Word that it is over, to a peer that was ready for it, and that loses a completion queue while
    /// it is on its way.
    fn last_word(&mut self, process: usize, pair: usize, end: EndId) {
        let peer = (end.0, 1 - end.1);
        if let Some(End { process, pair: Some(pair), .. }) = self.end_mut(peer) {
            let (process, pair) = (*process, *pair);
            (0..6).for_each(|_| self.receive_one(process, pair));
        }
        self.pump(end.0);
        for _ in 0..self.rng.between(1, 6) {
            let _ = self.post(process, pair, Operation::Send, Flags::NONE, &[], Some(&[]));
        }
        self.transmit(end, 1 << 16);
        self.run_over(peer);
    }

    /// How long a Send may be: programs know what their peers are ready for, mostly.
    fn fitting(&mut self, id: Option<EndId>) -> u64 {
        let careless = self.rng.once_in(100);
        let watch = self.watcher.see();
        let peer = id.and_then(|id| watch.peer(id)).and_then(|peer| peer.pair);
        let Some((key, pair)) = peer.and_then(|key| Some((key, watch.pairs.get(&key)?))) else {
            return MESSAGE / 2;
        };
        let pools = watch.pools.iter().filter(|((process, number), _)| {
            let several = pair.kind == QueuePairKind::XrcReceive;
            *process == key.0 && (several || Some(*number) == pair.shared)
        });
        let pool = pools.flat_map(|(_, pool)| pool);
        let all = pair.receives.iter().chain(pool);
        let least = all.map(|receive| receive.length).min().unwrap_or(0);
        if careless { MESSAGE / 2 } else { least }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn post_data(
        &mut self,
        process: usize,
        pair: usize,
        domain: DomainId,
        operation: Operation,
        flags: Flags,
        length: u64,
        inline: bool,
    ) {
        if inline {
            let bytes = self.rng.bytes(length.min(300) as usize);
            let _ = self.post(process, pair, operation, flags, &[], Some(&bytes));
        } else {
            let rights = match operation {
                operation if operation.fetches() => match self.processes[process].dialect.sink {
                    Purpose::ReadSink => [Rights::LOCAL_WRITE, Rights::READ_SINK],
                    _ => [Rights::READ_SINK; 2],
                },
                _ => [Rights::LOCAL_READ; 2],
            };
            let mut list =
                self.list(process, domain, length, rights, self.processes[process].pairs[pair].end);
            if self.rng.once_in(200) {
                list.resize(self.profile.sges as usize + 1, Sge::default());
            }
            if self.rng.once_in(200) {
                list = vec![Sge { token: 1, address: 0, length: (1 << 20) + 1 }];
            }
            let _ = self.post(process, pair, operation, flags, &list, None);
        }
    }

    /// Post a request.
    pub(super) fn post(
        &mut self,
        process: usize,
        index: usize,
        operation: Operation,
        flags: Flags,
        list: &[Sge],
        inline: Option<&[u8]>,
    ) -> Result<(), Status> {
        let data = inline.map_or(Data::Sges(list), Data::Inline);
        self.post_any(process, index, operation, flags, data)
    }

    pub(super) fn post_any(
        &mut self,
        process: usize,
        index: usize,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
    ) -> Result<(), Status> {
        let context = self.processes[process].context();
        let request = Request { context, operation, flags };
        let target = self.name(process, index, operation);
        let pair = &mut self.processes[process].pairs[index];
        let before = pair.front.state();
        let (outstanding, occupied) = (pair.front.outstanding().0, pair.front.occupied().0);
        let result = match pair.kind {
            QueuePairKind::XrcSend => pair.front.chain(1).post_to(target, &request, data),
            _ => pair.front.post(&request, data),
        };
        let depth = pair.front.config().initiator_depth;
        let key = (process, pair.number);
        let unretrieved = self.unretrieved(process, index, false);
        match result {
            Ok(()) => {
                if outstanding + unretrieved >= depth {
                    self.watcher.see().fail("more requests are accepted than the queue holds");
                }
                self.watcher.see().posted(key, target, &request, data);
                if matches!(before, QueuePairState::Error | QueuePairState::Disconnected) {
                    self.hit("post behind the end");
                }
                self.settle(process, index);
            }
            Err(status) if is_full(status) => {
                if occupied < depth {
                    self.watcher.see().fail("a queue with room says that it is full");
                }
                self.hit("send queue full");
            }
            Err(Status::InvalidRequest) if matches!(operation, Operation::Atomic { .. }) => {
                if list_length(data) == 8 {
                    self.watcher.see().fail("an atomic with a list of eight bytes is refused");
                }
            }
            Err(Status::DataOverrun) => self.hit("list too long"),
            Err(Status::BufferOverflow) if matches!(data, Data::Inline(_)) => {
                self.hit("inline too large")
            }
            Err(Status::BufferOverflow) => self.hit("transfer too large"),
            Err(Status::ConnectionInvalid)
                if before != QueuePairState::Connected
                    && !outlives(self.processes[process].dialect) => {}
            Err(status) => {
                self.watcher.see().fail(format!("{operation:?} is refused with {status:?}"));
            }
        }
        result
    }

    /// The shared receive queue of the peer's that a message names: mostly one in whose domain the memory
    /// is that it names, too.
    fn name(&mut self, process: usize, index: usize, operation: Operation) -> u32 {
        let pair = &self.processes[process].pairs[index];
        if pair.kind != QueuePairKind::XrcSend {
            return 0;
        }
        let peer = pair
            .end
            .and_then(|(link, side)| Some(self.links.get(link)?.ends[1 - side].as_ref()?.process));
        let peer = peer.unwrap_or(process);
        let names: Vec<(u32, DomainId)> =
            self.processes[peer].pools.iter().filter_map(|pool| pool.name).collect();
        let token = match operation {
            Operation::Read { token, .. } | Operation::Atomic { token, .. } => Some(token),
            operation => written_to(operation).map(|(token, _)| token),
        };
        let domain = {
            let watch = self.watcher.see();
            let objects = watch.books.get(peer).map(|books| &books.objects);
            token.and_then(|token| objects?.get(&token)).map(|object| object.scope.domain())
        };
        let fit: Vec<u32> = names
            .iter()
            .filter(|(_, of)| domain.is_none_or(|domain| domain == *of))
            .map(|(name, _)| *name)
            .collect();
        if self.rng.once_in(150) {
            return self.rng.word() as u32;
        }
        let any = self.rng.pick(&names).map_or(0, |(name, _)| *name);
        self.rng.pick(&fit).copied().unwrap_or(any)
    }

    pub(super) fn receive(&mut self, process: usize) {
        let pairs = &self.processes[process].pairs;
        let some: Vec<usize> =
            (0..pairs.len()).filter(|i| !pairs[*i].released && !pairs[*i].lazy).collect();
        let Some(index) = self.rng.pick(&some).copied() else { return };
        for _ in 0..self.rng.between(1, 4) {
            self.receive_one(process, index);
        }
    }

    pub(super) fn receive_one(&mut self, process: usize, index: usize) {
        let (mut domain, mut pool, end) = {
            let pair = &self.processes[process].pairs[index];
            (pair.domain, pair.pool, pair.end.filter(|_| pair.pool.is_none()))
        };
        if self.processes[process].pairs[index].kind == QueuePairKind::XrcReceive {
            let any = self.rng.index(self.processes[process].pools.len());
            pool = Some(any);
            domain = self.processes[process].pools[any].name.map_or(domain, |(_, domain)| domain);
        }
        let length = if self.rng.once_in(40) { self.rng.below(40) } else { MESSAGE };
        let list = self.list(process, domain, length, [Rights::LOCAL_WRITE; 2], end);
        let context = self.processes[process].context();
        if let Some(pool) = pool {
            let mut wake = Vec::new();
            let depth = self.profile.depth as usize;
            let known = self.watcher.see().pools.get(&(process, pool)).map_or(0, |p| p.len());
            let (result, occupied) = {
                let queue = &self.processes[process].pools[pool].queue;
                let mut queue = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let occupied = queue.0.occupied();
                (queue.0.post(context, &list, &mut wake), occupied)
            };
            match result {
                Ok(()) => {
                    let receive = crate::watch::Receive::new(context, &list);
                    let mut watch = self.watcher.see();
                    watch.pools.entry((process, pool)).or_default().push_back(receive);
                    watch.woken(process, pool, &wake);
                    if known >= depth {
                        watch.fail("a shared queue takes more receives than it holds");
                    }
                }
                Err(Status::NoMoreEntries) => {
                    if occupied < depth {
                        self.watcher.see().fail("a shared queue with room says that it is full");
                    }
                    self.hit("shared queue full");
                }
                Err(status) => {
                    self.watcher.see().fail(format!("a shared queue refuses with {status:?}"));
                }
            }
            for number in wake {
                let pairs = &self.processes[process].pairs;
                let end = pairs.iter().find(|p| p.number == number.0).and_then(|p| p.end);
                if let Some(id) = end {
                    self.transmit(id, 1 << 16);
                }
            }
            return;
        }
        let pair = &mut self.processes[process].pairs[index];
        let state = pair.front.state();
        let key = (process, pair.number);
        let (outstanding, occupied) = (pair.front.outstanding().1, pair.front.occupied().1);
        let depth = pair.front.config().receive_depth;
        match pair.front.post_receive(context, &list) {
            Ok(()) => {
                if outstanding + self.unretrieved(process, index, true) >= depth {
                    self.watcher.see().fail("more receives are accepted than the queue holds");
                }
                self.watcher.see().posted_receive(key, context, &list);
                self.settle(process, index);
            }
            Err(Status::NoMoreEntries) => {
                if occupied < depth {
                    self.watcher.see().fail("a receive queue with room says that it is full");
                }
                self.hit("receive queue full");
            }
            Err(Status::ConnectionInvalid)
                if matches!(state, QueuePairState::Error | QueuePairState::Disconnected)
                    && !outlives(self.processes[process].dialect) => {}
            Err(status) => {
                self.watcher.see().fail(format!("a receive is refused with {status:?}"));
            }
        }
    }

    /// Completions of a queue pair's requests, or of its receives, that were not retrieved (V82).
    fn unretrieved(&self, process: usize, index: usize, receives: bool) -> u32 {
        let process = &self.processes[process];
        let pair = &process.pairs[index];
        let mirror = &process.cqs[pair.cqs[usize::from(receives)]].mirror;
        let kinds = [CompletionKind::Receive, CompletionKind::ReceiveWrite];
        let of = |entry: &&Completion| {
            entry.queue_pair.0 == pair.number && kinds.contains(&entry.kind) == receives
        };
        mirror.iter().filter(of).count() as u32
    }

    /// Read completion queues.
    pub(super) fn poll(&mut self, process: usize) {
        let cqs = self.processes[process].cqs.len();
        let index = self.rng.index(cqs);
        if self.processes[process].cqs[index].neglected && !self.rng.once_in(10) {
            return;
        }
        let count = self.rng.between(1, 40) as usize;
        self.poll_one(process, index, count);
    }

    /// Read some of one.
    pub(crate) fn poll_one(&mut self, process: usize, index: usize, count: usize) {
        let cq = &mut self.processes[process].cqs[index];
        let mut room = vec![Completion::default(); count];
        let got = cq.queue.poll(&mut room);
        let wanted: Vec<Completion> = cq.mirror.drain(..got.min(cq.mirror.len())).collect();
        let whole = got == count || cq.mirror.is_empty();
        let same = room.get(..got) == Some(&wanted) && whole;
        if !same {
            self.watcher.see().fail("a completion queue yields something else than was put in");
        }
    }
}

/// Bytes of a list.
fn list_length(data: Data<'_>) -> u64 {
    match data {
        Data::Sges(list) => list.iter().map(|sge| u64::from(sge.length)).sum(),
        _ => 0,
    }
}
