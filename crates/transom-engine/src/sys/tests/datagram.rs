//! Tests of UDP sockets, on the real system.

use std::net::{IpAddr, SocketAddr};

use super::super::own_tests::{ADDRESSES, FIELDS, is_named};
use super::super::{Datagrams, Doorbell, IoError, IpFields, poll_any};

pub(in super::super) fn wait(socket: &Datagrams) {
    poll_any(&[(socket.fd(), false)], &Doorbell::new().unwrap(), None).unwrap();
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    let server = Datagrams::bind("0.0.0.0:0".parse().unwrap(), false).unwrap();
    let port = server.address().unwrap().port();
    for host in ADDRESSES {
        // A connected socket takes nothing from another address.
        let client = Datagrams::connect((host.parse::<IpAddr>().unwrap(), port).into());
        let client = client.unwrap();
        client.send(b"question").unwrap();
        wait(&server);
        server.serve(&mut [0; 16], |bytes| (bytes == b"question").then_some(*b"yes")).unwrap();
        wait(&client);
        let mut room = [0; 8];
        assert_eq!(client.receive(&mut room), Ok(3));
        assert_eq!(&room[..3], b"yes");
    }
}

#[test]
fn a_socket_for_both_families_names_each_message_by_its_own() {
    let Ok(both) = Datagrams::bind("[::]:0".parse().unwrap(), false) else { return };
    let port = both.address().unwrap().port();
    for host in ADDRESSES.iter().chain(&["::1"]) {
        let host: IpAddr = host.parse().unwrap();
        let other = Datagrams::bind(SocketAddr::new(host, 0), false).unwrap();
        let its = other.address().unwrap();
        let [there, back] = FIELDS;
        other.send_from(host, SocketAddr::new(host, port), there, b"there").unwrap();
        wait(&both);
        let mut room = [0; 5];
        let message = both.take(&mut room).unwrap().unwrap();
        assert_eq!((message.length, message.from, &room), (5, its, b"there"));
        assert!(is_named(message.to, host), "{message:?}");
        if there != IpFields::default() {
            assert_eq!(message.fields, there);
        }
        both.send_from(message.to, its, back, b"back").unwrap();
        wait(&other);
        let message = other.take(&mut room).unwrap().unwrap();
        assert_eq!((message.length, message.from), (4, SocketAddr::new(host, port)));
        assert_eq!((message.to, &room[..4]), (host, &b"back"[..]));
        assert_eq!(message.fields.traffic_class, back.traffic_class);
        assert_ne!(message.fields.hop_limit, 0, "the system's own");
    }
}

#[test]
fn a_message_that_is_too_long_is_dropped() {
    let server = Datagrams::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let client = Datagrams::connect(server.address().unwrap()).unwrap();
    client.send(&[0; 17]).unwrap();
    client.send(&[0; 16]).unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        wait(&server);
        server
            .serve(&mut [0; 16], |bytes| {
                seen.push(bytes.len());
                None::<[u8; 1]>
            })
            .unwrap();
    }
    assert_eq!(seen, [16]);
    assert_eq!(server.serve(&mut [0; 16], |_| None::<[u8; 1]>), Err(IoError::NotNow));
}

#[test]
fn a_port_that_no_socket_has_is_known() {
    let nobody = Datagrams::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let client = Datagrams::connect(nobody.address().unwrap()).unwrap();
    drop(nobody);
    let mut asked = Ok(0);
    while matches!(asked, Ok(_) | Err(IoError::NotNow)) {
        asked = client.send(b"question").and_then(|()| client.receive(&mut [0; 8]));
    }
    assert_eq!(asked, Err(IoError::Refused));
}
