//! Two ends of a connection, and everything that an end posts.

use std::thread::JoinHandle;

use super::*;

/// An end of a connection.
pub struct Side {
    pub adapter: Ptr,
    pub pd: Ptr,
    pub cq: Ptr,
    pub qp: Ptr,
    pub connector: Ptr,
}

unsafe impl Send for Side {}
unsafe impl Sync for Side {}

/// The context of a listener's callback.
pub struct Server {
    pub qp: Ptr,
    pub private: Vec<u8>,
    pub event: Cell<Shared<Ptr>>,
    pub accepted: Cell<i32>,
    pub disconnected: Cell<u32>,
}

unsafe extern "C" fn accepted(context: *mut c_void, status: i32) {
    unsafe { &*context.cast::<Server>() }.accepted.set(status);
}

pub unsafe extern "C" fn disconnected(context: *mut c_void, reason: u32) {
    unsafe { &*context.cast::<Cell<u32>>() }.set(reason);
}

pub unsafe extern "C" fn accept_it(context: *mut c_void, connector: Ptr) {
    let server = unsafe { &*context.cast::<Server>() };
    server.event.set(Shared(connector));
    let t = table::<ConnectorDispatch>(connector);
    let returned = unsafe {
        (t.accept_ex)(
            connector,
            server.qp,
            16,
            16,
            server.private.as_ptr().cast(),
            server.private.len() as u32,
            Some(disconnected),
            (&raw const server.disconnected).cast_mut().cast(),
            Some(accepted),
            context,
        )
    };
    if returned != PENDING {
        server.accepted.set(returned);
    }
}

pub unsafe extern "C" fn take_it(context: *mut c_void, connector: Ptr) {
    unsafe { &*context.cast::<Server>() }.event.set(Shared(connector));
}

impl Server {
    pub fn new(qp: Ptr) -> Box<Server> {
        Box::new(Server {
            qp,
            private: Vec::new(),
            event: Cell::default(),
            accepted: Cell::default(),
            disconnected: Cell::default(),
        })
    }
}

pub fn listener(adapter: Ptr, event: ConnectEvent, server: &Server) -> (Ptr, u16) {
    let t = table::<AdapterDispatch>(adapter);
    let context = (&raw const *server).cast_mut().cast();
    let listener = create(|cb, ctx, out| unsafe {
        (t.create_listener)(adapter, event, context, cb, ctx, out)
    });
    listen(listener.unwrap())
}

/// Let a listener listen: itself, and the port that it got.
pub fn listen(listener: Ptr) -> (Ptr, u16) {
    let t = table::<ListenerDispatch>(listener);
    let at = address(0);
    let listening =
        end_of(|cb, ctx| unsafe { (t.listen)(listener, at.as_ptr().cast(), 16, cb, ctx) });
    assert_eq!(listening, Status::SUCCESS);
    let mut bytes = [0_u8; 16];
    let mut length = 16;
    unsafe { (t.get_local_address)(listener, bytes.as_mut_ptr().cast(), &mut length) };
    (listener, u16::from_be_bytes([bytes[2], bytes[3]]))
}

pub fn connect(connector: Ptr, qp: Ptr, port: u16, private: &[u8]) -> Status {
    connect_with(connector, qp, port, (16, 16), private)
}

/// With these limits: inbound, and outbound.
pub fn connect_with(
    connector: Ptr,
    qp: Ptr,
    port: u16,
    (inbound, outbound): (u32, u32),
    private: &[u8],
) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    let (from, to) = (address(0), address(port));
    end_of(|cb, ctx| unsafe {
        let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
        let (data, length) = (private.as_ptr().cast(), private.len() as u32);
        (t.connect)(connector, qp, from, 16, to, 16, inbound, outbound, data, length, cb, ctx)
    })
}

pub fn complete(connector: Ptr) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    end_of(|cb, ctx| unsafe {
        (t.complete_connect)(connector, None, std::ptr::null_mut(), cb, ctx)
    })
}

pub fn half(options: OpenOptions) -> Side {
    let adapter = open_with(options);
    let (pd, cq) = (pd(adapter), cq(adapter));
    Side { adapter, pd, cq, qp: qp(pd, cq, 77), connector: std::ptr::null_mut() }
}

/// Another connected queue pair in the domains of two sides that are connected already.
pub fn another(client: &Side, server: &Side) -> (Side, Side) {
    let of = |side: &Side| {
        let cq = cq(side.adapter);
        let (adapter, pd) = (side.adapter, side.pd);
        Side { adapter, pd, cq, qp: qp(pd, cq, 78), connector: std::ptr::null_mut() }
    };
    connected(of(client), of(server))
}

/// Two connected ends: (the one that connected, the one that accepted).
pub fn pair(mode: Mode) -> (Side, Side) {
    pair_with(options(mode), options(mode))
}

pub fn pair_with(client: OpenOptions, server: OpenOptions) -> (Side, Side) {
    connected(half(client), half(server))
}

/// A connection takes the path that this run is about.
pub fn path_holds() {
    let (client, server) = pair(Mode::ALL[0]);
    transom_testing::paths::hold();
    client.end(&[]);
    server.end(&[]);
}

/// As [`pair_with`], with a completion queue of the test's own on the accepting side.
pub fn pair_on(
    client: OpenOptions,
    server: OpenOptions,
    queue: impl FnOnce(Ptr) -> Ptr,
) -> (Side, Side) {
    let adapter = open_with(server);
    let (pd, cq) = (pd(adapter), queue(adapter));
    let server = Side { adapter, pd, cq, qp: qp(pd, cq, 77), connector: std::ptr::null_mut() };
    connected(half(client), server)
}

pub fn disconnect(connector: Ptr) -> Status {
    let t = table::<ConnectorDispatch>(connector);
    end_of(|cb, ctx| unsafe { (t.disconnect)(connector, cb, ctx) })
}

/// A new side connects to a side that keeps its listener. Returns the new side, and the listener
/// with its port.
pub fn guest(mode: Mode, server: &Side, events: &Server) -> (Side, (Ptr, u16)) {
    let mut client = half(options(mode));
    let listening = join(&mut client, server, events);
    (client, listening)
}

/// A client that connects to a port in a thread of its own: by `call`, of connector, queue pair and
/// port.
pub fn connecting<T: Send + 'static>(
    mode: Mode,
    port: u16,
    call: impl FnOnce(Ptr, Ptr, u16) -> T + Send + 'static,
) -> (Side, JoinHandle<T>) {
    let mut client = half(options(mode));
    client.connector = connector(client.adapter);
    let shared = Shared((client.connector, client.qp));
    let thread = std::thread::spawn(move || {
        let shared = shared;
        let (connector, qp) = shared.0;
        call(connector, qp, port)
    });
    (client, thread)
}

fn join(client: &mut Side, server: &Side, events: &Server) -> (Ptr, u16) {
    let (listener, port) = listener(server.adapter, Some(accept_it), events);
    client.connector = connector(client.adapter);
    assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
    assert_eq!(complete(client.connector), Status::SUCCESS);
    assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
    (listener, port)
}

pub fn connected(mut client: Side, mut server: Side) -> (Side, Side) {
    let events = Server::new(server.qp);
    let (listener, _) = join(&mut client, &server, &events);
    server.connector = events.event.get().0;
    // NDK LT-9: before its connector; so this is pending until the side is closed.
    let _ = begin_close(listener);
    // The disconnect event may come as late as the adapter's close.
    Box::leak(events);
    (client, server)
}

impl Side {
    pub fn mr(&self, pages: &Pages, flags: u32) -> (Ptr, u32) {
        let mr = mr(self.pd);
        let list = pages.mdl();
        assert_eq!(register(mr, list.0, pages.len(), flags).1, Status::SUCCESS);
        (mr, token(mr))
    }
    pub fn results(&self, wanted: usize) -> Vec<NdkResultEx> {
        results(self.cq, wanted)
    }
    /// A completion: its context, status and bytes.
    pub fn one(&self) -> (usize, Status, u32) {
        let result = self.results(1)[0];
        (result.request_context.addr(), Status(result.status), result.bytes_transferred)
    }
    pub fn read(&self, context: usize, sges: &[Sge], address: u64, token: u32) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(context);
        let (list, count) = (sges.as_ptr(), sges.len() as u32);
        Status(unsafe { (t.read)(self.qp, context, list, count, address, token, 0) })
    }
    pub fn write(&self, context: usize, sges: &[Sge], address: u64, token: u32) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(context);
        let (list, count) = (sges.as_ptr(), sges.len() as u32);
        Status(unsafe { (t.write)(self.qp, context, list, count, address, token, 0) })
    }
    pub fn send(&self, context: usize, sges: &[Sge], flags: u32) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(context);
        let (list, count) = (sges.as_ptr(), sges.len() as u32);
        Status(unsafe { (t.send)(self.qp, context, list, count, flags) })
    }
    pub fn receive(&self, context: usize, sges: &[Sge]) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(context);
        let (list, count) = (sges.as_ptr(), sges.len() as u32);
        Status(unsafe { (t.receive)(self.qp, context, list, count) })
    }
    pub fn bind(&self, mr: Ptr, mw: Ptr, address: u64, length: usize, flags: u32) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(0xb1);
        let address = std::ptr::without_provenance_mut(address as usize);
        Status(unsafe { (t.bind)(self.qp, context, mr, mw, address, length, flags) })
    }
    pub fn fast_register(
        &self,
        mr: Ptr,
        pages: &[u64],
        (offset, length, base): (u32, usize, u64),
        flags: u32,
    ) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(0xfa);
        let base = std::ptr::without_provenance_mut(base as usize);
        let (array, count) = (pages.as_ptr().cast(), pages.len() as u32);
        Status(unsafe {
            (t.fast_register)(self.qp, context, mr, count, array, offset, length, base, flags)
        })
    }
    pub fn send_and_invalidate(&self, context: usize, sges: &[Sge], token: u32) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(context);
        let (list, count) = (sges.as_ptr(), sges.len() as u32);
        Status(unsafe { (t.send_and_invalidate)(self.qp, context, list, count, 0, token) })
    }
    pub fn disconnect(&self) -> Status {
        disconnect(self.connector)
    }
    pub fn invalidate(&self, object: Ptr) -> Status {
        let t = table::<QpDispatch>(self.qp);
        let context = std::ptr::without_provenance_mut(0x1f);
        Status(unsafe { (t.invalidate)(self.qp, context, object.cast(), 0) })
    }
    /// Close the queue pair, its queue and its connector; of [`another`] connection, say.
    pub fn close(&self) -> Vec<Arc<Cell<()>>> {
        let flush = table::<QpDispatch>(self.qp).flush;
        unsafe { flush(self.qp) };
        [self.connector, self.qp, self.cq].map(|object| begin_close(object).1).into()
    }
    /// Close everything but `extra`, which goes first; then the adapter.
    pub fn end(self, extra: &[Ptr]) {
        let mut open = vec![begin_close(self.connector).1];
        let flush = table::<QpDispatch>(self.qp).flush;
        unsafe { flush(self.qp) };
        open.extend(extra.iter().map(|&object| begin_close(object).1));
        open.extend([self.qp, self.cq, self.pd].map(|object| begin_close(object).1));
        open.iter().for_each(|cell| cell.get());
        close_adapter(self.adapter);
    }
}

pub fn window_token(mw: Ptr) -> u32 {
    unsafe { (table::<MwDispatch>(mw).get_remote_token)(mw) }
}

pub const EMPTY: NdkResultEx = NdkResultEx {
    status: 0,
    bytes_transferred: 0,
    qp_context: std::ptr::null_mut(),
    request_context: std::ptr::null_mut(),
    operation: 0,
    provider_error_code: 0,
    type_specific: 0,
};

pub fn results(cq: Ptr, wanted: usize) -> Vec<NdkResultEx> {
    let t = table::<CqDispatch>(cq);
    let mut found = Vec::new();
    let started = std::time::Instant::now();
    while found.len() < wanted {
        let mut some = vec![EMPTY; wanted - found.len()];
        let count = unsafe { (t.get_results_ex)(cq, some.as_mut_ptr(), some.len() as u32) };
        found.extend_from_slice(&some[..count as usize]);
        assert!(started.elapsed() < Duration::from_secs(60), "{} of {wanted}", found.len());
        std::thread::yield_now();
    }
    found
}
