//! Why was it refused? The private interface, and the environment variable that prints it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use transom_engine::{Completion, raw};
use transom_memory::QueuePairId;

use crate::com::{Alive, Object, OutPtr, class};
use crate::guid::IID_ITransomExplain;
use crate::status::*;

/// The last refusal that an object has seen.
#[derive(Debug, Default)]
pub(crate) struct Last(AtomicU64);

impl Last {
    /// Look at a completion on its way to the program.
    pub(crate) fn note(&self, adapter: &raw::Adapter, completion: &Completion) {
        if completion.denial == 0 {
            return;
        }
        let before = self.0.swap(completion.denial, Ordering::AcqRel);
        if before != completion.denial && wanted() {
            let text = text_of(adapter, completion.denial);
            transom_os::say!(
                "transom: {}",
                text.as_deref().unwrap_or("refused; the record is gone")
            );
        }
    }

    /// The text.
    pub(crate) fn text(&self, adapter: &raw::Adapter) -> Option<String> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            id => text_of(adapter, id),
        }
    }
}

fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| raw::Environment::read().explain)
}

fn text_of(adapter: &raw::Adapter, id: u64) -> Option<String> {
    adapter.denial(id).map(|record| record.cause.to_string())
}

/// The newest refusal on a queue pair, seen by either side of it.
pub(crate) fn newest(adapter: &raw::Adapter, pair: QueuePairId) -> Option<String> {
    let records = adapter.denials(|record| record.queue_pair == Some(pair));
    records.last().map(|(_, record)| record.cause.to_string())
}

type Source = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// ITransomExplain. A small object of its own, so that asking why keeps nothing else alive.
pub(crate) struct Explain {
    source: Source,
    _alive: Alive,
}

class!(Explain, [IID_ITransomExplain], {
    fn get_last_refusal(text: OutPtr<u8>, length: OutPtr<u32>) -> i32;
});

impl Explain {
    /// The interface of an object whose refusals `source` finds.
    pub(crate) fn give(
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> NonNull<c_void> {
        Object::create(Arc::new(Explain { source: Box::new(source), _alive: Alive::new() }))
    }

    fn get_last_refusal(self: &Arc<Self>, text: OutPtr<u8>, length: OutPtr<u32>) -> Outcome {
        let room = length.get().ok_or(E_POINTER)?;
        let Some(mut sentence) = (self.source)() else {
            length.put(0);
            return Ok(S_FALSE);
        };
        sentence.retain(|c| c != '\0');
        sentence.push('\0');
        let need = u32::try_from(sentence.len()).map_err(|_| ND_INTERNAL_ERROR)?;
        length.put(need);
        if text.is_null() || room < need {
            return Err(ND_BUFFER_OVERFLOW);
        }
        text.put_bytes(sentence.as_bytes());
        Ok(S_OK)
    }
}
