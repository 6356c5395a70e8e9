//! NetworkDirect v2 as a C++ program uses it: method tables, by slot (ND2 2).
#![allow(dead_code, unreachable_pub, unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_void;
use std::ptr::{from_mut, null, null_mut};
use std::sync::Mutex;

use super::common::Pages;
// The library is linked for its one entry.
use transom_nd as _;

type Guid = (u32, u16, u16, [u8; 8]);

#[repr(C)]
struct Iid(u32, u16, u16, [u8; 8]);

const fn iid((a, b, c, d): Guid) -> Iid {
    Iid(a, b, c, d)
}

const PROVIDER: Iid =
    iid((0x49EA_E6C1, 0x76C4, 0x46D0, [0x80, 0x03, 0x5C, 0x2E, 0xAA, 0x2C, 0x9A, 0x8E]));
const ADAPTER: Iid =
    iid((0xD89C_798C, 0x4823, 0x4D69, [0x84, 0x6C, 0xDF, 0xDC, 0xCF, 0xF9, 0xE5, 0xF3]));
const QUEUE: Iid =
    iid((0x20CC_445E, 0x64A0, 0x4CBB, [0xAA, 0x75, 0xF6, 0xA7, 0x25, 0x1F, 0xDA, 0x9E]));
const REGION: Iid =
    iid((0x55DF_EA2F, 0xBC56, 0x4982, [0x8A, 0x45, 0x03, 0x01, 0xBE, 0x46, 0xC4, 0x13]));
const WINDOW: Iid =
    iid((0x070F_E1F5, 0x0AB5, 0x4361, [0x88, 0xDB, 0x97, 0x4B, 0xA7, 0x04, 0xD4, 0xB9]));
const PAIR: Iid =
    iid((0xEEF2_F332, 0xB75D, 0x4063, [0xBC, 0xE3, 0x3A, 0x0B, 0xAD, 0x2D, 0x02, 0xCE]));
const CONNECTOR: Iid =
    iid((0x7DD6_15C4, 0x6B4C, 0x4866, [0x95, 0x0C, 0xF3, 0xB1, 0xD2, 0x5A, 0x53, 0x02]));
const LISTENER: Iid =
    iid((0x65D2_3D83, 0x3A57, 0x4E02, [0x86, 0xA4, 0x35, 0x01, 0x65, 0xC2, 0xD1, 0x30]));

unsafe extern "C" {
    fn DllGetClassObject(class: *const Iid, iid: *const Iid, out: *mut *mut c_void) -> i32;
}

/// Flags of `IND2MemoryRegion::Register`.
pub mod flag {
    pub const LOCAL_WRITE: u32 = 1;
    pub const REMOTE_READ: u32 = 2;
    pub const REMOTE_WRITE: u32 = 5;
}
/// Flags of `IND2QueuePair::Bind`.
pub const ALLOW_READ: u32 = 8;

/// An object: released when it goes.
pub struct Com(*mut c_void);

macro_rules! call {
    ($object:expr, $slot:literal, ($($type:ty),*) -> $ret:ty; $($arg:expr),*) => {{
        let this = $object.0;
        let method = unsafe { *(*this.cast::<*const *const c_void>()).add($slot) };
        let method: unsafe extern "system" fn(*mut c_void $(, $type)*) -> $ret =
            unsafe { std::mem::transmute(method) };
        unsafe { method(this $(, $arg)*) }
    }};
}

impl Drop for Com {
    fn drop(&mut self) {
        let _: u32 = call!(self, 2, () -> u32;);
    }
}

#[repr(C)]
#[derive(Default)]
struct Overlapped([usize; 4]);

const PENDING: i32 = 0x103;

/// An overlapped call, to its end. Slot 4 of every object that has such is GetOverlappedResult.
struct Started(Box<Overlapped>, i32);

impl Started {
    fn by(f: impl FnOnce(*mut Overlapped) -> i32) -> Started {
        let mut overlapped = Box::<Overlapped>::default();
        let returned = f(&raw mut *overlapped);
        Started(overlapped, returned)
    }
    fn end(mut self, object: &Com) -> i32 {
        if self.1 != PENDING {
            return self.1;
        }
        let overlapped = from_mut(&mut *self.0);
        call!(object, 4, (*mut Overlapped, i32) -> i32; overlapped, 1)
    }
}

fn make(f: impl FnOnce(*mut *mut c_void) -> i32) -> Com {
    let mut out = null_mut();
    assert_eq!(f(&mut out), 0);
    Com(out)
}

fn address(port: u16) -> [u8; 16] {
    super::common::address(port)
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sge {
    pub buffer: usize,
    pub length: u32,
    pub token: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct NdResult {
    status: i32,
    bytes: u32,
    pair: usize,
    request: usize,
    kind: u32,
}

/// An end of a connection. Members go in this order.
pub struct Side {
    connector: Com,
    pair: Com,
    queue: Com,
    kept: Mutex<Vec<Com>>,
    adapter: Com,
    file: usize,
}

/// A registration.
pub struct Region(Com);

impl Region {
    pub fn local(&self) -> u32 {
        call!(self.0, 7, () -> u32;)
    }
    pub fn remote(&self) -> u32 {
        call!(self.0, 8, () -> u32;)
    }
    pub fn deregister(&self) -> i32 {
        Started::by(|o| call!(self.0, 6, (*mut Overlapped) -> i32; o)).end(&self.0)
    }
}

impl Side {
    /// Everything but a connection.
    pub fn new() -> Side {
        let provider = make(|out| unsafe { DllGetClassObject(null(), &PROVIDER, out) });
        let (at, mut id) = (address(0), 0_u64);
        let resolved = call!(provider, 4, (*const u8, u32, *mut u64) -> i32;
            at.as_ptr(), 16, &mut id);
        assert_eq!(resolved, 0);
        let adapter = make(
            |out| call!(provider, 5, (*const Iid, u64, *mut *mut c_void) -> i32; &ADAPTER, id, out),
        );
        let mut file = 0_usize;
        assert_eq!(call!(adapter, 3, (*mut usize) -> i32; &mut file), 0);
        Side::on(adapter, file)
    }

    /// A queue pair and a connector of an adapter.
    fn on(adapter: Com, file: usize) -> Side {
        type Made = *mut *mut c_void;
        let queue = make(|out| {
            call!(adapter, 6, (*const Iid, usize, u32, u16, usize, Made) -> i32;
                &QUEUE, file, 64, 0, 0, out)
        });
        let pair = make(|out| {
            call!(adapter, 10,
                (*const Iid, *mut c_void, *mut c_void, usize, u32, u32, u32, u32, u32, Made) -> i32;
                &PAIR, queue.0, queue.0, 0, 16, 16, 4, 4, 64, out)
        });
        let connector =
            make(|out| call!(adapter, 12, (*const Iid, usize, Made) -> i32; &CONNECTOR, file, out));
        Side { connector, pair, queue, kept: Mutex::default(), adapter, file }
    }

    /// Two connected ends: (the one that connected, the one that accepted).
    pub fn pair() -> (Side, Side) {
        Side::connected(Side::new(), Side::new())
    }

    /// Two more, of the adapters that these two have.
    pub fn another(client: &Side, owner: &Side) -> (Side, Side) {
        let beside = |side: &Side| {
            let _: u32 = call!(side.adapter, 1, () -> u32;);
            Side::on(Com(side.adapter.0), side.file)
        };
        Side::connected(beside(client), beside(owner))
    }

    fn connected(client: Side, owner: Side) -> (Side, Side) {
        let listener = make(|out| {
            call!(owner.adapter, 13, (*const Iid, usize, *mut *mut c_void) -> i32;
                &LISTENER, owner.file, out)
        });
        let at = address(0);
        assert_eq!(call!(listener, 5, (*const u8, u32) -> i32; at.as_ptr(), 16), 0);
        assert_eq!(call!(listener, 6, (u32) -> i32; 0), 0);
        let (mut bytes, mut length) = ([0_u8; 16], 16_u32);
        let status = call!(listener, 7, (*mut u8, *mut u32) -> i32;
            bytes.as_mut_ptr(), &mut length);
        assert_eq!(status, 0);
        let asked = Started::by(
            |o| call!(listener, 8, (*mut c_void, *mut Overlapped) -> i32; owner.connector.0, o),
        );
        assert_eq!(call!(client.connector, 5, (*const u8, u32) -> i32; at.as_ptr(), 16), 0);
        let connecting = Started::by(|o| {
            call!(client.connector, 6,
                (*mut c_void, *const u8, u32, u32, u32, *const u8, u32, *mut Overlapped) -> i32;
                client.pair.0, bytes.as_ptr(), 16, 8, 8, null(), 0, o)
        });
        assert_eq!(asked.end(&listener), 0);
        let accepting = Started::by(|o| {
            call!(owner.connector, 8,
                (*mut c_void, u32, u32, *const u8, u32, *mut Overlapped) -> i32;
                owner.pair.0, 8, 8, null(), 0, o)
        });
        assert_eq!(connecting.end(&client.connector), 0);
        let completing = Started::by(|o| call!(client.connector, 7, (*mut Overlapped) -> i32; o));
        assert_eq!(completing.end(&client.connector), 0);
        assert_eq!(accepting.end(&owner.connector), 0);
        (client, owner)
    }

    /// Register all of it, or see how that fails.
    pub fn try_register(&self, pages: &Pages, flags: u32) -> Result<Region, i32> {
        let region = Region(make(|out| {
            call!(self.adapter, 7, (*const Iid, usize, *mut *mut c_void) -> i32;
                &REGION, self.file, out)
        }));
        let at = pages.address() as usize;
        let status = Started::by(|o| {
            call!(region.0, 5, (usize, usize, u32, *mut Overlapped) -> i32;
                at, pages.len(), flags, o)
        });
        match status.end(&region.0) {
            0 => Ok(region),
            status => Err(status),
        }
    }
    pub fn register(&self, pages: &Pages, flags: u32) -> Region {
        self.try_register(pages, flags).unwrap()
    }

    /// The status of the next completion.
    pub fn one(&self) -> i32 {
        let mut one = NdResult::default();
        let started = std::time::Instant::now();
        while call!(self.queue, 8, (*mut NdResult, u32) -> u32; &mut one, 1) == 0 {
            assert!(started.elapsed().as_secs() < 60, "no completion");
            std::thread::yield_now();
        }
        one.status
    }

    /// A Read or Write, to its end.
    pub fn transfer(&self, writes: bool, sge: Sge, address: u64, token: u32) -> i32 {
        type List = *const Sge;
        let posted = match writes {
            false => call!(self.pair, 8, (usize, List, u32, u64, u32, u32) -> i32;
                1, &sge, 1, address, token, 0),
            true => call!(self.pair, 9, (usize, List, u32, u64, u32, u32) -> i32;
                1, &sge, 1, address, token, 0),
        };
        if posted == 0 { self.one() } else { posted }
    }
    pub fn send(&self, sge: Sge) -> i32 {
        call!(self.pair, 4, (usize, *const Sge, u32, u32) -> i32; 1, &sge, 1, 0)
    }
    pub fn receive(&self, sge: Sge) -> i32 {
        call!(self.pair, 5, (usize, *const Sge, u32) -> i32; 1, &sge, 1)
    }
    /// A new window, bound: how the request ended, and the token. The window stays until this side
    /// goes.
    pub fn bind(&self, region: &Region, at: u64, length: usize) -> (i32, u32) {
        let window =
            make(|out| call!(self.adapter, 8, (*const Iid, *mut *mut c_void) -> i32; &WINDOW, out));
        let posted = call!(self.pair, 6,
            (usize, *mut c_void, *mut c_void, usize, usize, u32) -> i32;
            2, region.0.0, window.0, at as usize, length, ALLOW_READ);
        let status = if posted == 0 { self.one() } else { posted };
        let token = call!(window, 3, () -> u32;);
        self.kept.lock().unwrap().push(window);
        (status, token)
    }
    /// Invalidate the youngest window.
    pub fn invalidate(&self) -> i32 {
        let kept = self.kept.lock().unwrap();
        let window = kept.last().unwrap();
        let posted = call!(self.pair, 7, (usize, *mut c_void, u32) -> i32; 3, window.0, 0);
        if posted == 0 { self.one() } else { posted }
    }
    pub fn disconnect(&self) {
        let ended = Started::by(|o| call!(self.connector, 15, (*mut Overlapped) -> i32; o));
        assert_eq!(ended.end(&self.connector), 0);
    }
}

/// The name of a status, as the headers have it; of one that they only pass on, its own.
pub fn name(status: i32) -> String {
    if status as u32 == 0xC000_003E {
        return "STATUS_DATA_ERROR".to_owned();
    }
    let header = include_str!("../../../../../include/ndstatus.h");
    let value = format!("0x{:08x}", status as u32);
    let named = |line: &&str| line.to_ascii_lowercase().contains(&value);
    let line = header.lines().find(named).unwrap_or_else(|| panic!("{value} has no name"));
    let mut words = line.split_whitespace();
    words.find(|word| word.starts_with("ND_") || word.starts_with("STATUS_")).unwrap().to_owned()
}
