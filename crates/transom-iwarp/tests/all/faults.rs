//! The decision table of iW 7.4, row by row; Terminates both ways; and whom a Terminate blames.

use std::collections::HashSet;

use crate::common::{self, Got, Pair};
use transom_iwarp::faults::{self, Fault, TABLE};
use transom_iwarp::terminate::{About, Terminate};
use transom_iwarp::{Config, TerminateForm};
use transom_wire::{Event, Message, Operation, RefusalClass, Role, Sending};

/// The codes of iW 7.4, column "Project", written down a second time on purpose.
#[rustfmt::skip]
const EXPECTED: &[(Fault, (u8, u8, u8))] = &[
    (Fault::Crc, (2, 0, 0x02)),
    (Fault::ShortFrame, (2, 0, 0x03)),
    (Fault::DdpVersionTagged, (1, 1, 0x04)),
    (Fault::DdpVersionUntagged, (1, 2, 0x06)),
    (Fault::RdmapVersion, (0, 2, 0x05)),
    (Fault::Opcode, (0, 2, 0x06)),
    (Fault::TagBit, (0, 2, 0x06)),
    (Fault::Queue, (1, 2, 0x01)),
    (Fault::Number, (1, 2, 0x03)),
    (Fault::NoReceive, (1, 2, 0x02)),
    (Fault::Offset, (1, 2, 0x04)),
    (Fault::TooLong, (1, 2, 0x05)),
    (Fault::WriteToken, (1, 1, 0x00)),
    (Fault::WriteBounds, (1, 1, 0x01)),
    (Fault::WriteScope, (1, 1, 0x02)),
    (Fault::WriteRight, (0, 1, 0x02)),
    (Fault::WriteWrap, (1, 1, 0x03)),
    (Fault::ReadToken, (0, 1, 0x00)),
    (Fault::ReadBounds, (0, 1, 0x01)),
    (Fault::ReadScope, (0, 1, 0x03)),
    (Fault::ReadRight, (0, 1, 0x02)),
    (Fault::ReadWrap, (0, 1, 0x04)),
    (Fault::ReadLimit, (1, 2, 0x02)),
    (Fault::ReadRequestLength, (0, 2, 0xFF)),
    (Fault::UnaskedResponse, (0, 2, 0x06)),
    (Fault::ResponseToken, (1, 1, 0x00)),
    (Fault::ResponseRange, (1, 1, 0x01)),
    (Fault::InvalidateToken, (0, 2, 0x09)),
    (Fault::InvalidateScope, (0, 1, 0x09)),
    (Fault::Interleaved, (0, 2, 0x06)),
    (Fault::EmptySegment, (0, 2, 0xFF)),
    (Fault::Extension, (0, 2, 0xFF)),
    (Fault::Local, (0, 0, 0x00)),
    (Fault::StartOther, (2, 0, 0x05)),
    (Fault::StartReads, (2, 0, 0x06)),
    (Fault::StartReady, (2, 0, 0x07)),
];

#[test]
fn every_row_of_iw_7_4() {
    assert_eq!(TABLE.len(), EXPECTED.len());
    for (fault, code) in EXPECTED {
        assert_eq!(fault.row().fault, *fault);
        assert_eq!(fault.row().code, *code, "{fault:?}");
        assert!(!fault.row().rule.is_empty() && !fault.row().name.is_empty());
    }
}

#[test]
fn every_refusal_has_a_code_that_comes_back_as_its_class() {
    for operation in Operation::ALL {
        for class in RefusalClass::ALL {
            let row = Fault::of(operation, class).row();
            let Some((_, told)) = row.refusal else {
                // Local failure says nothing; so do classes that make no sense for an operation.
                assert_eq!(row.fault, Fault::Local, "{operation:?} {class:?}");
                continue;
            };
            // A right is missing if no token of the queue pair could grant it.
            let said = if class == RefusalClass::Unsupported { RefusalClass::Right } else { class };
            if operation != Operation::Invalidate {
                assert_eq!(told, said);
            }
            let received = faults::received(row.code).unwrap();
            let (_, understood) = received.refusal.unwrap();
            assert_eq!(understood, told, "{operation:?} {class:?}");
        }
    }
}

#[test]
fn every_refusal_reaches_the_initiator_with_its_message_and_class() {
    // Through the wire, plain peers: refuse one message of each kind for each class.
    for operation in Operation::ALL {
        for class in RefusalClass::ALL {
            let row = Fault::of(operation, class).row();
            let Some((_, told)) = row.refusal else { continue };
            if operation == Operation::Invalidate && class != RefusalClass::NotInvalidatable {
                continue; // the test's engine refuses invalidations in one way
            }
            if operation == Operation::Atomic {
                continue; // plain peers are sent none
            }
            let mut pair = Pair::plain();
            pair.active.send(b"before");
            pair.active.write(1, 0x100, b"before", false);
            pair.active.read(1, 0, 4);
            pair.run();
            pair.active.taken();
            pair.passive.refuse = Some((|_| true, class, ""));
            match operation {
                Operation::Send => pair.active.send(b"data"),
                Operation::Write => pair.active.write(7, 0x1000, b"data", true),
                Operation::Read => pair.active.read(7, 0x1000, 8),
                Operation::Atomic => unreachable!(),
                Operation::Invalidate => pair.active.post(
                    Message::Send {
                        length: 0,
                        solicited: false,
                        invalidate: Some(7),
                        immediate: None,
                    },
                    b"",
                ),
            }
            pair.run();
            let got = pair.active.taken();
            let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
            assert_eq!((*id, error.class), (Some(3), Some(told)), "{operation:?} {class:?}");
            assert_eq!(error.operation, Some(operation));
            assert_eq!(error.explanation, None);
        }
    }
}

fn abouts() -> Vec<Option<(Vec<u8>, Vec<u8>)>> {
    let mut tagged = vec![0xC1, 0x40];
    tagged.resize(14, 7);
    let mut untagged = vec![0x41, 0x41];
    untagged.resize(18, 7);
    vec![
        None,
        Some((tagged, vec![])),
        Some((untagged.clone(), vec![])),
        Some((untagged, vec![9; 28])),
    ]
}

#[test]
fn terminates_survive_both_bit_orders() {
    // With a header, the order is known in every case; iW 7.3.
    let codes: HashSet<_> = TABLE.iter().map(|row| row.code).collect();
    for code in codes {
        for about in &abouts() {
            let about = about.as_ref().map(|(header, request)| About {
                length: 99,
                length_valid: true,
                header,
                request,
            });
            let said = Terminate { code, about };
            for form in [TerminateForm::Rfc, TerminateForm::Siw] {
                let (bytes, used) = said.to_bytes(form);
                let start_up = ((2, 0, 5)..=(2, 0, 7)).contains(&code);
                let understood = Terminate::parse(&bytes[..used], start_up).unwrap();
                let palindrome = code.0 == code.1;
                if about.is_some() {
                    assert_eq!(understood, (said, form));
                } else if code.0 == 2 || palindrome {
                    assert_eq!(understood.0, said, "{form:?}");
                }
            }
        }
    }
}

#[test]
fn the_order_of_a_terminate_without_header_follows_iw_7_3() {
    use TerminateForm::{Rfc, Siw};
    #[rustfmt::skip]
    let cases = [
        (0x20, 0x02, false, (2, 0, 2), Rfc),
        (0x02, 0x02, false, (2, 0, 2), Siw),
        (0x02, 0x06, false, (0, 2, 6), Rfc),
        (0x02, 0x06, true,  (2, 0, 6), Siw),
        (0x02, 0xFF, false, (0, 2, 0xFF), Rfc),
        (0x20, 0x05, false, (0, 2, 5), Siw),
        (0x20, 0x05, true,  (2, 0, 5), Rfc),
        (0x20, 0x07, true,  (2, 0, 7), Rfc),
        (0x23, 0x02, false, (2, 3, 2), Rfc),
        (0x21, 0x03, false, (1, 2, 3), Siw),
        (0x12, 0x03, false, (1, 2, 3), Rfc),
    ];
    for (first, second, start_up, code, form) in cases {
        let payload = [first, second, 0, 0];
        let (said, order) = Terminate::parse(&payload, start_up).unwrap();
        assert_eq!((said.code, order), (code, form), "{first:#04x} {second:#04x}");
    }
    // cxgb4 and irdma say 2/3 for 2/0.
    assert_eq!(faults::received((2, 3, 2)).unwrap().fault, Fault::Crc);
    assert!(faults::received((9, 9, 9)).is_none());
}

// ---- abandoned frames ---------------------------------------------------------------------------

#[test]
fn memory_that_goes_away_under_an_answer_ends_it_with_the_progress_made() {
    // iW 7.1: the Read Request's header comes back with what was already sent taken off.
    let mut pair = Pair::plain();
    pair.passive.taken();
    let size = 200_000;
    pair.active.read(9, 0x2000, size);
    pair.passive.feed(&pair.active.talk());
    let first = pair.passive.step().unwrap();
    let second = pair.passive.wire.next_frame(pair.passive.now).unwrap();
    let refusal = transom_wire::Refusal {
        operation: Operation::Read,
        class: RefusalClass::Token,
        explanation: None,
    };
    pair.passive.wire.abandon(pair.passive.now, &second, &refusal);
    let said = pair.passive.talk();
    let at = transom_iwarp::fpdu::size(14 + first.length as usize);
    let (ulpdu, _) = transom_iwarp::fpdu::parse(&said[at..], true).unwrap().unwrap();
    let (terminate, _) = Terminate::parse(&ulpdu[18..], false).unwrap();
    assert_eq!(terminate.code, (0, 1, 0));
    let request =
        transom_iwarp::rdmap::ReadRequest::parse(terminate.about.unwrap().request).unwrap();
    assert_eq!(request.size, size - first.length);
    assert_eq!(request.source_offset, 0x2000 + u64::from(first.length));
    assert_eq!(request.sink_offset, 0x5000 + u64::from(first.length));
    // The requester knows which read it was.
    pair.active.taken();
    pair.active.feed(&said);
    let got = pair.active.taken();
    assert!(matches!(got[..], [Got::Failed { id: Some(0), .. }]), "{got:?}");
}

#[test]
fn memory_that_goes_away_under_a_message_of_ours_ends_the_stream() {
    let mut pair = Pair::plain();
    pair.active.write(7, 0, &[1; 200_000], true);
    let first = pair.active.step().unwrap();
    assert!(!first.last);
    let second = pair.active.wire.next_frame(pair.active.now).unwrap();
    let refusal = transom_wire::Refusal {
        operation: Operation::Write,
        class: RefusalClass::Internal,
        explanation: None,
    };
    pair.active.wire.abandon(pair.active.now, &second, &refusal);
    let said = pair.active.talk();
    assert_eq!(common::terminate_code(&said), Some((0, 0, 0)));
    pair.passive.taken();
    pair.passive.feed(&said);
    let got = pair.passive.taken();
    let [Got::Failed { id: None, error }] = &got[..] else { unreachable!("{got:?}") };
    assert_eq!(error.class, Some(RefusalClass::Internal));
}

// ---- whom a Terminate blames ------------------------------------------------------------------

/// The message that is blamed for the `nth` of these Writes when a plain peer refuses it.
fn blamed(form: TerminateForm, writes: &[(u64, usize)], nth: usize) -> (Option<u64>, String) {
    let plain = |role| Config { extension: false, terminate: form, ..Config::new(role) };
    let mut pair = Pair::connected(plain(Role::Active), plain(Role::Passive));
    pair.active.taken();
    for (index, (address, length)) in writes.iter().enumerate() {
        let mark = if index == nth { b'!' } else { b'.' };
        pair.active.write(7, *address, &vec![mark; *length], true);
    }
    pair.passive.refuse = Some((
        |event| matches!(event, Event::Write { payload: transom_wire::Bytes::Own([b'!', ..]), .. }),
        RefusalClass::Bounds,
        "",
    ));
    let sent = pair.active.talk();
    pair.passive.feed(&sent);
    let said = pair.passive.talk();
    pair.active.feed(&said);
    match pair.active.taken().pop() {
        Some(Got::Failed { id, error }) => (id, error.code),
        got => unreachable!("{got:?}"),
    }
}

/// RFC 5040 4.8: place, length and the Last bit of the segment come back, and often decide.
#[test]
fn a_terminate_blames_the_write_whose_segment_it_echoes() {
    for form in [TerminateForm::Rfc, TerminateForm::Siw] {
        // Both begin at the same place; both end there; one lies inside the other.
        for [first, second] in [[(0, 8), (0, 16)], [(0, 16), (0, 8)], [(0, 64), (16, 8)]] {
            let (id, code) = blamed(form, &[first, second], 1);
            assert_eq!(id, Some(1), "{code}");
            assert!(!code.contains("of ours"), "{code}");
            let (id, code) = blamed(form, &[first, second], 0);
            assert_eq!(id, Some(0), "{code}");
        }
    }
}

#[test]
fn a_terminate_that_fits_several_writes_says_so() {
    let (id, code) = blamed(TerminateForm::Rfc, &[(0, 8), (32, 8), (0, 8)], 2);
    assert_eq!(id, Some(0), "nothing is said to have succeeded that may not have");
    assert!(code.ends_with("only a place to which 2 of ours went"), "{code}");
}

/// RFC 5040 4.8: a peer need not wait for the last frame before it refuses.
#[test]
fn a_terminate_blames_the_write_that_is_being_sent() {
    let mut pair = Pair::plain();
    pair.active.taken();
    pair.active.write(7, 0, b"before", false);
    pair.active.write(7, 0x1000, &[1; 200_000], true);
    for last in [true, false] {
        assert_eq!(pair.active.step().unwrap().last, last);
    }
    pair.passive.refuse =
        Some((|event| matches!(event, Event::Write { last: false, .. }), RefusalClass::Bounds, ""));
    pair.passive.feed(&pair.active.out);
    let said = pair.passive.talk();
    pair.active.taken();
    pair.active.feed(&said);
    let got = pair.active.taken();
    let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!((*id, error.operation), (Some(1), Some(Operation::Write)), "{}", error.code);
}
