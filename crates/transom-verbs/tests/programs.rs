//! Programs in C that were written from the interface's rules alone: `c/*.c`, compiled with the
//! distribution's headers. Each says what deviates, and ends with 1 if anything did.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};
use transom_testing::ports::Held;
use transom_testing::programs::copied;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"))
}

/// The status with which a program ends that may not do what it needs to.
const CANNOT: i32 = 77;

fn run(name: &str) {
    run_with(name, &[]);
}

/// Runs a program over both paths; `words` are for the compiler.
fn run_with(name: &str, words: &[&str]) {
    let Some(program) = support::compile_with(&source(name), name, words) else { return };
    for path in ["tcp", "process"] {
        let done = Command::new(&program)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", path)
            .env("TRANSOM_EXPLAIN", "1")
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if done.status.code() == Some(CANNOT) {
            return eprintln!("{name} is SKIPPED: only root can play two users");
        }
        assert!(done.status.success(), "{name} over {path}: {}\n{said}", done.status);
    }
}

/// Verbs V61, Verbs V62, Verbs V63, Verbs V64, Verbs V65, Verbs V67, Verbs V68.
#[test]
fn states_attributes_and_posts() {
    run("states");
}

/// Verbs V26, Verbs V28, Verbs V29, Verbs V30, Verbs V34, Verbs V35, Verbs V39,
/// Verbs V40, Verbs V41, Verbs V42, Verbs V44, Verbs V46, Verbs V56, Verbs V152.
#[test]
fn the_device_and_its_objects() {
    run("objects");
}

/// Verbs V45.
#[test]
fn memory_on_demand() {
    run("on_demand");
}

/// Verbs V175: each run goes on where the one before ended, because the files are the device's.
#[test]
fn counters_of_the_port() {
    let Some(program) = support::compile(&source("counters"), "counters") else { return };
    let root = std::env::temp_dir().canonicalize().unwrap();
    let root = root.join(format!("transom-counters-{}", std::process::id()));
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let port = root.join("class/infiniband/transom0/ports/1");
    let count = |name: &str| -> u64 {
        fs::read_to_string(port.join(name)).unwrap().trim_end().parse().unwrap()
    };
    let mut before = 0;
    for path in ["tcp", "process"] {
        let done = Command::new(&program)
            .arg(&port)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", path)
            .env("TRANSOM_SYSFS", &root)
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(done.status.success(), "over {path}: {}\n{said}", done.status);
        let data = count("counters/port_xmit_data");
        assert!(data >= before + 200 * 1024, "{before} and {data} words over {path}");
        let come = count("counters/port_rcv_data");
        // The last segments of a stream that is closed are not read.
        assert!(data.abs_diff(come) < 1024, "{data} words were sent, {come} have come over {path}");
        before = data;
    }
    assert_eq!(count("hw_counters/req_remote_access_errors"), 2, "one in each run");
    fs::remove_dir_all(&root).unwrap();
}

/// Verbs V73, Verbs V74, Verbs V90, Verbs V102, Verbs V103.
#[test]
fn numbers_long_messages_and_threads_that_rest() {
    run("numbers");
}

/// Verbs V35, Verbs V154.
#[test]
fn devices_domains_and_regions_that_are_imported() {
    run("imported");
}

/// Verbs V136.
#[test]
fn multicast_groups() {
    run("groups");
}

/// Verbs V37, Verbs V53, Verbs V54, Verbs V58, Verbs V59,
/// Verbs V60, Verbs V81, Verbs V82, Verbs V86, Verbs V89, Verbs V91.
#[test]
fn requests_and_queues() {
    run("queues");
}

/// Verbs V36, Verbs V98, Verbs V99, Verbs V100, Verbs V101.
#[test]
fn events() {
    run("events");
}

/// Verbs V150.
#[test]
fn faults_of_the_program_reach_its_handlers() {
    run("faults");
}

/// Verbs V145, Verbs V146, Verbs V148, Verbs V154.
#[test]
fn forked_children() {
    run("forked");
}

/// Verbs V40, Verbs V43, Verbs V66, Verbs V88, Verbs V92, Verbs V93, Verbs V94, between two processes.
#[test]
fn how_requests_end() {
    run("outcomes");
}

/// Verbs V84, Verbs V86, Verbs V87, Verbs V91, Verbs V94, Verbs V100, between two processes.
#[test]
fn immediate_data() {
    run("immediate");
}

/// Verbs V38, Verbs V149.
#[test]
fn threads_end_with_their_context() {
    run("closing");
}

/// Verbs V68, Verbs V79, between two processes.
#[test]
fn a_peer_that_begins_anew_is_connected_again() {
    run("returning");
}

/// Verbs V35, Verbs V36, Verbs V75, Verbs V91, Verbs V92, Verbs V104, Verbs V155.
#[test]
fn extended_reliable_connections() {
    run("xrc");
}

/// Verbs V47, Verbs V48, Verbs V49, Verbs V50, Verbs V51, Verbs V91.
#[test]
fn memory_windows() {
    run("windows");
}

/// Verbs V84, Verbs V85, Verbs V91, Verbs V92, Verbs V93, Verbs V95, between two processes.
#[test]
fn atomics() {
    run("atomics");
}

/// Verbs V61, Verbs V70, Verbs V71, Verbs V75, Verbs V81, Verbs V93, Verbs V96.
#[test]
fn unreliable_connections() {
    run("unreliable");
}

/// Verbs V67, Verbs V74, Verbs V75, Verbs V76, Verbs V77, Verbs V79, Verbs V80.
#[test]
fn peers_that_die_stop_leave_or_never_come() {
    run("peers");
}

/// Verbs V75, Verbs V79.
#[test]
fn a_queue_pair_that_has_its_peer_is_claimed_in_vain() {
    run("claimants");
}

/// Verbs V76.
#[test]
fn requests_that_come_too_early_leave_descriptors_to_the_program() {
    run("early");
}

/// Design rule 1: memory is shared with no other user, whatever is offered.
#[test]
fn peers_of_another_user_share_no_memory() {
    run("users");
}

/// A set-uid program that makes its user numbers equal, and a program with file capabilities, are steered
/// by no variable of their caller's.
#[test]
fn a_privileged_program_takes_nothing_from_its_callers_environment() {
    const NOBODY: u32 = 65_534;
    /// `security.capability` of version 2 with CAP_DAC_OVERRIDE, permitted and effective.
    const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can give a program rights");
    }
    let here = std::env::temp_dir().canonicalize().unwrap();
    let here = here.join(format!("transom-privileged-{}", std::process::id()));
    let (victim, caller) = (here.join("victim"), here.join("caller"));
    for (folder, mode) in [(&here, 0o755), (&victim, 0o755), (&caller, 0o777)] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    // The library lies where every user may read it, and the program knows where.
    let library = here.join("libibverbs.so.1");
    fs::copy(support::built().join("libtransom_verbs.so"), &library).unwrap();
    let way = format!("-Wl,-rpath,{}", here.display());
    let Some(compiled) = support::compile_with(&source("privileged"), "privileged", &[&way]) else {
        fs::remove_dir_all(&here).unwrap();
        return;
    };
    symlink(&victim, caller.join("class")).unwrap();
    let run = |name: &str, mode: u32, capabilities: bool| {
        let program = here.join(name);
        copied(&compiled, &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        if capabilities {
            let none = XattrFlags::empty();
            setxattr(&program, "security.capability", &CAPABILITIES, none).ok()?;
        }
        let done = Command::new(&program)
            .env_clear()
            .env("TRANSOM_SYSFS", &caller)
            .env("TRANSOM_DEVICE", "chosen")
            .env("TRANSOM_ADDRESSES", "127.0.0.9")
            .env("TRANSOM_INSPECT", "1")
            .env("TRANSOM_EXPLAIN", "1")
            .env("TRANSOM_LEDGER", "strict")
            // The standard library's: no thread would start.
            .env("RUST_MIN_STACK", "99999999999")
            .env("TRANSOM_CAPTURE", caller.join("capture.pcapng"))
            .env("XDG_RUNTIME_DIR", &caller)
            .env("TMPDIR", &caller)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        Some((done.status.code(), String::from_utf8_lossy(&said).into_owned()))
    };
    let plain = run("plain", 0o755, false).unwrap();
    let before = fs::read_dir(&caller).unwrap().count();
    let set = run("set-uid", 0o4755, false);
    let capable = run("capable", 0o755, true);
    let written = fs::read_dir(&victim).unwrap().count();
    let left = fs::read_dir(&caller).unwrap().count();
    fs::remove_dir_all(&here).unwrap();
    assert!(plain.1.contains("device chosen\n") && plain.1.contains("answers at"), "{plain:?}");
    for (code, said) in set.into_iter().chain(capable) {
        if said.contains("device chosen") && said.contains(&caller.display().to_string()) {
            eprintln!("SKIPPED, if the file system gives no rights: {said}");
        }
        assert_eq!((code, said.as_str()), (Some(0), "device transom0\n"));
    }
    assert_eq!((written, left), (0, before), "files in the victim's folder, and in the caller's");
}

/// Verbs V111, Verbs V119, Verbs V123, Verbs V124, Verbs V130.
#[test]
fn connections_refused_and_ended() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("connections");
}

/// Verbs V22, Verbs V24, Verbs V25, Verbs V39.
#[test]
fn several_devices() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("devices");
}

/// Verbs V36, Verbs V98, Verbs V118, Verbs V119, Verbs V124.
#[test]
fn objects_that_end_while_their_events_are_fetched() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("endings");
}

/// Verbs V32.
#[test]
fn a_device_of_iwarp() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("iwarp");
}

/// The next bytes of a stream.
fn take(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Accept a connection as an adapter of iWARP does that is no Transom, and write 8 bytes to where nothing
/// was ever opened. Returns once the other side has said what it has to say.
fn write_as_an_adapter_of_iwarp(listener: &TcpListener) {
    let mut stream = listener.accept().unwrap().0;
    let request = take(&mut stream, 20);
    take(&mut stream, usize::from(u16::from_be_bytes([request[18], request[19]])));
    stream.write_all(b"MPA ID Rep Frame\x50\x02\0\x04\x80\x01\x80\x01").unwrap();
    take(&mut stream, 20); // the ready-to-receive frame: the program knows that it is connected
    stream
        .write_all(&[
            0x00, 0x16, 0xC1, 0x40, // a Write of 8 bytes
            0x00, 0x01, 0x2A, 0x07, 0, 0, 0, 0, 0, 0, 0x10, 0, // token and address
            0, 1, 2, 3, 4, 5, 6, 7, 0xCF, 0xA1, 0x3F, 0x0A, // payload and checksum
        ])
        .unwrap();
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// Verbs V97: what the other adapter cannot say is said here.
#[test]
fn v97_peers_that_are_no_transom_are_explained() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    let Some(program) = support::compile(&source("plain"), "plain") else { return };
    let run = |port: u16, kind: &str| {
        let done = Command::new(&program)
            .arg(port.to_string())
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", "tcp")
            .env("TRANSOM_AS", kind)
            .env("TRANSOM_EXPLAIN", "1")
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    // Held, so that no other test gets the port when nobody listens there any more.
    let held = Held::new().unwrap();
    let listener = TcpListener::bind(held.address()).unwrap();
    let port = held.address().port();
    for kind in ["roce", "iwarp"] {
        let (status, said) = std::thread::scope(|scope| {
            let client = scope.spawn(|| run(port, kind));
            write_as_an_adapter_of_iwarp(&listener);
            client.join().unwrap()
        });
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(said.contains("`transom run --as iwarp`"), kind == "roce", "{said}");
        let refused = format!("the connection with 127.0.0.1:{port} has ended");
        let line = said.lines().find(|line| line.contains(&refused));
        assert!(line.is_some_and(|line| line.contains("0x00012a07")), "{said}");
    }
    // Bound, and nobody listens there meanwhile.
    drop(listener);
    let (status, said) = run(port, "roce");
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains(&format!("nobody listens at TCP port {port}")), "{said}");
    assert!(said.contains("RoCE"), "{said}");
}

/// Verbs V39, Verbs V114, Verbs V116, Verbs V119, Verbs V120, Verbs V121, Verbs V122, Verbs V126,
/// Verbs V115, Verbs V117, Verbs V130, Verbs V131, Verbs V173.
#[test]
fn ids_their_events_and_their_ends() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("ids");
}

/// Verbs V131: Requests that the backlog of a listener of iWARP has turned away are counted as those, and not as
/// the program's.
#[test]
fn what_a_backlog_turns_away_is_counted() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    let Some(program) = support::compile(&source("ids"), "backlog") else { return };
    let mut program = Command::new(&program)
        .arg("backlog")
        .env("LD_LIBRARY_PATH", support::libraries())
        .env("TRANSOM_AS", "iwarp")
        .env("TRANSOM_INSPECT", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "it is done"));
    let answer = transom_inspect::ask(program.id()).unwrap();
    let counters = answer.records.iter().find_map(|record| match record {
        transom_inspect::Record::Adapter(adapter) => Some(&adapter.counters),
        _ => None,
    });
    // Those that it has fetched, it has destroyed.
    let counted = counters.map(|counters| (counters.refused_backlog, counters.refused_by_program));
    assert_eq!(counted, Some((2, 3)));
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

/// Verbs V25, Verbs V62, Verbs V77, Verbs V112, Verbs V114, Verbs V118, Verbs V120, Verbs V130.
#[test]
fn ports_order_of_events_and_queue_pairs_of_the_program() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("ports");
}

/// Verbs V112.
#[test]
fn names_of_another_user_decide_about_no_port() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    run("names");
}

/// Verbs V97: each mistake has its sentence.
#[test]
fn mistakes_are_explained() {
    let Some(program) = support::compile(&source("mistakes"), "mistakes") else { return };
    let done = Command::new(&program)
        .env("LD_LIBRARY_PATH", support::libraries())
        .env("TRANSOM_EXPLAIN", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}\n{told}{said}", done.status);
    for wanted in [
        "transom: mistakes",
        "REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE",
        "max_inline_data is 100000, and may be 4096 at most",
        "takes receives from INIT on",
        "takes sends from RTS on",
        "RESET to RTR: a queue pair of this type has no such way",
        "INIT to RTR: lacks AV, PATH_MTU",
        "port_num is 2, and may be 1 to 1",
        "no GRH in the address vector",
        "dgid is zero",
        "sgid_index is 200",
        "bytes inline, and the queue pair takes",
        "5 entries, and the queue takes",
        "a queue is full",
        "no queue pair 0x000011 answers at",
    ] {
        assert!(said.contains(wanted), "{wanted}:\n{said}");
    }
    let full = said.lines().filter(|line| line.contains("a queue is full")).count();
    assert_eq!(full, 2, "each kind is said twice:\n{said}");
    let silent = Command::new(&program)
        .env("LD_LIBRARY_PATH", support::libraries())
        .env("TRANSOM_EXPLAIN", "0")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&silent.stderr), "");
}

/// Verbs V5, Verbs V9, Verbs V19, Verbs V20, Verbs V21, Verbs V22, Verbs V23, Verbs V24, Verbs V27, Verbs V31,
/// Verbs V39, Verbs V98, Verbs V109, Verbs V110, Verbs V147.
#[test]
fn what_a_program_finds_at_first() {
    run("presence");
}

/// Verbs V18, Verbs V19: the distribution's own libraries of mlx5 and EFA, in a program that is linked with them.
#[test]
fn v19_libraries_of_vendors_say_that_the_device_is_none_of_theirs() {
    let headers = ["mlx5dv.h", "efadv.h"].map(|name| format!("/usr/include/infiniband/{name}"));
    if headers.iter().any(|header| !Path::new(header).exists()) {
        return eprintln!("SKIPPED: the headers of libmlx5 and libefa are not installed");
    }
    run_with("vendors", &["-Wl,--no-as-needed", "-lmlx5", "-lefa"]);
}

/// Verbs V3, Verbs V6, Verbs V11, Verbs V16, Verbs V18: whichever library is loaded first.
#[test]
fn libraries_that_are_loaded_by_name() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return eprintln!("SKIPPED: <rdma/rdma_cma.h> is not installed");
    }
    // Nothing of the library is named there, so it is not linked.
    let words = ["-Wl,--as-needed"];
    let Some(program) = support::compile_with(&source("loading"), "loading", &words) else {
        return;
    };
    let table = include_str!("../exports.txt");
    let names = table.lines().filter_map(|line| line.strip_prefix("* "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    // Drivers and devices that rdma-core would find.
    let sysfs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loading-sysfs");
    let device = sysfs.join("class/infiniband_verbs/uverbs7");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("ibdev"), "mlx5_0\n").unwrap();
    fs::write(sysfs.join("class/infiniband_verbs/abi_version"), "6\n").unwrap();
    for first in ["libibverbs.so.1", "librdmacm.so.1"] {
        let done = Command::new(&program)
            .arg(first)
            .args(&names)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("SYSFS_PATH", &sysfs)
            .env("RDMAV_DRIVERS", "mlx5")
            .env("IBV_DRIVERS", "mlx5")
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(done.status.success(), "{first} first: {}\n{said}", done.status);
    }
}

/// Verbs V137.
#[test]
fn sockets_of_rsocket() {
    if !Path::new("/usr/include/rdma/rsocket.h").exists() {
        return eprintln!("SKIPPED: <rdma/rsocket.h> is not installed");
    }
    run("rsockets");
}

/// Verbs V61, Verbs V65, Verbs V69, Verbs V70, Verbs V71, Verbs V81, Verbs V91, Verbs V138, Verbs V139,
/// Verbs V140, Verbs V141, Verbs V142, Verbs V143.
#[test]
fn datagrams() {
    run("datagrams");
}

/// Verbs V111, Verbs V112, Verbs V113, Verbs V127, Verbs V133, Verbs V135.
#[test]
fn services_of_port_space_udp() {
    run("services");
}

/// Posting and polling allocate nothing (design rule 12). Verbs V83.
#[test]
fn the_data_path_does_not_allocate() {
    run("data_path");
}

/// Verbs V153. The sanitizer watches what the programs and C's functions touch, and every block of the
/// allocator, the library's own, too: nothing is freed twice, or read by a program behind its end.
#[test]
fn control_calls_under_an_address_sanitizer() {
    let sanitizer = "-fsanitize=address";
    let probe =
        Command::new("cc").args([sanitizer, "-xc", "-", "-shared", "-o", "/dev/null"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return eprintln!("SKIPPED: cc has no {sanitizer}");
    }
    let mut programs =
        vec!["objects", "states", "windows", "events", "queues", "imported", "groups", "xrc"];
    if Path::new("/usr/include/rdma/rsocket.h").exists() {
        programs.extend(["services", "rsockets"]);
    }
    for name in programs {
        let built = format!("{name}-sanitized");
        let Some(program) = support::compile_with(&source(name), &built, &[sanitizer]) else {
            return;
        };
        let done = Command::new(&program)
            .env("LD_LIBRARY_PATH", support::libraries())
            .env("TRANSOM_PATH", "tcp")
            // The programs end with objects that are left open.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{name}: {}\n{said}", done.status);
    }
}
