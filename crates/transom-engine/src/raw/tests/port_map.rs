//! Questions for a port of the space beside TCP's, to hosts that lie and to hosts that are not there.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;

use super::harness::{End, PATIENCE};
use crate::Status;
use crate::raw::Options;

/// Wrong messages ahead of the answer, more than a socket takes at a time: none counts, and the answer
/// is found behind them.
#[test]
fn an_answer_behind_a_flood_of_wrong_ones_counts() {
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = liar.local_addr().unwrap();
    let flood = thread::spawn(move || {
        let mut asked = [0; 64];
        let (length, asker) = liar.recv_from(&mut asked).unwrap();
        let mut answer = asked[..length].to_vec();
        answer[..8].copy_from_slice(b"TSMhere\x01");
        answer[16..18].copy_from_slice(&4711_u16.to_be_bytes());
        let mut another = answer.clone();
        another[8] ^= 1; // the answer to another question
        another[16..18].copy_from_slice(&666_u16.to_be_bytes());
        for _ in 0..50 {
            for wrong in [&another[..], &answer[1..]] {
                liar.send_to(wrong, asker).unwrap();
            }
        }
        liar.send_to(&answer, asker).unwrap();
        liar
    });
    let end = End::new(&Options::default());
    let (found, find) = mpsc::channel();
    let question = end.adapter.find_port(at, move |port| found.send(port).unwrap()).unwrap();
    let port = find.recv_timeout(PATIENCE).expect("no answer").unwrap();
    assert_eq!(port, (at.ip(), 4711).into());
    drop((question, flood.join().unwrap()));
}

/// Where no socket has the port, the question fails as refused.
#[test]
fn a_port_that_no_socket_has_is_refused() {
    let at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let end = End::new(&Options::default());
    let (found, find) = mpsc::channel();
    let _question = end.adapter.find_port(at, move |port| found.send(port).unwrap()).unwrap();
    let port = find.recv_timeout(PATIENCE).expect("no answer");
    assert_eq!(port, Err(Status::ConnectionRefused));
}
