//! Connections: bind, listen, accept with the condition function, connect (WSD 4).

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use transom_engine::Status;
use transom_engine::raw::{self, Sink};

use crate::abi::{CF_ACCEPT, CF_DEFER, CF_REJECT, FD_ACCEPT, FD_CONNECT};
use crate::connection::{Connection, REFUSAL};
use crate::error::{Error, Result};
use crate::hello::{Hello, Secret};
use crate::provider::lock;
use crate::socket::{Socket, SocketPhase};
use crate::status::connect_error;

/// Requests that wait for one listener's program, at most: the largest sensible backlog, which the provider is to
/// choose for a program that asks for the largest (listen of Windows Sockets, `SOMAXCONN`).
const MOST_WAITING: usize = 1024;

/// The end of a connect, for a thread that waits for it.
#[derive(Default)]
struct Ended(Mutex<Option<Result<()>>>, Condvar);

impl Ended {
    fn tell(&self, result: Result<()>) {
        *lock(&self.0) = Some(result);
        self.1.notify_all();
    }

    fn wait(&self) -> Result<()> {
        let mut result = lock(&self.0);
        loop {
            if let Some(result) = *result {
                return result;
            }
            result = self.1.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Socket {
    /// `WSPBind` (WSD S-4).
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let adapter = self.provider()?.adapter(address.ip())?;
        let mut state = lock(&self.state);
        if !matches!(state.phase, SocketPhase::Created) {
            return Err(Error::WSAEINVAL);
        }
        if state.is_ipv4.is_some_and(|is_ipv4| is_ipv4 != address.is_ipv4()) {
            return Err(Error::WSAEFAULT);
        }
        state.phase = SocketPhase::Bound;
        state.local = Some(address);
        state.adapter = Some(adapter);
        Ok(())
    }

    /// The local address, with the port that was chosen. Ports are those of the applications'
    /// sockets; the TCP ports under them are the provider's own.
    pub(crate) fn local(&self) -> Result<SocketAddr> {
        let state = lock(&self.state);
        if let Some(mapped) = &state.mapped {
            return Ok(mapped.address()?);
        }
        if let Some(local) = state.local.filter(|local| local.port() != 0) {
            return Ok(local);
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
                (SocketPhase::Listening, ..) => {
                    state.backlog = backlog;
                    return Ok(());
                }
                (SocketPhase::Bound, Some(local), Some(adapter)) => {
                    // At any TCP port: the application's is its own socket's.
                    let listener = adapter.listener(SocketAddr::new(local.ip(), 0))?;
                    listener.listen(0)?;
                    state.mapped = Some(adapter.map_port(local, &listener)?);
                    state.phase = SocketPhase::Listening;
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
        let Ok(provider) = self.provider() else { return };
        let socket = Arc::downgrade(self);
        provider.next_request(&adapter, listener, move |connector| {
            let Some(socket) = socket.upgrade() else { return };
            socket.arrived(connector);
            let listener = lock(&socket.state).listener.clone();
            if let Some(listener) = listener {
                socket.next_request(&listener);
            }
        });
    }

    /// WSD L-2: beyond the backlog it is refused at once, without an event.
    fn arrived(self: &Arc<Self>, connector: raw::Connector) {
        let mut state = lock(&self.state);
        let listens =
            matches!(state.phase, SocketPhase::Listening) && greeting(&connector).is_some();
        if !listens || !state.waiting.has_room(state.backlog.min(MOST_WAITING)) {
            drop(state);
            let _ = connector.reject(REFUSAL);
            return;
        }
        let held = state.waiting.take();
        state.requests.push_back((connector, held));
        self.happened(&mut state, FD_ACCEPT);
    }

    /// `WSPAccept`. The condition is asked inside this call, on this thread, before the peer gets
    /// an answer (WSD L-4), and with no lock held. The call does not wait for the peer's last step:
    /// what is sent before that step waits, and without it the connection fails (WSD L-5).
    pub(crate) fn accept(
        self: &Arc<Self>,
        condition: impl FnOnce(SocketAddr, SocketAddr) -> i32,
    ) -> Result<(usize, SocketAddr)> {
        let (adapter, (request, held)) = {
            let mut state = lock(&self.state);
            if !matches!(state.phase, SocketPhase::Listening) {
                return Err(Error::WSAEINVAL);
            }
            let request = state.requests.pop_front().ok_or(Error::WSAEWOULDBLOCK)?;
            (state.adapter.clone().ok_or(Error::WSAEINVAL)?, request)
        };
        let accepted = self.answer(&adapter, request, held, condition);
        // Whatever came of this request, those behind it are the switch's next ones (WSD L-5). One that was put off
        // is first again, and its event is spent (WSD L-7).
        if accepted != Err(Error::WSATRY_AGAIN) {
            self.after_accept();
        }
        accepted
    }

    /// Ask the condition about a request, and do what it says.
    fn answer(
        self: &Arc<Self>,
        adapter: &raw::Adapter,
        request: raw::Connector,
        held: raw::HeldDescriptor,
        condition: impl FnOnce(SocketAddr, SocketAddr) -> i32,
    ) -> Result<(usize, SocketAddr)> {
        let provider = self.provider()?;
        let peer = request.peer().map_err(|_| Error::WSAECONNRESET)?;
        let hello = greeting(&request).ok_or(Error::WSAECONNRESET)?;
        let port = if hello.port == 0 { peer.port() } else { hello.port };
        let peer = SocketAddr::new(peer.ip(), port);
        let local = request.local().map_err(|_| Error::WSAECONNRESET)?;
        let local = SocketAddr::new(local.ip(), self.local()?.port());
        match condition(peer, local) {
            CF_ACCEPT => {}
            CF_DEFER => {
                lock(&self.state).requests.push_front((request, held));
                return Err(Error::WSATRY_AGAIN); // WSD L-7
            }
            answer => {
                let _ = request.reject(REFUSAL);
                let refuses = answer == CF_REJECT;
                return Err(if refuses { Error::WSAECONNREFUSED } else { Error::WSAEINVAL }); // WSD L-6
            }
        }
        let socket = Socket::new(&provider)?;
        let accepted = (|| {
            let channel = Connection::new(adapter, request, provider.hello(adapter, 0, None)?)?;
            channel.greeted(hello);
            {
                let mut state = lock(&socket.state);
                state.adapter = Some(adapter.clone());
                state.local = Some(local);
                state.phase = SocketPhase::Connecting;
                state.channel = Some(Arc::clone(&channel));
            }
            let (weak, ended) = (Arc::downgrade(&socket), Arc::downgrade(&channel));
            let upcalls = provider.upcalls.clone();
            channel.accept(Sink::call(move |status| {
                upcalls.queue(move || {
                    let (Some(socket), Some(channel)) = (weak.upgrade(), ended.upgrade()) else {
                        return;
                    };
                    match status {
                        Status::Success => socket.watch_end(&channel),
                        _ => socket.lost(&channel),
                    }
                });
            }))?;
            socket.established(&channel)
        })();
        match accepted {
            Ok(()) => {
                provider.add(&socket);
                Ok((socket.number, peer))
            }
            Err(error) => {
                let parts = lock(&socket.state).retire(SocketPhase::Closed);
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
        let (channel, from, later) = {
            let mut state = lock(&self.state);
            if !matches!(state.phase, SocketPhase::Created | SocketPhase::Bound) {
                return Err(Error::WSAEINVAL); // WSD C-6
            }
            if state.is_ipv4.is_some_and(|is_ipv4| is_ipv4 != peer.is_ipv4()) {
                return Err(Error::WSAEAFNOSUPPORT);
            }
            if peer.ip().is_unspecified() || peer.port() == 0 {
                return Err(Error::WSAEADDRNOTAVAIL);
            }
            let adapter = match &state.adapter {
                Some(adapter) => adapter.clone(),
                None => {
                    let from =
                        raw::Adapter::route_to(peer).map_err(|e| connect_error(e.status, false))?;
                    provider.adapter(from)?
                }
            };
            let port = state.local.map_or(0, |local| local.port());
            let own = provider.hello(&adapter, port, None)?;
            let channel = Connection::new(&adapter, adapter.connector()?, own)?;
            let from = SocketAddr::new(adapter.address(), 0);
            state.adapter = Some(adapter);
            state.channel = Some(Arc::clone(&channel));
            state.phase = SocketPhase::Connecting;
            let later = state.select.is_some_and(|(_, mask)| mask & FD_CONNECT != 0);
            (channel, from, later)
        };
        if !later {
            let ended = Arc::new(Ended::default());
            let tell = Arc::clone(&ended);
            channel.find(from, peer, move |result| tell.tell(result));
            return self.connected(&channel, ended.wait());
        }
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(&channel));
        channel.find(from, peer, move |result| {
            provider.upcalls.queue(move || {
                let (Some(socket), Some(channel)) = (socket.upgrade(), weak.upgrade()) else {
                    return;
                };
                let result = socket.connected(&channel, result);
                let mut state = lock(&socket.state);
                state.connect_error = result.err();
                socket.happened(&mut state, FD_CONNECT);
            });
        });
        Err(Error::WSAEWOULDBLOCK)
    }

    /// Take a connection over that another process had (WSD 12.1 step 8), from where the peer takes
    /// it.
    pub(crate) fn carry_on(
        self: &Arc<Self>,
        local: SocketAddr,
        peer: SocketAddr,
        continues: Secret,
    ) -> Result<()> {
        let provider = self.provider()?;
        let adapter = provider.adapter(local.ip())?;
        let own = provider.hello(&adapter, local.port(), Some(continues))?;
        let channel = Connection::new(&adapter, adapter.connector()?, own)?;
        {
            let mut state = lock(&self.state);
            state.adapter = Some(adapter);
            state.local = Some(local);
            state.channel = Some(Arc::clone(&channel));
            state.phase = SocketPhase::Connecting;
        }
        let ended = Arc::new(Ended::default());
        let tell = Arc::clone(&ended);
        channel.connect(SocketAddr::new(local.ip(), 0), peer, move |result| tell.tell(result));
        // Whatever keeps the peer from it: the connection that there was is over.
        let over = |_| Error::WSAECONNRESET;
        self.connected(&channel, ended.wait()).map_err(over)?;
        Socket::channel(&lock(&self.state)).map(drop).map_err(over)
    }

    /// The peer has answered, or cannot be reached. Once its program has accepted, the connect has
    /// succeeded: what the last step meets is the end of a connection that there was, and TCP is not
    /// tried again (WSD S-7).
    fn connected(self: &Arc<Self>, channel: &Arc<Connection>, result: Result<()>) -> Result<()> {
        let accepted = result.and_then(|()| channel.accepted());
        let up = match accepted {
            Ok(true) => channel.complete().and_then(|()| self.established(channel)),
            Ok(false) => Err(Error::WSAECONNRESET),
            Err(error) => {
                let mut state = lock(&self.state);
                if matches!(state.phase, SocketPhase::Closed) {
                    return Err(Error::WSA_OPERATION_ABORTED); // closed meanwhile (WSD X-7)
                }
                self.fail(&mut state, error);
                return Err(error);
            }
        };
        match up {
            Ok(()) => self.watch_end(channel),
            Err(_) if matches!(lock(&self.state).phase, SocketPhase::Closed) => {
                return Err(Error::WSA_OPERATION_ABORTED);
            }
            Err(_) => self.lost(channel),
        }
        Ok(())
    }

    /// The connection can be used.
    fn established(self: &Arc<Self>, channel: &Arc<Connection>) -> Result<()> {
        channel.name()?;
        let provider = self.provider()?;
        {
            let mut state = lock(&self.state);
            if !matches!(state.phase, SocketPhase::Connecting) {
                return Err(Error::WSA_OPERATION_ABORTED); // closed meanwhile (WSD X-7)
            }
            state.phase = SocketPhase::Connected;
            provider.remember(channel, self);
        }
        self.changed.notify_all();
        self.watch(channel);
        Ok(())
    }

    /// Have the end of the connection noticed.
    pub(crate) fn watch_end(self: &Arc<Self>, channel: &Arc<Connection>) {
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(channel));
        let gone = Sink::call(move |_| {
            let (Some(socket), Some(channel)) = (socket.upgrade(), weak.upgrade()) else { return };
            let Ok(provider) = socket.provider() else { return };
            provider.upcalls.queue(move || socket.lost(&channel));
        });
        if channel.connector.notify_disconnect(gone).is_err() {
            self.lost(channel);
        }
    }

    /// A connection has ended. Where another process of the peer's is about to take it, that is not
    /// its end for the switch (WSD D-4, D-5).
    fn lost(self: &Arc<Self>, channel: &Arc<Connection>) {
        self.drain(channel);
        {
            let mut state = lock(&self.state);
            if !state.channel.as_ref().is_some_and(|current| Arc::ptr_eq(current, channel)) {
                return;
            }
            if state.successor.is_some() {
                state.awaits_successor = true;
                return;
            }
            self.fail(&mut state, Error::WSAECONNRESET);
        }
        self.abort_rest(Error::WSAECONNRESET);
    }

    /// A request to take this connection over comes from another process of the peer's. `false`: it
    /// is not taken.
    pub(crate) fn request_to_continue(
        self: &Arc<Self>,
        request: &raw::Connector,
        hello: Hello,
    ) -> bool {
        let Ok(provider) = self.provider() else { return false };
        let mut state = lock(&self.state);
        let (SocketPhase::Connected, Some(old), Some(adapter), None) =
            (&state.phase, &state.channel, &state.adapter, &state.successor)
        else {
            return false;
        };
        let same_host = match (old.connector.peer(), request.peer()) {
            (Ok(old), Ok(new)) => old.ip() == new.ip(),
            _ => false,
        };
        // The switches have seen to it that only receives are under way (WSD 12.1 step 4).
        if !same_host || state.posted.values().any(|posted| posted.receive.is_none()) {
            return false;
        }
        let successor = provider
            .hello(adapter, 0, None)
            .and_then(|own| Connection::new(adapter, request.clone(), own));
        let Ok(successor) = successor else { return false };
        successor.greeted(hello);
        state.successor = Some(Arc::clone(&successor));
        drop(state);
        let (socket, weak) = (Arc::downgrade(self), Arc::downgrade(&successor));
        let accepted = successor.accept(Sink::call(move |status| {
            provider.upcalls.queue(move || {
                if let (Some(socket), Some(successor)) = (socket.upgrade(), weak.upgrade()) {
                    socket.succeeded(&successor, status.is_success());
                }
            });
        }));
        if accepted.is_err() {
            self.succeeded(&successor, false);
        }
        true
    }

    /// The other process has taken the last step, or has failed.
    fn succeeded(self: &Arc<Self>, successor: &Arc<Connection>, up: bool) {
        let old = {
            let state = lock(&self.state);
            if !state.successor.as_ref().is_some_and(|own| Arc::ptr_eq(own, successor)) {
                return; // closed meanwhile
            }
            state.channel.clone()
        };
        let (Some(old), Ok(provider)) = (old, self.provider()) else { return };
        let up = up && successor.name().is_ok();
        if up {
            // Messages that had arrived complete; the receives that are flushed stay.
            provider.forget(&old);
            old.end();
            self.drain(&old);
        }
        let again = {
            let mut state = lock(&self.state);
            state.successor = None;
            (up && matches!(state.phase, SocketPhase::Connected)).then(|| {
                state.channel = Some(Arc::clone(successor));
                state.awaits_successor = false;
                state.registrations.move_to(successor);
                provider.remember(successor, self);
                self.post_again(&mut state, successor)
            })
        };
        let Some(failed) = again else {
            successor.end();
            if lock(&self.state).awaits_successor {
                self.lost(&old);
            }
            return;
        };
        for posted in failed {
            self.signal(&posted, Some(Error::WSAEFAULT), 0);
        }
        self.watch(successor);
        self.watch_end(successor);
    }
}

/// A provider's greeting with a request.
fn greeting(request: &raw::Connector) -> Option<Hello> {
    let said = request.private_data().ok()?;
    Hello::read(&said)
}
