//! The passive side: listeners, Requests, and their answers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use transom_engine::{Status, raw};

use super::{CONNECT_DATA, Event, Id, Parameters, State, alias, padded};
use crate::abi::{cm_event, qps};
use crate::errno::{Errno, Result};
use crate::limits;
use crate::queue_pair::QueuePair;
use crate::requests::{self, Passive};
use crate::resolution::{Datagrams, Question};

impl Id {
    pub(crate) fn listen(self: &Arc<Id>, backlog: usize) -> Result {
        let mut inner = self.lock();
        if inner.state == State::Idle {
            let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
            self.take_port(&mut inner, any)?;
        } else if inner.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        if inner.datagrams.is_some() {
            inner.state = State::Listening;
            return Ok(());
        }
        let port = inner.port.clone().ok_or(Errno::EINVAL)?;
        port.listen(backlog)?;
        inner.state = State::Listening;
        drop(inner);
        requests::serve(&Arc::downgrade(self), &port)
    }

    /// A peer asks.
    fn request(self: &Arc<Id>, connector: raw::Connector) {
        let channel = self.lock().channel.clone();
        let id = Id::new(&self.context, &channel, false);
        let alias = alias::new(&id);
        let private = padded(connector.private_data().unwrap_or_default(), CONNECT_DATA);
        let offered = connector.read_limits().unwrap_or_default();
        let byte = |number: u32| u8::try_from(number.min(limits::READS)).unwrap_or(0);
        let (peer, local) = (connector.peer().ok(), connector.local().ok());
        let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        {
            let mut inner = id.lock();
            inner.state = State::Requested;
            inner.peer = peer.map(canonical);
            inner.local = local.map(canonical);
            inner.alias = alias;
            inner.connector = Some(Arc::new(connector));
            inner.user_context = self.lock().user_context;
        }
        self.push(Event {
            kind: cm_event::CONNECT_REQUEST,
            id,
            listener: Some(self.clone()),
            status: 0,
            private,
            responder_resources: byte(offered.inbound),
            initiator_depth: byte(offered.outbound),
            alias,
            service: None,
            joined: None,
        });
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
        let id = Id::new(&self.context, &channel, true);
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
                return Err(Errno::EINVAL);
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
        }
        let engine = joined.as_ref().map(|joined| &joined.engine);
        let accepted = connector.accept(engine, parameters.limits(), private, sink);
        accepted.inspect_err(|_| self.lock().state = State::Disconnected)?;
        Ok(())
    }

    /// The peer has completed the connection, or has not.
    fn completed(self: &Arc<Id>, status: Status) {
        if status == Status::Success {
            self.established();
            self.raise(cm_event::ESTABLISHED, 0, Vec::new());
            self.watch();
        } else if status != Status::Canceled {
            self.lock().state = State::Disconnected;
            self.raise(cm_event::CONNECT_ERROR, -Errno::from(status).0, Vec::new());
        }
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

impl Passive for Id {
    fn adapter(&self) -> &raw::Adapter {
        &self.context.adapter
    }

    fn requested(self: &Arc<Id>, connector: raw::Connector) {
        self.request(connector);
    }
}
