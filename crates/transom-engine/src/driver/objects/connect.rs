//! Connecting: a link, the question, and once more if the peer does not know its form.

use std::net::SocketAddr;
use std::sync::Arc;

use transom_iwarp::Revision;
use transom_wire::{ReadLimits, Role};

use super::connector::{Attempt, Connector, Inner, Outcome, new_connection};
use super::qp::Qp;
use crate::driver::config::options::status_of;
use crate::driver::config::path::PathReason;
use crate::driver::limits::admission::Starting;
use crate::driver::link::Link;
use crate::driver::link::carrier::{ConnectRequest, Stage};
use crate::driver::link::notifications::{Notifications, Sink};
use crate::driver::link::work::Work;
use crate::sys::{self, IoError, Stream};
use crate::tables::ConnectorState;
use crate::{Effects, End, EndReason, Execution, QueuePairState, Status};

/// The form of start-up to begin with.
pub(crate) const NEWEST: Revision = Revision::Two;

impl Connector {
    /// Begin to connect to `peer`; `None`: to this side itself. `sink` gets the answer, or the
    /// reason why there is none.
    pub(crate) fn connect(
        self: &Arc<Connector>,
        qp: Option<&Arc<Qp>>,
        peer: Option<SocketAddr>,
        asked: ReadLimits,
        private: &[u8],
        sink: Sink,
    ) -> Outcome<()> {
        // With no lock held yet.
        if let Some(pause) = self.shared.unanswered.pause() {
            sys::pause(pause);
        }
        let mut notifications = Notifications::default();
        let mut inner = self.lock();
        if let Some(old) = inner.link.clone() {
            self.read(&mut inner, &old, &mut notifications);
        }
        let waiter = self.keep(sink);
        let mut front = qp.map(|qp| qp.front());
        let pair = front.as_mut().map(|front| &mut front.pair);
        let begun = inner.machine.connect(pair, waiter, asked, private.len());
        drop(front);
        let (execution, limits) = match begun {
            Ok(begun) => begun,
            Err(status) => {
                self.forget(waiter);
                // The events read above belong to callers all the same.
                drop(inner);
                notifications.fire();
                self.connect_again();
                return Err(status);
            }
        };
        inner.ended = None;
        inner.peer = peer.or(inner.local);
        let attempt = Attempt {
            qp: qp.map(Arc::downgrade),
            asked: limits,
            private: private.into(),
            itself: peer.is_none(),
            again: false,
        };
        let link = self.dial(&mut inner, qp, execution, &attempt, NEWEST, &mut notifications);
        match link {
            Ok(_) => inner.attempt = Some(Box::new(attempt)),
            Err(status) => self.not_connected(&mut inner, status, &mut notifications),
        }
        drop(inner);
        notifications.fire();
        if let Ok(link) = link {
            self.begun(&link);
        }
        Ok(())
    }

    /// Make a link and ask the peer. After an error the queue pair is as it was before.
    fn dial(
        self: &Arc<Connector>,
        inner: &mut Inner,
        qp: Option<&Arc<Qp>>,
        execution: Option<Execution>,
        attempt: &Attempt,
        revision: Revision,
        notifications: &mut Notifications,
    ) -> Outcome<Arc<Link>> {
        let Some(peer) = inner.peer else { return Err(Status::InvalidState) };
        let sockets = self.shared.options.sockets();
        let connect = || Stream::connect(inner.local, peer, &sockets).map(|stream| (stream, peer));
        let stream = match &inner.port {
            _ if attempt.itself => Stream::to_itself(peer, &sockets),
            None => connect(),
            // Given back meanwhile: it may be another's by now.
            Some(port) => match port.upgrade() {
                Some(port) => port.lend(connect),
                None => Err(IoError::InUse),
            },
        };
        let (stream, peer) = match stream {
            Ok(stream) => stream,
            Err(e) => {
                if let (Some(qp), Some(execution)) = (qp, execution) {
                    qp.front().pair.detach(execution);
                }
                return Err(status_of(e));
            }
        };
        let key = self.shared.new_key();
        let role = if attempt.itself { Role::Itself } else { Role::Active };
        let connection = new_connection(&self.shared, key, role, revision);
        let owner = Arc::downgrade(self);
        let older = revision != NEWEST;
        let tcp_only = if attempt.itself {
            Some(PathReason::NotAsked)
        } else {
            self.shared.options.tcp_only()
        };
        let (stage, reason) = match tcp_only.or(older.then_some(PathReason::OlderPeer)) {
            Some(reason) => (None, reason),
            None => {
                let (limits, private) = (attempt.asked, attempt.private.clone());
                (
                    Some(Stage::Look(Box::new(ConnectRequest { limits, private }))),
                    PathReason::NoUpgradeListener,
                )
            }
        };
        let starting = (Starting::Asking(self.shared.unanswered.one()), stage, reason);
        let link = Link::new(&self.shared, key, (stream, peer), connection, owner, starting);
        (inner.link, inner.peer) = (Some(link.clone()), Some(peer));
        inner.qp = qp.map(Arc::downgrade).unwrap_or_default();
        // The link is published last: the peer may be gone already, and a thread that saw that
        // first would end a connection that has not been asked for.
        let front_word = inner.front_word;
        let (result, _) = link.control(notifications, |state, cx| {
            if let Some(qp) = qp {
                state.attach(qp.clone());
            }
            if let Some(word) = front_word {
                state.connection.set_front_word(word);
            }
            let result = state.connection.connect(cx, execution, attempt.asked, &attempt.private);
            if result.is_err() {
                state.connection.give_up(cx);
            }
            result
        });
        result.unwrap_or(Err(Status::InternalError))?;
        if let Some(qp) = qp {
            qp.attach(qp.front(), &link);
        }
        if link.register(false).is_err() {
            let _ = link.control(notifications, |state, cx| state.connection.give_up(cx));
            return Err(Status::InsufficientResources);
        }
        Ok(link)
    }

    fn not_connected(&self, inner: &mut Inner, status: Status, notifications: &mut Notifications) {
        let mut effects = Effects::default();
        inner.link = None;
        inner.ended = Some(End { reason: EndReason::Link(status), denial: 0 });
        inner.machine.link_failed(status, &mut effects);
        self.carry_out(&mut effects, notifications);
    }

    /// The peer ended the link instead of answering: ask once more, as older peers expect it
    /// (iW 2.4). The program knows nothing of it. No lock may be held.
    pub(crate) fn connect_again(self: &Arc<Connector>) {
        let mut notifications = Notifications::default();
        let mut inner = self.lock();
        let Some(attempt) = inner.attempt.take_if(|attempt| attempt.again) else { return };
        if inner.machine.state() != ConnectorState::Connecting {
            return; // given up meanwhile
        }
        let attached = match &attempt.qp {
            None => Some((None, None)),
            Some(qp) => qp.upgrade().and_then(|qp| {
                let execution = qp.front().pair.attach(QueuePairState::Connecting).ok()?;
                Some((Some(qp), Some(execution)))
            }),
        };
        let link = attached.and_then(|(qp, execution)| {
            let (inner, notifications) = (&mut inner, &mut notifications);
            let qp = qp.as_ref();
            self.dial(inner, qp, execution, &attempt, Revision::One, notifications).ok()
        });
        if link.is_none() {
            self.not_connected(&mut inner, Status::ConnectionRefused, &mut notifications);
        }
        drop(inner);
        notifications.fire();
        if let Some(link) = link {
            self.begun(&link);
        }
    }

    /// A link has been made. No lock is held.
    fn begun(&self, link: &Link) {
        link.drive(Work::REST);
        link.deliver();
        // Either this is seen here, or the link by the thread that removes the adapter.
        if self.shared.is_removed() {
            link.fail(EndReason::Link(Status::DeviceRemoved));
        }
    }
}
