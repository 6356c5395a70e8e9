//! Peers that come in crowds, or ask for more than they may.

use std::io::Write;
use std::net::TcpStream;

use super::forge::*;

/// iW 14: hundreds of half-finished handshakes from one address take the places of that address, a
/// few bytes each, and no other address's.
#[test]
fn half_finished_handshakes_take_no_one_else_s_place() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    let mut half = Vec::new();
    // Early connections may have been given up when the last ones come: repeat until there are
    // enough.
    for turn in 0..600 {
        if turn >= 300 && owner.listener.turned_away() >= 40 {
            break;
        }
        let mut stream = TcpStream::connect(owner.listener.address()).unwrap();
        let request = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x04\x00\x04";
        // May be turned away already.
        let _ = stream.write_all(&request[..turn % request.len()]);
        half.push(stream);
    }
    // 256 are waited for; the connection of each other is closed.
    until("too many were let in", || owner.listener.turned_away() >= 40);
    assert!(owner.adapter.held() <= 256 * 1024, "less than 1 KiB each");
    honest.is_served();
    owner.welcome([127, 0, 0, 3]).is_served();
    drop(half);
    // The places are free again.
    let (ours, _forged) = owner.admit();
    drop(ours);
}

/// RFC 5042 6.4.3.3: more reads at a time than agreed end the connection; a peer that asks and does
/// not take the answers makes its owner hold one buffer, whatever it has asked for.
#[test]
fn reads_beyond_the_limit_end_the_connection() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    let (ours, mut forged) = owner.admit();
    let memory = owner.adapter.register(vec![7; 8 << 20]).unwrap();
    let window = ours.bind(&memory, .., transom::Rights::READ).unwrap();
    ours.send(b"bound").unwrap().wait().unwrap();
    let (token, address) = parts(window.grant());
    for _ in 0..4 {
        forged.read(token, address, 8 << 20);
    }
    // As agreed; they fill the socket, and wait there.
    holds_one_buffer(&owner, &mut honest);
    assert!(ours.ended().is_none(), "four are its right");
    for _ in 0..1000 {
        forged.read(token, address, 8 << 20);
    }
    let why = ours.recv().wait().unwrap_err().to_string();
    assert!(why.contains("reads and atomics at a time"), "ended for another reason: {why}");
    honest.is_served();
}

/// RFC 5044 7.1: private data of more than 512 bytes is refused by its length; none of it is kept.
#[test]
fn giant_private_data_is_refused_unread() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    for length in [513u16, 0x8000, 0xffff] {
        let mut stream = TcpStream::connect(owner.listener.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = [&b"MPA ID Req Frame\x10\x02"[..], &length.to_be_bytes()].concat();
        stream.write_all(&request).unwrap();
        // All of it, so that no side waits for the rest; the other side may have gone.
        let _ = stream.write_all(&vec![0; usize::from(length)]);
        is_hung_up(&mut stream);
    }
    honest.is_served();
}

/// Bytes that are no start-up, or no frame, end their own connection.
#[test]
fn garbage_ends_its_own_connection() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    for byte in [0x00, 0x41, 0xc1, 0xff] {
        let mut stranger = TcpStream::connect(owner.listener.address()).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stranger.write_all(&[byte; 10_000]);
        is_hung_up(&mut stranger);
        let (ours, mut forged) = owner.admit();
        forged.say(&[byte; 200_000]);
        forged.is_thrown_out();
        assert!(ours.recv().wait().is_err());
        honest.is_served();
    }
}
