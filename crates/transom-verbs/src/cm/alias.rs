//! Numbers that stand for the queue pair of a connection's peer (Verbs V128).

use std::collections::HashMap;
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
