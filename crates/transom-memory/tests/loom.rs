//! Every interleaving of guard against close, activation, reuse of a slot and fast registration, on
//! the shipped sources: `entry.rs` and `hazard.rs` are compiled here against loom's primitives.
//!
//! Seven of the models were seen to fail without the barrier of `Hazard::announce`, and without the
//! one of `Hazards::holding`.

#![allow(dead_code, missing_docs, clippy::unwrap_used)]

#[path = "../src/entry.rs"]
mod entry;
#[path = "../src/hazard.rs"]
mod hazard;

mod sync {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

// The parts of the crate that the two files need.
use transom_memory::{ConnectionId, DomainId, QueuePairId, Rights, Scope, Token};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    Invalidated,
    NeverBound,
}

impl CloseReason {
    fn code(self) -> u64 {
        self as u64
    }
    fn from_code(code: u64) -> CloseReason {
        if code == 0 { CloseReason::Invalidated } else { CloseReason::NeverBound }
    }
}

use entry::{Entry, EntryState, Facts, Head};
use hazard::{EVERYTHING, Hazard, Hazards};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

const OLD: Token = Token(0x0010_0101);
const NEW: Token = Token(0x0010_0102);

/// The bytes themselves. Loom knows who looked at them when, and fails if their owner takes them
/// back without knowing that every copy is over.
#[derive(Default)]
struct Bytes(loom::cell::UnsafeCell<()>);

// SAFETY: the pointer is never used; loom checks that accesses are ordered, which is the point.
unsafe impl Sync for Bytes {}
// SAFETY: as above; there is nothing in it.
unsafe impl Send for Bytes {}

fn scope() -> Scope {
    Scope::QueuePair(DomainId(1), QueuePairId(7))
}

fn head(token: Token) -> Head {
    Head::new(token, Rights::REMOTE_READ, &scope(), true)
}

/// Every field tells which token it belongs to.
fn facts(token: Token) -> Facts {
    let word = u64::from(token.0);
    Facts {
        base: word,
        length: word,
        host: word,
        who: word,
        domain: DomainId(token.0),
        region: token,
        offset: word,
    }
}

/// The table's slot, the memory behind it, and the control path's share.
struct World {
    entry: Entry,
    bytes: Bytes,
    closed: AtomicBool,
    hazards: loom::sync::Mutex<Hazards>,
}

impl World {
    fn new(state: EntryState) -> Arc<World> {
        let world = World {
            entry: Entry::new(),
            bytes: Bytes::default(),
            closed: AtomicBool::new(false),
            hazards: loom::sync::Mutex::new(Hazards::default()),
        };
        world.entry.publish(head(OLD).in_state(state), &facts(OLD));
        Arc::new(world)
    }

    fn lane(&self) -> Hazard {
        self.hazards.lock().unwrap().join()
    }

    /// `Memory::look` and the copy under its grant, as the shipped code does them. `true` if the
    /// access was granted.
    fn access(&self, hazard: &mut Hazard, token: Token) -> bool {
        hazard.announce(token);
        let granted = self.look(token);
        hazard.cell().clear();
        granted
    }

    fn look(&self, token: Token) -> bool {
        let head = self.entry.head();
        if head.token() != token || head.state() != EntryState::Live {
            return false;
        }
        assert_eq!(self.entry.facts(), facts(token), "facts of another token");
        // The copy.
        self.bytes.0.with(|_| ());
        assert!(!self.closed.load(Ordering::Relaxed), "touched after the close");
        // Still undisturbed at its end.
        assert_eq!(self.entry.facts(), facts(token), "facts changed under the guard");
        true
    }

    /// `Memory::close`: mark, look at the cells, wait. Then the memory goes back to its owner.
    fn close(&self) {
        self.entry.kill(CloseReason::Invalidated, 5);
        self.wait(OLD);
        self.closed.store(true, Ordering::Relaxed);
        self.bytes.0.with_mut(|_| ());
    }

    fn wait(&self, token: Token) {
        let held = self.hazards.lock().unwrap().holding(|announced| announced == token);
        held.iter().for_each(hazard::Held::wait);
    }
}

fn model(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(scenario);
}

/// ND2 R18, W14: when close returns, nothing is under way and nothing will begin.
#[test]
fn nd2_w14_no_access_outlives_its_close() {
    model(|| {
        let world = World::new(EntryState::Live);
        let mut lane = world.lane();
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.access(&mut lane, OLD);
                world.access(&mut lane, OLD)
            }
        });
        world.close();
        peer.join().unwrap();
        assert!(!world.access(&mut world.lane(), OLD));
    });
}

/// With two lanes: one guard's end is not mistaken for the other's.
#[test]
fn nd2_w14_no_access_outlives_its_close_on_any_lane() {
    model(|| {
        let world = World::new(EntryState::Live);
        let peers: Vec<_> = [world.lane(), world.lane()]
            .into_iter()
            .map(|mut lane| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.access(&mut lane, OLD))
            })
            .collect();
        world.close();
        peers.into_iter().for_each(|peer| {
            peer.join().unwrap();
        });
    });
}

/// The slot is used again at once: the old token never sees the new one's facts, nor the other way
/// round (ND2 5.4: stale tokens do not come back to life).
#[test]
fn nd2_5_4_reuse_of_the_slot_never_mixes_two_tokens() {
    model(|| {
        let world = World::new(EntryState::Live);
        let mut lane = world.lane();
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let old = world.access(&mut lane, OLD);
                let new = world.access(&mut lane, NEW);
                (old, new)
            }
        });
        world.entry.kill(CloseReason::Invalidated, 5);
        world.wait(OLD);
        // A new window of the same memory in the same slot.
        world.entry.publish(head(NEW).in_state(EntryState::Live), &facts(NEW));
        peer.join().unwrap();
        assert!(!world.access(&mut world.lane(), OLD));
        assert!(world.access(&mut world.lane(), NEW));
    });
}

/// A pass announces everything, and finds out later what: slots may be reused under it, but only
/// those that it has not seen live.
#[test]
fn nd2_w14_no_access_of_a_pass_outlives_its_close() {
    model(|| {
        let world = World::new(EntryState::Live);
        let mut lane = world.lane();
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                lane.announce(EVERYTHING);
                world.look(OLD);
                world.look(OLD);
                lane.cell().clear();
            }
        });
        world.close();
        peer.join().unwrap();
    });
}

/// Bind in two steps against revocation (ND2 5.6): whichever wins, a closed window is closed.
#[test]
fn nd2_5_6_activation_never_revives_a_closed_window() {
    model(|| {
        let world = World::new(EntryState::Reserved);
        let mut lane = world.lane();
        let binder = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let active = world.entry.activate(OLD);
                let granted = world.access(&mut lane, OLD);
                assert!(active || !granted);
            }
        });
        world.close();
        binder.join().unwrap();
        assert_eq!(world.entry.head().state(), EntryState::Dead);
    });
}

/// ND1 MW-5: a Bind that is flushed while it executes either lives or never does.
#[test]
fn nd1_mw5_a_flushed_bind_never_lives() {
    model(|| {
        let world = World::new(EntryState::Reserved);
        let mut lane = world.lane();
        let binder = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || (world.entry.activate(OLD), world.access(&mut lane, OLD))
        });
        let abandoned = world.entry.give_up(OLD, 5);
        let (active, granted) = binder.join().unwrap();
        assert_ne!(abandoned, active);
        assert!(active || !granted);
    });
}

/// NDK FR-13: a standing token gets new memory under the same value, and no access mixes the two.
#[test]
fn ndk_fr13_a_constant_token_never_mixes_its_memories() {
    model(|| {
        let world = World::new(EntryState::Live);
        let standing = head(OLD).with_standing().in_state(EntryState::Live);
        world.entry.publish(standing, &facts(OLD));
        let mut lane = world.lane();
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                lane.announce(OLD);
                let head = world.entry.head();
                if head.state() == EntryState::Live {
                    let (first, second) = (world.entry.facts(), world.entry.facts());
                    assert_eq!(first, second);
                    assert!(first == facts(OLD) || first == facts(NEW), "mixed: {first:?}");
                }
                lane.cell().clear();
            }
        });
        world.entry.suspend(CloseReason::Invalidated, 5);
        world.wait(OLD);
        world.entry.rest();
        world.entry.publish(standing, &facts(NEW));
        peer.join().unwrap();
    });
}

/// A guard that was leaked (`mem::forget`) ends with the lane's next check, and the close with it.
#[test]
fn a_leaked_guard_ends_with_the_next_check() {
    model(|| {
        let world = World::new(EntryState::Live);
        let mut lane = world.lane();
        lane.announce(OLD);
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || world.access(&mut lane, NEW)
        });
        world.close();
        assert!(!peer.join().unwrap());
    });
}

/// A cell that a lane has left is used again, and nothing that was announced stays behind.
#[test]
fn a_lane_may_come_and_go_during_a_close() {
    model(|| {
        let world = World::new(EntryState::Live);
        let first = world.lane();
        let peer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let mut first = first;
                world.access(&mut first, OLD);
                drop(first);
                let mut second = world.lane();
                world.access(&mut second, OLD)
            }
        });
        world.close();
        peer.join().unwrap();
    });
}
