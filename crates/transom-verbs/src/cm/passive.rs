//! The passive side: listeners, Requests, and their answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_engine::tables::ConnectorState;
use transom_engine::{Status, raw};

use super::{CONNECT_DATA, Claim, Event, Id, Parameters, State, Word, alias, padded};
use crate::abi::{cm_event, qps};
use crate::errno::{Errno, Result};
use crate::kind::kind;
use crate::queue_pair::QueuePair;
use crate::requests::{self, Passive};
use crate::resolution::{Datagrams, Question};
use crate::{explain, gid, limits, usage};

/// Requests that wait for a program as events at most, whatever it asks for (Linux, ucma.c, `max_backlog`), and
/// as many behind them.
const MOST_WAITING: usize = 1024;

/// A Request's place in its listener's backlog, until its event is fetched or dropped. No lock of the listener's
/// is held then.
#[derive(Debug)]
pub(crate) struct Place {
    listener: Weak<Id>,
    held: Option<raw::HeldDescriptor>,
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.held.take());
        if let Some(listener) = self.listener.upgrade() {
            listener.place_is_free();
        }
    }
}

impl Id {
    /// Take Requests: as many as `backlog` wait to be fetched, as on Linux (`ucma_listen`,
    /// `ucma_connect_event_handler`). InfiniBand's peers repeat another one until there is a place
    /// (`cm_destroy_id`), which here waits in the engine's listener; iWARP's are turned away.
    pub(crate) fn listen(self: &Arc<Id>, backlog: i32, show: impl FnOnce()) -> Result {
        let wanted = usize::try_from(backlog).unwrap_or(0);
        let backlog = if (1..=MOST_WAITING).contains(&wanted) { wanted } else { MOST_WAITING };
        let mut inner = self.lock();
        if inner.state == State::Idle {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0); // Linux, `rdma_listen`
            self.take_port(&mut inner, any, Claim::Alone)?;
        } else if inner.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        if inner.datagrams.is_some() {
            inner.state = State::Listening;
            drop(inner);
            show();
            return Ok(());
        }
        let port = inner.port.as_mut().ok_or(Errno::EINVAL)?;
        let behind = if kind().infiniband { MOST_WAITING } else { backlog };
        port.listen(&self.context().adapter, behind)?;
        let listener = port.listener.clone();
        inner.state = State::Listening;
        inner.backlog.most = backlog;
        drop(inner);
        show();
        requests::serve(&Arc::downgrade(self), &listener)
    }

    /// A peer asks. A program that connects once its last connection is established is heard in that
    /// order: what has arrived on the connections before is looked at first.
    fn request(self: &Arc<Id>, connector: raw::Connector) {
        settle(&self.context().accepting);
        let (channel, place) = {
            let inner = self.lock();
            let held = inner.backlog.take();
            let place = held.map(|held| Place { listener: Arc::downgrade(self), held: Some(held) });
            (inner.channel.clone(), place)
        };
        if place.is_none() {
            let _ = connector.turn_away(); // or the peer has gone
            return;
        }
        let id = self.beside(&channel, false);
        let alias = alias::new(&id);
        let private = padded(connector.private_data().unwrap_or_default(), CONNECT_DATA);
        let offered = connector.read_limits().unwrap_or_default();
        let word = connector.peer_front_word().map(Word::from_bits);
        let byte = |number: u32| u8::try_from(number.min(limits::READS)).unwrap_or(0);
        let (peer, local) = (connector.peer().ok(), connector.local().ok());
        let (listens_at, class, user_context) = {
            let inner = self.lock();
            (inner.local.map(|local| local.port()), inner.traffic_class, inner.user_context)
        };
        let numbered = |mut at: SocketAddr| {
            at.set_port(listens_at.unwrap_or(at.port()));
            at
        };
        {
            let mut inner = id.lock();
            inner.state = State::Requested;
            inner.peer = peer.map(gid::canonical);
            inner.local = local.map(gid::canonical).map(numbered);
            inner.traffic_class = class;
            inner.alias = alias;
            inner.connector = Some(Arc::new(connector));
            inner.user_context = user_context;
            inner.peer_word = word;
        }
        let (retries, number) = {
            let inner = id.lock();
            (inner.shown_retries(), inner.shown_number())
        };
        self.push(Event {
            kind: cm_event::CONNECT_REQUEST,
            id,
            listener: Some(self.clone()),
            status: 0,
            private,
            responder_resources: byte(offered.inbound),
            initiator_depth: byte(offered.outbound),
            retries,
            number,
            service: None,
            joined: None,
            place,
        });
    }

    /// Whether another Request may come now. If not, one is asked for when a place is free.
    fn takes_another(&self) -> bool {
        !kind().infiniband || self.lock().backlog.takes_another()
    }

    fn place_is_free(self: &Arc<Id>) {
        let listener = {
            let mut inner = self.lock();
            let goes_on = inner.backlog.goes_on();
            inner.port.as_ref().filter(|_| goes_on).map(|port| port.listener.clone())
        };
        if let Some(listener) = listener {
            requests::go_on(Arc::downgrade(self), Arc::downgrade(&listener));
        }
    }

    /// A peer asks for the service of a listening id.
    pub(crate) fn requested_service(
        self: &Arc<Id>,
        question: Question,
        (local, peer): (IpAddr, SocketAddr),
        private: Vec<u8>,
    ) {
        let (channel, user_context, port) = {
            let inner = self.lock();
            let port = inner.local.map_or(0, |local| local.port());
            (inner.channel.clone(), inner.user_context, port)
        };
        let id = self.beside(&channel, true);
        {
            let mut inner = id.lock();
            inner.state = State::Requested;
            inner.peer = Some(peer);
            inner.local = Some(SocketAddr::new(local, port));
            inner.user_context = user_context;
            inner.datagrams = Some(Datagrams::asked(question));
        }
        let event = id.event(cm_event::CONNECT_REQUEST);
        self.push(Event { listener: Some(self.clone()), private, ..event });
    }

    /// Accept a question for the service: datagrams go to the queue pair `number`.
    pub(crate) fn accept_service(&self, number: u32, private: &[u8]) -> Result {
        let question = {
            let mut inner = self.lock();
            let part = inner.datagrams.as_mut().ok_or(Errno::EINVAL)?;
            let question = part.take_question().ok_or(Errno::EINVAL)?;
            inner.state = State::Established;
            question
        };
        question.accept(number, private);
        Ok(())
    }

    /// Accept, with the queue pair that is to have the connection if there is one.
    pub(crate) fn accept(
        self: &Arc<Id>,
        queue_pair: Option<&Arc<QueuePair>>,
        parameters: Parameters,
        private: &[u8],
    ) -> Result {
        let (connector, joined) = {
            let mut inner = self.lock();
            if inner.state != State::Requested {
                return Err(explain::invalid(|| {
                    format!(
                        "rdma_accept: the id of a CONNECT_REQUEST, once; this one is {:?}",
                        inner.state
                    )
                }));
            }
            inner.parameters = parameters;
            (inner.connector.clone().ok_or(Errno::EINVAL)?, inner.joined.upgrade())
        };
        if let Some(queue_pair) = queue_pair {
            self.move_to(queue_pair, qps::RTS)?;
        }
        let joined = queue_pair.cloned().or(joined);
        let later = Arc::downgrade(self);
        let sink = raw::Sink::call(move |status| {
            if let Some(id) = later.upgrade() {
                id.completed(status);
            }
        });
        {
            let mut inner = self.lock();
            inner.state = State::Accepting;
            inner.accepted = true;
            if let Some(joined) = &joined {
                inner.joined = Arc::downgrade(joined);
            }
            inner.own = queue_pair.is_some();
        }
        lock(&self.context().accepting).push(Arc::downgrade(self));
        let engine = joined.as_ref().map(|joined| &joined.engine);
        let accepted = connector
            .set_front_word(parameters.word(joined.as_deref()).to_bits())
            .and_then(|()| connector.accept(engine, parameters.limits(), private, sink));
        accepted.inspect_err(|_| self.lock().state = State::Disconnected)?;
        Ok(())
    }

    /// An acceptance that cannot be sent rejects what the peer has asked (Verbs V124).
    pub(crate) fn accept_in_vain(&self, queue_pair: Option<&Arc<QueuePair>>) {
        let asked = self.lock().state == State::Requested;
        if asked
            && self.reject(&[]).is_ok()
            && let Some(queue_pair) = queue_pair
        {
            queue_pair.fail();
        }
    }

    /// The peer has completed the connection, or has not.
    fn completed(self: &Arc<Id>, status: Status) {
        if status == Status::Success {
            self.is_completed();
        } else if status != Status::Canceled {
            self.lock().state = State::Disconnected;
            self.raise(cm_event::CONNECT_ERROR, -Errno::from(status).0, Vec::new());
        }
    }

    /// The connection is established: said once, under the id's lock, so that a thread that finds it said
    /// may raise what comes later.
    fn is_completed(self: &Arc<Id>) {
        let event = self.event(cm_event::ESTABLISHED);
        {
            let mut inner = self.lock();
            if inner.state != State::Accepting {
                return;
            }
            inner.state = State::Established;
            if !inner.destroyed {
                inner.channel.push(event);
            }
        }
        usage::connected(self.context());
        self.watch();
    }

    /// Look whether the peer has completed the connection, and say so. `false`: it is not expected to.
    fn settle(self: &Arc<Id>) -> bool {
        let connector = {
            let inner = self.lock();
            if inner.state != State::Accepting {
                return false;
            }
            inner.connector.clone()
        };
        if let Some(connector) = connector
            && connector.process_arrived().is_ok()
            && connector.state() == ConnectorState::Connected
        {
            self.is_completed();
        }
        true
    }

    pub(crate) fn reject(&self, private: &[u8]) -> Result {
        let connector = {
            let mut inner = self.lock();
            if !matches!(inner.state, State::Requested | State::Responded) {
                return Err(Errno::EINVAL);
            }
            inner.state = State::Disconnected;
            if let Some(question) = inner.datagrams.as_mut().and_then(Datagrams::take_question) {
                drop(inner);
                question.reject(private);
                return Ok(());
            }
            inner.connector.take().ok_or(Errno::EINVAL)?
        };
        Ok(connector.reject(private)?)
    }
}

fn lock(accepting: &Mutex<Vec<Weak<Id>>>) -> MutexGuard<'_, Vec<Weak<Id>>> {
    accepting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Say which of the connections that were accepted are established.
fn settle(accepting: &Mutex<Vec<Weak<Id>>>) {
    let ids: Vec<_> = lock(accepting).iter().filter_map(Weak::upgrade).collect();
    for id in ids {
        if !id.settle() {
            lock(accepting).retain(|known| known.as_ptr() != Arc::as_ptr(&id));
        }
    }
    lock(accepting).retain(|known| known.strong_count() > 0);
}

impl Passive for Id {
    fn adapter(&self) -> &raw::Adapter {
        &self.context().adapter
    }

    fn requested(self: &Arc<Id>, connector: raw::Connector) -> bool {
        self.request(connector);
        self.takes_another()
    }
}
