//! What programs do, the good ones and the others.

use std::time::Duration;

use transom_core::tables::{ConnectorState, QueuePairState};
use transom_core::{
    Completion, CompletionKind, Connector, Data, Flags, LinkEnd, Operation, QueuePair,
    QueuePairConfig, QueuePairKind, Request, Sge, Status,
};
use transom_memory::{DomainId, Purpose, QueuePairId, Rights, Scope, Token};
use transom_wire::ReadLimits;

use crate::model::Verdict;
use crate::process::{Pair, Process};
use crate::watch::EndId;
use crate::world::{World, is_full};

/// A token that somebody has handed out. The board never forgets: some programs use what they should
/// not.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Whose memory it is.
    pub process: usize,
    /// The token.
    pub token: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What it grants.
    pub rights: Rights,
    /// For the peer of this queue pair of its owner; `None`: for any.
    pub pair: Option<usize>,
}

const DOMAINS: u64 = 2;
/// Bytes of a receive, mostly; Sends have half of that at most.
const MESSAGE: u64 = 1000;

impl World {
    /// One thing that happens.
    pub fn step(&mut self) {
        let faults = self.profile.faults;
        if faults > 0 && self.rng.once_in(faults) {
            return self.fault();
        }
        match self.rng.below(100) {
            0..=24 => {
                if let Some(id) = self.any_end() {
                    let limit = self.rng.one([1, 500, 1 << 16, 1 << 20, 1 << 20]);
                    self.transmit(id, limit);
                }
            }
            25..=53 => {
                if let Some(id) = self.any_end() {
                    let most = self.rng.one([1, 100, 1000, usize::MAX, usize::MAX, usize::MAX]);
                    let next = self.links[id.0].ways[id.1].next().filter(|next| *next > self.now);
                    if let Some(next) = next.filter(|_| self.rng.once_in(2)) {
                        self.pass_time(next.since(self.now));
                    }
                    if most <= 100 {
                        self.hit("partial read");
                    }
                    self.deliver(id, most);
                }
            }
            54..=57 => {
                if let Some(id) = self.any_end() {
                    self.call(id, false, |call, cx| call.connection.before_blocking(cx.now));
                    self.transmit(id, 1 << 16);
                }
            }
            58..=63 => {
                let by = match self.rng.below(1000) {
                    0 => self.rng.between(1, 6) * 1_000_000_000,
                    1..=15 => self.rng.below(30_000_000),
                    21..=300 => self.rng.below(1_000_000),
                    _ => self.rng.below(10_000),
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

    /// Some program does something.
    fn program(&mut self) {
        let place = self.rng.index(self.places.len());
        let process = self.places[place];
        if !self.processes[process].alive {
            return;
        }
        match self.rng.below(100) {
            0..=3 => self.register(process),
            4 => self.deregister(process),
            5..=11 => self.bind(process),
            12..=13 => self.invalidate(process),
            14..=15 => self.revoke(process),
            16..=54 => {
                let Some(pair) = self.any_pair(process) else { return };
                for _ in 0..self.rng.between(1, 5) {
                    self.request(process, pair);
                }
            }
            55..=74 => self.receive(process),
            75..=84 => self.poll(process),
            85..=92 => self.connections(process),
            93 => self.poke(process),
            94 | 97 => self.fast(process),
            95 if self.profile.vanishing => self.vanish(),
            96 if self.profile.hoarding => self.hoard(process),
            _ => self.poll(process),
        }
    }

    // ---- memory --------------------------------------------------------------------------------

    fn rights(&mut self) -> Rights {
        let mut rights = Rights::NONE;
        for right in [Rights::REMOTE_READ, Rights::REMOTE_WRITE, Rights::READ_SINK] {
            if self.rng.once_in(2) {
                rights = rights | right;
            }
        }
        for right in [Rights::LOCAL_READ, Rights::LOCAL_WRITE, Rights::BIND] {
            if !self.rng.once_in(6) {
                rights = rights | right;
            }
        }
        rights
    }

    /// Buffers of so many bytes in so many places: their runs.
    fn buffers(
        &mut self,
        process: usize,
        length: u64,
        pieces: u64,
    ) -> Vec<transom_memory::Segment> {
        let mut segments = Vec::new();
        let mut left = length;
        for piece in 0..pieces {
            let count = if piece + 1 == pieces { left } else { self.rng.below(left + 1) };
            if count == 0 {
                continue;
            }
            left -= count;
            let bytes = self.rng.bytes(count as usize);
            let process = &mut self.processes[process];
            // Far enough apart that what goes astray meets no buffer.
            let host = process.next_address;
            process.next_address += (count + 0x3FFF) & !0xFFF;
            process.arena.insert(host, bytes);
            segments.push(transom_memory::Segment { host, length: count });
        }
        segments
    }

    fn scope(&mut self, process: usize) -> Scope {
        let domain = DomainId(self.rng.below(DOMAINS) as u32 + 1);
        if self.rng.once_in(6) {
            let pairs = &self.processes[process].pairs;
            let open =
                pairs.iter().filter(|pair| pair.connector.state() == ConnectorState::Connected);
            let open: Vec<EndId> = open.filter_map(|pair| pair.end).collect();
            if let Some(id) = self.rng.pick(&open).copied() {
                let watch = self.watcher.see();
                if let Some(stream) = watch.ends.get(&id).filter(|s| s.open && s.ended.is_none()) {
                    let scope = Scope::Connection(stream.actor.domain, stream.id);
                    drop(watch);
                    self.hit("register for a connection");
                    return scope;
                }
            }
        }
        Scope::Domain(domain)
    }

    pub(crate) fn register(&mut self, process: usize) {
        if self.processes[process].regions.iter().filter(|r| r.live).count() > 12 {
            return self.deregister(process);
        }
        let most = self.profile.buffer;
        let length = if self.rng.once_in(3) { most } else { self.rng.between(1, most) };
        let pieces = if self.rng.once_in(4) { self.rng.between(2, 4) } else { 1 };
        let segments = self.buffers(process, length, pieces);
        let base = match segments.first() {
            Some(only) if segments.len() == 1 && !self.rng.once_in(4) => only.host,
            // At the very end of the address space, or anywhere.
            _ if self.rng.once_in(4) => u64::MAX - length + 1,
            _ => self.rng.word() >> 8 & !0xFFF,
        };
        let (scope, rights) = (self.scope(process), self.rights());
        let registration =
            transom_memory::Registration { scope, rights, base, segments: &segments };
        let result = self.processes[process].memory.register(&registration);
        let Ok(token) = result else {
            if result == Err(transom_memory::RegisterError::Exhausted) {
                return self.hit("no token left");
            }
            return self.watcher.see().fail(format!("a registration fails: {result:?}"));
        };
        self.hit(if segments.len() > 1 { "register in pieces" } else { "register" });
        self.note_object(process, token, None, scope, rights, base, length, &segments, false);
    }

    /// A token exists: for the model, the program and the board.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn note_object(
        &mut self,
        process: usize,
        token: Token,
        window_of: Option<(Token, usize)>,
        scope: Scope,
        rights: Rights,
        base: u64,
        length: u64,
        segments: &[transom_memory::Segment],
        standing: bool,
    ) {
        use crate::model::{Life, Object, Run};
        let runs = segments.iter().map(|s| Run { host: s.host, length: s.length }).collect();
        let reserved = window_of.is_some() || standing && segments.is_empty();
        let object = Object {
            window_of: window_of.map(|(region, _)| region.0),
            standing,
            scope,
            rights,
            base,
            length,
            runs,
            life: if reserved { Life::Reserved } else { Life::Live },
            before: None,
            named: false,
        };
        self.say(|| format!("process {process} has token {:#010x}: {object:x?}", token.0));
        let mut watch = self.watcher.see();
        let books = &mut watch.books[process];
        if books.objects.insert(token.0, object).is_some() {
            watch.fail(format!("token {:#010x} is handed out a second time (rule 7)", token.0));
        }
        drop(watch);
        let pair = match scope {
            Scope::Domain(_) => None,
            Scope::QueuePair(_, number) => {
                self.processes[process].pairs.iter().position(|pair| pair.number == number.0)
            }
            Scope::Connection(_, id) => {
                let watch = self.watcher.see();
                let end = watch.ends.iter().find(|(_, s)| s.id == id && s.process == process);
                let number = end.and_then(|(_, stream)| stream.pair).map(|(_, number)| number);
                self.processes[process].pairs.iter().position(|p| Some(p.number) == number)
            }
        };
        if length > 0 {
            self.board.push(Grant { process, token: token.0, address: base, length, rights, pair });
        }
        let owner = &mut self.processes[process];
        match window_of {
            Some((_, pair)) => {
                owner.windows.push(crate::process::Window { token, pair, live: true });
            }
            None => owner.regions.push(crate::process::Region {
                token,
                scope,
                base,
                length,
                rights,
                standing,
                live: true,
            }),
        }
    }

    fn any_region(&mut self, process: usize) -> Option<usize> {
        let regions = &self.processes[process].regions;
        let some = (0..regions.len()).filter(|i| regions[*i].live && regions[*i].length > 0);
        let live: Vec<usize> = some.collect();
        self.rng.pick(&live).copied()
    }

    fn deregister(&mut self, process: usize) {
        let Some(index) = self.any_region(process) else { return };
        let force = self.rng.once_in(3);
        self.deregister_one(process, index, force);
    }

    /// Deregister; unless windows are bound, or in spite of them.
    pub(crate) fn deregister_one(&mut self, process: usize, index: usize, force: bool) {
        let token = self.processes[process].regions[index].token;
        let unless = transom_memory::Unless { windows: !force, ..Default::default() };
        let (windows, life) = {
            let watch = self.watcher.see();
            let books = &watch.books[process];
            (books.windows(token.0), books.objects.get(&token.0).map(|object| object.life))
        };
        let result = self.processes[process].memory.deregister(token, unless, self.now.0);
        self.say(|| format!("process {process} deregisters {token:x?}: {:?}", result.is_ok()));
        use transom_memory::DeregisterError as No;
        let dead = life == Some(crate::model::Life::Dead);
        let right = match &result {
            Ok(()) => !dead && (force || windows == 0),
            Err(No::Busy(counts)) => !force && windows > 0 && counts.windows as usize == windows,
            Err(No::NotLive(_)) => dead,
            Err(No::NotYours(_)) => false,
        };
        if !right {
            self.watcher.see().fail(format!(
                "deregistration with {windows} windows bound (force: {force}, {life:?}): {result:?}"
            ));
        }
        match result {
            Ok(()) => {
                self.hit(if windows > 0 { "deregister closes windows" } else { "deregister" });
                self.watcher.see().books[process].deregister(token.0);
                self.processes[process].regions[index].live = false;
            }
            Err(No::Busy(_)) => self.hit("busy: windows bound"),
            Err(_) => self.processes[process].regions[index].live = false,
        }
    }

    /// Reserve a window and post its Bind.
    fn bind(&mut self, process: usize) {
        let Some(region) = self.any_region(process) else { return };
        let region = self.processes[process].regions[region].clone();
        let Some(pair) = self.any_pair(process) else { return };
        let (number, domain) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.number, pair.domain)
        };
        let domain = if self.rng.once_in(20) { DomainId(9) } else { domain };
        let skip = self.rng.below(region.length.max(1));
        let mut length = self.rng.between(1, (region.length - skip).max(1));
        if self.rng.once_in(25) {
            length = region.length - skip + 1 + self.rng.below(3);
        }
        let mut rights = if self.rng.once_in(25) { Rights::LOCAL_READ } else { Rights::NONE };
        if !self.rng.once_in(3) {
            rights = rights | Rights::REMOTE_READ;
        }
        if !self.rng.once_in(3) {
            rights = rights | Rights::REMOTE_WRITE;
        }
        let scope = match self.rng.below(12) {
            0 => Scope::Domain(domain),
            1 => region.scope,
            _ => Scope::QueuePair(domain, QueuePairId(number)),
        };
        let base = region.base.wrapping_add(skip);
        let spec = transom_memory::WindowSpec {
            region: region.token,
            domain,
            scope,
            base,
            length,
            rights,
        };
        let may = scope.domain() == domain
            && self.watcher.see().books[process].may_bind(
                region.token.0,
                scope,
                rights,
                base,
                length,
            );
        let result = self.processes[process].memory.reserve(&spec, self.now.0);
        let token = match result {
            Ok(token) => token,
            Err(transom_memory::BindError::Exhausted) => return self.hit("no token left"),
            Err(error) => {
                if may {
                    self.watcher.see().fail(format!("a bind is refused that is allowed: {error}"));
                }
                return self.hit("bind refused");
            }
        };
        if !may {
            self.watcher.see().fail(format!("a bind is accepted that is not allowed: {spec:x?}"));
        }
        let runs: Vec<transom_memory::Segment> = {
            let watch = self.watcher.see();
            let object = &watch.books[process].objects[&region.token.0];
            let cut = crate::model::cut(&object.runs, base.wrapping_sub(object.base), length);
            cut.iter().map(|r| transom_memory::Segment { host: r.host, length: r.length }).collect()
        };
        match scope {
            Scope::Domain(_) => self.hit("window of a domain"),
            Scope::Connection(..) => self.hit("window of a connection"),
            Scope::QueuePair(..) => {}
        }
        let window_of = Some((region.token, pair));
        self.note_object(process, token, window_of, scope, rights, base, length, &runs, false);
        let flags = self.flags();
        let operation = Operation::Bind { window: token };
        if self.post(process, pair, operation, flags, &[], None).is_err() {
            self.processes[process].memory.abandon(token, self.now.0);
            self.watcher.see().books[process].close(token.0);
            if let Some(window) = self.processes[process].windows.last_mut() {
                window.live = false;
            }
        }
    }

    fn any_window(&mut self, process: usize) -> Option<usize> {
        let windows = &self.processes[process].windows;
        let live: Vec<usize> = {
            let watch = self.watcher.see();
            let objects = &watch.books[process].objects;
            let open = |token: Token| {
                objects.get(&token.0).is_some_and(|o| o.life != crate::model::Life::Dead)
            };
            (0..windows.len()).filter(|i| windows[*i].live && open(windows[*i].token)).collect()
        };
        let stale = self.profile.hostile > 0 && self.rng.once_in(20);
        let all: Vec<usize> = (0..windows.len()).collect();
        self.rng.pick(if stale { &all } else { &live }).copied()
    }

    fn invalidate(&mut self, process: usize) {
        let Some(index) = self.any_window(process) else { return };
        let window = self.processes[process].windows[index];
        let wrong = self.profile.hostile > 0 && self.rng.once_in(20);
        let pair = if wrong { self.any_pair(process) } else { Some(window.pair) };
        let Some(pair) = pair else { return };
        let flags = self.flags();
        let operation = Operation::Invalidate { window: window.token };
        if self.post(process, pair, operation, flags, &[], None).is_ok() {
            self.processes[process].windows[index].live = false;
        }
    }

    /// Close a window at once, whatever is under way.
    fn revoke(&mut self, process: usize) {
        let Some(index) = self.any_window(process) else { return };
        let token = self.processes[process].windows[index].token;
        self.close(process, token);
        self.processes[process].windows[index].live = false;
    }

    fn close(&mut self, process: usize, token: Token) {
        use crate::model::Life;
        let open = {
            let watch = self.watcher.see();
            watch.books[process].objects.get(&token.0).is_some_and(|object| match object.life {
                Life::Live => true,
                Life::Reserved => object.window_of.is_some(),
                Life::Dead => false,
            }) && (watch.books[process].objects[&token.0].window_of.is_some()
                || watch.books[process].windows(token.0) == 0)
        };
        let result = self.processes[process].memory.close(token, None, self.now.0);
        self.say(|| format!("process {process} closes {token:x?}: {:?}", result.is_ok()));
        if result.is_ok() != open {
            self.watcher.see().fail(format!("closing {token:x?} (open: {open}): {result:?}"));
        }
        if result.is_ok() {
            let mut watch = self.watcher.see();
            if let Some(object) = watch.books[process].objects.get_mut(&token.0) {
                object.named = true;
            }
            watch.books[process].close(token.0);
            watch.counters.hit("revoke");
        }
    }

    /// Tokens that outlive their memory.
    fn fast(&mut self, process: usize) {
        let standing: Vec<usize> = {
            let regions = &self.processes[process].regions;
            (0..regions.len()).filter(|i| regions[*i].standing && regions[*i].live).collect()
        };
        let more = standing.len() < 3 && self.rng.once_in(3);
        let Some(index) = self.rng.pick(&standing).copied().filter(|_| !more) else {
            let scope = self.scope(process);
            let Ok(token) = self.processes[process].memory.reserve_region(scope) else {
                return self.hit("no token left");
            };
            return self.note_object(process, token, None, scope, Rights::NONE, 0, 0, &[], true);
        };
        let region = self.processes[process].regions[index].clone();
        let live = {
            let watch = self.watcher.see();
            let object = watch.books[process].objects.get(&region.token.0);
            object.is_some_and(|object| object.life == crate::model::Life::Live)
        };
        if live && !self.rng.once_in(4) {
            self.hit("fast invalidate");
            return self.close(process, region.token);
        }
        let length = self.rng.between(1, self.profile.buffer);
        let (segments, rights) = (self.buffers(process, length, 1), self.rights());
        let base = segments.first().map_or(0, |segment| segment.host);
        let scope = region.scope;
        let pair = self.any_pair(process).filter(|_| !self.rng.once_in(4));
        let fits = |pair: &usize| {
            Scope::Domain(self.processes[process].pairs[*pair].domain) == scope
                || self.profile.hostile > 0
        };
        if let Some(pair) = pair.filter(fits) {
            // In queue order.
            let operation = Operation::FastRegister { region: region.token, base, rights };
            let (flags, data) = (self.flags(), Data::Memory(&segments));
            if self.post_any(process, pair, operation, flags, data).is_ok() {
                let (token, address, pair) = (region.token.0, base, None);
                self.board.push(Grant { process, token, address, length, rights, pair });
            }
            return;
        }
        let registration =
            transom_memory::Registration { scope, rights, base, segments: &segments };
        let result = self.processes[process].memory.fast_register(region.token, &registration);
        let mut watch = self.watcher.see();
        let Some(object) = watch.books[process].objects.get_mut(&region.token.0) else { return };
        let may = object.life == crate::model::Life::Reserved;
        if result.is_ok() {
            (object.life, object.rights) = (crate::model::Life::Live, rights);
            (object.base, object.length) = (base, length);
            object.runs = vec![crate::model::Run { host: base, length }];
            watch.counters.hit("fast register");
        }
        if may != result.is_ok() {
            watch.fail(format!("fast registration (allowed: {may}): {result:?}"));
        }
        drop(watch);
        if result.is_ok() {
            let region = &mut self.processes[process].regions[index];
            (region.base, region.length, region.rights) = (base, length, rights);
            let (token, address) = (region.token.0, base);
            let pair = self.board.iter().rev().find(|g| g.token == token).and_then(|g| g.pair);
            self.board.push(Grant { process, token, address, length, rights, pair });
        }
    }

    /// Take every token there is.
    fn hoard(&mut self, process: usize) {
        let host = self.processes[process].next_address;
        self.processes[process].next_address += 0x2000;
        self.processes[process].arena.insert(host, vec![0; 16]);
        let segments = [transom_memory::Segment { host, length: 16 }];
        let (scope, rights) = (Scope::Domain(DomainId(7)), Rights::REMOTE_READ);
        let registration =
            transom_memory::Registration { scope, rights, base: host, segments: &segments };
        let mut tokens = Vec::new();
        while let Ok(token) = self.processes[process].memory.register(&registration) {
            tokens.push(token);
        }
        self.hit("no token left");
        for token in tokens {
            if self.watcher.see().books[process].objects.contains_key(&token.0) {
                self.watcher.see().fail("a token is handed out a second time (rule 7)");
            }
            let unless = transom_memory::Unless::default();
            if self.processes[process].memory.deregister(token, unless, self.now.0).is_err() {
                self.watcher.see().fail("a registration cannot be removed");
            }
        }
    }

    fn poke(&mut self, process: usize) {
        let buffers = self.processes[process].arena.buffers();
        let Some((address, length)) = self.rng.pick(&buffers).copied() else { return };
        let at = self.rng.index(length);
        let count = self.rng.between(1, 32).min((length - at) as u64);
        let bytes = self.rng.bytes(count as usize);
        self.processes[process].arena.poke(address, at, &bytes);
    }

    // ---- requests ------------------------------------------------------------------------------

    fn any_pair(&mut self, process: usize) -> Option<usize> {
        let pairs = &self.processes[process].pairs;
        let usable = |pair: &Pair, wide: bool| {
            !pair.released && (wide || pair.connector.state() == ConnectorState::Connected)
        };
        let wide = self.rng.once_in(12);
        let some: Vec<usize> = (0..pairs.len()).filter(|i| usable(&pairs[*i], wide)).collect();
        self.rng.pick(&some).copied()
    }

    fn flags(&mut self) -> Flags {
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
            let Some(index) = self.rng.pick(&some).copied() else { break };
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
            1..=4 => self.rng.between(1, 64),
            _ => self.rng.between(1, self.profile.buffer),
        }
    }

    fn request(&mut self, process: usize, pair: usize) {
        let (domain, id) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.domain, pair.end)
        };
        let length = self.length();
        let flags = self.flags();
        match self.rng.below(10) {
            0..=3 => {
                let inline = self.rng.once_in(4);
                let operation = if self.rng.once_in(8) {
                    let Some(grant) = self.target(id, Rights::NONE) else { return };
                    Operation::SendWithInvalidate { token: grant.token }
                } else {
                    Operation::Send
                };
                self.post_data(
                    process,
                    pair,
                    domain,
                    operation,
                    flags,
                    length.min(MESSAGE / 2),
                    inline,
                );
            }
            kind => {
                let limit = id.and_then(|id| self.watcher.see().ends.get(&id).map(|s| s.reads));
                let reads = kind >= 7 && (limit != Some(0) || self.rng.once_in(30));
                let right = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
                let Some(grant) = self.target(id, right) else { return };
                let length =
                    if self.rng.once_in(2) { length.min(grant.length) } else { grant.length };
                let slack = grant.length.saturating_sub(length);
                let mut address = grant.address.wrapping_add(self.rng.below(slack + 1));
                let hostile = self.profile.hostile;
                if hostile > 0 && self.rng.once_in(hostile) {
                    if self.rng.once_in(3) {
                        address = u64::MAX - self.rng.below(length.max(1));
                        self.hit("wrapped around");
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
                let (operation, inline) = if reads {
                    (Operation::Read { token, address }, false)
                } else {
                    (Operation::Write { token, address }, self.rng.once_in(6))
                };
                self.post_data(process, pair, domain, operation, flags, length, inline);
            }
        }
    }

    /// A token of the peer: one that is right, or one that a wicked program would try.
    fn target(&mut self, id: Option<EndId>, right: Rights) -> Option<Grant> {
        let (link, side) = id?;
        let peer = self.links.get(link)?.ends[1 - side].as_ref()?;
        let (owner, pair) = (peer.process, peer.pair);
        let hostile = self.profile.hostile;
        let wicked = hostile > 0 && self.rng.once_in(hostile);
        let of_peer = |g: &&Grant| g.process == owner && (g.pair.is_none() || g.pair == pair);
        let live = |world: &World, grant: &Grant| {
            let watch = world.watcher.see();
            watch.books[owner].objects.get(&grant.token).is_some_and(|object| {
                object.life == crate::model::Life::Live && object.length == grant.length
            })
        };
        let purpose = match right {
            Rights::REMOTE_READ => Purpose::RemoteRead,
            _ => Purpose::RemoteWrite,
        };
        let honest: Vec<Grant> = {
            let watch = self.watcher.see();
            let peer = watch.ends.get(&(link, 1 - side))?;
            let books = &watch.books[owner];
            let fit = |g: &&Grant| {
                let (token, address, length) = (g.token, g.address, g.length);
                let verdict = books.judge(&peer.actor, peer.open, purpose, token, address, length);
                let closable = right != Rights::NONE
                    || g.pair == pair
                        && books.objects.get(&token).is_some_and(|o| o.window_of.is_some());
                g.process == owner && closable && matches!(verdict, Verdict::Yes(_))
            };
            self.board.iter().rev().take(100).filter(fit).copied().collect()
        };
        if !wicked {
            return self.rng.pick(&honest).copied();
        }
        let board = &self.board;
        let (name, some): (_, Vec<Grant>) = match self.rng.below(4) {
            0 => (
                "used a stale token",
                board.iter().filter(|g| of_peer(g) && !live(self, g)).copied().collect(),
            ),
            1 => {
                // Of another queue pair or connection of the same process, mostly.
                let near = !self.rng.once_in(4);
                let close = |g: &&Grant| g.process == owner && live(self, g);
                let other = |g: &&Grant| !of_peer(g) && (close(g) || !near);
                ("used another's token", self.board.iter().filter(other).copied().collect())
            }
            2 => (
                "used the wrong right",
                board.iter().filter(|g| of_peer(g) && !g.rights.contains(right)).copied().collect(),
            ),
            _ => {
                let near = self.rng.pick(board).copied()?;
                let token = if self.rng.once_in(2) {
                    near.token ^ (1 << self.rng.below(32))
                } else {
                    self.rng.word() as u32
                };
                ("used a guessed token", vec![Grant { token, ..near }])
            }
        };
        let grant = self.rng.pick(&some).copied()?;
        self.hit(name);
        Some(grant)
    }

    #[allow(clippy::too_many_arguments)]
    fn post_data(
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
                Operation::Read { .. }
                    if self.processes[process].dialect.sink == Purpose::ReadSink =>
                {
                    [Rights::LOCAL_WRITE, Rights::READ_SINK]
                }
                Operation::Read { .. } => [Rights::READ_SINK; 2],
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
    fn post(
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

    fn post_any(
        &mut self,
        process: usize,
        index: usize,
        operation: Operation,
        flags: Flags,
        data: Data<'_>,
    ) -> Result<(), Status> {
        let context = self.processes[process].context();
        let request = Request { context, operation, flags };
        let pair = &mut self.processes[process].pairs[index];
        let before = pair.front.state();
        let outstanding = pair.front.outstanding().0;
        let result = pair.front.post(&request, data);
        let depth = pair.front.config().initiator_depth;
        let key = (process, pair.number);
        match result {
            Ok(()) => {
                if outstanding >= depth {
                    self.watcher.see().fail("more requests are accepted than the queue holds");
                }
                self.watcher.see().posted(key, &request, data);
                if matches!(before, QueuePairState::Error | QueuePairState::Disconnected) {
                    self.hit("post behind the end");
                }
                self.settle(process, index);
            }
            Err(status) if is_full(status) => {
                if outstanding < depth {
                    self.watcher.see().fail("a queue with room says that it is full");
                }
                self.hit("send queue full");
            }
            Err(Status::DataOverrun) => self.hit("list too long"),
            Err(Status::BufferOverflow) if matches!(data, Data::Inline(_)) => {
                self.hit("inline too large")
            }
            Err(Status::BufferOverflow) => self.hit("transfer too large"),
            Err(Status::ConnectionInvalid) if before != QueuePairState::Connected => {}
            Err(status) => {
                self.watcher.see().fail(format!("{operation:?} is refused with {status:?}"));
            }
        }
        result
    }

    fn receive(&mut self, process: usize) {
        let pairs = &self.processes[process].pairs;
        let some: Vec<usize> =
            (0..pairs.len()).filter(|i| !pairs[*i].released && !pairs[*i].lazy).collect();
        let Some(index) = self.rng.pick(&some).copied() else { return };
        for _ in 0..self.rng.between(1, 4) {
            self.receive_one(process, index);
        }
    }

    fn receive_one(&mut self, process: usize, index: usize) {
        let (domain, pool, end) = {
            let pair = &self.processes[process].pairs[index];
            (pair.domain, pair.pool, pair.end.filter(|_| pair.pool.is_none()))
        };
        let length = if self.rng.once_in(40) { self.rng.below(40) } else { MESSAGE };
        let list = self.list(process, domain, length, [Rights::LOCAL_WRITE; 2], end);
        let context = self.processes[process].context();
        if let Some(pool) = pool {
            let mut wake = Vec::new();
            let result = {
                let queue = &self.processes[process].pools[pool].queue;
                let mut queue = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                queue.0.post(context, &list, &mut wake)
            };
            match result {
                Ok(()) => {
                    let receive = crate::watch::Receive::new(context, &list);
                    let mut watch = self.watcher.see();
                    watch.pools.entry((process, pool)).or_default().push_back(receive);
                }
                Err(Status::NoMoreEntries) => self.hit("shared queue full"),
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
        match pair.front.post_receive(context, &list) {
            Ok(()) => {
                self.watcher.see().posted_receive(key, context, &list);
                self.settle(process, index);
            }
            Err(Status::NoMoreEntries) => self.hit("receive queue full"),
            Err(Status::ConnectionInvalid)
                if matches!(state, QueuePairState::Error | QueuePairState::Disconnected) => {}
            Err(status) => {
                self.watcher.see().fail(format!("a receive is refused with {status:?}"));
            }
        }
    }

    /// Read completion queues.
    fn poll(&mut self, process: usize) {
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
        // In some dialects this is what makes room for another request.
        for entry in room.iter().take(got) {
            let pairs = &mut self.processes[process].pairs;
            if let Some(pair) = pairs.iter_mut().find(|pair| pair.number == entry.queue_pair.0) {
                pair.front.retrieved(entry.kind == CompletionKind::Receive);
            }
        }
        if !same {
            self.watcher.see().fail("a completion queue yields something else than was put in");
        }
    }

    // ---- connections ---------------------------------------------------------------------------

    pub(crate) fn connections(&mut self, process: usize) {
        let pairs = &self.processes[process].pairs;
        let alive: Vec<usize> = (0..pairs.len()).filter(|i| !pairs[*i].released).collect();
        // Those that wait for their program come first, mostly.
        let waits = |i: &usize| {
            use ConnectorState::{Bound, Replied, Requested};
            matches!(pairs[*i].connector.state(), Bound | Replied | Requested)
        };
        let waiting: Vec<usize> = alive.iter().copied().filter(waits).collect();
        let first = !waiting.is_empty() && !self.rng.once_in(4);
        let chosen = self.rng.pick(if first { &waiting } else { &alive }).copied();
        if let Some(index) = chosen.filter(|_| first) {
            return self.connection(process, index);
        }
        let Some(index) = chosen.filter(|_| alive.len() >= 4 || self.rng.once_in(2)) else {
            return self.open(process);
        };
        self.connection(process, index);
    }

    fn connection(&mut self, process: usize, index: usize) {
        let pair = &self.processes[process].pairs[index];
        match pair.connector.state() {
            ConnectorState::Bound => self.connect(process, index),
            ConnectorState::Requested if self.rng.once_in(12) => self.reject(process, index),
            ConnectorState::Requested => self.accept(process, index),
            ConnectorState::Replied if self.rng.once_in(12) => self.reject(process, index),
            ConnectorState::Replied => self.complete_connect(process, index),
            ConnectorState::Connecting | ConnectorState::Accepting | ConnectorState::Queued => {
                if self.rng.once_in(15) {
                    self.cancel(process, index);
                }
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

    /// A new queue pair, to connect with or to be connected to.
    fn open(&mut self, index: usize) {
        let passive = self.rng.once_in(2);
        let (depth, sges) = (self.profile.depth, self.profile.sges);
        let shared = self.rng.once_in(4);
        let number = self.rng.below(1 << 24) as u32;
        let domain = DomainId(self.rng.below(DOMAINS) as u32 + 1);
        let process = &mut self.processes[index];
        let cqs = [0, 1].map(|_| self.rng.index(process.cqs.len()));
        let pool = shared.then(|| self.rng.index(process.pools.len()));
        let config = QueuePairConfig {
            number: QueuePairId(number),
            domain,
            context: u64::from(number) << 8,
            kind: QueuePairKind::Rc,
            dialect: process.dialect,
            initiator_depth: depth,
            receive_depth: if shared { 0 } else { depth },
            initiator_sge: sges,
            receive_sge: sges,
            inline_size: 256,
            largest_transfer: 1 << 20,
            shared,
        };
        process.cqs[cqs[0]].queue.bind(depth as usize);
        process.cqs[cqs[1]].queue.bind(depth as usize);
        let pair = process.pairs.len();
        let connector = Connector::new(process.dialect, process.caps);
        process.pairs.push(Pair {
            number,
            domain,
            front: QueuePair::new(config),
            connector,
            cqs,
            pool,
            end: None,
            released: false,
            tried: false,
            lazy: self.profile.careless && self.rng.once_in(3),
        });
        {
            let mut watch = self.watcher.see();
            let record = crate::watch::Pair::new(domain, config.context, pool);
            watch.pairs.insert((index, number), record);
        }
        for _ in 0..self.rng.below(4) {
            self.receive_one(index, pair);
        }
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

    fn connect(&mut self, index: usize, pair: usize) {
        let place = self.rng.index(self.places.len());
        let to = self.places[place];
        if to == index || !self.processes[to].alive {
            return;
        }
        let reads =
            ReadLimits { inbound: self.rng.one([0, 4, 99]), outbound: self.rng.one([0, 4, 99]) };
        let private = vec![0xAB; self.rng.one([0, 1, 56, 500])];
        let waiter = self.processes[index].waiter();
        let owner = &mut self.processes[index].pairs[pair];
        let began = owner.connector.connect(&mut owner.front, waiter, reads, private.len());
        let Ok((execution, limits)) = began else {
            self.processes[index].waiting.pop();
            return;
        };
        if std::mem::replace(&mut self.processes[index].pairs[pair].tried, true) {
            self.hit("reconnected");
        }
        let link = self.link(index, pair, to);
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
        let waiter = self.processes[process].waiter();
        let reads =
            ReadLimits { inbound: self.rng.one([1, 4, 99]), outbound: self.rng.one([1, 4, 99]) };
        let result = self.call(id, false, |call, cx| {
            let (Some(connector), Some(front)) = (call.connector, call.front) else {
                return Err(Status::InternalError);
            };
            connector.accept(cx, Some(call.connection), front, waiter, reads, &[1, 2, 3])
        });
        if !matches!(result, Some(Ok(()))) {
            self.processes[process].waiting.retain(|w| *w != waiter);
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
        self.call(id, false, |call, cx| {
            call.connector.map(|connector| connector.reject(cx, Some(call.connection), &[7]))
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
                process_of.pairs[index].connector.unqueue(&mut effects);
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
            Some(id) if pair.front.attached() => {
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
            }
            _ => {
                let mut effects = transom_core::Effects::default();
                if let Some(pair) = self.watcher.see().pairs.get_mut(&key) {
                    pair.over = true;
                }
                let Process { memory, pairs, .. } = &mut self.processes[process];
                pairs[index].front.flush(memory, self.now, &mut effects);
                self.watcher.see().effects(None, Some(key), &effects.list);
                self.settled(process, index, effects.list);
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
        // Its last handle closes what is left of its windows (a Bind that never ran among them).
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
