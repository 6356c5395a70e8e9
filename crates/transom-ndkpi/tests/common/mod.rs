//! A consumer in Rust that speaks to the provider as a C program does: through tables and pointers.
//! Every request is driven to its end whatever way the mode makes it end.
#![allow(dead_code, unreachable_pub, unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use transom_ndkpi::dispatch::*;
use transom_ndkpi::mdl::*;
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, NdkCloseAdapter, NdkOpenAdapter, OpenOptions, Status};

pub type Ptr = *mut Object;
pub const PENDING: i32 = 0x103;
pub const PAGE: usize = 4096;

/// Something to wait for, with a limit so that a lost callback fails a test instead of hanging it.
pub struct Cell<T>(Mutex<Option<T>>, Condvar);

impl<T> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell(Mutex::new(None), Condvar::new())
    }
}

impl<T> Cell<T> {
    pub fn set(&self, value: T) {
        assert!(self.0.lock().unwrap().replace(value).is_none(), "called back twice");
        self.1.notify_all();
    }
    pub fn get(&self) -> T {
        let guard = self.0.lock().unwrap();
        let (mut guard, timeout) =
            self.1.wait_timeout_while(guard, Duration::from_secs(60), |v| v.is_none()).unwrap();
        assert!(!timeout.timed_out(), "nobody called back");
        guard.take().unwrap()
    }
    pub fn peek(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

pub struct Shared<T>(pub T);
unsafe impl<T> Send for Shared<T> {}
unsafe impl<T> Sync for Shared<T> {}

pub unsafe extern "C" fn request_done(context: *mut c_void, status: i32) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<i32>>()) };
    assert_ne!(status, PENDING, "NDK 0.5: never called back with PENDING");
    cell.set(status);
}

unsafe extern "C" fn create_done(context: *mut c_void, status: i32, object: *mut ObjectHeader) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<(i32, Shared<Ptr>)>>()) };
    cell.set((status, Shared(object.cast())));
}

unsafe extern "C" fn close_done(context: *mut c_void) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<()>>()) };
    cell.set(());
}

/// A request: what it returned, and how it ended.
pub fn request(f: impl FnOnce(RequestCompletion, *mut c_void) -> i32) -> (i32, Status) {
    let cell = Arc::new(Cell::default());
    let context = Arc::into_raw(cell.clone());
    let returned = f(Some(request_done), context.cast_mut().cast());
    if returned == PENDING {
        return (returned, Status(cell.get()));
    }
    assert_eq!(Arc::strong_count(&cell), 2, "called back although it returned {returned:#x}");
    drop(unsafe { Arc::from_raw(context) });
    (returned, Status(returned))
}

/// A request whose end matters only.
pub fn end_of(f: impl FnOnce(RequestCompletion, *mut c_void) -> i32) -> Status {
    request(f).1
}

/// A create function: the object.
pub fn create(
    f: impl FnOnce(CreateCompletion, *mut c_void, *mut Ptr) -> i32,
) -> Result<Ptr, Status> {
    let poison = std::ptr::without_provenance_mut(0x5a5a);
    let mut out: Ptr = poison;
    let cell: Arc<Cell<(i32, Shared<Ptr>)>> = Arc::default();
    let context = Arc::into_raw(cell.clone());
    let returned = f(Some(create_done), context.cast_mut().cast(), &mut out);
    let (status, object) = if returned == PENDING {
        let (status, object) = cell.get();
        assert_eq!(out, poison, "LT-1: the out parameter is not touched");
        (status, object.0)
    } else {
        drop(unsafe { Arc::from_raw(context) });
        (returned, out)
    };
    if status == 0 { Ok(object) } else { Err(Status(status)) }
}

/// Begin a close; what it returned, and the cell that its callback fills if that was PENDING.
pub fn begin_close(object: Ptr) -> (i32, Arc<Cell<()>>) {
    // The close entry is slot 0 of every table that has one.
    let close = unsafe { *(*object).dispatch.cast::<CloseObject>() };
    let cell = Arc::new(Cell::default());
    let context = Arc::into_raw(cell.clone());
    let returned = unsafe { close(object.cast(), Some(close_done), context.cast_mut().cast()) };
    if returned != PENDING {
        assert_eq!(returned, 0, "LT-3: a close cannot fail");
        drop(unsafe { Arc::from_raw(context) });
        cell.set(());
    }
    (returned, cell)
}

pub fn close(object: Ptr) {
    begin_close(object).1.get();
}

pub fn close_all(objects: &[Ptr]) {
    objects.iter().for_each(|&object| close(object));
}

pub fn table<T>(object: Ptr) -> &'static T {
    unsafe { &*(*object).dispatch.cast::<T>() }
}

pub fn address(port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

pub fn options(mode: Mode) -> OpenOptions {
    OpenOptions { completion_mode: mode as u32, read_sink_needed: 0, max_registrations: 0 }
}

pub fn open_with(options: OpenOptions) -> Ptr {
    let mut adapter = std::ptr::null_mut();
    let (version, at) = (Version { major: 2, minor: 0 }, address(0));
    let status = unsafe { NdkOpenAdapter(version, at.as_ptr().cast(), 16, &options, &mut adapter) };
    assert_eq!(Status(status), Status::SUCCESS);
    adapter
}

pub fn open(mode: Mode) -> Ptr {
    open_with(options(mode))
}

pub fn close_adapter(adapter: Ptr) {
    unsafe { NdkCloseAdapter(adapter) };
}

pub fn pd(adapter: Ptr) -> Ptr {
    let t = table::<AdapterDispatch>(adapter);
    create(|cb, ctx, out| unsafe { (t.create_pd)(adapter, cb, ctx, out) }).unwrap()
}

pub fn cq_with(adapter: Ptr, depth: u32, event: CqNotification, context: *mut c_void) -> Ptr {
    let t = table::<AdapterDispatch>(adapter);
    create(|cb, ctx, out| unsafe {
        (t.create_cq)(adapter, depth, event, context, std::ptr::null(), cb, ctx, out)
    })
    .unwrap()
}

pub fn cq(adapter: Ptr) -> Ptr {
    cq_with(adapter, 256, None, std::ptr::null_mut())
}

pub fn qp(pd: Ptr, cq: Ptr, context: usize) -> Ptr {
    let t = table::<PdDispatch>(pd);
    let context = std::ptr::without_provenance_mut(context);
    create(|cb, ctx, out| unsafe {
        (t.create_qp)(pd, cq, cq, context, 64, 64, 8, 8, 256, cb, ctx, out)
    })
    .unwrap()
}

pub fn connector(adapter: Ptr) -> Ptr {
    let t = table::<AdapterDispatch>(adapter);
    create(|cb, ctx, out| unsafe { (t.create_connector)(adapter, cb, ctx, out) }).unwrap()
}

pub fn mr_of(pd: Ptr, fast: bool) -> Ptr {
    let t = table::<PdDispatch>(pd);
    create(|cb, ctx, out| unsafe { (t.create_mr)(pd, u8::from(fast), cb, ctx, out) }).unwrap()
}

pub fn mr(pd: Ptr) -> Ptr {
    mr_of(pd, false)
}

pub fn mw(pd: Ptr) -> Ptr {
    let t = table::<PdDispatch>(pd);
    create(|cb, ctx, out| unsafe { (t.create_mw)(pd, cb, ctx, out) }).unwrap()
}

pub fn register(mr: Ptr, mdl: *mut Mdl, length: usize, flags: u32) -> (i32, Status) {
    let t = table::<MrDispatch>(mr);
    request(|cb, ctx| unsafe { (t.register)(mr, mdl, length, flags, cb, ctx) })
}

pub fn deregister(mr: Ptr) -> (i32, Status) {
    let t = table::<MrDispatch>(mr);
    request(|cb, ctx| unsafe { (t.deregister)(mr, cb, ctx) })
}

pub fn token(mr: Ptr) -> u32 {
    let t = table::<MrDispatch>(mr);
    let (remote, local) = unsafe { ((t.get_remote_token)(mr), (t.get_local_token)(mr)) };
    assert_eq!(remote, local);
    remote
}

/// `NdkBuildLAM` with so much room: its answer, and the buffer.
pub fn build_lam(adapter: Ptr, list: &List, length: usize, room: u32) -> (Status, Lam) {
    let t = table::<AdapterDispatch>(adapter);
    let mut lam = Lam { words: vec![0; room as usize / 8], size: room, offset: u32::MAX };
    let at = if room == 0 { std::ptr::null_mut() } else { lam.words.as_mut_ptr().cast() };
    let (size, offset) = (&raw mut lam.size, &raw mut lam.offset);
    let status = end_of(|cb, ctx| unsafe {
        (t.build_lam)(adapter, list.0, length, cb, ctx, at, size, offset)
    });
    (status, lam)
}

/// A logical address mapping of all of it.
pub fn lam(adapter: Ptr, list: &List, length: usize) -> Lam {
    let (status, asked) = build_lam(adapter, list, length, 0);
    assert_eq!(status, Status::BUFFER_TOO_SMALL);
    let (status, lam) = build_lam(adapter, list, length, asked.size);
    assert_eq!(status, Status::SUCCESS);
    lam
}

/// A mapping in the consumer's buffer.
pub struct Lam {
    pub words: Vec<u64>,
    pub size: u32,
    pub offset: u32,
}

impl Lam {
    pub fn pages(&self) -> &[u64] {
        &self.words[2..2 + self.words[1] as u32 as usize]
    }
    /// Logical address of the first byte.
    pub fn first(&self) -> u64 {
        self.pages()[0] + u64::from(self.offset)
    }
    pub fn release(&mut self, adapter: Ptr) {
        let release = table::<AdapterDispatch>(adapter).release_lam;
        unsafe { release(adapter, self.words.as_mut_ptr().cast()) };
    }
}

pub fn privileged(pd: Ptr) -> u32 {
    let mut token = 0;
    unsafe { (table::<PdDispatch>(pd).get_privileged_memory_region_token)(pd, &mut token) };
    token
}

pub fn initialize(mr: Ptr, pages: u32, remote: bool) -> (i32, Status) {
    let t = table::<MrDispatch>(mr);
    request(|cb, ctx| unsafe { (t.initialize_fast_register)(mr, pages, u8::from(remote), cb, ctx) })
}

/// A region for fast registration, initialised.
pub fn frmr(pd: Ptr, pages: u32, remote: bool) -> Ptr {
    let mr = mr_of(pd, true);
    assert_eq!(initialize(mr, pages, remote).1, Status::SUCCESS);
    mr
}

/// An address of this process at which nothing is mapped.
pub const NOWHERE: u64 = 0x0000_6b6b_0000_0123;

pub fn is_mapped(address: u64) -> bool {
    transom_engine::sys::check_pages(address, 1, false).is_ok()
}

pub fn sge(address: u64, length: u32, token: u32) -> Sge {
    Sge { address, length, token }
}

/// Page-aligned memory of this process.
pub struct Pages {
    pub at: *mut u8,
    pub count: usize,
}

unsafe impl Send for Pages {}
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(count: usize) -> Pages {
        let layout = std::alloc::Layout::from_size_align(count * PAGE, PAGE).unwrap();
        Pages { at: unsafe { std::alloc::alloc_zeroed(layout) }, count }
    }
    pub fn page(&self, index: usize) -> *mut c_void {
        unsafe { self.at.add(index * PAGE) }.cast()
    }
    pub fn len(&self) -> usize {
        self.count * PAGE
    }
    pub fn bytes(&self) -> Vec<u8> {
        (0..self.len()).map(|i| unsafe { self.at.add(i).read_volatile() }).collect()
    }
    pub fn fill(&self, f: impl Fn(usize) -> u8) {
        (0..self.len()).for_each(|i| unsafe { self.at.add(i).write_volatile(f(i)) });
    }
    /// An MDL for all of it, where it lies.
    pub fn mdl(&self) -> List {
        List::new(self.at.expose_provenance() as u64, self.len()).built()
    }
    pub fn sge(&self, token: u32, offset: usize, length: u32) -> Sge {
        Sge { address: self.at.expose_provenance() as u64 + offset as u64, length, token }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.len(), PAGE).unwrap();
        unsafe { std::alloc::dealloc(self.at, layout) };
    }
}

/// An MDL that frees itself.
pub struct List(pub *mut Mdl);

impl List {
    pub fn new(address: u64, length: usize) -> List {
        let address = std::ptr::with_exposed_provenance_mut(address as usize);
        let mdl = unsafe { IoAllocateMdl(address, length as u32, 0, 0, std::ptr::null_mut()) };
        assert!(!mdl.is_null());
        List(mdl)
    }
    pub fn built(self) -> List {
        unsafe { MmBuildMdlForNonPagedPool(self.0) };
        self
    }
    pub fn over(self, pages: &[*mut c_void]) -> List {
        assert_eq!(unsafe { TransomBuildMdlForPages(self.0, pages.as_ptr(), pages.len()) }, 1);
        self
    }
    pub fn then(self, next: &List) -> List {
        unsafe { (*self.0).next = next.0 };
        self
    }
}

impl Drop for List {
    fn drop(&mut self) {
        unsafe { IoFreeMdl(self.0) };
    }
}

/// One end of a connection.
pub struct Side {
    pub adapter: Ptr,
    pub pd: Ptr,
    pub cq: Ptr,
    pub qp: Ptr,
    pub connector: Ptr,
}

unsafe impl Send for Side {}
unsafe impl Sync for Side {}

/// What a listener's callback needs.
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
    let t = table::<ConnectorDispatch>(connector);
    let (from, to) = (address(0), address(port));
    end_of(|cb, ctx| unsafe {
        let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
        let (data, length) = (private.as_ptr().cast(), private.len() as u32);
        (t.connect)(connector, qp, from, 16, to, 16, 16, 16, data, length, cb, ctx)
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

/// One more connected queue pair in the domains of two sides that are connected already.
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
    transom_rules::paths::hold();
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

/// Somebody connects to a side that keeps its listener: the one that connected, and the listener
/// with its port.
pub fn guest(mode: Mode, server: &Side, events: &Server) -> (Side, (Ptr, u16)) {
    let mut client = half(options(mode));
    let listening = join(&mut client, server, events);
    (client, listening)
}

fn join(client: &mut Side, server: &Side, events: &Server) -> (Ptr, u16) {
    let (listener, port) = listener(server.adapter, Some(accept_it), events);
    client.connector = connector(client.adapter);
    assert_eq!(connect(client.connector, client.qp, port, &[]), Status::SUCCESS);
    assert_eq!(complete(client.connector), Status::SUCCESS);
    assert_eq!(Status(events.accepted.get()), Status::SUCCESS);
    (listener, port)
}

fn connected(mut client: Side, mut server: Side) -> (Side, Side) {
    let events = Server::new(server.qp);
    let (listener, _) = join(&mut client, &server, &events);
    server.connector = events.event.get().0;
    // LT-9: before its connector; so this is pending until the side is closed.
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
    /// One completion: its context, status and bytes.
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

/// Run a test in every completion mode.
pub fn in_every_mode(test: impl Fn(Mode)) {
    for mode in Mode::ALL {
        println!("{mode:?}");
        test(mode);
    }
}
