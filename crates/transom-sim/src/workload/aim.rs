//! The memory that a request names at its peer.

use transom_core::Operation;
use transom_memory::{Purpose, Rights, Scope};
use transom_wire::Atomic;

use super::Grant;
use crate::model::Verdict;
use crate::watch::EndId;
use crate::world::World;

impl World {
    /// Tokens as a thief would use them: live, with the right, of the same process. Only the queue
    /// pair that asks is wrong.
    fn foreign(&self, owner: EndId, right: Rights) -> Vec<Grant> {
        let watch = self.watcher.see();
        let Some(peer) = watch.ends.get(&owner) else { return Vec::new() };
        let Some(books) = watch.books.get(peer.process) else { return Vec::new() };
        let fit = |g: &&Grant| {
            g.process == peer.process
                && books.objects.get(&g.token).is_some_and(|object| {
                    object.life == crate::model::Life::Live
                        && (object.base, object.length) == (g.address, g.length)
                        && object.rights.contains(right)
                        // Only its owner may close a region.
                        && (!object.admits(&peer.actor)
                            || right == Rights::NONE
                                && object.window_of.is_none()
                                && !object.standing)
                })
        };
        self.board.iter().rev().take(200).filter(fit).copied().collect()
    }

    /// A window that is open to one connection of a peer only, used on another one.
    pub(super) fn steal(&mut self, process: usize) {
        let Some(pair) = self.any_pair(process) else { return };
        let (domain, end) = {
            let pair = &self.processes[process].pairs[pair];
            (pair.domain, pair.end)
        };
        let Some((link, side)) = end else { return };
        let rights = [Rights::REMOTE_READ, Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC];
        let right = self.rng.one(rights);
        let mut some = self.foreign((link, 1 - side), right);
        some.retain(|grant| {
            let watch = self.watcher.see();
            watch.books[grant.process].objects.get(&grant.token).is_some_and(|object| {
                object.window_of.is_some() && matches!(object.scope, Scope::Connection(..))
            })
        });
        let Some(Grant { token, address, length, .. }) = self.rng.pick(&some).copied() else {
            return;
        };
        let operation = match right {
            Rights::REMOTE_READ => Operation::Read { token, address },
            Rights::REMOTE_ATOMIC => {
                Operation::Atomic { token, address, change: Atomic::FetchAdd { add: 1 } }
            }
            _ => Operation::Write { token, address },
        };
        self.hit("used a window of another connection");
        let atomic = matches!(operation, Operation::Atomic { .. });
        let (flags, length) = (self.flags(), if atomic { 8 } else { length.min(32) });
        self.post_data(process, pair, domain, operation, flags, length, false);
        self.perhaps_pump(process, pair);
    }

    pub(super) fn target(&mut self, id: Option<EndId>, right: Rights) -> Option<Grant> {
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
            Rights::REMOTE_ATOMIC => Purpose::RemoteAtomic,
            _ => Purpose::RemoteWrite,
        };
        let ignorant = self.rng.once_in(8);
        // Of the shared receive queue that the message names.
        let names: Vec<_> = self.processes[owner].pools.iter().filter_map(|p| p.name).collect();
        let domain = self.rng.pick(&names).map(|(_, domain)| *domain);
        let honest: Vec<Grant> = {
            let watch = self.watcher.see();
            let peer = watch.ends.get(&(link, 1 - side))?;
            let books = &watch.books[owner];
            let mut actor = peer.actor;
            if let Some(domain) = domain {
                actor.domain = domain;
            }
            // Programs know what their peers' queue pairs admit, mostly.
            let admitted = right == Rights::NONE
                || ignorant
                || watch.pairs.get(&peer.pair?).is_none_or(|pair| pair.access.contains(right));
            let fit = |g: &&Grant| {
                let (token, address, length) = (g.token, g.address, g.length);
                let (address, length) = match right {
                    Rights::REMOTE_ATOMIC => (first_word(address), 8),
                    _ => (address, length),
                };
                let verdict = books.judge(&actor, peer.open, purpose, token, address, length);
                let closable = right != Rights::NONE
                    || g.pair == pair
                        && books.objects.get(&token).is_some_and(|o| o.window_of.is_some());
                g.process == owner && closable && admitted && matches!(verdict, Verdict::Yes(_))
            };
            self.board.iter().rev().take(100).filter(fit).copied().collect()
        };
        if !wicked {
            // Through a window, mostly.
            let windows: Vec<Grant> = honest.iter().copied().filter(|g| g.pair.is_some()).collect();
            let from = if windows.is_empty() || self.rng.once_in(3) { &honest } else { &windows };
            return self.rng.pick(from).copied();
        }
        if self.rng.once_in(2) {
            let foreign = self.foreign((link, 1 - side), right);
            // Tokens of another queue pair or connection, rather than of another domain.
            let near: Vec<Grant> = foreign.iter().copied().filter(|g| g.pair.is_some()).collect();
            let from = if near.is_empty() || self.rng.once_in(4) { &foreign } else { &near };
            let grant = self.rng.pick(from).copied()?;
            self.hit("used a live token of another");
            return Some(grant);
        }
        let board = &self.board;
        let (name, some): (_, Vec<Grant>) = match self.rng.below(4) {
            0 => (
                "used a stale token",
                // The youngest of them: something may have been forgotten.
                board
                    .iter()
                    .rev()
                    .filter(|g| of_peer(g) && !live(self, g))
                    .take(8)
                    .copied()
                    .collect(),
            ),
            1 => {
                // Tokens of another queue pair or connection of the same process, mostly.
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
                // Beside one that is there, mostly: its slot with another key, a bit away.
                let from = if honest.is_empty() || self.rng.once_in(3) { board } else { &honest };
                let near = self.rng.pick(from).copied()?;
                let token = if self.rng.once_in(4) {
                    self.rng.word() as u32
                } else {
                    near.token ^ (self.rng.between(1, 255) << (8 * self.rng.below(4))) as u32
                };
                ("used a guessed token", vec![Grant { token, ..near }])
            }
        };
        let grant = self.rng.pick(&some).copied()?;
        self.hit(name);
        Some(grant)
    }
}

/// The first address from this one on at which a word may lie.
pub(super) fn first_word(address: u64) -> u64 {
    address.checked_next_multiple_of(8).unwrap_or(address)
}
