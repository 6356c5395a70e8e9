//! A UDP port whose messages a front takes one by one, as they come.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use transom_wire::Time;

use super::port_map::register;
use crate::Status;
use crate::driver::schedule::shared::{Shared, Source};
use crate::sys::{Datagrams, IoError, IpFields, Message};

/// Messages that are taken before other sources have their turn: a peer that floods the port delays
/// nothing else.
const MOST_TAKEN: usize = 64;
/// Longer messages are dropped.
const LONGEST: usize = 16 * 1024;

/// A message as its sink is given it: its bytes, and what the network says of it.
pub(crate) type MessageSink = Box<dyn Fn(&[u8], &Message) + Send + Sync>;

/// A UDP port.
pub(crate) struct DatagramPort {
    key: u64,
    /// `None` once it is closed: the port is free when [`DatagramPort::close`] returns.
    socket: Mutex<Option<Datagrams>>,
    shared: Arc<Shared>,
    sink: MessageSink,
    /// Room for a message. Locked from the moment when one is taken until its sink has returned, so that
    /// messages keep their order whichever thread takes them.
    room: Mutex<Vec<u8>>,
}

impl std::fmt::Debug for DatagramPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramPort").field("key", &self.key).finish_non_exhaustive()
    }
}

impl DatagramPort {
    /// Take the port of `address` (0: any). `sink` is called by the background thread, or inside
    /// [`DatagramPort::progress`].
    pub(crate) fn bind(
        shared: &Arc<Shared>,
        address: SocketAddr,
        sink: MessageSink,
    ) -> Result<Arc<DatagramPort>, IoError> {
        DatagramPort::serve(shared, Datagrams::bind(address)?, sink)
    }

    /// The same for a multicast group with its port, on some interfaces.
    pub(crate) fn join(
        shared: &Arc<Shared>,
        group: SocketAddr,
        interfaces: &[u32],
        sink: MessageSink,
    ) -> Result<Arc<DatagramPort>, IoError> {
        DatagramPort::serve(shared, Datagrams::join(group, interfaces)?, sink)
    }

    fn serve(
        shared: &Arc<Shared>,
        socket: Datagrams,
        sink: MessageSink,
    ) -> Result<Arc<DatagramPort>, IoError> {
        let socket = Mutex::new(Some(socket));
        let (key, room) = (shared.new_key(), Mutex::default());
        let port = Arc::new(DatagramPort { key, socket, shared: shared.clone(), sink, room });
        let begun = register(shared, key, &port.lock(), port.clone());
        begun.inspect_err(|_| port.close())?;
        Ok(port)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Datagrams>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, IoError> {
        self.lock().as_ref().map_or(Err(IoError::NotLocal), Datagrams::address)
    }

    /// Send a message from an address of this host, without waiting.
    pub(crate) fn send(
        &self,
        from: IpAddr,
        to: SocketAddr,
        fields: IpFields,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        match &*self.lock() {
            Some(socket) => socket.send_from(from, to, fields, bytes),
            None => Err(IoError::NotLocal),
        }
    }

    /// Hand on what has come, unless another thread is at it.
    pub(crate) fn progress(&self) {
        let mut room = match self.room.try_lock() {
            Ok(room) => room,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        room.resize(LONGEST, 0);
        for _ in 0..MOST_TAKEN {
            let taken = match &*self.lock() {
                Some(socket) => socket.take(&mut room),
                None => return,
            };
            match taken {
                Ok(Some(message)) => {
                    let bytes = room.get(..message.length).unwrap_or_default();
                    (self.sink)(bytes, &message);
                }
                Ok(None) => {}
                Err(IoError::NotNow) => return,
                Err(_) => {} // an error that the network has reported about an earlier message
            }
        }
    }

    pub(crate) fn close(&self) {
        if let Some(socket) = self.lock().take() {
            self.shared.unaccepted.remove(socket.fd());
        }
        self.shared.remove(self.key);
    }
}

impl Source for DatagramPort {
    fn ready(self: Arc<Self>, _now: Time) {
        self.progress();
        if let Some(socket) = &*self.lock() {
            let _ = self.shared.unaccepted.arm(socket.fd(), self.key, true, false);
        }
    }

    fn due(self: Arc<Self>, _now: Time) {}

    fn serve(&self, _now: Time) -> bool {
        false // among the unaccepted ones, which no thread of the program asks
    }

    fn finish_served(&self) {}

    fn stop_accepting(self: Arc<Self>, _status: Status) {
        self.close();
    }

    fn end(&self, _status: Status) {}
}
