//! UDP ports with receivers that are slow, or that take nothing.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::harness::{End, PATIENCE};
use crate::driver::DatagramPort as Port;
use crate::raw::{DatagramPort, IpFields, Options};

const LENGTH: usize = 4096;
/// The number of the message behind the others.
const LAST: usize = usize::MAX;

/// A receiver whose buffer holds few messages, and a port to send from. `None`: this kernel does not say
/// how full the buffer is.
fn receiver() -> Option<(UdpSocket, End, DatagramPort)> {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&receiver, 64 * 1024).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let at = receiver.local_addr().unwrap();
    if crate::sys::receive_buffer_of(at, at).is_none() {
        eprintln!("not shown: this kernel does not answer (no udp_diag)");
        return None;
    }
    let end = End::new(&Options::default());
    let port = end.adapter.datagram_port("127.0.0.1:0".parse().unwrap(), |_, _| {}).unwrap();
    Some((receiver, end, port))
}

fn send(port: &DatagramPort, to: &UdpSocket, number: usize) {
    let to = to.local_addr().unwrap();
    let mut message = vec![0; LENGTH];
    message[..8].copy_from_slice(&number.to_le_bytes());
    port.send(to.ip(), to, IpFields::default(), &message).unwrap();
}

/// A round in which the receiver itself stood still for as long as a Send waits says nothing, and is made
/// again.
#[test]
fn a_receiver_on_this_host_that_is_slow_loses_nothing() {
    const MESSAGES: usize = 400;
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        let Some((receiver, end, port)) = receiver() else { return };
        let socket = receiver.try_clone().unwrap();
        let (seen, all_seen) = mpsc::channel();
        let sender = thread::spawn(move || {
            for number in 0..MESSAGES {
                send(&port, &socket, number);
            }
            while all_seen.try_recv().is_err() {
                send(&port, &socket, LAST);
            }
            drop((port, end));
        });
        let (mut arrived, mut longest) = (Vec::new(), Duration::ZERO);
        loop {
            let (mut message, since) = ([0; LENGTH], Instant::now());
            assert_eq!(receiver.recv(&mut message).unwrap(), LENGTH);
            thread::yield_now();
            longest = longest.max(since.elapsed());
            match usize::from_le_bytes(*message.first_chunk().unwrap()) {
                LAST => break,
                number => arrived.push(number),
            }
        }
        seen.send(()).unwrap();
        sender.join().unwrap();
        if longest < Port::LONGEST_WAIT {
            return assert_eq!(arrived, (0..MESSAGES).collect::<Vec<_>>());
        }
    }
    panic!("the receiver stood still for {:?} in each of {ROUNDS} rounds", Port::LONGEST_WAIT);
}

/// Each call returns, although nothing is taken; when the receiver goes on, what is sent then arrives.
#[test]
fn a_receiver_that_takes_nothing_does_not_hold_its_senders() {
    const MESSAGES: usize = 400;
    let Some((receiver, _end, port)) = receiver() else { return };
    let (sent, ends) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                send(&port, &receiver, number);
            }
            sent.send(()).unwrap();
        });
        ends.recv_timeout(PATIENCE).expect("a send waits for ever");
    });
    receiver.set_nonblocking(true).unwrap();
    let mut taken = 0;
    while receiver.recv(&mut [0; LENGTH]).is_ok() {
        taken += 1;
    }
    assert!((1..MESSAGES).contains(&taken), "{taken} of them fit into a buffer of 128 KiB");
    receiver.set_nonblocking(false).unwrap();
    send(&port, &receiver, 7);
    assert_eq!(receiver.recv(&mut [0; LENGTH]).unwrap(), LENGTH);
}
