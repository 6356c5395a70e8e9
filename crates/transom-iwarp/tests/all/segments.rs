//! Frame sizes (iW 3.1, 3.2) and markers (iW 3.3) over more than the vectors.

use crate::common::{self, Pair, Side};
use transom_iwarp::{Config, DEFAULT_FRAME, fpdu, mpa};
use transom_wire::{Receiving, Role, Sending, StartUp};

/// The frames that a long message of each kind is cut into.
fn sizes(side: &mut Side, length: usize) -> Vec<usize> {
    side.send(&vec![1; length]);
    side.write(7, 0, &vec![1; length], false);
    let bytes = side.talk();
    let mut rest = &bytes[..];
    let mut sizes = Vec::new();
    while let Some((_, used)) = fpdu::parse(rest, false).unwrap() {
        sizes.push(used);
        rest = &rest[used..];
    }
    assert!(rest.is_empty());
    sizes
}

#[test]
fn frames_to_a_plain_peer_fit_the_segment() {
    for segment in [536, 1398, 1448, 1460, 8948, 65_483] {
        let mut pair = Pair::plain();
        pair.active.wire.set_segment_size(segment);
        let sizes = sizes(&mut pair.active, 300_000);
        let largest = *sizes.iter().max().unwrap();
        let segment = segment as usize;
        assert!(largest <= segment, "{largest} > {segment}");
        // RFC 5044: no ULPDU beyond 64,768. Otherwise, none smaller than it must be.
        assert!(largest <= fpdu::size(64_768));
        assert!(largest + 4 > segment.min(fpdu::size(64_768)), "{largest} of {segment}");
    }
}

#[test]
fn without_a_known_segment_a_plain_peer_gets_what_the_rfc_allows() {
    let mut pair = Pair::plain();
    let largest = *sizes(&mut pair.active, 300_000).iter().max().unwrap();
    assert_eq!(largest, fpdu::size(64_768));
}

#[test]
fn the_default_frame_fits_a_loopback_segment() {
    // An FPDU a few bytes longer would leave a runt segment behind each frame.
    let mut pair = Pair::transoms();
    pair.active.wire.set_segment_size(65_483);
    let largest = *sizes(&mut pair.active, 300_000).iter().max().unwrap();
    assert_eq!(largest, DEFAULT_FRAME as usize);
    assert!(largest <= 65_483 && largest + 4 > 65_483);
    assert_eq!(pair.active.wire.facts().unwrap().largest_payload, 65_460);
}

#[test]
fn frames_between_transoms_fill_whole_segments() {
    for (segment, expected) in [(1448, 65_160), (8948, 62_636), (40_000, 40_000)] {
        let mut pair = Pair::transoms();
        pair.active.wire.set_segment_size(segment);
        let largest = *sizes(&mut pair.active, 300_000).iter().max().unwrap();
        assert_eq!(largest, expected, "{segment}");
        assert_eq!(largest % segment as usize, 0);
    }
}

#[test]
fn no_limit_makes_frames_that_cannot_be_said() {
    for largest_frame in [0, 100, 65_544, u32::MAX] {
        let config = |role| Config { largest_frame, ..Config::new(role) };
        let mut pair = Pair::connected(config(Role::Active), config(Role::Passive));
        for segment in [0, 1, 88, 536, u32::MAX] {
            pair.active.wire.set_segment_size(segment);
            pair.active.send(&[1; 70_000]);
            pair.run();
            assert_eq!(pair.passive.violation, None);
        }
        pair.settle();
        assert_eq!((&pair.active.violation, &pair.passive.violation), (&None, &None));
    }
}

/// Takes the markers out of a stream, by counting alone, and says where each pointed.
fn without_markers(bytes: &[u8]) -> (Vec<u8>, Vec<(usize, u16)>) {
    let (mut plain, mut markers) = (Vec::new(), Vec::new());
    for (number, block) in bytes.chunks(512).enumerate() {
        assert_eq!(block[..2], [0, 0], "reserved");
        markers.push((number * 512, u16::from_be_bytes([block[2], block[3]])));
        plain.extend_from_slice(&block[4..]);
    }
    (plain, markers)
}

#[test]
fn markers_come_every_512_bytes_whatever_the_frames_are() {
    let config = Config {
        extension: false,
        peer_to_peer: false,
        hold: std::time::Duration::ZERO,
        ..Config::new(Role::Active)
    };
    let mut side = Side::new(config);
    side.wire.connect(side.now, common::LIMITS, b"").unwrap();
    side.talk();
    let mut reply = mpa::REPLY_KEY.to_vec();
    reply.extend_from_slice(&common::hex("d0 02 0004 0004 0004"));
    side.feed(&reply);
    side.wire.confirm(side.now).unwrap();
    side.wire.set_segment_size(1448);
    let mut bytes = Vec::new();
    for length in (0..700).chain([5000, 0, 0, 1, 70_000]) {
        let before = bytes.len();
        side.send(&common::memory(1, length as u64, length));
        bytes.extend(side.talk());
        assert!(bytes.len() > before);
    }
    // Without the markers there is a stream of frames; each marker points back to the length field
    // of the frame it lies in, or says 0 between frames.
    let (plain, markers) = without_markers(&bytes);
    let mut starts = Vec::new();
    let mut at = 0;
    while at < plain.len() {
        let length = usize::from(u16::from_be_bytes([plain[at], plain[at + 1]]));
        starts.push(at);
        at += fpdu::size(length);
    }
    assert_eq!(at, plain.len());
    for (position, back) in markers {
        // Bytes of frames in front of this marker.
        let in_front = position - position / 512 * 4;
        let frame = *starts.iter().rev().find(|start| **start <= in_front).unwrap();
        let expected = if frame == in_front {
            0
        } else {
            // The start of the frame, counted with the markers between it and here.
            position - (frame + (frame / 508 + 1) * 4)
        };
        assert_eq!(usize::from(back), expected, "marker at {position}");
    }
    // The frames fit the segment, markers included (MULPDU of iW 3.1).
    let mut largest = 0;
    for pair in starts.windows(2) {
        largest = largest.max(pair[1] - pair[0]);
    }
    assert!(largest + 3 * 4 <= 1448, "{largest}");
}

#[test]
fn a_trailer_is_offered_when_it_does_not_depend_on_the_payload() {
    for (checksum, markers) in [(true, false), (false, false), (false, true)] {
        let config = Config {
            checksum,
            extension: false,
            peer_to_peer: false,
            hold: std::time::Duration::ZERO,
            ..Config::new(Role::Active)
        };
        let mut side = Side::new(config);
        side.wire.connect(side.now, common::LIMITS, b"").unwrap();
        let start_up = side.wire.next_frame(side.now).unwrap();
        assert_eq!(side.wire.trailer(&start_up).map(|trailer| trailer.length), Some(0));
        let flags = if markers { "90" } else { "10" };
        let mut reply = mpa::REPLY_KEY.to_vec();
        reply.extend_from_slice(&common::hex(&format!("{flags} 02 0004 0004 0004")));
        side.feed(&reply);
        side.wire.confirm(side.now).unwrap();
        for length in 0..8 {
            let data = vec![0xAA; length];
            side.send(&data);
            let before = side.out.len();
            let frame = side.step().unwrap();
            let sealed = side.out[before..].to_vec();
            let trailer = side.wire.trailer(&frame);
            assert_eq!(trailer.is_some(), !checksum && !markers);
            if let Some(trailer) = trailer {
                let end = &trailer.bytes[..usize::from(trailer.length)];
                assert_eq!([frame.header(), &data, end].concat(), sealed);
            }
        }
    }
}

/// A glance agrees with what decoding finds out later, and asks nothing of the bytes.
#[test]
fn a_glance_finds_the_size_and_the_token_of_a_frame() {
    let mut pair = Pair::plain();
    pair.active.send(b"to whom it may concern");
    pair.active.write(7, 0, &[1; 13], false);
    pair.active.write(0x1234_5678, 0, &[], false);
    let bytes = pair.active.talk();
    let (mut rest, mut tokens) = (&bytes[..], Vec::new());
    while let Some(glance) = pair.active.wire.glance(rest) {
        assert_eq!(fpdu::parse(rest, false).unwrap().unwrap().1, glance.length);
        tokens.push(glance.token);
        rest = &rest[glance.length..];
    }
    assert!(rest.is_empty());
    assert_eq!(tokens, [None, Some(7), Some(0x1234_5678)]);
    for length in 0..16 {
        assert_eq!(pair.active.wire.glance(&[0xff; 16][..length]), None, "{length} bytes");
    }
}
