//! Two ends of a connection as a C program has them: the shared library is loaded, and its functions are
//! called through the structures of `<infiniband/verbs.h>`.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::{from_mut, from_ref, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::subjects::Outcome;

/// Requests, and receives, of a queue pair that are posted together.
pub(crate) const CHAIN: usize = 16;

/// The operation of half a round, or of a round for what fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    WriteInline,
    WriteWithImmediate,
    Send,
    Read,
    FetchAdd,
}

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type PostReceive =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
type PollQueue = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// The functions of the library that are not reached through a context.
struct Library {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    create_cq: unsafe extern "C" fn(
        *mut ibv_context,
        c_int,
        *mut c_void,
        *mut ibv_comp_channel,
        c_int,
    ) -> *mut ibv_cq,
    create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut [u64; 2]) -> c_int,
}

/// A function of the library by its name.
///
/// # Safety
/// `F` is a pointer to a function with the parameters that the header declares.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Outcome<F> {
    // SAFETY: a library that is never closed, and a name that ends with a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("the verbs library has no {}", name.to_string_lossy()).into());
    }
    // SAFETY: this function's contract; a pointer to a function is as large as any other.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

impl Library {
    /// The library that was built beside this program.
    fn load() -> Outcome<Library> {
        let program = std::env::current_exe()?;
        let file = program.with_file_name("libtransom_verbs.so");
        let name = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: the library's initialisers make no demands.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            let build = "cargo build --release -p transom-verbs";
            return Err(format!("{} cannot be loaded: {build}", file.display()).into());
        }
        // SAFETY: the types are those of the header.
        unsafe {
            Ok(Library {
                get_device_list: function(library, c"ibv_get_device_list")?,
                open_device: function(library, c"ibv_open_device")?,
                alloc_pd: function(library, c"ibv_alloc_pd")?,
                reg_mr: function(library, c"ibv_reg_mr")?,
                create_cq: function(library, c"ibv_create_cq")?,
                create_qp: function(library, c"ibv_create_qp")?,
                modify_qp: function(library, c"ibv_modify_qp")?,
                query_gid: function(library, c"ibv_query_gid")?,
            })
        }
    }
}

fn made<T>(what: &str, pointer: *mut T) -> Outcome<*mut T> {
    if pointer.is_null() {
        return Err(format!("{what}: {}", std::io::Error::last_os_error()).into());
    }
    Ok(pointer)
}

fn done(what: &str, result: c_int) -> Outcome {
    if result == 0 {
        return Ok(());
    }
    Err(format!("{what}: {}", std::io::Error::from_raw_os_error(result)).into())
}

/// The words of one end that requests of both ends name.
#[derive(Default)]
struct Words {
    /// The peer writes it, and its receives are filled here.
    arrives: AtomicU64,
    /// Requests of this end take it.
    leaves: AtomicU64,
    /// Bytes that this end fetches come here.
    fetched: AtomicU64,
}

/// An end of the connection.
pub(crate) struct Side {
    queue: *mut ibv_qp,
    completions: *mut ibv_cq,
    post_send: PostSend,
    post_receive: PostReceive,
    poll: PollQueue,
    words: &'static Words,
    local: u32,
    remote: u32,
    gid: [u64; 2],
    /// Requests whose completions have not been polled.
    outstanding: usize,
}

impl Side {
    fn new(library: &Library) -> Outcome<Side> {
        let words: &'static Words = Box::leak(Box::default());
        let rights = access::LOCAL_WRITE
            | access::REMOTE_WRITE
            | access::REMOTE_READ
            | access::REMOTE_ATOMIC;
        let address = from_ref(words).expose_provenance();
        // SAFETY: objects that are never freed, and structures as the header has them.
        unsafe {
            let mut count = 0;
            let list = made("ibv_get_device_list", (library.get_device_list)(&raw mut count))?;
            if count == 0 {
                return Err("the verbs library shows no device".into());
            }
            let context = made("ibv_open_device", (library.open_device)(*list))?;
            let domain = made("ibv_alloc_pd", (library.alloc_pd)(context))?;
            let at = std::ptr::with_exposed_provenance_mut(address);
            let region = (library.reg_mr)(domain, at, size_of::<Words>(), rights.cast_signed());
            let region = made("ibv_reg_mr", region)?;
            let completions = (library.create_cq)(context, 256, null_mut(), null_mut(), 0);
            let completions = made("ibv_create_cq", completions)?;
            let depth = 4 * CHAIN as u32;
            let mut wanted = ibv_qp_init_attr {
                qp_context: null_mut(),
                send_cq: completions,
                recv_cq: completions,
                srq: null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: depth,
                    max_recv_wr: depth,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 8,
                },
                qp_type: qpt::RC,
                sq_sig_all: 0,
            };
            let queue = made("ibv_create_qp", (library.create_qp)(domain, &raw mut wanted))?;
            let mut gid = [0; 2];
            done("ibv_query_gid", (library.query_gid)(context, 1, 0, &raw mut gid))?;
            let ops = &(*context).ops;
            Ok(Side {
                queue,
                completions,
                post_send: std::mem::transmute::<Op, PostSend>(ops.post_send),
                post_receive: std::mem::transmute::<Op, PostReceive>(ops.post_recv),
                poll: std::mem::transmute::<Op, PollQueue>(ops.poll_cq),
                words,
                local: (*region).lkey,
                remote: (*region).rkey,
                gid,
                outstanding: 0,
            })
        }
    }

    fn number(&self) -> u32 {
        // SAFETY: a queue pair that is never destroyed.
        unsafe { (*self.queue).qp_num }
    }

    /// From RESET to RTS, as a peer of `to`.
    fn join(&self, library: &Library, to: &Side) -> Outcome {
        let rights = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
        let mut address = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        (address.grh.dgid, address.grh.hop_limit) = (to.gid, 1);
        let init = ibv_qp_attr {
            qp_state: qps::INIT,
            port_num: 1,
            qp_access_flags: rights,
            ..ibv_qp_attr::default()
        };
        let receives = ibv_qp_attr {
            qp_state: qps::RTR,
            path_mtu: 3,
            dest_qp_num: to.number(),
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ah_attr: address,
            ..ibv_qp_attr::default()
        };
        let sends = ibv_qp_attr {
            qp_state: qps::RTS,
            timeout: 0,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..ibv_qp_attr::default()
        };
        let steps = [
            (init, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS),
            (
                receives,
                mask::STATE
                    | mask::AV
                    | mask::PATH_MTU
                    | mask::DEST_QPN
                    | mask::RQ_PSN
                    | mask::MAX_DEST_RD_ATOMIC
                    | mask::MIN_RNR_TIMER,
            ),
            (
                sends,
                mask::STATE
                    | mask::TIMEOUT
                    | mask::RETRY_CNT
                    | mask::RNR_RETRY
                    | mask::SQ_PSN
                    | mask::MAX_QP_RD_ATOMIC,
            ),
        ];
        for (mut attributes, members) in steps {
            // SAFETY: a queue pair that is never destroyed, and its attributes.
            let changed = unsafe {
                (library.modify_qp)(self.queue, &raw mut attributes, members.cast_signed())
            };
            done("ibv_modify_qp", changed)?;
        }
        Ok(())
    }

    fn entry(&self, word: &AtomicU64) -> ibv_sge {
        let addr = from_ref(word).addr() as u64;
        ibv_sge { addr, length: 8, lkey: self.local }
    }

    /// A request for the peer `to`. `entry`: room for its list.
    fn request(&self, to: &Side, kind: Kind, turn: u64, entry: &mut ibv_sge) -> ibv_send_wr {
        let (opcode, remote) = match kind {
            Kind::Write | Kind::WriteInline => (wr::RDMA_WRITE, &to.words.arrives),
            Kind::WriteWithImmediate => (wr::RDMA_WRITE_WITH_IMM, &to.words.arrives),
            Kind::Send => (wr::SEND, &to.words.arrives),
            Kind::Read => (wr::RDMA_READ, &to.words.leaves),
            Kind::FetchAdd => (wr::ATOMIC_FETCH_AND_ADD, &to.words.arrives),
        };
        let fetches = matches!(kind, Kind::Read | Kind::FetchAdd);
        *entry = self.entry(if fetches { &self.words.fetched } else { &self.words.leaves });
        let inline = if kind == Kind::WriteInline { send::INLINE } else { 0 };
        let operand = if kind == Kind::FetchAdd { 1 } else { u64::from(to.remote) };
        ibv_send_wr {
            wr_id: turn,
            next: null_mut(),
            sg_list: entry,
            num_sge: 1,
            opcode,
            send_flags: send::SIGNALED | inline,
            imm_data: turn as u32,
            wr: ibv_send_wr_remote {
                remote_addr: from_ref(remote).addr() as u64,
                rkey_or_compare: operand,
                swap: 0,
                atomic_rkey: to.remote,
            },
            remote_srqn: 0,
            bind_mw: ibv_send_wr_bind {
                mw: null_mut(),
                rkey: 0,
                bind_info: ibv_mw_bind_info {
                    mr: null_mut(),
                    addr: 0,
                    length: 0,
                    mw_access_flags: 0,
                },
            },
        }
    }

    /// Post a chain, of which `signaled` requests complete.
    fn post(&mut self, first: &mut ibv_send_wr, signaled: usize) -> Outcome {
        let mut bad = null_mut();
        self.outstanding += signaled;
        // SAFETY: a queue pair, and requests with their lists, which last until the call returns.
        done("ibv_post_send", unsafe { (self.post_send)(self.queue, first, &raw mut bad) })
    }

    /// Post `count` receives, linked to each other.
    fn receive(&self, count: usize) -> Outcome {
        let mut entries = [self.entry(&self.words.arrives); CHAIN];
        let blank = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 1 };
        let mut chain = [blank; CHAIN];
        for (receive, entry) in chain.iter_mut().zip(&mut entries) {
            receive.sg_list = entry;
        }
        link(&mut chain[..count], |receive, next| receive.next = next);
        let mut bad = null_mut();
        // SAFETY: a queue pair, and receives with their lists, which last until the call returns.
        let posted = unsafe { (self.post_receive)(self.queue, chain.as_mut_ptr(), &raw mut bad) };
        done("ibv_post_recv", posted)
    }

    /// Poll once for at most as many completions as `room` has: how many requests and how many
    /// receives have completed.
    fn poll(&mut self, room: &mut [ibv_wc]) -> Outcome<(usize, usize)> {
        let most = c_int::try_from(room.len())?;
        // SAFETY: a completion queue, and room for so many completions.
        let found = unsafe { (self.poll)(self.completions, most, room.as_mut_ptr()) };
        let found = usize::try_from(found).map_err(|_| "ibv_poll_cq has failed")?;
        let mut receives = 0;
        for completion in room.iter().take(found) {
            if completion.status != status::SUCCESS {
                return Err(format!("a request ended with status {}", completion.status).into());
            }
            receives += usize::from(completion.opcode & wc::RECV != 0);
        }
        self.outstanding -= found - receives;
        Ok((found - receives, receives))
    }
}

/// Have each of them name the next one.
fn link<T>(chain: &mut [T], mut name: impl FnMut(&mut T, *mut T)) {
    let mut behind = null_mut();
    for one in chain.iter_mut().rev() {
        name(one, behind);
        behind = from_mut(one);
    }
}

/// Two contexts of this process and a connection between them.
pub(crate) fn connect() -> Outcome<[Side; 2]> {
    let library = Library::load()?;
    let (mut near, mut far) = (Side::new(&library)?, Side::new(&library)?);
    near.join(&library, &far)?;
    far.join(&library, &near)?;
    near.receive(CHAIN)?;
    far.receive(CHAIN)?;
    // The connection is made behind the program's back: the first message waits for it.
    let mut entry = ibv_sge::default();
    let mut first = near.request(&far, Kind::Write, 1, &mut entry);
    near.post(&mut first, 1)?;
    let (begin, mut room) = (Instant::now(), [ibv_wc::default()]);
    while near.outstanding > 0 {
        far.poll(&mut room)?;
        near.poll(&mut room)?;
        if begin.elapsed() > Duration::from_secs(30) {
            return Err("the queue pairs do not find each other".into());
        }
    }
    Ok([near, far])
}

/// A message from one side that the other side has seen, and the completion of that one's message before;
/// of what fetches, the completion of the request.
pub(crate) fn round(from: &mut Side, to: &mut Side, kind: Kind, turn: u64) -> Outcome {
    let mut entry = ibv_sge::default();
    from.words.leaves.store(turn, Ordering::Release);
    let mut request = from.request(to, kind, turn, &mut entry);
    from.post(&mut request, 1)?;
    let mut room = [ibv_wc::default()];
    match kind {
        Kind::Read | Kind::FetchAdd => {
            while from.outstanding > 0 {
                to.poll(&mut room)?;
                from.poll(&mut room)?;
            }
        }
        Kind::Write | Kind::WriteInline => loop {
            to.poll(&mut room)?;
            if to.words.arrives.load(Ordering::Acquire) == turn && to.outstanding == 0 {
                break;
            }
        },
        Kind::Send | Kind::WriteWithImmediate => {
            let mut received = 0;
            while received == 0 || to.outstanding > 0 {
                received += to.poll(&mut room)?.1;
            }
            to.receive(1)?;
        }
    }
    Ok(())
}

/// A chain of Sends of which the last one completes, received, and as many receives posted again; and the
/// completion of the other side's chain before. (That of this chain comes with the other side's next
/// message, or with time, which stands still here.)
pub(crate) fn chain(from: &mut Side, to: &mut Side, turn: u64) -> Outcome {
    from.words.leaves.store(turn, Ordering::Release);
    let mut entries = [ibv_sge::default(); CHAIN];
    let mut chain = entries.each_mut().map(|entry| from.request(to, Kind::Send, turn, entry));
    for unsignaled in chain.iter_mut().take(CHAIN - 1) {
        unsignaled.send_flags = 0;
    }
    link(&mut chain, |request, next| request.next = next);
    from.post(&mut chain[0], 1)?;
    let (mut room, mut received) = ([ibv_wc::default(); CHAIN], 0);
    while received < CHAIN || to.outstanding > 0 {
        received += to.poll(&mut room)?.1;
    }
    to.receive(CHAIN)
}
