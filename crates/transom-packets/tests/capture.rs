//! The files of a recorder, as Wireshark's `tshark` reads them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use transom_iwarp::ddp::Target;
use transom_iwarp::{fpdu, mpa, rdmap};
use transom_packets::{About, Batch, EndId, Files, MEMORY, Recorder, Settings, Writer};
use transom_process::record::{self, Header, LAST, RecordKind};
use transom_testing::tshark;
use transom_wire::{Framing, Operation, RefusalClass};

const SECOND: u64 = 1_000_000_000;

fn recorder(payload: Option<usize>, file: Option<u64>) -> Recorder {
    let about = About {
        program: "worker".to_owned(),
        process: 71,
        host: "somewhere".to_owned(),
        version: "0",
    };
    Recorder::new(Settings { payload, file }, about)
}

fn addresses(six: bool) -> (SocketAddr, SocketAddr) {
    let [local, peer] = if six {
        ["[fd00::1]:40000", "[fd00::2]:47000"]
    } else {
        ["10.0.0.1:40000", "10.0.0.2:47000"]
    };
    (local.parse().unwrap(), peer.parse().unwrap())
}

fn bytes(header: Header, payload: &[u8]) -> Vec<u8> {
    let length =
        if payload.is_empty() { header.length } else { u32::try_from(payload.len()).unwrap() };
    let mut all = record::to_bytes(Header { length, ..header }.words()).to_vec();
    all.extend_from_slice(payload);
    all
}

fn write(address: u64, payload: &[u8]) -> Vec<u8> {
    let header = Header { flags: LAST, token: 0xABCD, address, ..Header::new(RecordKind::Write) };
    bytes(header, payload)
}

/// An end, and the moment of its next frame.
struct Session<'a> {
    recorder: &'a mut Recorder,
    end: EndId,
    at: u64,
}

impl Session<'_> {
    fn begin(recorder: &mut Recorder, six: bool) -> Session<'_> {
        let (local, peer) = addresses(six);
        let end = recorder.open(local, peer);
        let mut session = Session { recorder, end, at: SECOND };
        let limits = Header { address: 16, token: 16, ..Header::new(RecordKind::Request) };
        session.sends(&bytes(limits, b"hello"));
        session.takes(&bytes(Header { kind: RecordKind::Reply, ..limits }, b"welcome"));
        session.sends(&bytes(Header::new(RecordKind::Ready), &[]));
        session
    }

    fn frame(&mut self, outbound: bool, bytes: &[u8]) {
        self.at += SECOND;
        self.recorder.frame(self.end, outbound, Framing::Records, self.at, bytes);
    }

    fn sends(&mut self, bytes: &[u8]) {
        self.frame(true, bytes);
    }

    fn takes(&mut self, bytes: &[u8]) {
        self.frame(false, bytes);
    }

    fn close(self) {
        self.recorder.peer_finished(self.end, self.at + SECOND);
        self.recorder.close(self.end, self.at + SECOND);
    }
}

/// The files of a batch.
fn files(recorder: &mut Recorder) -> Vec<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut batch = Batch::default();
    recorder.take(&mut batch);
    let ends = batch.cuts.iter().copied().chain([batch.bytes.len()]);
    let begins = [0].into_iter().chain(batch.cuts.iter().copied());
    let pieces = begins.zip(ends).map(|(from, to)| &batch.bytes[from..to]);
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let write = |piece: &[u8]| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = here.join(format!("{}-{number}.pcapng", std::process::id()));
        std::fs::write(&path, piece).unwrap();
        path
    };
    pieces.map(write).collect()
}

/// The only file.
fn file(recorder: &mut Recorder) -> PathBuf {
    let mut all = files(recorder);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Every packet is dissected to its end, with checksums that are right.
fn sound(file: &PathBuf) {
    let Some(bad) = tshark(
        file,
        "_ws.malformed || _ws.short || _ws.expert.severity >= 0x600000 || tcp.analysis.flags \
         || tcp.checksum.status != 1 || tcp.len > 0 && !iwarp_mpa",
        &["frame.number", "_ws.col.Info"],
    ) else {
        return;
    };
    assert_eq!(bad, Vec::<Vec<String>>::new(), "{}", file.display());
    let frames = tshark(file, "iwarp_mpa.fpdu", &["iwarp_mpa.crc_check", "iwarp_rdma.opcode"]);
    for frame in frames.unwrap() {
        assert!(!frame[0].is_empty() && !frame[1].is_empty(), "{frame:?} in {}", file.display());
    }
    let text = Command::new("tshark")
        .args(["-V", "-n", "-o", "tcp.try_heuristic_first:TRUE", "-r"])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("Good CRC32") && !text.contains("Bad CRC32"), "{}", file.display());
}

#[test]
fn every_kind_of_record_is_a_frame_that_wireshark_knows() {
    for (six, limit) in [(false, None), (true, None), (false, Some(64))] {
        let mut recorder = recorder(limit, None);
        let mut session = Session::begin(&mut recorder, six);
        session.sends(&write(0x1000, &[1; 8]));
        session.takes(&write(0x2000, &[]));
        session.sends(&bytes(
            Header {
                token: 0xABCD,
                address: 0x5000,
                length: 100_000,
                ..Header::new(RecordKind::Announce)
            },
            &[],
        ));
        let piece = Header { token: 0xABCD, address: 0x5000, ..Header::new(RecordKind::Write) };
        session.sends(&bytes(piece, &[2; record::LARGEST_PAYLOAD]));
        session.sends(&write(0x5000 + record::LARGEST_PAYLOAD as u64, &[2; 34_464]));
        let send = Header::new(RecordKind::Send);
        session.takes(&bytes(send, &[3; 40_000]));
        let last = LAST | record::SOLICITED | record::INVALIDATE;
        session.takes(&bytes(Header { flags: last, address: 0x77, ..send }, &[3; 10]));
        session.takes(&bytes(Header { flags: LAST, ..send }, &[4; 10]));
        let read =
            Header { flags: LAST, token: 0xEF, address: 0x9000, ..Header::new(RecordKind::Read) };
        session.sends(&bytes(Header { length: 40_000, ..read }, &[]));
        session.takes(&bytes(Header::new(RecordKind::Answer), &[5; 30_000]));
        session
            .takes(&bytes(Header { flags: LAST, ..Header::new(RecordKind::Answer) }, &[5; 10_000]));
        let detail = record::detail(Some(Operation::Write), Some(RefusalClass::Bounds));
        session.takes(&bytes(Header { detail, ..Header::new(RecordKind::Refuse) }, b"why"));
        session.close();
        let file = file(&mut recorder);
        sound(&file);
        let fields = [
            "iwarp_rdma.opcode",
            "iwarp_ddp.stag",
            "iwarp_ddp.tagged_offset",
            "iwarp_ddp.msn",
            "iwarp_ddp.mo",
            "iwarp_ddp.last_flag",
            "iwarp_rdma.sinkstag",
            "iwarp_rdma.rdmardsz",
        ];
        let Some(frames) = tshark(&file, "iwarp_rdma", &fields) else { return };
        let seen: Vec<String> = frames.iter().map(|frame| frame.join(" ")).collect();
        // Opcode, then what of its header tells it apart.
        let expected = [
            "0x00 0x00000001 0x0000000000000000   1  ", // ready
            "0x00 0x0000abcd 0x0000000000001000   1  ",
            "0x00 0x0000abcd 0x0000000000002000   1  ",
            "0x0f   0 100000 1  ", // announced
            "0x00 0x0000abcd 0x0000000000005000   0  ",
            "0x00 0x0000abcd 0x000000000000d000   0  ",
            "0x00 0x0000abcd 0x0000000000015000   0  ",
            "0x00 0x0000abcd 0x000000000001d000   1  ",
            "0x03   1 0 0  ",
            "0x03   1 32768 0  ",
            "0x06   1 40000 1  ",
            "0x03   2 0 1  ",
            "0x01   1 0 1 0x00000001 40000",
            "0x02 0x00000001 0x0000000000000000   0  ",
            "0x02 0x00000001 0x0000000000007530   1  ",
            "0x07   1 0 1  ",
        ];
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let seen: Vec<String> = seen.iter().map(|text| squeeze(text)).collect();
        let expected: Vec<String> = expected.iter().map(|text| squeeze(text)).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn of_a_payload_the_limit_is_kept_and_not_a_byte_more() {
    for limit in [0, 64] {
        for length in [limit, limit + 1, 20_000] {
            let mut recorder = recorder(Some(limit), None);
            let mut session = Session::begin(&mut recorder, false);
            session.sends(&write(0x1000, &vec![0xA5; length]));
            session.close();
            let mut batch = Batch::default();
            recorder.take(&mut batch);
            let kept = batch.bytes.iter().filter(|byte| **byte == 0xA5).count();
            // A checksum may have such a byte, too.
            let most = length.min(limit);
            assert!((most..most + 4).contains(&kept), "{kept} of {length}, at most {limit}");
        }
    }
    let mut recorder = recorder(Some(64), None);
    let mut session = Session::begin(&mut recorder, false);
    session.sends(&write(0x1000, &[1; 64]));
    session.sends(&write(0x1000, &[1; 65]));
    session.close();
    let file = file(&mut recorder);
    sound(&file);
    let fields = ["frame.len", "frame.cap_len"];
    let Some(frames) = tshark(&file, "iwarp_ddp.tagged_offset == 0x1000", &fields) else { return };
    let expected = [["124", "124"], ["128", "124"]];
    assert_eq!(frames, expected.map(|pair| pair.map(str::to_owned).to_vec()));
}

#[test]
fn private_data_is_payload() {
    let mut recorder = recorder(Some(0), None);
    Session::begin(&mut recorder, false).close();
    let mut batch = Batch::default();
    recorder.take(&mut batch);
    let has = |text: &[u8]| batch.bytes.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"MPA ID Req Frame") && !has(b"hello") && !has(b"welcome"));
}

#[test]
fn a_comment_stands_on_the_packet_that_it_is_about() {
    let mut recorder = recorder(Some(64), None);
    let mut session = Session::begin(&mut recorder, false);
    session.takes(&write(0x1000, &[1; 8]));
    session.recorder.release(session.end);
    session.takes(&write(0x2000, &[1; 8]));
    session.recorder.note(session.end, "refused: outside".to_owned());
    session.recorder.release(session.end);
    session.recorder.note(session.end, "of our own".to_owned());
    session.takes(&write(0x3000, &[1; 8]));
    session.sends(&write(0x4000, &[1; 8]));
    session.close();
    let file = file(&mut recorder);
    let fields = ["iwarp_ddp.tagged_offset", "frame.comment"];
    let Some(frames) = tshark(&file, "iwarp_ddp.tagged_offset > 0", &fields) else { return };
    let comments: Vec<&str> = frames.iter().map(|frame| &*frame[1]).collect();
    assert_eq!(comments, ["", "refused: outside", "", "of our own"]);
}

#[test]
fn an_address_has_its_process_s_name() {
    let mut recorder = recorder(Some(64), None);
    Session::begin(&mut recorder, false).close();
    let file = file(&mut recorder);
    let hosts = Command::new("tshark").args(["-q", "-z", "hosts", "-r"]).arg(file).output();
    let Ok(hosts) = hosts else { return eprintln!("SKIPPED: no tshark") };
    let hosts = String::from_utf8_lossy(&hosts.stdout).into_owned();
    assert!(hosts.contains("10.0.0.1\tworker-71") && !hosts.contains("10.0.0.2"), "{hosts}");
}

#[test]
fn each_file_of_a_ring_can_be_read_alone() {
    let mut recorder = recorder(Some(64), Some(4096));
    let mut session = Session::begin(&mut recorder, false);
    for n in 0..100 {
        session.sends(&write(n, &[1; 100]));
    }
    session.close();
    let files = files(&mut recorder);
    assert!(files.len() > 3, "{}", files.len());
    let mut seen = Vec::new();
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() < 4096 + 1024);
        sound(file);
        let fields = ["iwarp_ddp.tagged_offset"];
        let Some(frames) = tshark(file, "iwarp_rdma && tcp.len > 80", &fields) else { return };
        assert!(!frames.is_empty(), "{}", file.display());
        seen.extend(frames.into_iter().flatten());
    }
    let all: Vec<String> = (0..100).map(|n| format!("{n:#018x}")).collect();
    assert_eq!(seen, all);
}

#[test]
fn what_does_not_fit_into_memory_is_counted_and_said() {
    let mut recorder = recorder(None, None);
    let mut session = Session::begin(&mut recorder, false);
    let large = write(0x1000, &[1; 32 * 1024]);
    let sent = 2 * MEMORY / large.len();
    for _ in 0..sent {
        session.sends(&large);
    }
    let missing = session.recorder.totals().missing;
    assert!((sent as u64 / 3..sent as u64).contains(&missing), "{missing} of {sent}");
    let mut batch = Batch::default();
    session.recorder.take(&mut batch);
    assert!(batch.bytes.len() <= MEMORY + 1024, "{}", batch.bytes.len());
    session.sends(&large);
    session.sends(&large);
    session.recorder.finish(0, 0);
    session.recorder.take(&mut batch);
    let said = format!("{missing} packets before this one are missing");
    let count = |text: &[u8]| batch.bytes.windows(text.len()).filter(|it| *it == text).count();
    assert_eq!(count(said.as_bytes()), 1, "said once");
    let dropped = [&[5, 0, 8, 0][..], &missing.to_le_bytes()].concat();
    assert_eq!(count(&dropped), 1, "and in the statistics");
}

#[test]
fn a_frame_between_two_ends_of_one_process_is_recorded_once() {
    let mut recorder = recorder(Some(64), None);
    let (here, there) = addresses(false);
    let active = recorder.open(here, there);
    let limits = Header { address: 16, token: 16, ..Header::new(RecordKind::Request) };
    let request = bytes(limits, &[]);
    recorder.frame(active, true, Framing::Records, 1, &request);
    let passive = recorder.open(there, here);
    recorder.frame(passive, false, Framing::Records, 1, &request);
    let mut exchange = |from, to, frame: &[u8], note: Option<&str>| {
        recorder.frame(from, true, Framing::Records, 2, frame);
        recorder.frame(to, false, Framing::Records, 3, frame);
        if let Some(note) = note {
            recorder.note(to, note.to_owned());
        }
        recorder.release(to);
    };
    exchange(passive, active, &bytes(Header { kind: RecordKind::Reply, ..limits }, &[]), None);
    exchange(active, passive, &bytes(Header::new(RecordKind::Ready), &[]), None);
    exchange(active, passive, &write(0x1000, &[1; 8]), Some("refused"));
    exchange(passive, active, &write(0x2000, &[1; 8]), None);
    // An end goes; the bytes that the other still sends are not taken.
    recorder.close(passive, 5);
    recorder.frame(active, true, Framing::Records, 6, &write(0x3000, &[1; 8]));
    recorder.close(active, 7);
    let file = file(&mut recorder);
    sound(&file);
    let fields = ["tcp.srcport", "iwarp_ddp.tagged_offset", "frame.comment"];
    let Some(frames) = tshark(&file, "iwarp_ddp.tagged_offset > 0", &fields) else { return };
    let seen: Vec<String> = frames.iter().map(|frame| frame.join(" ")).collect();
    assert_eq!(
        seen,
        [
            "40000 0x0000000000001000 refused",
            "47000 0x0000000000002000 ",
            "40000 0x0000000000003000 ",
        ]
    );
}

/// A disk with so much room.
#[derive(Default)]
struct Disk {
    room: usize,
    files: Vec<Vec<u8>>,
}

impl Files for Disk {
    fn begin(&mut self) -> io::Result<()> {
        self.files.push(Vec::new());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room).min(1000);
        self.room -= taken;
        self.files.last_mut().unwrap().extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.files.last_mut().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_packets_that_are_counted_and_never_half_of_one() {
    let mut batch = Batch::default();
    let mut recorder = recorder(Some(64), None);
    let mut session = Session::begin(&mut recorder, false);
    for _ in 0..10 {
        session.sends(&write(0x1000, &[1; 64]));
    }
    let packets = session.recorder.totals().packets;
    session.recorder.take(&mut batch);
    let disk = Disk { room: batch.bytes.len() - 200, files: vec![Vec::new()] };
    let mut writer = Writer::new(disk);
    let lost = writer.write(&batch);
    assert_eq!(lost, 2, "of {packets}: one that was cut, and one behind it");
    assert_eq!(writer.reason().unwrap().kind(), io::ErrorKind::StorageFull);
    let written = writer.files().files[0].clone();
    assert!(batch.bytes.starts_with(&written));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("full.pcapng");
    std::fs::write(&path, &written).unwrap();
    sound(&path);
    let Some(frames) = tshark(&path, "frame", &["frame.number"]) else { return };
    assert_eq!(frames.len() as u64, packets - lost);
}

/// Start-up of two Transoms whose fronts tell each other a word: a question, and the Request once more, each a packet of
/// its own; what follows is cut as it always is.
#[test]
fn a_question_in_start_up_is_no_part_of_a_frame() {
    let (local, peer) = addresses(false);
    let start_up = |kind, flags, private: &[u8]| {
        mpa::StartUp { kind, flags: flags | mpa::CHECKSUM, revision: 1, enhanced: None, private }
            .to_vec()
    };
    let request = start_up(mpa::FrameKind::Request, mpa::OFFER | mpa::ANSWERS, b"secret");
    let told = start_up(mpa::FrameKind::Request, mpa::OFFER | mpa::ANSWERS, b"wordsecret");
    let reply = start_up(mpa::FrameKind::Reply, mpa::ACCEPT | mpa::TELLS, b"wordsecret");
    let target = Target::Tagged { stag: 7, offset: 0x1000 };
    let segment = rdmap::segment(rdmap::Opcode::Write, true, target);
    let ulpdu = [segment.header().as_ref(), &[0xA5; 100]].concat();
    let mut write = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    write.extend(ulpdu);
    fpdu::seal(&mut write, 0, true);
    let mut recorder = recorder(Some(0), None);
    let end = recorder.open(local, peer);
    let frames = [
        (true, &request),
        (false, &mpa::QUESTION.to_vec()),
        (true, &told),
        (false, &reply),
        (true, &write),
        (true, &write),
    ];
    for (at, (outbound, frame)) in (1..).zip(frames) {
        // Start-up frames leave in pieces.
        let piece = if outbound && frame != &write { 9 } else { frame.len() };
        for piece in frame.chunks(piece) {
            recorder.frame(end, outbound, Framing::Fpdus, at * SECOND, piece);
        }
    }
    recorder.close(end, 9 * SECOND);
    let file = file(&mut recorder);
    let bytes = std::fs::read(&file).unwrap();
    let count = |text: &[u8]| bytes.windows(text.len()).filter(|found| *found == text).count();
    assert_eq!(count(b"secret"), 0, "private data is payload");
    assert_eq!(count(b"MPA ID Req Frame"), 2);
    assert_eq!(count(b"MPA ID Ask Frame"), 1);
    assert_eq!(count(b"MPA ID Rep Frame"), 1);
    let fields = ["iwarp_ddp.tagged_offset", "iwarp_mpa.crc_check"];
    let Some(seen) = tshark(&file, "iwarp_mpa.fpdu", &fields) else { return };
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|frame| frame[0] == "0x0000000000001000" && !frame[1].is_empty()));
}
