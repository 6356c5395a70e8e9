//! What the engine is about to get; until then these calls do less.

use transom_engine::raw;
use transom_memory::Rights;

pub(crate) trait Gaps {
    fn set_access(&self, rights: Rights) -> raw::Result<()>;
}

impl Gaps for raw::QueuePair {
    fn set_access(&self, _: Rights) -> raw::Result<()> {
        Ok(())
    }
}
