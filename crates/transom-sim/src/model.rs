//! The reference model: which byte each peer may touch, and when.
//!
//! Written from the rules that never bend (docs/rules/design.md; 2, 3, 5, 6, 7), not from the code that
//! keeps them, and as plainly as possible: a list of objects, and one question. The rest of this
//! crate drives the engine and asks this file after every step whether it was right.

use std::collections::HashMap;

use transom_memory::{Actor, ConnectionId, Purpose, QueuePairId, Rights, Rule, Scope};

/// A run of bytes where they really lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub host: u64,
    /// Bytes.
    pub length: u64,
}

/// Where a token is in its life (rule 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Bind was called and has not executed; or a standing token has no memory.
    Reserved,
    /// Access is possible.
    Live,
    /// Never again.
    Dead,
}

/// A region or window that a token names.
#[derive(Clone, Debug)]
pub struct Object {
    /// The region, if it is a window.
    pub window_of: Option<u32>,
    /// The token survives its memory (fast registration).
    pub standing: bool,
    /// The connections that may use it.
    pub scope: Scope,
    /// For what.
    pub rights: Rights,
    /// First byte, as it is named.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Where they lie.
    pub runs: Vec<Run>,
    /// The object's life as far as it is known.
    pub life: Life,
    /// The object's life before a request that the engine may or may not have executed yet.
    pub before: Option<Life>,
    /// The token was invalidated by name: to do so again is no offence of the peer.
    pub named: bool,
}

/// The answer to "may these bytes be touched?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes: these.
    Yes(Vec<Run>),
    /// No, by this rule.
    No(Rule),
    /// Depends on whether a request in between has executed; if so, these.
    Either(Vec<Run>, Rule),
}

/// Everything registered with one adapter.
#[derive(Debug, Default)]
pub struct Books {
    /// By token. Tokens are never used twice in the life of a process (rule 7: not before 524,288
    /// others), so the dead stay here.
    pub objects: HashMap<u32, Object>,
}

impl Books {
    /// Rule 2: a live token, a matching scope, an established connection, the right, the range.
    /// `established`: the actor's connection is.
    #[must_use]
    pub fn judge(
        &self,
        actor: &Actor,
        established: bool,
        purpose: Purpose,
        token: u32,
        address: u64,
        length: u64,
    ) -> Verdict {
        if length == 0 {
            return Verdict::Yes(Vec::new());
        }
        let Some(object) = self.objects.get(&token) else { return Verdict::No(Rule::LiveToken) };
        let ask = |life| object.judge(life, actor, established, purpose, address, length);
        match (ask(object.life), object.before.map(ask)) {
            (Ok(runs), None | Some(Ok(_))) => Verdict::Yes(runs),
            (Err(rule), None | Some(Err(_))) => Verdict::No(rule),
            (Ok(runs), Some(Err(rule))) | (Err(rule), Some(Ok(runs))) => {
                Verdict::Either(runs, rule)
            }
        }
    }

    /// Whether a window may be reserved: its region is live and in its domain, the window admits no
    /// peer that the region keeps out, grants remote rights only, and lies inside.
    #[must_use]
    pub fn may_bind(
        &self,
        region: u32,
        scope: Scope,
        rights: Rights,
        base: u64,
        length: u64,
    ) -> bool {
        let Some(object) = self.objects.get(&region) else { return false };
        object.window_of.is_none()
            && object.life == Life::Live
            && object.scope.domain() == scope.domain()
            && (object.scope == scope || object.scope == Scope::Domain(scope.domain()))
            && Rights::REMOTE.contains(rights)
            && object.rights.contains(Rights::BIND)
            && (object.rights.contains(Rights::LOCAL_WRITE)
                || !rights.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC))
            && length > 0
            && object.has(base, length)
    }

    /// Windows that are bound to a region, or waiting to be.
    #[must_use]
    pub fn windows(&self, region: u32) -> usize {
        self.objects
            .values()
            .filter(|o| o.window_of == Some(region) && o.life != Life::Dead)
            .count()
    }

    /// The region that a token's bytes belong to.
    #[must_use]
    pub fn region(&self, token: u32) -> u32 {
        self.objects.get(&token).and_then(|object| object.window_of).unwrap_or(token)
    }

    /// A request executes (rule 6): whether it succeeds. Until [`Books::certain`] both its before
    /// and its after are possible.
    pub fn execute(&mut self, token: u32, from: &[Life], to: Life, by: QueuePairId) -> bool {
        let Some(object) = self.objects.get_mut(&token) else { return false };
        let mine = match object.scope {
            Scope::QueuePair(_, queue_pair) => queue_pair == by,
            _ => true,
        };
        // A standing token that has no memory is not open.
        let open = object.window_of.is_some() || object.standing && object.life == Life::Live;
        if !mine || !open || !from.contains(&object.life) {
            return false;
        }
        object.before.get_or_insert(object.life);
        object.named |= to == Life::Dead;
        object.end(to);
        true
    }

    /// A standing token gets its memory. Until [`Books::certain`] it may not have it yet.
    pub fn supply(
        &mut self,
        token: u32,
        scope: Scope,
        rights: Rights,
        base: u64,
        runs: Vec<Run>,
    ) -> bool {
        let Some(object) = self.objects.get_mut(&token) else { return false };
        let length = runs.iter().map(|run| run.length).sum();
        let waits = object.standing && object.life == Life::Reserved && object.scope == scope;
        if !waits || length == 0 {
            return false;
        }
        object.before.get_or_insert(Life::Reserved);
        (object.life, object.rights, object.base) = (Life::Live, rights, base);
        (object.length, object.runs) = (length, runs);
        true
    }

    /// Everything that could execute has executed.
    pub fn certain(&mut self) {
        self.objects.values_mut().for_each(|object| object.before = None);
    }

    /// Rule 5: from here on nothing goes through it. A standing token waits for its next memory.
    pub fn close(&mut self, token: u32) {
        if let Some(object) = self.objects.get_mut(&token) {
            object.end(Life::Dead);
            object.before = None;
        }
    }

    /// The registration goes, and what is bound to it.
    pub fn deregister(&mut self, region: u32) {
        for (token, object) in &mut self.objects {
            if *token == region || object.window_of == Some(region) {
                (object.life, object.before, object.standing) = (Life::Dead, None, false);
            }
        }
    }

    /// A queue pair or a connection is over, and with it everything that only it could use.
    pub fn over(&mut self, queue_pair: Option<QueuePairId>, connection: ConnectionId) {
        for object in self.objects.values_mut() {
            let gone = match object.scope {
                Scope::Domain(_) => false,
                Scope::QueuePair(_, whose) => Some(whose) == queue_pair,
                Scope::Connection(_, whose) => whose == connection,
            };
            if gone {
                (object.life, object.before, object.standing) = (Life::Dead, None, false);
            }
        }
    }
}

impl Object {
    fn end(&mut self, to: Life) {
        self.life = if to == Life::Dead && self.standing { Life::Reserved } else { to };
    }

    /// Whether its scope lets this actor in.
    #[must_use]
    pub fn admits(&self, actor: &Actor) -> bool {
        match self.scope {
            Scope::Domain(domain) => domain == actor.domain,
            Scope::QueuePair(domain, whose) => domain == actor.domain && whose == actor.queue_pair,
            Scope::Connection(domain, whose) => {
                domain == actor.domain && Some(whose) == actor.connection
            }
        }
    }

    /// Whether the range lies inside: no sum wraps in so many bits.
    fn has(&self, address: u64, length: u64) -> bool {
        let (from, to) = (u128::from(address), u128::from(address) + u128::from(length));
        u128::from(self.base) <= from && to <= u128::from(self.base) + u128::from(self.length)
    }

    fn judge(
        &self,
        life: Life,
        actor: &Actor,
        established: bool,
        purpose: Purpose,
        address: u64,
        length: u64,
    ) -> Result<Vec<Run>, Rule> {
        if life != Life::Live {
            return Err(Rule::LiveToken);
        }
        let remote =
            matches!(purpose, Purpose::RemoteRead | Purpose::RemoteWrite | Purpose::RemoteAtomic);
        if !self.admits(actor) {
            return Err(Rule::Scope);
        }
        if !established && (remote || matches!(self.scope, Scope::Connection(..))) {
            return Err(Rule::Connected);
        }
        let needed: &[Rights] = match purpose {
            Purpose::LocalSource => &[Rights::LOCAL_READ],
            Purpose::ReceiveBuffer => &[Rights::LOCAL_WRITE],
            Purpose::ReadSink => &[Rights::LOCAL_WRITE, Rights::READ_SINK],
            Purpose::MarkedReadSink => &[Rights::READ_SINK],
            Purpose::RemoteRead => &[Rights::REMOTE_READ],
            Purpose::RemoteWrite => &[Rights::REMOTE_WRITE],
            Purpose::RemoteAtomic => &[Rights::REMOTE_ATOMIC],
            Purpose::Bind => &[Rights::BIND],
            Purpose::Close => &[],
        };
        if !needed.iter().any(|right| self.rights.contains(*right)) {
            return Err(Rule::Right);
        }
        if self.has(address, length) {
            let runs = cut(&self.runs, address - self.base, length);
            let word = matches!(runs[..], [run] if run.host.is_multiple_of(8))
                && address.is_multiple_of(8);
            if purpose == Purpose::RemoteAtomic && !word {
                return Err(Rule::Aligned);
            }
            Ok(runs)
        } else if u128::from(address) + u128::from(length) > 1 << 64 {
            Err(Rule::Wrap)
        } else {
            Err(Rule::Bounds)
        }
    }
}

/// The runs of a part.
#[must_use]
pub fn cut(runs: &[Run], mut skip: u64, mut length: u64) -> Vec<Run> {
    let mut out = Vec::new();
    for run in runs {
        if skip >= run.length {
            skip -= run.length;
            continue;
        }
        let take = (run.length - skip).min(length);
        if take > 0 {
            out.push(Run { host: run.host + skip, length: take });
        }
        length -= take;
        skip = 0;
    }
    out
}
