//! The functions of the interface in Rust, by descriptor. The C entries are thin on top of these.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::data::{Direction, Range};
use crate::descriptor::{Descriptor, LENGTH};
use crate::error::{Error, Result};
use crate::memory::{Handle, Key};
use crate::overlapped::{Operation, Outcome};
use crate::provider::{Provider, fresh_number, lock};
use crate::region::made_up_base;
use crate::socket::Socket;

impl Provider {
    /// `WSPBind`.
    ///
    /// # Errors
    /// `WSAEADDRNOTAVAIL` if no interface has the address, `WSAEFAULT` for one of another family than
    /// the socket's, `WSAEINVAL` for a socket that is bound already, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn bind(&self, socket: usize, address: SocketAddr) -> Result<()> {
        self.socket(socket)?.bind(address)
    }

    /// The local address of a socket; the switch keeps its own record of it, tests ask.
    ///
    /// # Errors
    /// `WSAEINVAL` for a socket that has none yet, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn local_address(&self, socket: usize) -> Result<SocketAddr> {
        self.socket(socket)?.local()
    }

    /// `WSPListen`.
    ///
    /// # Errors
    /// `WSAEINVAL` for a socket that is not bound or is connected, `WSAEADDRINUSE`, `WSAENOBUFS`,
    /// `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn listen(&self, socket: usize, backlog: usize) -> Result<()> {
        self.socket(socket)?.listen(backlog)
    }

    /// `WSPConnect`.
    ///
    /// # Errors
    /// `WSAEWOULDBLOCK` if `FD_CONNECT` is selected: the event has the result. The definitive ones:
    /// `WSAECONNREFUSED` (the peer's program said no), `WSAEHOSTUNREACH`. Others: `WSAETIMEDOUT`, at
    /// once if no provider's socket listens at the port (a TCP server may); `WSAEAFNOSUPPORT` for an
    /// address of another family than the socket's, `WSAEADDRNOTAVAIL` for the wildcard, for port 0 and
    /// where this side's address is none; `WSAEADDRINUSE`, `WSAEINVAL` for a socket in another state, `WSA_OPERATION_ABORTED` if it
    /// is closed meanwhile, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn connect(&self, socket: usize, peer: SocketAddr) -> Result<()> {
        self.socket(socket)?.connect(peer)
    }

    /// `WSPAccept`: the new socket and its peer. `condition` gets the address of the peer and the one
    /// that it has asked for, and answers `CF_*`.
    ///
    /// # Errors
    /// `WSAEWOULDBLOCK` without a request, `WSATRY_AGAIN` if `condition` defers,
    /// `WSAECONNREFUSED` if it rejects and `WSAEINVAL` for another answer, which rejects as well;
    /// `WSAECONNRESET` if the peer has gone, `WSAETIMEDOUT`, `WSAEINVAL` for a socket that does not
    /// listen, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn accept(
        &self,
        socket: usize,
        condition: impl FnOnce(SocketAddr, SocketAddr) -> i32,
    ) -> Result<(usize, SocketAddr)> {
        self.socket(socket)?.accept(condition)
    }

    /// `WSPEventSelect`.
    ///
    /// # Errors
    /// `WSAEINVAL` for other events than accept and connect, `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn event_select(&self, socket: usize, event: usize, mask: i32) -> Result<()> {
        self.socket(socket)?.select(event, mask)
    }

    /// `WSPEnumNetworkEvents`: the events, and the error of a connect.
    ///
    /// # Errors
    /// `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn network_events(&self, socket: usize, event: usize) -> Result<(i32, Option<Error>)> {
        self.socket(socket)?.network_events(event)
    }

    /// `WSPDuplicateSocket`: what goes into `dwProviderReserved`, for the process of this number
    /// alone; the number may be any (WSD D-1, D-7). The socket waits there for its close. A close
    /// before the other process has taken it ends it for both.
    ///
    /// # Errors
    /// `WSAEINVAL` for a socket that is neither connected nor listening; `WSAENOBUFS` if there is no
    /// token, or the peer takes no connection from another process; `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn duplicate(&self, socket: usize, process: u32) -> Result<u32> {
        self.socket(socket)?.duplicate(process)
    }

    /// The needs of every registration: a connected socket (WSD A-2), and a buffer.
    fn registering(
        &self,
        socket: usize,
        (address, length): (u64, u32),
        flags: u32,
    ) -> Result<(Arc<Socket>, Key)> {
        let socket = self.socket(socket)?;
        Socket::channel(&lock(&socket.state))?;
        if address == 0 {
            return Err(Error::WSAEFAULT);
        }
        Ok((socket, Key { address, length, flags }))
    }

    /// `WSPRegisterMemory`.
    ///
    /// # Safety
    /// Until it is deregistered, or the socket is closed: the memory is the caller's, is not used
    /// for anything else, and with `MEM_WRITE` no Rust reference to it exists that bytes appearing
    /// in it would contradict. The address may be unmapped.
    ///
    /// # Errors
    /// `WSAENOTCONN` for a socket without a connection, or the error with which it failed;
    /// `WSAEFAULT` for no address, or pages that cannot be accessed so; `WSAEINVAL` for flags other
    /// than 1, 2 or 3 and for no bytes; `WSAENOBUFS`, `WSAENOTSOCK`, `WSAENETDOWN`.
    #[allow(unsafe_code, reason = "the promise is the caller's")]
    pub unsafe fn register_memory(
        &self,
        socket: usize,
        address: u64,
        length: u32,
        flags: u32,
    ) -> Result<Handle> {
        let (socket, key) = self.registering(socket, (address, length), flags)?;
        let handle = Handle(fresh_number());
        let mut state = lock(&socket.state);
        let channel = Socket::channel(&state)?;
        // SAFETY: this function's contract.
        unsafe { state.registrations.register_local(&channel, handle, key) }?;
        Ok(handle)
    }

    /// `WSPDeregisterMemory`.
    ///
    /// # Errors
    /// `WSAEINVAL` for a handle that is not one of this socket's, or memory that an operation uses:
    /// the registration stays then. `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn deregister_memory(&self, socket: usize, handle: Handle) -> Result<()> {
        let socket = self.socket(socket)?;
        let mut state = lock(&socket.state);
        state.registrations.deregister_local(handle)
    }

    /// `WSPRegisterRdmaMemory`: the descriptor for the peer.
    ///
    /// # Safety
    /// As [`Provider::register_memory`]; the peer reads or writes it at any time.
    ///
    /// # Errors
    /// As [`Provider::register_memory`].
    #[allow(unsafe_code, reason = "the promise is the caller's")]
    pub unsafe fn register_rdma_memory(
        &self,
        socket: usize,
        address: u64,
        length: u32,
        flags: u32,
    ) -> Result<[u8; LENGTH]> {
        let (socket, key) = self.registering(socket, (address, length), flags)?;
        let base = made_up_base()?;
        let mut state = lock(&socket.state);
        let channel = Socket::channel(&state)?;
        // SAFETY: this function's contract.
        let made = unsafe { state.registrations.register_remote(&channel, base, key) }?;
        Ok(made.encode())
    }

    /// `WSPDeregisterRdmaMemory`.
    ///
    /// # Errors
    /// `WSAEINVAL` for a descriptor that is not one of this socket's, or memory that a transfer of
    /// the peer's uses: the registration stays then. `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn deregister_rdma_memory(&self, socket: usize, descriptor: &[u8]) -> Result<()> {
        let socket = self.socket(socket)?;
        let descriptor = Descriptor::decode(descriptor)?;
        let mut state = lock(&socket.state);
        let channel = state.channel.clone().ok_or(Error::WSAEINVAL)?;
        state.registrations.deregister_remote(&channel, descriptor)
    }

    /// `WSPSend`. `Ok`: it is under way (`WSA_IO_PENDING`).
    ///
    /// # Errors
    /// `WSAENOTCONN` for a socket without a connection, or the error with which it failed;
    /// `WSAEINVAL` for flags, and for no or too many buffers; `WSAEFAULT` for a buffer outside this
    /// socket's registrations; `WSAEMSGSIZE`; `WSAENOBUFS` for a full queue; `WSAENOTSOCK`,
    /// `WSAENETDOWN`. Nothing is under way then.
    pub fn send(
        &self,
        socket: usize,
        buffers: &[Range],
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        self.socket(socket)?.send(buffers, flags, operation)
    }

    /// `WSPRecv`.
    ///
    /// # Errors
    /// As [`Provider::send`].
    pub fn receive(
        &self,
        socket: usize,
        buffers: &[Range],
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        self.socket(socket)?.receive(buffers, flags, operation)
    }

    /// `WSPRdmaRead`, `WSPRdmaWrite`: `target` is a descriptor of the peer's and an offset.
    ///
    /// # Errors
    /// As [`Provider::send`]; and `WSAEINVAL` for bytes that are no descriptor, `WSAEOPNOTSUPP` for
    /// reading if the provider does not offer it.
    pub fn rdma(
        &self,
        socket: usize,
        direction: Direction,
        buffers: &[(Range, Handle)],
        target: (&[u8], u32),
        flags: u32,
        operation: Operation,
    ) -> Result<()> {
        if direction == Direction::Read && !self.offers().rdma_read {
            return Err(Error::WSAEOPNOTSUPP);
        }
        self.socket(socket)?.rdma(direction, buffers, target, flags, operation)
    }

    /// `WSPGetOverlappedResult`.
    ///
    /// # Errors
    /// `WSA_IO_INCOMPLETE` if the operation is under way, `WSAENOTSOCK`, `WSAENETDOWN`. The error
    /// of the operation itself is in its [`Outcome`].
    pub fn overlapped_result(
        &self,
        socket: usize,
        operation: Operation,
        wait: bool,
    ) -> Result<Outcome> {
        self.socket(socket)?.overlapped_result(operation, wait)
    }

    /// Registrations alive on a socket: local, for the peer.
    ///
    /// # Errors
    /// `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn registered(&self, socket: usize) -> Result<(usize, usize)> {
        Ok(self.socket(socket)?.registered())
    }

    /// Bytes that a socket has moved: by messages, by RDMA operations of its own.
    ///
    /// # Errors
    /// `WSAENOTSOCK`, `WSAENETDOWN`.
    pub fn moved(&self, socket: usize) -> Result<(usize, usize)> {
        Ok(self.socket(socket)?.moved())
    }
}
