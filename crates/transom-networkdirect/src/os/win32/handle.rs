//! Handles: numbers for objects, with a generation and a mark of this process, so that a closed
//! handle and one of another process are refused instead of meaning something else.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::file::File;
use super::port::Port;
use super::wait::Waitable;

/// The object that a handle names.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// An event, semaphore, mutex or thread.
    Waitable(Arc<Waitable>),
    /// A completion port.
    Port(Arc<Port>),
    /// A file that CreateOverlappedFile made.
    File(Arc<File>),
}

/// A handle as C sees it. The two lowest bits are always 0: the lowest one of an event in an
/// OVERLAPPED has a meaning of its own.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) usize);

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    free: std::collections::VecDeque<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    object: Option<Object>,
}

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 20;
/// Closed slots wait before they are used again, so that a stale handle stays stale for long.
const QUARANTINE: usize = 64;

static TABLE: RwLock<Table> =
    RwLock::new(Table { slots: Vec::new(), free: std::collections::VecDeque::new() });

/// Sixteen bits that differ between processes (and are never 0).
fn mark() -> usize {
    static MARK: OnceLock<usize> = OnceLock::new();
    *MARK.get_or_init(|| {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        (hasher.finish() as usize & 0x3FFF) | 0x4000
    })
}

impl Handle {
    /// No handle; what failing calls return.
    pub(crate) const NULL: Handle = Handle(0);

    fn compose(index: u32, generation: u32) -> Handle {
        let generation = generation as usize & ((1 << GENERATION_BITS) - 1);
        Handle(
            (index as usize) << 2
                | generation << (2 + INDEX_BITS)
                | mark() << (2 + INDEX_BITS + GENERATION_BITS),
        )
    }

    fn index(self) -> Option<u32> {
        let index = (self.0 >> 2) as u32 & ((1 << INDEX_BITS) - 1);
        (self.0 & 3 == 0 && self.0 >> (2 + INDEX_BITS + GENERATION_BITS) == mark()).then_some(index)
    }

    /// Give `object` a handle; `None` when 16 million are open.
    pub(crate) fn open(object: Object) -> Option<Handle> {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let reuse = if table.free.len() > QUARANTINE { table.free.pop_front() } else { None };
        let index = match reuse {
            Some(index) => index,
            None => {
                let index = u32::try_from(table.slots.len()).ok()?;
                if index >= 1 << INDEX_BITS {
                    return None;
                }
                table.slots.push(Slot::default());
                index
            }
        };
        let slot = table.slots.get_mut(index as usize)?;
        slot.object = Some(object);
        Some(Handle::compose(index, slot.generation))
    }

    /// The object it names, if it is open.
    pub(crate) fn get(self) -> Option<Object> {
        let index = self.index()?;
        let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
        let slot = table.slots.get(index as usize)?;
        (Handle::compose(index, slot.generation) == self).then(|| slot.object.clone())?
    }

    /// Close it; `false` if it is not open. The object lives on while it is used.
    pub(crate) fn close(self) -> bool {
        let Some(index) = self.index() else { return false };
        let object = {
            let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
            let Some(slot) = table.slots.get_mut(index as usize) else { return false };
            if Handle::compose(index, slot.generation) != self || slot.object.is_none() {
                return false;
            }
            slot.generation = slot.generation.wrapping_add(1);
            let object = slot.object.take();
            table.free.push_back(index);
            object
        };
        if let Some(Object::Port(port)) = &object {
            port.close();
        }
        true
    }

    /// The file it names.
    pub(crate) fn file(self) -> Option<Arc<File>> {
        match self.get() {
            Some(Object::File(file)) => Some(file),
            _ => None,
        }
    }

    /// The port it names.
    pub(crate) fn port(self) -> Option<Arc<Port>> {
        match self.get() {
            Some(Object::Port(port)) => Some(port),
            _ => None,
        }
    }

    /// The event, semaphore, mutex or thread it names.
    pub(crate) fn waitable(self) -> Option<Arc<Waitable>> {
        match self.get() {
            Some(Object::Waitable(waitable)) => Some(waitable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::WaitKind;
    use super::*;

    #[test]
    fn a_closed_handle_is_refused_even_after_its_slot_was_used_again() {
        let event = || Object::Waitable(Waitable::new(WaitKind::AutoEvent(false)));
        let first = Handle::open(event()).unwrap();
        assert!(first.close());
        assert!(!first.close(), "closed twice");
        let many: Vec<_> = (0..QUARANTINE * 4).map(|_| Handle::open(event()).unwrap()).collect();
        for handle in &many {
            assert!(handle.close());
        }
        let again: Vec<_> = (0..QUARANTINE * 4).map(|_| Handle::open(event()).unwrap()).collect();
        assert!(first.get().is_none());
        assert!(many.iter().all(|handle| handle.get().is_none()));
        let index = |handle: &Handle| handle.index().unwrap();
        let used: Vec<u32> = many.iter().map(index).collect();
        assert!(again.iter().any(|handle| used.contains(&index(handle))), "places are used again");
        for handle in again {
            assert!(handle.close());
        }
    }

    #[test]
    fn a_handle_with_another_process_s_mark_means_nothing_here() {
        let handle =
            Handle::open(Object::Waitable(Waitable::new(WaitKind::AutoEvent(false)))).unwrap();
        let foreign = Handle(handle.0 ^ (1 << (2 + INDEX_BITS + GENERATION_BITS)));
        assert!(foreign.get().is_none());
        assert!(!foreign.close());
        assert!(handle.close());
    }
}
