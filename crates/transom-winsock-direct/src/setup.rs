//! Connections: bind, listen, accept with the condition function, connect (WSD 4).

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use transom_engine::Status;
use transom_engine::raw::{self, Sink};

use crate::abi::{CF_ACCEPT, CF_DEFER, FD_ACCEPT, FD_CONNECT};
use crate::connection::{Connection, REFUSAL};
use crate::error::{Error, Result};
use crate::provider::lock;
use crate::socket::{Phase, Socket};
use crate::status::connect_error;

/// How long accept waits for the last step of a peer that has asked to connect.
const LAST_STEP: Duration = Duration::from_secs(10);

/// The end of one engine call, for a thread that waits for it.
#[derive(Default)]
struct Ended(Mutex<Option<Status>>, Condvar);

impl Ended {
    fn sink(self: &Arc<Self>) -> Sink {
        let ended = Arc::clone(self);
        Sink::call(move |status| {
            *lock(&ended.0) = Some(status);
            ended.1.notify_all();
        })
    }

    fn wait(&self, limit: Option<Duration>) -> Option<Status> {
        let mut status = lock(&self.0);
        while status.is_none() {
            status = match limit {
                None => self.1.wait(status).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = self.1.wait_timeout(status, limit);
                    let (status, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return *status;
                    }
                    status
                }
            };
        }
        *status
    }
}

impl Socket {
    /// `WSPBind` (WSD S-4).
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let adapter = self.provider()?.adapter(address.ip())?;
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Created) {
            return Err(Error::WSAEINVAL);
        }
        state.phase = Phase::Bound;
        state.local = Some(address);
        state.adapter = Some(adapter);
        Ok(())
    }

    /// The local address, with the port that was chosen.
    pub(crate) fn local(&self) -> Result<SocketAddr> {
        let state = lock(&self.state);
        if let Some(listener) = &state.listener {
            return Ok(listener.address()?);
        }
        if let Some(channel) = &state.channel {
            return Ok(channel.connector.local()?);
        }
        state.local.ok_or(Error::WSAEINVAL)
    }

    /// `WSPListen`; again: another backlog (WSD L-9).
    pub(crate) fn listen(self: &Arc<Self>, backlog: usize) -> Result<()> {
        let listener = {
            let mut state = lock(&self.state);
            match (&state.phase, state.local, &state.adapter) {
                (Phase::Listening, ..) => {
                    state.backlog = backlog;
                    return Ok(());
                }
                (Phase::Bound, Some(local), Some(adapter)) => {
                    let listener = adapter.listener(local)?;
                    listener.listen(0)?;
                    state.phase = Phase::Listening;
                    state.backlog = backlog;
                    state.listener = Some(listener.clone());
                    listener
                }
                _ => return Err(Error::WSAEINVAL),
            }
        };
        self.next_request(&listener);
        Ok(())
    }

    fn next_request(self: &Arc<Self>, listener: &raw::Listener) {
        let Some(adapter) = lock(&self.state).adapter.clone() else { return };
        let Ok(connector) = adapter.connector() else { return };
        let (socket, taken) = (Arc::downgrade(self), connector.clone());
        let sink = Sink::call(move |status| {
            let Some(socket) = socket.upgrade().filter(|_| status.is_success()) else { return };
            let Ok(provider) = socket.provider() else { return };
            provider.upcalls.queue(move || {
                socket.arrived(taken);
                let listener = lock(&socket.state).listener.clone();
                if let Some(listener) = listener {
                    socket.next_request(&listener);
                }
            });
        });
        let _ = listener.get_request(&connector, sink);
    }

    /// WSD L-2: beyond the backlog it is refused at once, without an event.
    fn arrived(self: &Arc<Self>, connector: raw::Connector) {
        let mut state = lock(&self.state);
        let listens = matches!(state.phase, Phase::Listening);
        if !listens || state.requests.len() >= state.backlog.max(1) {
            drop(state);
            let _ = connector.reject(REFUSAL);
            return;
        }
        state.requests.push_back(connector);
        self.happened(&mut state, FD_ACCEPT);
    }

    /// `WSPAccept`. The condition is asked inside this call, on this thread, before the peer gets
    /// an answer (WSD L-4), and with no lock held.
    pub(crate) fn accept(
        self: &Arc<Self>,
        condition: impl FnOnce(SocketAddr) -> i32,
    ) -> Result<(usize, SocketAddr)> {
        let provider = self.provider()?;
        let (adapter, request) = {
            let mut state = lock(&self.state);
            if !matches!(state.phase, Phase::Listening) {
                return Err(Error::WSAEINVAL);
            }
            let request = state.requests.pop_front().ok_or(Error::WSAEWOULDBLOCK)?;
            (state.adapter.clone().ok_or(Error::WSAEINVAL)?, request)
        };
        let peer = request.peer().map_err(|_| Error::WSAECONNRESET)?;
        match condition(peer) {
            CF_ACCEPT => {}
            CF_DEFER => {
                lock(&self.state).requests.push_front(request);
                return Err(Error::WSATRY_AGAIN); // WSD L-7
            }
            _ => {
                let _ = request.reject(REFUSAL);
                self.after_accept();
                return Err(Error::WSAECONNREFUSED); // WSD L-6
            }
        }
        let socket = Socket::new(&provider)?;
        let accepted = (|| {
            let channel = Connection::new(&adapter, request)?;
            {
                let mut state = lock(&socket.state);
                state.adapter = Some(adapter);
                state.phase = Phase::Connecting;
                state.channel = Some(Arc::clone(&channel));
            }
            let ended = Arc::new(Ended::default());
            channel.accept(ended.sink())?;
            match ended.wait(Some(LAST_STEP)) {
                Some(Status::Success) => socket.established(&channel),
                Some(_) => Err(Error::WSAECONNRESET),
                None => Err(Error::WSAETIMEDOUT),
            }
        })();
        self.after_accept();
        match accepted {
            Ok(()) => {
                provider.add(&socket);
                Ok((socket.number, peer))
            }
            Err(error) => {
                let parts = lock(&socket.state).retire(Phase::Closed);
                socket.close(parts);
                Err(error)
            }
        }
    }

    /// WSD L-5: the event is reset before accept returns, and set again if more requests wait.
    fn after_accept(self: &Arc<Self>) {
        let Ok(provider) = self.provider() else { return };
        let mut state = lock(&self.state);
        state.happened &= !FD_ACCEPT;
        let waiting = !state.requests.is_empty();
        let event = state.select.filter(|(_, mask)| mask & FD_ACCEPT != 0);
        drop(state);
        if let Some((event, _)) = event {
            provider.switch.reset_event(event);
        }
        if waiting {
            self.happened(&mut lock(&self.state), FD_ACCEPT);
        }
    }

    /// `WSPConnect`. With FD_CONNECT selected it does not wait (WSD C-2, C-3).
    pub(crate) fn connect(self: &Arc<Self>, peer: SocketAddr) -> Result<()> {
        let provider = self.provider()?;
        let (channel, local, later) = {
            let mut state = lock(&self.state);
            if !matches!(state.phase, Phase::Created | Phase::Bound) {
                return Err(Error::WSAEINVAL); // WSD C-6
            }
            let adapter = match &state.adapter {
                Some(adapter) => adapter.clone(),
                None => {
                    let from =
                        raw::Adapter::route_to(peer).map_err(|e| connect_error(e.status, false))?;
                    provider.adapter(from)?
                }
            };
            let connector = adapter.connector()?;
            let channel = Connection::new(&adapter, connector)?;
            state.adapter = Some(adapter);
            state.channel = Some(Arc::clone(&channel));
            state.phase = Phase::Connecting;
            let later = state.select.is_some_and(|(_, mask)| mask & FD_CONNECT != 0);
            (channel, state.local, later)
        };
        if !later {
            let ended = Arc::new(Ended::default());
            let begun = channel.connect(local, peer, ended.sink());
            let status = begun.map(|()| ended.wait(None).unwrap_or(Status::IoTimeout));
            return self.connected(&channel, status);
        }
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(&channel));
        let sink = Sink::call(move |status| {
            let (Some(socket), Some(channel)) = (socket.upgrade(), weak.upgrade()) else { return };
            provider.upcalls.queue(move || {
                let result = socket.connected(&channel, Ok(status));
                let mut state = lock(&socket.state);
                state.connect_error = result.err();
                socket.happened(&mut state, FD_CONNECT);
            });
        });
        match channel.connect(local, peer, sink) {
            Ok(()) => Err(Error::WSAEWOULDBLOCK),
            Err(error) => self.connected(&channel, Err(error)),
        }
    }

    /// The peer has answered, or cannot be reached.
    fn connected(
        self: &Arc<Self>,
        channel: &Arc<Connection>,
        status: Result<Status>,
    ) -> Result<()> {
        let result = status.and_then(|status| match status {
            Status::Success => Ok(channel.connector.complete_connect()?),
            status => Err(connect_error(status, channel.connector.private_data().is_ok())),
        });
        let result = result.and_then(|()| self.established(channel));
        if let Err(error) = result {
            self.fail(&mut lock(&self.state), error);
        }
        result
    }

    /// The connection is up.
    fn established(self: &Arc<Self>, channel: &Arc<Connection>) -> Result<()> {
        channel.name()?;
        {
            let mut state = lock(&self.state);
            if !matches!(state.phase, Phase::Connecting) {
                return Err(Error::WSA_OPERATION_ABORTED); // closed meanwhile (WSD X-7)
            }
            state.phase = Phase::Connected;
        }
        self.changed.notify_all();
        self.watch(channel);
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(channel));
        let gone = Sink::call(move |_| {
            let (Some(socket), Some(channel)) = (socket.upgrade(), weak.upgrade()) else { return };
            let Ok(provider) = socket.provider() else { return };
            provider.upcalls.queue(move || {
                socket.drain(&channel);
                socket.fail(&mut lock(&socket.state), Error::WSAECONNRESET);
                socket.abort_rest(Error::WSAECONNRESET);
            });
        });
        if channel.connector.notify_disconnect(gone).is_err() {
            self.fail(&mut lock(&self.state), Error::WSAECONNRESET);
        }
        Ok(())
    }
}
