//! The interface as a switch in C uses it: tables, extension functions by GUID, upcalls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use transom_winsock_direct::abi::*;
use transom_winsock_direct::extension::{EXTENSIONS, Extension};
use transom_winsock_direct::tables::*;
use transom_winsock_direct::{Error, WSPStartupEx};

static HANDLES: AtomicUsize = AtomicUsize::new(1);
static COMPLETED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn create(_: u32, _: usize, _: *mut i32) -> usize {
    HANDLES.fetch_add(1, Ordering::SeqCst)
}
unsafe extern "C" fn close(_: usize, _: *mut i32) -> i32 {
    0
}
unsafe extern "C" fn event(_: *mut c_void, _: *mut i32) -> i32 {
    1
}
unsafe extern "C" fn complete(_: usize, _: *mut Overlapped, _: u32, _: u32, _: *mut i32) -> i32 {
    COMPLETED.fetch_add(1, Ordering::SeqCst);
    0
}

fn address(port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

/// WSD W5, W25, 2.1, 2.4: one process, both ends of a connection, through the tables.
#[test]
fn w05_w25_the_functions_from_c() {
    let none = std::ptr::null::<c_void>();
    let upcalls = UpcallTableEx {
        close_socket_handle: Some(close),
        create_socket_handle: Some(create),
        reset_event: Some(event),
        set_event: Some(event),
        complete_overlapped_request: Some(complete),
        ..UpcallTableEx::NONE
    };
    let mut table = std::mem::MaybeUninit::<ProcTable>::uninit();
    let mut data = WspData { version: 0, high_version: 0, description: [0; 256] };
    let mut start = |version| unsafe {
        WSPStartupEx(version, &mut data, std::ptr::null(), &upcalls, table.as_mut_ptr())
    };
    assert_eq!(Error(start(0x0101)), Error::WSAVERNOTSUPPORTED);
    assert_eq!((start(0x0202), start(0x0202)), (0, 0), "counted");
    let table = unsafe { table.assume_init() };
    let mut errno = 0;
    let null = std::ptr::null_mut();

    let function = |wanted: Extension| {
        let (guid, _) = EXTENSIONS.into_iter().find(|(_, e)| *e == wanted).unwrap();
        let (mut found, mut bytes, mut errno) = (0_usize, 0, 0);
        let input = (&raw const guid).cast();
        let out = (&raw mut found).cast();
        let code = SIO_GET_EXTENSION_FUNCTION_POINTER;
        let done = unsafe {
            table.ioctl.unwrap()(
                INVALID_SOCKET,
                code,
                input,
                16,
                out,
                8,
                &mut bytes,
                std::ptr::null_mut(),
                none,
                null,
                &mut errno,
            )
        };
        assert_eq!((done, bytes), (0, 8), "without a socket");
        found
    };
    let register: RegisterMemory =
        unsafe { std::mem::transmute(function(Extension::RegisterMemory)) };
    let expose: RegisterRdmaMemory =
        unsafe { std::mem::transmute(function(Extension::RegisterRdmaMemory)) };
    let conceal: DeregisterRdmaMemory =
        unsafe { std::mem::transmute(function(Extension::DeregisterRdmaMemory)) };
    let rdma_write: Rdma = unsafe { std::mem::transmute(function(Extension::RdmaWrite)) };

    let socket = || unsafe { table.socket.unwrap()(2, 1, 6, std::ptr::null(), 0, 1, &mut 0) };
    let (listener, client) = (socket(), socket());
    // A port that no other socket gets before the listener has it.
    let held = transom_testing::ports::Held::new().unwrap();
    let port = held.address().port();
    let at = address(port);
    let server = std::thread::spawn(move || unsafe {
        let at = address(port);
        assert_eq!(table.bind.unwrap()(listener, at.as_ptr().cast(), 16, &mut 0), 0);
        assert_eq!(table.listen.unwrap()(listener, 4, &mut 0), 0);
        loop {
            let (mut errno, mut peer, mut length) = (0, [0_u8; 16], 16);
            let accept = table.accept.unwrap();
            let s = accept(listener, peer.as_mut_ptr().cast(), &mut length, None, 0, &mut errno);
            if s != INVALID_SOCKET {
                assert_eq!(&peer[4..8], &[127, 0, 0, 1]);
                return s;
            }
            assert_eq!(Error(errno), Error::WSAEWOULDBLOCK);
            std::thread::yield_now();
        }
    });
    let connect = || unsafe {
        let (name, nothing) = (at.as_ptr().cast(), std::ptr::null_mut());
        let c = table.connect.unwrap();
        c(client, name, 16, std::ptr::null(), nothing, none, none, &mut 0)
    };
    // WSD C-8: no data goes along with a connect.
    let data = WsaBuf { len: 1, buf: (&raw const at).cast_mut().cast() };
    let refused = unsafe {
        let (name, nothing) = (at.as_ptr().cast(), std::ptr::null_mut());
        table.connect.unwrap()(client, name, 16, &data, nothing, none, none, &mut errno)
    };
    assert_eq!((refused, Error(errno)), (SOCKET_ERROR, Error::WSAEINVAL));
    // The other thread may not listen yet; each try needs a new socket.
    let mut connected = connect();
    let mut client = client;
    while connected != 0 {
        client = socket();
        let (name, nothing) = (at.as_ptr().cast(), std::ptr::null_mut());
        let c = table.connect.unwrap();
        connected =
            unsafe { c(client, name, 16, std::ptr::null(), nothing, none, none, &mut errno) };
    }
    let accepted = server.join().unwrap();

    // WSD W5: the question for the size needs no buffer.
    let (mut length, mut descriptor) = (0, [0_u8; 64]);
    let probe = unsafe { expose(accepted, null, 0, MEM_READWRITE, null, &mut length, &mut errno) };
    assert_eq!((probe, Error(errno), length), (SOCKET_ERROR, Error::WSAEFAULT, 16));
    let mut memory = vec![0_u8; 4096].into_boxed_slice();
    let at = memory.as_mut_ptr().cast();
    let out = descriptor.as_mut_ptr().cast();
    for (room, right) in [(15, false), (16, true), (64, true)] {
        length = room;
        let made =
            unsafe { expose(accepted, at, 4096, MEM_READWRITE, out, &mut length, &mut errno) };
        assert_eq!((made == 0, length), (right, 16));
    }
    let mut own = vec![7_u8; 4096].into_boxed_slice();
    let from = own.as_mut_ptr();
    let handle = unsafe { register(client, from.cast(), 4096, 1, &mut errno) };
    assert!(!handle.is_null());
    let mut buffer = WsaBufEx { len: 100, buf: from.cast(), handle };
    let event = std::ptr::without_provenance_mut(1);
    let mut overlapped =
        Overlapped { internal: 0, internal_high: 0, offset: 0, offset_high: 0, event };
    let (o, mut moved, mut flags) = (&raw mut overlapped, 0, 9);
    // WSD O-1: no completion routines; 5.6: no flags, not too many buffers, a whole descriptor.
    let routine = (&raw const COMPLETED).cast::<c_void>();
    for (count, length, flags, routine) in
        [(1, 16, 0, routine), (9, 16, 0, none), (1, 15, 0, none), (1, 16, 1, none)]
    {
        let b = &mut buffer;
        let refused = unsafe {
            let (m, e) = (&raw mut moved, &raw mut errno);
            rdma_write(client, b, count, out, length, 50, m, flags, o, routine, null, e)
        };
        assert_eq!((refused, Error(errno)), (SOCKET_ERROR, Error::WSAEINVAL));
    }
    let begun = unsafe {
        rdma_write(client, &mut buffer, 1, out, 16, 50, &mut moved, 0, o, none, null, &mut errno)
    };
    assert_eq!((begun, Error(errno)), (SOCKET_ERROR, Error::WSA_IO_PENDING), "O-2");
    let result = table.get_overlapped_result.unwrap();
    while unsafe { result(client, o, &mut moved, 0, &mut flags, &mut errno) } == 0 {
        assert_eq!(Error(errno), Error::WSA_IO_INCOMPLETE);
    }
    assert_eq!((moved, flags), (100, 0));
    assert_eq!(COMPLETED.load(Ordering::SeqCst), 0, "O-3: polled");
    assert!(memory[50..150].iter().all(|&byte| byte == 7) && memory[150] == 0 && memory[49] == 0);

    // WSD W25: late, after the close.
    assert_eq!(unsafe { table.close_socket.unwrap()(accepted, &mut errno) }, 0);
    assert_eq!(unsafe { conceal(accepted, out, 16, &mut errno) }, SOCKET_ERROR);
    assert_eq!(Error(errno), Error::WSAENOTSOCK);
    let cleanup = table.cleanup.unwrap();
    assert_eq!(unsafe { (cleanup(&mut errno), cleanup(&mut errno)) }, (0, 0));
    assert_eq!(unsafe { cleanup(&mut errno) }, SOCKET_ERROR, "counted");
    assert_eq!(Error(errno), Error::WSAENETDOWN);

    // Started again, it does not know the sockets of before, nor call new ones by their names (WSD
    // D-3).
    let mut table = std::mem::MaybeUninit::<ProcTable>::uninit();
    let started = unsafe {
        WSPStartupEx(0x0202, std::ptr::null_mut(), std::ptr::null(), &upcalls, table.as_mut_ptr())
    };
    assert_eq!(started, 0);
    let table = unsafe { table.assume_init() };
    for old in [listener, client, accepted] {
        assert_eq!(unsafe { table.close_socket.unwrap()(old, &mut errno) }, SOCKET_ERROR);
        assert_eq!(Error(errno), Error::WSAENOTSOCK);
    }
    for _ in 0..16 {
        let new = unsafe { table.socket.unwrap()(2, 1, 6, std::ptr::null(), 0, 1, &mut errno) };
        assert!(![listener, client, accepted, INVALID_SOCKET].contains(&new));
    }
    assert_eq!(unsafe { table.cleanup.unwrap()(&mut errno) }, 0);
}

const MEM_READWRITE: u32 = 3;
