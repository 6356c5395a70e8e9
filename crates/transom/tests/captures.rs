//! Captures: the same requests, whichever way they took, and refusals where they belong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr, reason = "says what is skipped")]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use transom::{Adapter, CaptureOptions, ErrorKind, Grant, Path, QueuePair, Rights};
use transom_testing::tshark;

const MEMORY: usize = 256 * 1024;

/// A file of this test's own, which does not exist.
fn file(name: &str) -> PathBuf {
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let here = here.join(format!("captures-{}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    here.join(format!("{name}.pcapng"))
}

fn here(six: bool) -> SocketAddr {
    if six { "[::1]:0".parse().unwrap() } else { "127.0.0.1:0".parse().unwrap() }
}

/// Two ends in this process, which share a capture, and a window of the first for the second.
struct Pair {
    adapters: [Adapter; 2],
    owner: QueuePair,
    peer: QueuePair,
    grant: Grant,
    _window: transom::Window,
    _lent: transom::Region<Vec<u8>>,
}

impl Pair {
    fn new(path: Path, at: SocketAddr, capture: &CaptureOptions, rights: Rights) -> Pair {
        let open = || {
            let options = Adapter::options().path(path).capture(Some(capture.clone()));
            options.open(at.ip()).unwrap()
        };
        let adapters = [open(), open()];
        let mut listener = adapters[0].listen(at).unwrap();
        let connecting = adapters[1].connect(listener.address()).receives(4, MEMORY as u32);
        let (owner, peer) = std::thread::scope(|both| {
            let peer = both.spawn(|| connecting.wait());
            let accepted = listener.next().wait().unwrap().receives(4, MEMORY as u32).accept();
            (accepted.wait().unwrap(), peer.join().unwrap().unwrap())
        });
        let lent = adapters[0].register(vec![7; MEMORY]).unwrap();
        let window = owner.bind(&lent, .., rights).unwrap();
        owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
        let grant = Grant::from_bytes(&peer.recv().wait().unwrap()).unwrap();
        Pair { adapters, owner, peer, grant, _window: window, _lent: lent }
    }
}

/// A request: `W`rite, `R`ead or `S`end, where, and how much.
type Asked = (char, u64, u64);

/// Requests from a seed. The first is a Write of one byte at the window's beginning.
fn requests(seed: u64) -> Vec<Asked> {
    let mut state = seed;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut all = vec![('W', 0, 1)];
    for _ in 0..40 {
        let length = match next(3) {
            0 => 1 + next(32),
            1 => 1 + next(4096),
            _ => 1 + next(150_000),
        };
        let at = next(MEMORY as u64 - length);
        all.push(match next(3) {
            0 => ('W', at, length),
            1 => ('R', at, length),
            _ => ('S', 0, length),
        });
    }
    all
}

fn make(pair: &Pair, requests: &[Asked]) {
    let own = pair.adapters[1].register(vec![1; MEMORY]).unwrap();
    for &(kind, at, length) in requests {
        let (grant, slice) = (pair.grant.range(at..at + length), own.slice(..length));
        match kind {
            'W' => pair.peer.write(grant, slice).unwrap().wait().unwrap(),
            'R' => pair.peer.read(grant, slice).unwrap().wait().unwrap(),
            _ => {
                let sent = pair.peer.send_from(slice).unwrap();
                let message = pair.owner.recv().wait().unwrap();
                assert_eq!(message.len() as u64, length);
                sent.wait().unwrap();
            }
        }
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

/// The requests of the active side, as the capture has them.
fn captured(file: &std::path::Path) -> Option<Vec<Asked>> {
    let bad = "_ws.malformed || _ws.short || _ws.expert.severity >= 0x600000 || tcp.analysis.flags \
               || tcp.len > 0 && !iwarp_mpa";
    assert_eq!(
        tshark(file, bad, &["frame.number"])?,
        Vec::<Vec<String>>::new(),
        "{}",
        file.display()
    );
    let active = &tshark(file, "tcp.flags.syn == 1 && tcp.flags.ack == 0", &["tcp.srcport"])?[0][0];
    let fields = [
        "iwarp_rdma.opcode",
        "iwarp_ddp.last_flag",
        "iwarp_mpa.ulpdulength",
        "iwarp_ddp.tagged_offset",
        "iwarp_rdma.srcto",
        "iwarp_rdma.rdmardsz",
    ];
    let frames = tshark(file, &format!("iwarp_rdma && tcp.srcport == {active}"), &fields)?;
    let (mut all, mut base, mut at, mut length) = (Vec::new(), None, 0, 0);
    for frame in frames {
        let [opcode, last, ulpdu] = [0, 1, 2].map(|field| number(&frame[field]));
        match opcode {
            0 => {
                at = if length == 0 { number(&frame[3]) } else { at };
                length += ulpdu - 14;
            }
            1 => (at, length) = (number(&frame[4]), number(&frame[5])),
            3 => length += ulpdu - 18,
            _ => continue, // not a request
        }
        if last == 1 && length > 0 {
            let base = *base.get_or_insert(at);
            all.push(match opcode {
                0 => ('W', at - base, length),
                1 => ('R', at - base, length),
                _ => ('S', 0, length),
            });
        }
        if last == 1 {
            length = 0; // of nothing: the end of start-up
        }
    }
    Some(all)
}

#[test]
fn a_capture_of_rings_has_the_requests_that_one_of_tcp_has() {
    for (seed, six) in [(1, false), (2, true)] {
        let asked = requests(seed);
        for path in [Path::Tcp, Path::Process] {
            let file = file(&format!("same-{}-{seed}", path.name()));
            let capture = CaptureOptions { payload: None, ..CaptureOptions::to(&file) };
            let pair = Pair::new(path, here(six), &capture, Rights::READ | Rights::WRITE);
            let info = pair.peer.info().path;
            assert_eq!(info, if path == Path::Tcp { "tcp" } else { "process" });
            make(&pair, &asked);
            drop(pair);
            let Some(seen) = captured(&file) else { return };
            assert_eq!(seen, asked, "{path:?}");
        }
    }
}

/// Small Writes of a thread that polls go a shorter way over rings, where it is fast enough, unless they
/// are recorded.
#[test]
fn no_small_write_is_missing() {
    let file = file("small");
    let capture = CaptureOptions { payload: None, ..CaptureOptions::to(&file) };
    let pair = Pair::new(Path::Process, here(false), &capture, Rights::WRITE);
    let own = pair.adapters[1].register(vec![1; 8]).unwrap();
    let mut asked = vec![];
    for n in 0..300 {
        let at = n * 8;
        let written = pair.peer.write(pair.grant.range(at..at + 8), own.slice(..)).unwrap();
        while !written.is_done() {
            pair.owner.poll();
            pair.peer.poll();
        }
        written.wait().unwrap();
        asked.push(('W', at, 8));
    }
    drop(pair);
    let Some(seen) = captured(&file) else { return };
    assert_eq!(seen, asked);
}

#[test]
fn a_refusal_stands_on_the_packet_that_asked_for_too_much() {
    for path in [Path::Tcp, Path::Process] {
        let file = file(&format!("refused-{}", path.name()));
        let pair = Pair::new(path, here(false), &CaptureOptions::to(&file), Rights::WRITE);
        let own = pair.adapters[1].register(vec![1; 512]).unwrap();
        for at in [0, 4096] {
            pair.peer.write(pair.grant.range(at..at + 512), own.slice(..)).unwrap().wait().unwrap();
        }
        let error = pair.peer.read(pair.grant.range(8192..8704), own.slice(..)).unwrap().wait();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Refused);
        drop(pair);
        let fields = ["iwarp_rdma.opcode", "iwarp_rdma.srcto", "frame.comment"];
        let Some(frames) = tshark(&file, "iwarp_rdma && frame.comment", &fields) else { return };
        let seen: Vec<(&str, bool)> = frames
            .iter()
            .map(|frame| (&*frame[0], frame[2].contains("(`transom explain right`)")))
            .collect();
        assert_eq!(
            seen,
            [("0x01", true), ("0x07", true)],
            "the Read, and the Terminate: {frames:?}"
        );
        assert!(frames[0][2].starts_with("Read by the peer, 512 bytes"), "{}", frames[0][2]);
        assert!(frames[1][2].starts_with("the peer refused it"), "{}", frames[1][2]);
    }
}

#[test]
fn only_its_user_may_read_a_capture_and_none_is_written_over() {
    let file = file("mine");
    std::fs::write(&file, "precious").unwrap();
    let pair = Pair::new(Path::Auto, here(false), &CaptureOptions::to(&file), Rights::WRITE);
    drop(pair);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let other = file.with_file_name(format!("mine-{}.pcapng", std::process::id()));
    let about = std::fs::metadata(&other).unwrap();
    assert_eq!(about.permissions().mode() & 0o7777, 0o600);
    assert!(about.len() > 0);
}

#[test]
fn an_adapter_that_cannot_be_captured_does_not_open() {
    let nowhere = file("nowhere").join("x.pcapng");
    let error = Adapter::options()
        .capture(Some(CaptureOptions::to(&nowhere)))
        .open(here(false).ip())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.to_string().contains("nowhere.pcapng/x.pcapng"), "{error}");
    // A file with two sets of options.
    let both = CaptureOptions::to(file("both"));
    let _first = Adapter::options().capture(Some(both.clone())).open(here(false).ip()).unwrap();
    let other = CaptureOptions { payload: None, ..both };
    let error = Adapter::options().capture(Some(other)).open(here(false).ip()).unwrap_err();
    assert!(error.to_string().contains("other settings"), "{error}");
}
