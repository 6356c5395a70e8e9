//! Registrations.

use transom_core::tables::ConnectorState;
use transom_memory::{DomainId, Rights, Scope, Token};

use super::{DOMAINS, Grant};
use crate::watch::EndId;
use crate::world::World;

impl World {
    pub(super) fn rights(&mut self) -> Rights {
        let mut rights = Rights::NONE;
        for right in
            [Rights::REMOTE_READ, Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC, Rights::READ_SINK]
        {
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
    pub(super) fn buffers(
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

    pub(super) fn scope(&mut self, process: usize) -> Scope {
        let domain = DomainId(self.rng.below(DOMAINS) as u32 + 1);
        if self.rng.once_in(4) {
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

    pub(super) fn any_region(&mut self, process: usize) -> Option<usize> {
        let regions = &self.processes[process].regions;
        let some = (0..regions.len()).filter(|i| regions[*i].live && regions[*i].length > 0);
        let live: Vec<usize> = some.collect();
        self.rng.pick(&live).copied()
    }

    pub(super) fn deregister(&mut self, process: usize) {
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

    /// Take every token there is.
    pub(super) fn hoard(&mut self, process: usize) {
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

    pub(super) fn poke(&mut self, process: usize) {
        let buffers = self.processes[process].arena.buffers();
        let Some((address, length)) = self.rng.pick(&buffers).copied() else { return };
        let at = self.rng.index(length);
        let count = self.rng.between(1, 32).min((length - at) as u64);
        let bytes = self.rng.bytes(count as usize);
        self.processes[process].arena.poke(address, at, &bytes);
    }
}
