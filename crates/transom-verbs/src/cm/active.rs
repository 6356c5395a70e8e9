//! The active side: to connect, and what a peer answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use transom_engine::{EndReason, Status, raw};

use super::{
    ACCEPT_DATA, Id, Parameters, REJECT_DATA, Retries, State, Word, alias, padded, plain, port,
};
use crate::abi::{cm_event, qps};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::QueuePair;
use crate::{explain, limits, resolution, timers, usage};

/// How long a connect that meets no listener is repeated (Verbs V123), and how often. Half a second
/// is too short for perftest's second listener on a loaded machine.
const PERSISTENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

impl Id {
    /// Begin to connect: ESTABLISHED or CONNECT_RESPONSE, or why not.
    pub(crate) fn connect(
        self: &Arc<Id>,
        queue_pair: Option<&Arc<QueuePair>>,
        parameters: Parameters,
        private: &[u8],
    ) -> Result {
        {
            let mut inner = self.lock();
            if inner.state != State::RouteResolved {
                return Err(explain::invalid(|| {
                    format!(
                        "rdma_connect: behind ROUTE_RESOLVED, and once; the id is {:?}",
                        inner.state
                    )
                }));
            }
            inner.state = State::Connecting;
            inner.parameters = parameters;
            inner.joined = queue_pair.map(Arc::downgrade).unwrap_or_default();
            inner.own = queue_pair.is_some();
            if inner.datagrams.is_some() {
                drop(inner);
                return resolution::ask(self, private);
            }
            // The port is held until the peer has answered: between two attempts it is nobody else's.
            if inner.alias == 0 {
                inner.alias = alias::new(self);
            }
        }
        self.dial(private.into(), Instant::now());
        Ok(())
    }

    fn dial(self: &Arc<Id>, private: Arc<[u8]>, since: Instant) {
        let (local, peer, limits) = {
            let inner = self.lock();
            let (Some(mut local), Some(peer)) = (inner.local, inner.peer) else { return };
            if inner.state != State::Connecting {
                return;
            }
            if let Some(port) = inner.port.as_ref().and_then(|port| port.of_tcp().ok()) {
                local.set_port(port);
            }
            (local, peer, inner.parameters.limits())
        };
        let peer = port::find(self.context(), peer);
        let connector = match self.context().adapter.connector() {
            Ok(connector) => Arc::new(connector),
            Err(error) => return self.failed(error.status, Vec::new()),
        };
        self.lock().connector = Some(connector.clone());
        let (later, of, data) = (Arc::downgrade(self), Arc::downgrade(&connector), private.clone());
        let sink = raw::Sink::call(move |status| {
            if let (Some(id), Some(connector)) = (later.upgrade(), of.upgrade()) {
                id.answered(&connector, status, data, since);
            }
        });
        let word = {
            let inner = self.lock();
            inner.parameters.word(inner.joined.upgrade().as_deref())
        };
        let begun = connector
            .bind(local)
            .and_then(|()| connector.set_front_word(word.to_bits()))
            .and_then(|()| connector.connect(None, peer, limits, &private, sink));
        if let Err(error) = begun {
            self.failed(error.status, Vec::new());
        }
    }

    /// The peer has answered a Connect, or there is none.
    fn answered(
        self: &Arc<Id>,
        connector: &Arc<raw::Connector>,
        status: Status,
        private: Arc<[u8]>,
        since: Instant,
    ) {
        if status == Status::Success {
            let answer = padded(connector.private_data().unwrap_or_default(), ACCEPT_DATA);
            let limits = connector.read_limits().unwrap_or_default();
            let word = connector.peer_front_word().map(Word::from_bits);
            let byte = |number: u32| u8::try_from(number.min(limits::READS)).unwrap_or(0);
            let own = {
                let mut inner = self.lock();
                inner.port = None; // the connection has it
                inner.state = State::Responded;
                // An acceptance has no count of other retries (rdma_get_cm_event(3)).
                let retry = inner.parameters.retry_count;
                inner.peer_word =
                    word.map(|word| Word { retries: Retries { retry, ..word.retries }, ..word });
                inner.parameters.responder_resources = byte(limits.inbound);
                inner.parameters.initiator_depth = byte(limits.outbound);
                inner.joined.strong_count() > 0
            };
            let kind = if own { cm_event::ESTABLISHED } else { cm_event::CONNECT_RESPONSE };
            return self.raise(kind, 0, answer);
        }
        if status == Status::Canceled {
            return;
        }
        let refusal = connector.private_data().ok();
        // A rejection ends no connection, and may come without private data.
        let nobody = matches!(connector.ended(), Some(EndReason::Link(_)));
        if status == Status::ConnectionRefused && nobody {
            if since.elapsed() < PERSISTENCE {
                let later = Arc::downgrade(self);
                return timers::after(PAUSE, move || {
                    if let Some(id) = later.upgrade() {
                        id.dial(private, since);
                    }
                });
            }
            plain::explain_silence(self);
            return self.rejected(kind().no_listener, Vec::new());
        }
        if status == Status::ConnectionRefused {
            return self.rejected(kind().rejected, refusal.unwrap_or_default());
        }
        self.failed(status, Vec::new());
    }

    fn rejected(self: &Arc<Id>, status: i32, private: Vec<u8>) {
        let joined = {
            let mut inner = self.lock();
            inner.state = State::Disconnected;
            inner.joined.upgrade()
        };
        if let Some(joined) = joined {
            joined.fail();
        }
        self.raise(cm_event::REJECTED, status, padded(private, REJECT_DATA));
    }

    fn failed(self: &Arc<Id>, status: Status, private: Vec<u8>) {
        self.lock().state = State::Disconnected;
        self.raise(cm_event::UNREACHABLE, -Errno::from(status).0, private);
    }

    /// The event ESTABLISHED of the active side is being fetched: now the queue pair moves, and the
    /// peer gets its last message. The event becomes CONNECT_ERROR if that fails.
    pub(crate) fn take_up(self: &Arc<Id>) -> Result {
        if let Some(queue_pair) = &self.joined() {
            self.move_to(queue_pair, qps::RTS)?;
        }
        self.complete()
    }

    /// Tell the peer that the connection stands.
    fn complete(self: &Arc<Id>) -> Result {
        let connector = self.lock().connector.clone().ok_or(Errno::EINVAL)?;
        connector.complete_connect()?;
        self.established();
        usage::connected(self.context());
        self.watch();
        Ok(())
    }

    /// `rdma_establish`: the active side without a queue pair of the id's.
    pub(crate) fn establish(self: &Arc<Id>) -> Result {
        if self.lock().state != State::Responded {
            return Err(Errno::EINVAL);
        }
        self.complete()
    }
}
