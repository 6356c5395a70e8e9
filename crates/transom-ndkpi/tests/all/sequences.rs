//! Random sequences of calls on two connected sides, through tables and pointers as a consumer in C
//! makes them: valid ones, and NULL, objects of the wrong kind, counts, lengths, flags and tokens
//! out of nowhere, everything in any order and on objects in any state. Whatever is called when:
//! nothing crashes, a status is one of the table's and no fault of the provider's, a request that
//! was accepted completes exactly once (a silent one only if it fails), and every object can be
//! closed at the end.
//!
//! `TRANSOM_SEED=s TRANSOM_SEQUENCES=n`: n sequences from seed s on; TRANSOM_TRACE prints what was
//! answered. A failure names its seed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::common::*;
use transom_ndkpi::dispatch::*;
use transom_ndkpi::flags::op;
use transom_ndkpi::types::*;
use transom_ndkpi::{Mode, Status};
use transom_testing::Random;

const SEQUENCES: u64 = 40;
const STEPS: usize = 250;
const COUNT: usize = 16;

/// A request that was accepted.
struct Accepted {
    silent: bool,
    completions: u32,
}

/// An end, with all that was made on it.
struct End {
    side: Side,
    pages: Pages,
    list: List,
    regions: Vec<Ptr>,
    windows: Vec<Ptr>,
    endpoints: Vec<Ptr>,
    requests: HashMap<usize, Accepted>,
    /// Closes under way, and what was closed and may not be named any more.
    closing: Vec<Arc<Cell<()>>>,
    connected: bool,
}

struct Sequence {
    seed: u64,
    random: Random,
    next: usize,
    trace: Vec<String>,
}

impl End {
    fn new(side: Side) -> End {
        let pages = Pages::new(COUNT);
        let (mr, _) = side.mr(&pages, 7);
        let list = pages.mdl();
        let (regions, windows) = (vec![mr, frmr(side.pd, 16, true)], vec![mw(side.pd)]);
        let (requests, closing, endpoints) = (HashMap::new(), Vec::new(), Vec::new());
        let connected = true;
        End { side, pages, list, regions, windows, endpoints, requests, closing, connected }
    }

    fn poll(&mut self, seed: u64) {
        let take = table::<CqDispatch>(self.side.cq).get_results_ex;
        loop {
            let mut some = [EMPTY; 16];
            let count = unsafe { take(self.side.cq, some.as_mut_ptr(), 16) } as usize;
            for result in &some[..count] {
                let status = Status(result.status);
                let context = result.request_context.addr();
                let request = self.requests.get_mut(&context);
                let request = request.unwrap_or_else(|| panic!("seed {seed}: never accepted"));
                request.completions += 1;
                assert_eq!(request.completions, 1, "seed {seed}: WR-13, completed twice");
                assert!(!request.silent || status != Status::SUCCESS, "seed {seed}: silent");
                known(seed, "a completion", status);
            }
            if count < some.len() {
                return;
            }
        }
    }
}

fn port_of(endpoint: Ptr) -> u16 {
    let (mut bytes, mut size) = ([0_u8; 16], 16);
    let get = table::<SharedEndpointDispatch>(endpoint).get_local_address;
    assert_eq!(unsafe { get(endpoint, bytes.as_mut_ptr().cast(), &mut size) }, 0);
    u16::from_be_bytes([bytes[2], bytes[3]])
}

fn known(seed: u64, what: &str, status: Status) {
    let fault = [Status::INTERNAL_ERROR, Status::PENDING, Status::DEVICE_REMOVED];
    assert!(status.name().is_some() && !fault.contains(&status), "seed {seed}: {what}: {status}");
}

impl Sequence {
    fn said(&mut self, what: &str, status: Status) -> bool {
        self.trace.push(format!("{what}: {status:?}"));
        known(self.seed, what, status);
        status == Status::SUCCESS
    }

    /// An object of these, or sometimes NULL, or an object of another kind.
    fn object(&mut self, of: &[Ptr], wrong: Ptr) -> Ptr {
        match self.random.below(40) {
            0 => null_mut(),
            1 => wrong,
            _ if of.is_empty() => null_mut(),
            _ => of[self.random.below(of.len())],
        }
    }

    fn sges(&mut self, end: &End, readable: bool) -> Vec<Sge> {
        let r = &mut self.random;
        let count = if r.one_in(24) { r.below(40) } else { r.below(3) };
        let mut list = Vec::new();
        for _ in 0..count {
            let mut sge = end.pages.sge(token(end.regions[0]), r.below(COUNT * PAGE), 0);
            sge.length = r.below(if readable { 100 } else { 3000 }) as u32;
            if r.one_in(24) {
                sge.token = if r.one_in(2) { r.next() as u32 } else { privileged(end.side.pd) };
            }
            if r.one_in(24) && !readable {
                sge.length = (r.next() >> r.below(64)) as u32;
                sge.address = sge.address.wrapping_add(r.next() >> r.below(64));
            }
            if readable {
                // Bytes that are there, whatever the flags say.
                sge.address = end.pages.sge(0, r.below(COUNT * PAGE - 100), 0).address;
            }
            list.push(sge);
        }
        list
    }

    fn flags(&mut self) -> u32 {
        let some = [0, 0, 0, op::SILENT_SUCCESS, op::READ_FENCE, op::SEND_AND_SOLICIT_EVENT, 0x200];
        let r = &mut self.random;
        if r.one_in(24) {
            r.next() as u32
        } else {
            some[r.below(some.len())] | some[r.below(some.len())]
        }
    }

    /// Where the other end may be written or read: live, dead, or made up.
    fn target(&mut self, there: &End) -> (u64, u32) {
        let r = &mut self.random;
        // Mostly what is open: the first refusal ends the connection.
        let token = match r.below(60) {
            0 => r.next() as u32,
            1 => 0,
            2..=4 => token(there.regions[r.below(there.regions.len())]),
            5..=10 if !there.windows.is_empty() => {
                window_token(there.windows[r.below(there.windows.len())])
            }
            _ => token(there.regions[0]),
        };
        let at = there.pages.sge(0, r.below(COUNT * PAGE - 8192), 0).address;
        (if r.one_in(60) { r.next() } else { at }, token)
    }

    fn post(&mut self, here: &mut End, there: &End) {
        let mut flags = self.flags();
        let inline = self.random.one_in(10);
        flags = if inline { flags | op::INLINE } else { flags & !op::INLINE };
        let list = self.sges(here, inline);
        self.next += 8;
        let context = std::ptr::without_provenance_mut::<c_void>(self.next);
        let qp = self.object(&[here.side.qp], here.side.cq);
        let r = &mut self.random;
        // NULL with a number is refused; a number beyond the list is never said.
        let nothing = r.one_in(40);
        let (sges, count) = (if nothing { null() } else { list.as_ptr() }, list.len() as u32);
        let count = if nothing && r.one_in(2) { r.next() as u32 } else { count };
        let t = table::<QpDispatch>(here.side.qp);
        let (address, token) = self.target(there);
        let silent = flags & op::SILENT_SUCCESS != 0;
        let (what, status, silent) = match self.random.below(12) {
            0 | 1 => ("send", unsafe { (t.send)(qp, context, sges, count, flags) }, silent),
            2..=4 => {
                let list = self.sges(here, false);
                let (list, count) = (list.as_ptr(), list.len() as u32);
                ("receive", unsafe { (t.receive)(qp, context, list, count) }, false)
            }
            5 => {
                let of = t.send_and_invalidate;
                let status = unsafe { of(qp, context, sges, count, flags, token) };
                ("send and invalidate", status, silent)
            }
            6 => {
                let flags = flags & !op::INLINE;
                let list = self.sges(here, false);
                let (list, count) = (list.as_ptr(), list.len() as u32);
                let status = unsafe { (t.read)(qp, context, list, count, address, token, flags) };
                ("read", status, silent)
            }
            7 | 8 => {
                let status = unsafe { (t.write)(qp, context, sges, count, address, token, flags) };
                ("write", status, silent)
            }
            9 => {
                let mr = self.object(&here.regions, here.side.pd);
                let mw = self.object(&here.windows, here.side.cq);
                let r = &mut self.random;
                let base = here.pages.sge(0, r.below(COUNT * PAGE), 0).address;
                let base = if r.one_in(16) { r.next() } else { base };
                let length = if r.one_in(16) { r.next() as usize } else { r.below(9000) };
                let rights = [op::ALLOW_REMOTE_READ, op::ALLOW_REMOTE_WRITE, 0x38, 0][r.below(4)];
                let base = std::ptr::without_provenance_mut(base as usize);
                let flags = flags & !op::INLINE | rights;
                let status = unsafe { (t.bind)(qp, context, mr, mw, base, length, flags) };
                ("bind", status, silent)
            }
            10 => {
                let all = [&here.windows[..], &here.regions].concat();
                let object = self.object(&all, here.side.pd);
                let flags = flags & !op::INLINE;
                let status = unsafe { (t.invalidate)(qp, context, object.cast(), flags) };
                ("invalidate", status, silent)
            }
            _ => {
                let mr = self.object(&here.regions, here.side.pd);
                let r = &mut self.random;
                // Pages of this process: the consumer has pinned what it names.
                let first = r.below(COUNT);
                let named = r.below(COUNT - first + 1);
                let pages: Vec<i64> =
                    (first..first + named).map(|i| here.pages.page(i).addr() as i64).collect();
                let offset = if r.one_in(12) { r.next() as u32 } else { r.below(PAGE) as u32 };
                let length = if r.one_in(12) { r.next() as usize } else { r.below(20_000) };
                let base = std::ptr::without_provenance_mut(r.next() as usize & !0xFFF);
                let (array, count) = (pages.as_ptr(), pages.len() as u32);
                let flags = flags & !op::INLINE | (r.below(8) as u32) << 3;
                let of = t.fast_register;
                let status =
                    unsafe { of(qp, context, mr, count, array, offset, length, base, flags) };
                ("fast register", status, silent)
            }
        };
        if self.said(what, Status(status)) {
            assert!(qp == here.side.qp);
            here.requests.insert(self.next, Accepted { silent, completions: 0 });
        }
    }

    fn memory(&mut self, here: &mut End) {
        let r = &mut self.random;
        match r.below(10) {
            0 if here.windows.len() < 6 => here.windows.push(mw(here.side.pd)),
            1 if here.windows.len() > 1 => {
                let window = here.windows.remove(r.below(here.windows.len()));
                here.closing.push(begin_close(window).1);
            }
            2 if here.regions.len() < 6 => here.regions.push(mr_of(here.side.pd, r.one_in(2))),
            3 if here.regions.len() > 2 => {
                let at = 2 + r.below(here.regions.len() - 2);
                here.closing.push(begin_close(here.regions.remove(at)).1);
            }
            4 | 5 => {
                let mr = here.regions[r.below(here.regions.len())];
                let length =
                    if r.one_in(8) { r.next() as usize } else { r.below(here.pages.len() + 1) };
                let flags = if r.one_in(12) { r.next() as u32 } else { r.below(16) as u32 };
                let list = if r.one_in(12) { null_mut() } else { here.list.0 };
                let (_, status) = register(mr, list, length, flags);
                self.said("register", status);
            }
            6 => {
                // The first region stays: requests name it.
                let at = r.below(here.regions.len()).max(1);
                let (_, status) = deregister(here.regions[at]);
                self.said("deregister", status);
            }
            7 => {
                let mr = here.regions[r.below(here.regions.len())];
                let pages = if r.one_in(8) { r.next() as u32 } else { r.below(20) as u32 };
                let (_, status) = initialize(mr, pages, r.one_in(2));
                self.said("initialize", status);
            }
            8 => {
                let room = [0, 8, 24, 4096][r.below(4)];
                let length = if r.one_in(8) { r.next() as usize } else { here.pages.len() };
                let (status, mut lam) = build_lam(here.side.adapter, &here.list, length, room);
                if self.said("build", status) {
                    lam.release(here.side.adapter);
                }
            }
            _ => {
                let (mut info, mut size) =
                    (std::mem::MaybeUninit::<AdapterInfo>::zeroed(), r.below(120) as u32);
                let t = table::<AdapterDispatch>(here.side.adapter);
                // No more than there is.
                size = size.min(size_of::<AdapterInfo>() as u32);
                let status = unsafe {
                    (t.query_adapter_info)(here.side.adapter, info.as_mut_ptr(), &mut size)
                };
                self.said("query", Status(status));
            }
        }
    }

    fn connection(&mut self, here: &mut End) {
        let t = table::<ConnectorDispatch>(here.side.connector);
        let connector = here.side.connector;
        let r = &mut self.random;
        let (at, private) = (address(r.next() as u16), [7_u8; 600]);
        let status = match r.below(18) {
            0 if r.one_in(6) => end_of(|cb, ctx| unsafe { (t.disconnect)(connector, cb, ctx) }),
            1 if r.one_in(6) => {
                let flush = table::<QpDispatch>(here.side.qp).flush;
                unsafe { flush(here.side.qp) };
                Status::SUCCESS
            }
            2 => {
                // On a connector that is in use: whatever the arguments, it begins nothing.
                let qp = if r.one_in(4) { null_mut() } else { here.side.qp };
                let name: *const c_void = if r.one_in(4) { null() } else { at.as_ptr().cast() };
                let size = r.below(17) as u32;
                let data = r.below(private.len()) as u32;
                let from = address(0);
                end_of(|cb, ctx| unsafe {
                    let from = from.as_ptr().cast();
                    let bytes = private.as_ptr().cast();
                    (t.connect)(connector, qp, from, 16, name, size, 1, 1, bytes, data, cb, ctx)
                })
            }
            3 => {
                let none = null_mut();
                end_of(|cb, ctx| unsafe { (t.complete_connect)(connector, None, none, cb, ctx) })
            }
            4 => Status(unsafe {
                (t.reject)(connector, private.as_ptr().cast(), r.below(600) as u32)
            }),
            5 => {
                let (qp, none) = (here.side.qp, null_mut());
                let bytes = private.as_ptr().cast();
                let size = r.below(600) as u32;
                end_of(|cb, ctx| unsafe {
                    (t.accept)(connector, qp, 1, 1, bytes, size, None, none, cb, ctx)
                })
            }
            6 => {
                let (mut inbound, mut outbound, mut size) = (0, 0, r.below(600) as u32);
                let mut data = [0_u8; 600];
                let to: *mut c_void =
                    if r.one_in(4) { null_mut() } else { data.as_mut_ptr().cast() };
                if to.is_null() {
                    size = 0;
                }
                Status(unsafe {
                    (t.get_connection_data)(connector, &mut inbound, &mut outbound, to, &mut size)
                })
            }
            7 => {
                let (mut bytes, mut size) = ([0_u8; 32], r.below(33) as u32);
                let of = [t.get_local_address, t.get_peer_address][r.below(2)];
                Status(unsafe { of(connector, bytes.as_mut_ptr().cast(), &mut size) })
            }
            8 => {
                let arm = table::<CqDispatch>(here.side.cq).arm;
                unsafe { arm(here.side.cq, r.below(5) as u32) };
                Status::SUCCESS
            }
            9 => {
                let moderate = table::<CqDispatch>(here.side.cq).control_interrupt_moderation;
                let [interval, count] = [(); 2].map(|()| match r.below(4) {
                    0 => u32::MAX,
                    1 => r.next() as u32,
                    _ => r.below(3) as u32,
                });
                Status(unsafe { moderate(here.side.cq, interval, count) })
            }
            10 => {
                let resize = table::<CqDispatch>(here.side.cq).resize;
                let depth = if r.one_in(4) { r.next() as u32 } else { 256 + r.below(256) as u32 };
                end_of(|cb, ctx| unsafe { resize(here.side.cq, depth, cb, ctx) })
            }
            11 | 12 if here.endpoints.len() < 4 => {
                // Any port, or one of its own: another one may be another test's.
                let taken = here.endpoints.first().filter(|_| r.one_in(4));
                let port = taken.map_or(0, |&endpoint| port_of(endpoint));
                match endpoint(here.side.adapter, port) {
                    Ok(endpoint) => {
                        here.endpoints.push(endpoint);
                        Status::SUCCESS
                    }
                    Err(status) => status,
                }
            }
            13 if !here.endpoints.is_empty() => {
                let gone = here.endpoints.swap_remove(r.below(here.endpoints.len()));
                here.closing.push(begin_close(gone).1);
                Status::SUCCESS
            }
            14 | 15 => {
                // On a connector that is in use: whatever the arguments, it begins nothing.
                let qp = if r.one_in(4) { null_mut() } else { here.side.qp };
                let (size, data) = (r.below(17) as u32, r.below(private.len()) as u32);
                let from = self.object(&here.endpoints, here.side.cq);
                end_of(|cb, ctx| unsafe {
                    let (to, bytes) = (at.as_ptr().cast(), private.as_ptr().cast());
                    let connect = t.connect_with_shared_endpoint;
                    connect(connector, qp, from, to, size, 1, 1, bytes, data, cb, ctx)
                })
            }
            _ => return,
        };
        self.said("connection", status);
    }

    /// Objects of every kind on NULL, and what may be left out.
    fn nothing(&mut self, here: &End) {
        let none: Ptr = null_mut();
        let t = table::<QpDispatch>(here.side.qp);
        unsafe {
            (t.flush)(none);
            assert_eq!((t.close)(null_mut(), None, null_mut()), 0);
            let list: *const Sge = null();
            let of = [
                (t.send)(none, null_mut(), list, 0, 0),
                (t.receive)(none, null_mut(), list, 0),
                (t.receive)(here.side.cq, null_mut(), list, 0),
                (t.bind)(none, null_mut(), none, none, null_mut(), 0, 0),
                (table::<MrDispatch>(here.regions[0]).deregister)(none, None, null_mut()),
            ];
            for status in of {
                assert_eq!(Status(status), Status::INVALID_PARAMETER);
            }
            assert_eq!((table::<MrDispatch>(here.regions[0]).get_local_token)(none), 0);
            let cq = table::<CqDispatch>(here.side.cq);
            assert_eq!((cq.get_results)(none, null_mut(), 5), 0);
            assert_eq!((cq.get_results)(here.side.cq, null_mut(), 5), 0);
            (cq.arm)(none, 0);
        }
    }

    fn run(&mut self, mode: Mode) -> usize {
        let (client, server) = pair(mode);
        let mut ends = [End::new(client), End::new(server)];
        for _ in 0..STEPS {
            let which = self.random.below(2);
            let [one, other] = &mut ends;
            let (here, there) = if which == 0 { (one, other) } else { (other, one) };
            match self.random.below(16) {
                0..=9 => self.post(here, there),
                10..=12 => self.memory(here),
                13 => self.connection(here),
                14 => here.poll(self.seed),
                _ => self.nothing(here),
            }
            if self.random.one_in(4) {
                ends.iter_mut().for_each(|end| end.poll(self.seed));
            }
        }
        let mut accepted = 0;
        for mut end in ends {
            // A request under way ends with the queue pair, and is reported before the queue goes.
            let flush = table::<QpDispatch>(end.side.qp).flush;
            end.connected = disconnect(end.side.connector) == Status::SUCCESS;
            unsafe { flush(end.side.qp) };
            end.poll(self.seed);
            for (context, request) in &end.requests {
                let times = u32::from(!request.silent);
                let right = request.completions == times || request.silent;
                assert!(right, "seed {}: request {context:#x} never completed", self.seed);
            }
            accepted += end.requests.len();
            // NDK LT-9: in any order; each waits for what hangs on it.
            let mut objects = vec![end.side.connector, end.side.qp, end.side.cq, end.side.pd];
            objects.append(&mut end.regions);
            objects.append(&mut end.windows);
            objects.append(&mut end.endpoints);
            while !objects.is_empty() {
                let object = objects.swap_remove(self.random.below(objects.len()));
                end.closing.push(begin_close(object).1);
            }
            end.closing.iter().for_each(|cell| cell.get());
            close_adapter(end.side.adapter);
        }
        accepted
    }
}

#[test]
fn no_sequence_of_calls_crashes_loses_a_request_or_leaves_an_object() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("TRANSOM_SEED").unwrap_or(1), number("TRANSOM_SEQUENCES"));
    let modes = Mode::ALL;
    let mut accepted = 0;
    for seed in first..first + count.unwrap_or(SEQUENCES) {
        let (random, trace) = (Random(seed), Vec::new());
        let mut sequence = Sequence { seed, random, next: 0, trace };
        accepted += sequence.run(modes[seed as usize % modes.len()]);
        if std::env::var_os("TRANSOM_TRACE").is_some() {
            println!("{:#?}", sequence.trace);
        }
    }
    assert!(accepted > 0, "no request was accepted at all");
}
