//! Peers that stop: in the middle of a frame, or before they take what they have asked for.

use super::forge::*;

/// Design rules 5 and 9: the beginning of a frame is all that is held; closing waits for none of
/// the rest; the rest, when it comes, is refused.
#[test]
fn a_peer_that_stops_in_mid_frame_delays_no_other() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let (ours, mut forged) = owner.admit();
        let memory = owner.adapter.register(vec![7; 60_000]).unwrap();
        let window = ours.bind(&memory, .., transom::Rights::WRITE).unwrap();
        ours.send(b"bound").unwrap().wait().unwrap();
        let (token, address) = parts(window.grant());
        let header =
            [&[0xc1, WRITE][..], &token.to_be_bytes(), &address.to_be_bytes(), &[1; 60_000]];
        let whole = frame(&header.concat());
        let (first, rest) = whole.split_at(50_000);
        forged.say(first);
        stalled.push((ours, forged, memory, window, rest.to_vec()));
    }
    until("it has come", || owner.adapter.held() >= 16 * 50_000);
    assert!(owner.adapter.held() <= 16 * 128 * 1024, "a frame each at most, twice with growth");
    honest.is_served();
    for (ours, mut forged, memory, window, rest) in stalled {
        window.revoke().wait().unwrap();
        forged.say(&rest);
        forged.is_thrown_out();
        assert!(ours.recv().wait().is_err());
        untouched(&memory);
        assert_eq!(memory.deregister().wait().unwrap().len(), 60_000);
    }
    until("nothing is left", || owner.adapter.held() == 0);
    honest.is_served();
}

/// Rule 9: what a peer does not take stays where it is. A single buffer is filled for it, once; the
/// owner's own requests wait in their queue, which has an end; closing waits for nothing.
#[test]
fn a_peer_that_never_reads_makes_its_owner_hold_one_buffer() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    let (ours, mut forged) = owner.admit();
    let memory = owner.adapter.register(vec![7; 16 << 20]).unwrap();
    let window = ours.bind(&memory, .., transom::Rights::READ).unwrap();
    ours.send(b"bound").unwrap().wait().unwrap();
    let (token, address) = parts(window.grant());
    forged.read(token, address, 16 << 20);
    // The owner has something to say as well, and may only say so much.
    let mut said = 0;
    let full = loop {
        match ours.send_from(memory.slice(..4096)) {
            Ok(_posted) => said += 1,
            Err(error) => break error,
        }
        assert!(said < 10_000, "there is no end to it");
    };
    assert_eq!(full.kind(), transom::ErrorKind::TooMuch, "{full}");
    holds_one_buffer(&owner, &mut honest);
    window.revoke().wait().unwrap();
    drop(ours);
    assert_eq!(memory.deregister().wait().unwrap().len(), 16 << 20);
    honest.is_served();
}
