//! The provider: its sockets by number, one adapter per local address, and the options.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use transom_engine::raw::Sink;
use transom_engine::{dialect, raw};

use crate::abi::{
    SO_DEBUG, SO_MAX_MSG_SIZE, SO_MAX_RDMA_SIZE, SO_RDMA_THRESHOLD_SIZE, SOL_SOCKET,
    WSA_FLAG_OVERLAPPED,
};
use crate::connection::{Connection, REFUSAL};
use crate::error::{Error, Result};
use crate::extension::Offers;
use crate::hello::{Hello, Secret};
use crate::memory::Registration;
use crate::socket::{Socket, SocketPhase};
use crate::switch::{Switch, Upcalls};
use crate::{RDMA_THRESHOLD, SIZE_LIMIT};

/// Choices at start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The optional functions.
    pub offers: Offers,
}

/// Open the adapter of a local address.
pub(crate) fn open(address: IpAddr) -> Result<raw::Adapter> {
    let options = raw::Options {
        dialect: &dialect::WSD,
        largest_transfer: u64::from(SIZE_LIMIT),
        explain_calls: raw::Environment::read().explain,
        ..raw::Options::from_env()
    };
    Ok(raw::Adapter::open(address, options)?)
}

/// Lock without giving up on poison: the state is consistent at every unlock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of sockets and handles. None is used again, also by a provider that is started later in
/// this process, so what was closed is never taken for another one (WSD D-3).
static NUMBERS: AtomicUsize = AtomicUsize::new(0x5a0);

/// A number that no socket and no handle of this process has had.
pub(crate) fn fresh_number() -> usize {
    NUMBERS.fetch_add(4, Ordering::Relaxed)
}

/// A SAN service provider.
pub struct Provider {
    pub(crate) switch: Arc<dyn Switch>,
    pub(crate) upcalls: Upcalls,
    offers: Mutex<Offers>,
    sockets: Mutex<HashMap<usize, Arc<Socket>>>,
    adapters: Mutex<HashMap<IpAddr, Home>>,
    /// Connections by their names, for a peer's other process that takes one (WSD D-4).
    connections: Mutex<HashMap<Secret, Weak<Socket>>>,
    down: AtomicBool,
}

/// An adapter, and where it takes connections that move to other processes of their peers'.
struct Home {
    adapter: raw::Adapter,
    takes: Option<raw::Listener>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("offers", &self.offers()).finish_non_exhaustive()
    }
}

impl Provider {
    /// A provider that makes its upcalls to `switch`.
    ///
    /// # Errors
    /// `WSASYSNOTREADY` if there is no thread for the upcalls.
    pub fn start(switch: Arc<dyn Switch>, options: Options) -> Result<Arc<Provider>> {
        let upcalls = Upcalls::start().map_err(|_| Error::WSASYSNOTREADY)?;
        Ok(Arc::new(Provider {
            switch,
            upcalls,
            offers: Mutex::new(options.offers),
            sockets: Mutex::default(),
            adapters: Mutex::default(),
            connections: Mutex::default(),
            down: AtomicBool::new(false),
        }))
    }

    /// The optional functions that there are.
    #[must_use]
    pub fn offers(&self) -> Offers {
        *lock(&self.offers)
    }

    /// Offer other optional functions than at start. A switch that asks for a function next finds
    /// these; one that a switch has found already fails if it is offered no more.
    pub fn offer(&self, offers: Offers) {
        *lock(&self.offers) = offers;
    }

    /// The newest refusal that an operation on a socket met, or that a peer of its adapter met here,
    /// as sentences; with none, `None`.
    ///
    /// # Errors
    /// `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn explain(&self, number: usize) -> Result<Option<String>> {
        Ok(self.socket(number)?.explain())
    }

    /// Give a registration of a socket a name, for messages and for `transom show`
    /// (`SIO_TRANSOM_NAME`).
    ///
    /// # Errors
    /// `WSAEINVAL`: the socket has no such registration. `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn name(&self, number: usize, registration: Registration, name: &str) -> Result<()> {
        self.socket(number)?.name(registration, name)
    }

    pub(crate) fn adapter(&self, address: IpAddr) -> Result<raw::Adapter> {
        match lock(&self.adapters).entry(address) {
            Entry::Occupied(entry) => Ok(entry.get().adapter.clone()),
            Entry::Vacant(entry) => {
                let home = Home { adapter: open(address)?, takes: None };
                Ok(entry.insert(home).adapter.clone())
            }
        }
    }

    /// The next request that a listener takes, on the thread of the upcalls.
    pub(crate) fn next_request(
        self: &Arc<Self>,
        adapter: &raw::Adapter,
        listener: &raw::Listener,
        then: impl FnOnce(raw::Connector) + Send + 'static,
    ) {
        let Ok(connector) = adapter.connector() else { return };
        let (taken, upcalls) = (connector.clone(), self.upcalls.clone());
        let sink = Sink::call(move |status| {
            if status.is_success() {
                upcalls.queue(move || then(taken));
            }
        });
        let _ = listener.get_request(&connector, sink);
    }

    /// The greeting for a new connection of this adapter.
    pub(crate) fn hello(
        self: &Arc<Self>,
        adapter: &raw::Adapter,
        port: u16,
        continues: Option<Secret>,
    ) -> Result<Hello> {
        let seed = raw::random_seed().map_err(|_| Error::WSAENOBUFS)?;
        let secret = *seed.first_chunk().ok_or(Error::WSAENOBUFS)?;
        // Without a port for it, the connection stays with the peer's process.
        let takes_at = self.takes_at(adapter).unwrap_or(0);
        Ok(Hello { port, takes_at, secret, continues })
    }

    /// Where an adapter takes connections that move.
    fn takes_at(self: &Arc<Self>, adapter: &raw::Adapter) -> Result<u16> {
        let mut adapters = lock(&self.adapters);
        let home = adapters.get_mut(&adapter.address()).ok_or(Error::WSAENETDOWN)?;
        if let Some(listener) = &home.takes {
            return Ok(listener.address()?.port());
        }
        let listener = adapter.listener(SocketAddr::new(adapter.address(), 0))?;
        listener.listen(0)?;
        home.takes = Some(listener.clone());
        drop(adapters);
        let port = listener.address()?.port();
        self.take_moved(adapter.clone(), listener);
        Ok(port)
    }

    /// Take the connections that come from other processes of their peers'.
    fn take_moved(self: &Arc<Self>, adapter: raw::Adapter, listener: raw::Listener) {
        let weak = Arc::downgrade(self);
        let (of, at) = (adapter.clone(), listener.clone());
        self.next_request(&of, &at, move |request| {
            let Some(provider) = weak.upgrade() else { return };
            let said = request.private_data().ok().and_then(|said| Hello::read(&said));
            let taken = said.is_some_and(|hello| {
                let secret = hello.continues;
                let socket = secret.and_then(|secret| provider.named(&secret));
                socket.is_some_and(|socket| socket.request_to_continue(&request, hello))
            });
            if !taken {
                let _ = request.reject(REFUSAL);
            }
            provider.take_moved(adapter, listener);
        });
    }

    pub(crate) fn named(&self, secret: &Secret) -> Option<Arc<Socket>> {
        lock(&self.connections).get(secret).and_then(Weak::upgrade)
    }

    /// A socket has this connection.
    pub(crate) fn remember(&self, connection: &Connection, socket: &Arc<Socket>) {
        lock(&self.connections).insert(connection.own.secret, Arc::downgrade(socket));
    }

    /// A connection is over.
    pub(crate) fn forget(&self, connection: &Connection) {
        lock(&self.connections).remove(&connection.own.secret);
    }

    pub(crate) fn add(&self, socket: &Arc<Socket>) {
        lock(&self.sockets).insert(socket.number, Arc::clone(socket));
    }

    /// The socket of a descriptor; WSAENOTSOCK once it was closed (WSD ).
    pub(crate) fn socket(&self, number: usize) -> Result<Arc<Socket>> {
        if self.down.load(Ordering::Acquire) {
            return Err(Error::WSAENETDOWN);
        }
        lock(&self.sockets).get(&number).cloned().ok_or(Error::WSAENOTSOCK)
    }

    /// `WSPSocket`. `token` is `dwProviderReserved`: 0, or what [`Provider::duplicate`] returned in
    /// the process whose socket is continued here (WSD 12.1 step 8).
    ///
    /// # Errors
    /// `WSAEAFNOSUPPORT`, `WSAEPROTOTYPE`, `WSAEPROTONOSUPPORT` for another kind of socket;
    /// `WSAEINVAL` for other flags, and for a token that names no socket for this process;
    /// `WSAECONNRESET` if the connection to be continued is over, `WSAEADDRINUSE` if another
    /// listener has its port; `WSAENETDOWN`; the switch's error if it gives no handle.
    pub fn open_socket(
        self: &Arc<Self>,
        (family, kind, protocol): (i32, i32, i32),
        token: u32,
        flags: u32,
    ) -> Result<usize> {
        const FAMILIES: [i32; 3] = [2, 10, 23]; // AF_INET; AF_INET6 of Linux and of Windows
        if self.down.load(Ordering::Acquire) {
            return Err(Error::WSAENETDOWN);
        }
        match (FAMILIES.contains(&family), kind, protocol) {
            (false, ..) => return Err(Error::WSAEAFNOSUPPORT),
            (_, kind, _) if kind != 1 => return Err(Error::WSAEPROTOTYPE),
            (_, _, 0 | 6) => {}
            _ => return Err(Error::WSAEPROTONOSUPPORT),
        }
        if flags & !WSA_FLAG_OVERLAPPED != 0 {
            return Err(Error::WSAEINVAL);
        }
        let socket = match token {
            0 => {
                let socket = Socket::new(self)?;
                lock(&socket.state).is_ipv4 = Some(family == 2);
                socket
            }
            token => Socket::taken(self, token)?,
        };
        self.add(&socket);
        Ok(socket.number)
    }

    /// `WSPCloseSocket`: the descriptor is dead from here on; the rest ends behind it (WSD X-3,
    ///
    ///
    /// # Errors
    /// `WSAENOTSOCK`.
    pub fn close_socket(&self, number: usize) -> Result<()> {
        let mut sockets = lock(&self.sockets);
        let socket = sockets.get(&number).cloned().ok_or(Error::WSAENOTSOCK)?;
        // The socket's memory ends while it is in the table: what the cache callback does not find
        // there, the peer does not reach (WSD 5.5).
        let parts = lock(&socket.state).retire(SocketPhase::Closed);
        sockets.remove(&number);
        drop(sockets);
        socket.close(parts);
        Ok(())
    }

    /// `WSPCleanup`, the last one: everything goes, and no upcall comes afterwards.
    pub fn cleanup(&self) {
        self.down.store(true, Ordering::Release);
        let mut sockets = lock(&self.sockets);
        let retire = |socket: Arc<Socket>| {
            let parts = lock(&socket.state).retire(SocketPhase::Closed);
            (socket, parts)
        };
        let retired: Vec<_> = sockets.drain().map(|(_, socket)| retire(socket)).collect();
        drop(sockets);
        retired.into_iter().for_each(|(socket, parts)| socket.close(parts));
        let adapters = std::mem::take(&mut *lock(&self.adapters));
        for home in adapters.values() {
            if let Some(takes) = &home.takes {
                let _ = takes.cancel(); // what waits holds the adapter
            }
        }
        drop(adapters);
        self.upcalls.end();
    }

    /// `WSPMemoryRegistrationCacheCallback`: memory of this process goes away. No registration that
    /// has a byte in it survives, on any socket (WSD 5.5). Deregistered memory is not cached:
    /// `WSAEINVAL`.
    ///
    /// # Errors
    /// `WSAEINVAL` if no registration has a byte there, `WSAEOPNOTSUPP` if the callback is not
    /// offered.
    pub fn memory_goes_away(&self, address: u64, length: u64) -> Result<()> {
        if !self.offers().cache_callback {
            return Err(Error::WSAEOPNOTSUPP);
        }
        let sockets: Vec<_> = lock(&self.sockets).values().cloned().collect();
        let revoked: usize =
            sockets.iter().map(|socket| socket.revoke_touched(address, length)).sum();
        if revoked == 0 { Err(Error::WSAEINVAL) } else { Ok(()) }
    }

    /// `WSPGetSockOpt`: a 32-bit value.
    ///
    /// # Errors
    /// `WSAENOPROTOOPT` for another option, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn option(&self, number: usize, level: i32, name: i32) -> Result<u32> {
        self.socket(number)?;
        match (level, name) {
            (SOL_SOCKET, SO_MAX_MSG_SIZE | SO_MAX_RDMA_SIZE) => Ok(SIZE_LIMIT),
            (SOL_SOCKET, SO_RDMA_THRESHOLD_SIZE) => Ok(RDMA_THRESHOLD),
            (SOL_SOCKET, SO_DEBUG) => Ok(0),
            _ => Err(Error::WSAENOPROTOOPT),
        }
    }

    /// `WSPSetSockOpt`.
    ///
    /// # Errors
    /// `WSAENOPROTOOPT` for another option, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn set_option(&self, number: usize, level: i32, name: i32) -> Result<()> {
        self.socket(number)?;
        match (level, name) {
            (SOL_SOCKET, SO_DEBUG) => Ok(()),
            _ => Err(Error::WSAENOPROTOOPT),
        }
    }

    /// `SIO_ADDRESS_LIST_QUERY`: the addresses that this provider serves.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let all = raw::interfaces().unwrap_or_default();
        all.iter().map(|one| SocketAddr::new(one.address, 0)).collect()
    }
}
