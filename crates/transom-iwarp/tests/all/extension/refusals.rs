//! Refusals and their explanations.

use super::*;

/// Posts four messages, of which the peer refuses the first that `which` accepts.
fn refused(which: fn(&Event<'_>) -> bool, class: RefusalClass, why: &'static str) -> Vec<Got> {
    let mut pair = quiet();
    pair.passive.refuse = Some((which, class, why));
    pair.active.send(b"first");
    pair.active.write(7, 0, b"second", true);
    pair.active.read(9, 0, 8);
    let message =
        Message::Send { length: 0, solicited: false, invalidate: Some(3), immediate: None };
    pair.active.post(message, b"");
    pair.run();
    pair.active.taken()
}

#[test]
fn a_refusal_names_the_message_and_what_came_before_it_has_succeeded() {
    let write = |event: &Event<'_>| matches!(event, Event::Write { .. });
    let read = |event: &Event<'_>| matches!(event, Event::ReadRequest { .. });
    let invalidate = |event: &Event<'_>| matches!(event, Event::Send { invalidate: Some(_), .. });
    type Which = fn(&Event<'_>) -> bool;
    let cases: [(Which, _, _, Option<u64>, _); 3] = [
        (write, RefusalClass::Right, Some(0), Some(1), Operation::Write),
        (read, RefusalClass::Token, Some(1), Some(2), Operation::Read),
        (invalidate, RefusalClass::NotInvalidatable, Some(1), Some(3), Operation::Invalidate),
    ];
    for (which, class, done, blamed, operation) in cases {
        let got = refused(which, class, "why not");
        let last =
            got.iter().rev().find_map(|got| if let Got::Done(id) = got { Some(*id) } else { None });
        assert_eq!(last, done, "{got:?}");
        let Some(Got::Failed { id, error }) = got.last() else { unreachable!("{got:?}") };
        assert_eq!((*id, error.class, error.operation), (blamed, Some(class), Some(operation)));
        assert_eq!(error.explanation.as_deref(), Some("why not"));
    }
}

#[test]
fn an_explanation_of_several_frames_arrives_whole_and_bounded() {
    let why: &'static str = "€ is three bytes ".repeat(60).leak();
    let got = refused(|event| matches!(event, Event::Write { .. }), RefusalClass::Right, why);
    let Some(Got::Failed { error, .. }) = got.last() else { unreachable!("{got:?}") };
    let explanation = error.explanation.as_deref().unwrap();
    assert!(explanation.len() > 500 && why.starts_with(explanation), "{explanation}");
}

#[test]
fn a_peers_text_is_made_printable() {
    let why = "two\nlines\x1b[31m and \0\u{202e}";
    let got = refused(|event| matches!(event, Event::Write { .. }), RefusalClass::Right, why);
    let Some(Got::Failed { error, .. }) = got.last() else { unreachable!("{got:?}") };
    assert_eq!(error.explanation.as_deref(), Some("two lines [31m and   "));
}

#[test]
fn a_plain_peer_gets_no_explanation() {
    let mut pair = Pair::plain();
    pair.passive.refuse = Some((|_| true, RefusalClass::Bounds, "secret"));
    pair.active.write(7, 0, b"data", true);
    pair.passive.feed(&pair.active.talk());
    let said = pair.passive.talk();
    assert!(!said.windows(6).any(|bytes| bytes == b"secret"));
    assert_eq!(common::terminate_code(&said), Some((1, 1, 1)));
}

#[test]
fn a_refusal_whose_terminate_was_lost_still_counts() {
    let mut pair = quiet();
    pair.passive.refuse = Some((|_| true, RefusalClass::Bounds, "no"));
    pair.active.write(7, 0, b"data", true);
    pair.passive.feed(&pair.active.talk());
    let said = pair.passive.talk();
    let terminate = fpdu::size(18 + 4 + 2 + 14);
    pair.active.feed(&said[..said.len() - terminate]);
    assert_eq!(pair.active.wire.link_closed(pair.active.now, true), Ok(()));
    pair.active.listen();
    assert!(matches!(pair.active.taken()[..], [Got::Failed { id: Some(0), .. }]));
}
