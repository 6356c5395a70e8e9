//! Adapters, and what is made of them.

use super::*;

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

pub fn endpoint(adapter: Ptr, port: u16) -> Result<Ptr, Status> {
    let (t, at) = (table::<AdapterDispatch>(adapter), address(port));
    create(|cb, ctx, out| unsafe {
        (t.create_shared_endpoint)(adapter, at.as_ptr().cast(), 16, cb, ctx, out)
    })
}

pub fn srq(pd: Ptr) -> Ptr {
    let t = table::<PdDispatch>(pd);
    let (none, nothing) = (std::ptr::null(), std::ptr::null_mut());
    create(|cb, ctx, out| unsafe { (t.create_srq)(pd, 8, 1, 0, None, nothing, none, cb, ctx, out) })
        .unwrap()
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
    transom_engine::raw::check_pages(address, 1, false).is_ok()
}

pub fn sge(address: u64, length: u32, token: u32) -> Sge {
    Sge { address, length, token }
}
