//! Numbers that stand for the queue pair of a connection's peer (Verbs V128).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Id, State};
use crate::errno::{Errno, Result};
use crate::process::PerProcess;
use crate::queue_pair::QueuePair;

/// Numbers that stand for a connection are below the first port's queue pairs (Verbs V128).
const ALIASES: u32 = 0x04_0000;

static IDS: PerProcess<Mutex<Aliases>> = PerProcess::new();

/// Connections by the numbers that stand for their peers' queue pairs.
#[derive(Debug, Default)]
struct Aliases {
    last: u32,
    ids: HashMap<u32, Weak<Id>>,
}

fn aliases<T>(work: impl FnOnce(&mut Aliases) -> T) -> T {
    let ids = IDS.get_or_default();
    work(&mut ids.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn new(id: &Arc<Id>) -> u32 {
    aliases(|all| {
        loop {
            all.last = all.last % (ALIASES - 1) + 1;
            if all.ids.get(&all.last).is_none_or(|id| id.strong_count() == 0) {
                all.ids.insert(all.last, Arc::downgrade(id));
                return all.last;
            }
        }
    })
}

/// The number is free for another connection.
pub(super) fn release(alias: u32) {
    aliases(|all| all.ids.remove(&alias));
}

/// Whether the number stands for a connection.
pub(crate) fn is_alias(number: u32) -> bool {
    aliases(|all| all.ids.contains_key(&number))
}

/// The number of a queue pair's destination as its program sees it: the one that a connection's peer has named, for
/// the one that stands for the connection.
pub(crate) fn shown(number: u32) -> u32 {
    let known = aliases(|all| all.ids.get(&number).and_then(Weak::upgrade));
    known.map_or(number, |id| id.lock().shown_number())
}

/// The number that stands for the connection, if the peer of one at `peer` has named `number`, and no other queue pair
/// has that connection.
pub(crate) fn standing_for(number: u32, peer: IpAddr, queue_pair: &Arc<QueuePair>) -> Option<u32> {
    let ids = aliases(|all| all.ids.values().filter_map(Weak::upgrade).collect::<Vec<_>>());
    let fitting = ids.iter().filter_map(|id| {
        let inner = id.lock();
        let joined = inner.joined.upgrade();
        let free = joined.is_none_or(|joined| Arc::ptr_eq(&joined, queue_pair));
        let begun = matches!(
            inner.state,
            State::Requested | State::Responded | State::Accepting | State::Established
        );
        let there = inner.peer.is_some_and(|at| at.ip() == peer);
        (free && begun && there && inner.shown_number() == number).then_some(inner.alias)
    });
    fitting.min()
}

/// A queue pair goes to RTR with the alias of a connection as its destination (Verbs V128). Where there is
/// no such connection, or another queue pair has it, the number is one that no peer answers to.
pub(crate) fn join(queue_pair: &Arc<QueuePair>, alias: u32) -> Result {
    let known = aliases(|all| all.ids.get(&alias).and_then(Weak::upgrade));
    let Some(id) = known else { return Ok(()) };
    let mut inner = id.lock();
    if inner.joined.upgrade().is_some_and(|joined| !Arc::ptr_eq(&joined, queue_pair)) {
        return Ok(()); // its peer belongs to another queue pair
    }
    let connector = inner.connector.clone().ok_or(Errno::EINVAL)?;
    if inner.accepted || inner.state != State::Requested {
        drop(inner);
        connector.join(&queue_pair.engine)?;
        inner = id.lock();
    }
    inner.joined = Arc::downgrade(queue_pair);
    Ok(())
}
