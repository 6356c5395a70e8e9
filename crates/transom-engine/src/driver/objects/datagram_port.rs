//! A UDP port whose messages a front takes one by one, as they come.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use transom_wire::Time;

use super::port_map::register;
use super::receiver_room::ReceiverRoom;
use crate::Status;
use crate::driver::schedule::shared::Shared;
use crate::driver::schedule::source::Source;
use crate::sys::{self, Datagrams, IoError, IpFields, Message};

/// Messages that are taken before other sources have their turn: a peer that floods the port delays
/// nothing else.
const MOST_TAKEN: usize = 64;
/// Longer messages are dropped.
const LONGEST: usize = 16 * 1024;
/// A message that waits for room in the system's buffers looks so often.
const PAUSE: Duration = Duration::from_micros(20);

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
    receivers: ReceiverRoom,
}

impl std::fmt::Debug for DatagramPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramPort").field("key", &self.key).finish_non_exhaustive()
    }
}

impl DatagramPort {
    /// A message waits for room in the system's buffers for no longer than this.
    pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(250);

    /// Take the port of `address` (0: any). `sink` is called by the background thread, or inside
    /// [`DatagramPort::progress`].
    pub(crate) fn bind(
        shared: &Arc<Shared>,
        address: SocketAddr,
        one_family: bool,
        sink: MessageSink,
    ) -> Result<Arc<DatagramPort>, IoError> {
        DatagramPort::serve(shared, Datagrams::bind(address, one_family)?, sink)
    }

    /// A socket on the port of a multicast group, which it joins on some interfaces.
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
        let (key, room, receivers) = (shared.new_key(), Mutex::default(), ReceiverRoom::default());
        let shared_by = shared.clone();
        let port = DatagramPort { key, socket, shared: shared_by, sink, room, receivers };
        let port = Arc::new(port);
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

    /// Send a message from an address of this host. While there is no room for it in the system's
    /// buffers, that of a receiver on this host included, the call waits; not for long: a receiver that
    /// takes nothing loses it.
    pub(crate) fn send(
        &self,
        from: IpAddr,
        to: SocketAddr,
        fields: IpFields,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        let mut until = None;
        let mut waits = || {
            let wait = sys::now()
                < *until.get_or_insert_with(|| sys::now().after(DatagramPort::LONGEST_WAIT));
            if wait {
                sys::pause(PAUSE);
            }
            wait
        };
        while !self.has_room(from, to, bytes.len()) {
            if !waits() {
                self.receivers.stall(to);
            }
        }
        loop {
            match self.send_now(from, to, fields, bytes) {
                Err(IoError::NotNow) if waits() => {}
                sent => return sent,
            }
        }
    }

    /// Whether the receiver has room for a message, as far as this host can see: of the members of a
    /// group it sees one.
    fn has_room(&self, from: IpAddr, to: SocketAddr, length: usize) -> bool {
        let look = || sys::receive_buffer_of(SocketAddr::new(from, 0), to);
        let visible = from == to.ip() || to.ip().is_multicast();
        !visible || self.receivers.take(to, length, look)
    }

    /// Send a message at once, from a thread that waits for no receiver. Where there is no room for it in the
    /// system's buffers it is lost.
    pub(crate) fn send_now(
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
