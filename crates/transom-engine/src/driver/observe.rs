//! Spans and events of the crate `tracing`, with the feature of this name; without it everything here
//! is empty, and costs nothing.
//!
//! A subscriber is a program's code, which must not run under a lock: what happens under a link's lock
//! is noted, and [`Observer::emit`] says it once the lock is dropped.
//!
//! | target | what | level |
//! |---|---|---|
//! | `transom::connection` | a span for each connection: `peer`, `number` | info |
//! | `transom::connection` | `established` with `path` and `reason`, `ended` in order | info |
//! | `transom::connection` | `ended` for another reason | warn |
//! | `transom::refusal` | a refusal: its `rule`, and what happened | warn |
//! | `transom::close` | a close of a window or region that took longer than a millisecond | warn |

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
    use std::time::Duration;

    use tracing::{Span, info, info_span, warn};
    use transom_memory::{ConnectionId, Token};

    use crate::driver::config::path::PathReason;
    use crate::{ConnectionEvent, DenialCause, DenialRecord, Effect, EndReason, sys};

    /// A close waits for one copy at most: what takes longer has a cause that is worth a look.
    const SLOW: Duration = Duration::from_millis(1);
    /// Notes that wait to be emitted; later ones are counted.
    const MOST: usize = 256;

    #[derive(Debug)]
    enum Noted {
        Established { path: &'static str, reason: PathReason },
        Ended(EndReason),
        Refused { rule: Option<&'static str>, text: String },
    }

    /// The span of a connection, and what has happened on it.
    #[derive(Debug)]
    pub(crate) struct Observer {
        peer: SocketAddr,
        number: u32,
        /// Made with the first event, when no lock is held.
        span: OnceLock<Span>,
        noted: Mutex<(Vec<Noted>, u64)>,
        waiting: AtomicBool,
    }

    impl Observer {
        pub(crate) fn new(peer: SocketAddr, id: ConnectionId) -> Observer {
            Observer {
                peer,
                number: id.number,
                span: OnceLock::new(),
                noted: Mutex::default(),
                waiting: AtomicBool::new(false),
            }
        }

        fn noted(&self) -> MutexGuard<'_, (Vec<Noted>, u64)> {
            self.noted.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn note(&self, one: Noted) {
            let mut noted = self.noted();
            if noted.0.len() < MOST {
                noted.0.push(one);
            } else {
                noted.1 += 1;
            }
            self.waiting.store(true, Ordering::Release);
        }

        /// A pass has decided these. `path` is asked for only if one of them says it.
        pub(crate) fn effects(
            &self,
            effects: &[Effect],
            path: impl Fn() -> (&'static str, PathReason),
        ) {
            for effect in effects {
                let Effect::Event(event) = effect else { continue };
                match event {
                    ConnectionEvent::Accepted { .. } | ConnectionEvent::Established => {
                        let (path, reason) = path();
                        self.note(Noted::Established { path, reason });
                    }
                    ConnectionEvent::Ended(end) => self.note(Noted::Ended(end.reason)),
                    _ => {}
                }
            }
        }

        /// A refusal is recorded.
        pub(crate) fn refused(&self, record: &DenialRecord) {
            let rule = match &record.cause {
                DenialCause::Own(denial) | DenialCause::Peer(denial) => {
                    Some(denial.rule.named().name())
                }
                _ => None,
            };
            self.note(Noted::Refused { rule, text: record.cause.to_string() });
        }

        /// Say what was noted. No lock is held.
        pub(crate) fn emit(&self) {
            if !self.waiting.swap(false, Ordering::AcqRel) {
                return;
            }
            let (noted, left_out) = std::mem::take(&mut *self.noted());
            let span = self.span.get_or_init(|| {
                let Observer { peer, number, .. } = self;
                info_span!(target: "transom::connection", "connection", %peer, number)
            });
            for one in noted {
                match one {
                    Noted::Established { path, reason } => info!(
                        target: "transom::connection", parent: span,
                        path, reason = reason.text(), "established"
                    ),
                    Noted::Ended(
                        reason @ (EndReason::PeerDisconnected
                        | EndReason::Disconnected
                        | EndReason::Flushed),
                    ) => {
                        info!(target: "transom::connection", parent: span, ?reason, "ended");
                    }
                    Noted::Ended(reason) => {
                        warn!(target: "transom::connection", parent: span, ?reason, "ended");
                    }
                    Noted::Refused { rule, text } => {
                        warn!(target: "transom::refusal", parent: span, rule, "{text}");
                    }
                }
            }
            if left_out > 0 {
                warn!(target: "transom::connection", parent: span, left_out, "events left out");
            }
        }
    }

    impl Drop for Observer {
        fn drop(&mut self) {
            self.emit();
        }
    }

    /// Close a window or a region, and say so if that took long.
    pub(crate) fn close<R>(token: Token, close: impl FnOnce() -> R) -> R {
        let begin = sys::now();
        let result = close();
        let took = Duration::from_nanos(sys::now().0.saturating_sub(begin.0));
        if took > SLOW {
            warn!(target: "transom::close", token = %token, ?took, "slow close");
        }
        result
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::net::SocketAddr;

    use transom_memory::{ConnectionId, Token};

    use crate::driver::config::path::PathReason;
    use crate::{DenialRecord, Effect};

    #[derive(Debug)]
    pub(crate) struct Observer;

    impl Observer {
        #[inline(always)]
        pub(crate) fn new(_peer: SocketAddr, _id: ConnectionId) -> Observer {
            Observer
        }

        #[inline(always)]
        pub(crate) fn effects(
            &self,
            _effects: &[Effect],
            _path: impl Fn() -> (&'static str, PathReason),
        ) {
        }

        #[inline(always)]
        pub(crate) fn refused(&self, _record: &DenialRecord) {}

        #[inline(always)]
        pub(crate) fn emit(&self) {}
    }

    #[inline(always)]
    pub(crate) fn close<R>(_token: Token, close: impl FnOnce() -> R) -> R {
        close()
    }
}
