//! `bench memory`: what things cost in bytes of this process.
//!
//! Measured where memory comes from: an allocator that counts. What the kernel keeps for a socket
//! is not ours and not counted; what a thread's stack touches is not counted either.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicI64, Ordering};

use clap::Args as ClapArgs;
use serde::Serialize;
use transom::{Adapter, Path, QueuePair};
use transom_memory::{Config, DomainId, Memory, Registration, Rights, Scope, Segment};

use crate::bench::stats;
use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::{pairing, print_json, progress};

/// Options of `memory`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Args {
    /// Registrations
    #[arg(long, default_value_t = 1_000_000)]
    registrations: usize,
    /// Idle connections
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    unit: &'static str,
    registrations: usize,
    bytes_per_registration: f64,
    connections: usize,
    /// At each end, with one posted receive of 64 bytes.
    bytes_per_idle_connection: f64,
    /// Of an idle connection over shared memory: ours, and the pages of the shared memory (the other end has
    /// the same ones).
    bytes_per_idle_connection_process: f64,
    shared_bytes_per_idle_connection_process: f64,
}

/// Receives that each end of a connection holds: buffers are the program's choice, so few and small.
const RECEIVES: (u32, u32) = (1, 64);
/// Connections before the first that counts.
const WARM_UP: usize = 16;
/// Groups of connections that are measured.
const GROUPS: usize = 10;

pub(crate) fn run(args: &Args) -> Outcome {
    if args.registrations == 0 || args.connections == 0 {
        return Err(Failure::new(Exit::Usage, "nothing to measure")
            .try_this("--registrations 1000000 --connections 100"));
    }
    // First: what the connections leave behind is given back while others look.
    let each = registrations(args.registrations)?;
    let (tcp, _) = connections(args.connections, Path::Tcp)?;
    let (process, shared) = connections(args.connections, Path::Process)?;
    let report = Report {
        bench: "memory",
        unit: "bytes",
        registrations: args.registrations,
        bytes_per_registration: each,
        connections: args.connections,
        bytes_per_idle_connection: tcp,
        bytes_per_idle_connection_process: process,
        shared_bytes_per_idle_connection_process: shared,
    };
    if args.json {
        print_json(&report);
    } else {
        println!("memory");
        println!(
            "  registration      {:.1} bytes each, of {}",
            report.bytes_per_registration, report.registrations
        );
        println!(
            "  idle connection   {:.0} bytes of ours at each end, of {}",
            report.bytes_per_idle_connection, report.connections
        );
        println!(
            "  the same, process {:.0} bytes of ours at each end, and {:.0} that both share",
            report.bytes_per_idle_connection_process,
            report.shared_bytes_per_idle_connection_process
        );
    }
    Ok(())
}

fn registrations(count: usize) -> Outcome<f64> {
    let before = in_use();
    let memory = Memory::new([7; 32], Config::default());
    for index in progress::steps(count, "registrations") {
        let registration = Registration {
            scope: Scope::Domain(DomainId(1)),
            rights: Rights::LOCAL_READ,
            base: 4096,
            segments: &[Segment { host: 4096, length: 64 }],
        };
        memory.register(&registration).map_err(|why| {
            Failure::new(Exit::System, format!("registration {index} of {count}: {why:?}"))
        })?;
    }
    Ok((in_use() - before) as f64 / count as f64)
}

/// Bytes of ours at each end of a connection, and bytes that both ends share.
fn connections(count: usize, path: Path) -> Outcome<(f64, f64)> {
    let options = Adapter::options().path(path).shared_links(usize::MAX);
    let adapter = options.open(Ipv4Addr::LOCALHOST.into())?;
    let mut listener = adapter.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let to = listener.address();
    let mut ends: Vec<QueuePair> = Vec::with_capacity(2 * count);
    let ((receives, size), key) = (RECEIVES, pairing::key()?);
    // The first ones, and one group now and then, pay for what all share: staging buffers of threads,
    // tables that grow. So: the median of groups.
    let group = (count / GROUPS).max(1);
    let (mut before, mut each) = (0, Vec::new());
    for index in progress::steps(WARM_UP + group * GROUPS, "connections").map(|step| step + 1) {
        let (active, passive) = std::thread::scope(|both| {
            let connect = || adapter.connect(to).private_data(&key);
            let active = both.spawn(move || connect().receives(receives, size).wait());
            let incoming = pairing::next(&mut listener, &key);
            let passive = incoming.and_then(|it| it.receives(receives, size).accept().wait());
            (active.join(), passive)
        });
        let active = active.map_err(|_| Failure::new(Exit::System, "a thread is gone"))??;
        let passive = passive?;
        // A message each way, so that what is made on first use is there.
        active.send([1])?.wait()?;
        passive.recv().wait()?;
        passive.send([2])?.wait()?;
        active.recv().wait()?;
        ends.push(active);
        ends.push(passive);
        if index >= WARM_UP && (index - WARM_UP).is_multiple_of(group) {
            let now = in_use();
            if index > WARM_UP {
                each.push((now - before) as f64 / (2 * group) as f64);
            }
            before = now;
        }
    }
    Ok((stats::median(&mut each), shared() / (ends.len() as f64 / 2.0)))
}

/// Bytes of shared memory that this process, which has both ends of it, has in use.
fn shared() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let (mut ours, mut kilobytes) = (false, 0.0);
    for line in text.lines() {
        // A line with an address begins a mapping, one with a name and a colon says something of it.
        if line.contains("memfd:transom") {
            ours = true;
        } else if let Some(pss) = line.strip_prefix("Pss:").filter(|_| ours) {
            kilobytes += pss.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
            ours = false;
        }
    }
    kilobytes * 1024.0
}

/// The allocator of this program: the system's, and a counter.
struct Counting;

static IN_USE: AtomicI64 = AtomicI64::new(0);

fn in_use() -> i64 {
    IN_USE.load(Ordering::Relaxed)
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
