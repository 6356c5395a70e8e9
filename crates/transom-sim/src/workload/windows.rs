//! Windows, and tokens that outlive their memory.

use transom_core::{Data, Operation};
use transom_memory::{DomainId, QueuePairId, Rights, Scope, Token};

use super::Grant;
use crate::world::World;

impl World {
    /// Reserve a window and post its Bind.
    pub(super) fn bind(&mut self, process: usize) {
        let Some(pair) = self.any_pair(process) else { return };
        let (number, domain) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.number, pair.domain)
        };
        let Some(region) = self.bindable(process, pair) else { return };
        let region = self.processes[process].regions[region].clone();
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
        if self.rng.once_in(3) {
            rights = rights | Rights::REMOTE_ATOMIC;
        }
        let scope = match self.rng.below(12) {
            0 => Scope::Domain(domain),
            1 => region.scope,
            _ if matches!(region.scope, Scope::Connection(..)) => region.scope,
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

    /// A region that a window may be bound to, mostly.
    fn bindable(&mut self, process: usize, pair: usize) -> Option<usize> {
        if self.rng.once_in(8) {
            return self.any_region(process);
        }
        let (domain, end) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.domain, pair.end)
        };
        let id = end.and_then(|end| self.watcher.see().ends.get(&end).map(|stream| stream.id));
        let connection = id.map(|id| Scope::Connection(domain, id));
        let own = self.rng.once_in(2);
        let regions = &self.processes[process].regions;
        let fit = |i: &usize| {
            let region = &regions[*i];
            region.live
                && region.length > 0
                && (region.scope == Scope::Domain(domain)
                    || own && Some(region.scope) == connection)
                && region.rights.contains(Rights::BIND | Rights::LOCAL_WRITE)
        };
        let mut some: Vec<usize> = (0..regions.len()).filter(fit).collect();
        let of_connection = |i: &usize| Some(regions[*i].scope) == connection;
        if some.iter().any(of_connection) {
            some.retain(of_connection);
        }
        self.rng.pick(&some).copied()
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

    pub(super) fn invalidate(&mut self, process: usize) {
        let Some(index) = self.any_window(process) else { return };
        let window = self.processes[process].windows[index];
        let wrong = self.profile.hostile > 0 && self.rng.once_in(8);
        let pair = if wrong { self.any_pair(process) } else { Some(window.pair) };
        let Some(pair) = pair else { return };
        let flags = self.flags();
        let operation = Operation::Invalidate { window: window.token };
        if self.post(process, pair, operation, flags, &[], None).is_ok() {
            self.processes[process].windows[index].live = false;
        }
    }

    /// Close a window at once, whatever is under way.
    pub(super) fn revoke(&mut self, process: usize) {
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
    pub(super) fn fast(&mut self, process: usize) {
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
            self.processes[process].regions[index].length = 0;
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
}
