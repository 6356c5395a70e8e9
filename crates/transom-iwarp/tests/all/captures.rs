//! Every frame of every recorded session of siw: decoded, and encoded again byte for byte.

use transom_iwarp::TerminateForm;
use transom_iwarp::ddp::Segment;
use transom_iwarp::mpa::{self, FrameKind, StartUp};
use transom_iwarp::rdmap::{self, Opcode, ReadRequest};
use transom_iwarp::terminate::Terminate;
use transom_iwarp::{fpdu, mpa::CHECKSUM};
use transom_testing::captures::{Session, Unit};

fn start_up(unit: &Unit) -> u8 {
    let kind = if unit.from_client { FrameKind::Request } else { FrameKind::Reply };
    let (frame, used) = StartUp::parse(&unit.bytes, kind).unwrap().unwrap();
    assert_eq!(used, unit.bytes.len());
    let mut again = Vec::new();
    frame.write(&mut again);
    assert_eq!(again, unit.bytes);
    frame.flags
}

fn frame(unit: &Unit, checksum: bool) -> Opcode {
    let (ulpdu, used) = fpdu::parse(&unit.bytes, checksum).unwrap().unwrap();
    assert_eq!(used, unit.bytes.len());
    let segment = Segment::parse(ulpdu).unwrap();
    let opcode = rdmap::opcode(segment.control).unwrap();
    let mut again = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    again.extend_from_slice(segment.header().as_ref());
    match opcode {
        Opcode::ReadRequest => {
            again.extend_from_slice(&ReadRequest::parse(segment.payload).unwrap().to_bytes());
        }
        Opcode::Terminate => {
            let (terminate, form) = Terminate::parse(segment.payload, false).unwrap();
            assert_eq!(form, TerminateForm::Siw);
            let (bytes, used) = terminate.to_bytes(form);
            again.extend_from_slice(&bytes[..used]);
        }
        _ => again.extend_from_slice(segment.payload),
    }
    // siw leaves what was in its buffer where padding belongs; a sender must write zeros, a
    // receiver must not mind (iW 3.1, F5).
    let padding = unit.bytes.len() - fpdu::CRC - again.len();
    again.extend_from_slice(&unit.bytes[again.len()..again.len() + padding]);
    fpdu::seal(&mut again, 0, checksum);
    assert_eq!(again, unit.bytes);
    opcode
}

fn whole(session: &Session) -> Vec<Opcode> {
    let units = session.units();
    let mut checksum = false;
    let mut opcodes = Vec::new();
    for unit in &units {
        if unit.start_up {
            checksum |= start_up(unit) & CHECKSUM != 0;
        } else {
            opcodes.push(frame(unit, checksum));
        }
    }
    let split: usize = units.iter().map(|unit| unit.bytes.len()).sum();
    let recorded: usize = session.turns.iter().map(|turn| turn.bytes.len()).sum();
    assert_eq!(split, recorded, "bytes at the end of {} make no frame", session.name);
    opcodes
}

#[test]
fn every_frame_of_every_capture_survives_decoding_and_encoding() {
    let sessions = transom_testing::captures::siw().unwrap();
    assert_eq!(sessions.len(), 35);
    let mut seen = std::collections::BTreeMap::new();
    for session in &sessions {
        for opcode in whole(session) {
            *seen.entry(opcode as u8).or_insert(0) += 1;
        }
    }
    // Writes, Read Requests, Read Responses, Sends, one Terminate: the whole of RDMAP that siw
    // speaks from user space, but for invalidation.
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
    assert_eq!(seen[&7], 1);
}

#[test]
fn siw_terminates_in_its_own_bit_order() {
    let sessions = transom_testing::captures::siw().unwrap();
    let session = sessions.iter().find(|s| s.name == "siw-terminate-bounds/0").unwrap();
    let last = session.units().pop().unwrap();
    let (ulpdu, _) = fpdu::parse(&last.bytes, true).unwrap().unwrap();
    let segment = Segment::parse(ulpdu).unwrap();
    let (terminate, form) = Terminate::parse(segment.payload, false).unwrap();
    assert_eq!((terminate.code, form), ((1, 1, 1), TerminateForm::Siw));
    let about = terminate.about.unwrap();
    // siw counts the payload only.
    assert_eq!((about.length, about.header[0], about.request.len()), (1400, 0x81, 0));
    // The RFC's order would say the same in other bytes.
    let (bytes, used) = terminate.to_bytes(TerminateForm::Rfc);
    assert_ne!(&bytes[..used], segment.payload);
    assert_eq!(Terminate::parse(&bytes[..used], false).unwrap(), (terminate, TerminateForm::Rfc));
}

#[test]
fn start_up_of_every_kind_was_recorded() {
    let sessions = transom_testing::captures::siw().unwrap();
    let flags = |name: &str, client: bool| {
        let session = sessions.iter().find(|s| s.name == name).unwrap();
        let unit = session.units().into_iter().find(|u| u.start_up && u.from_client == client);
        let unit = unit.unwrap();
        (unit.bytes[16], unit.bytes[17])
    };
    assert_eq!(flags("siw-mpa-rev1/0", true), (mpa::CHECKSUM, 1));
    assert_eq!(flags("siw-mpa-markers-reject/0", true), (mpa::MARKERS, 1));
    assert_eq!(flags("siw-mpa-markers-reject/0", false), (mpa::REJECT, 1));
    assert_eq!(flags("siw-strict-rping-64/0", false), (mpa::CHECKSUM | mpa::ENHANCED, 2));
}
