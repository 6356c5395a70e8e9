//! `transom rping` with itself, in both roles, with and without the extension and checksums.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use common::{Server, run};

#[test]
fn three_rounds_between_two_processes() {
    for switches in
        [&[][..], &["--path", "tcp"], &["--no-extension"], &["--no-extension", "--crc", "off"]]
    {
        let served = ["rping", "-s", "-a", "127.0.0.1", "-p", "0", "-v"];
        let server = Server::start(&[&served[..], switches].concat());
        let to = server.address();
        let asked = ["rping", "-c", &to, "-C", "3", "-v", "-V", "-S", "48"];
        let client = run(&[&asked[..], switches].concat());
        assert_eq!(client.code, 0, "{switches:?}: {client:?}");
        assert_eq!(
            client.out,
            "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`ab\n\
             ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abc\n\
             ping data: rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcd\n"
        );
        let path = if switches.is_empty() { "path process: " } else { "path tcp: " };
        let server = server.finish();
        assert!(client.err.contains(path) && server.err.contains(path), "{switches:?}: {client:?}");
        assert_eq!(server.code, 0, "{switches:?}: {server:?}");
        assert_eq!(server.out, client.out.replace("ping data", "server ping data"));
    }
}

#[test]
fn the_largest_size_and_a_server_that_goes_on() {
    let server = Server::start(&["rping", "-s", "-P", "-a", "127.0.0.1", "-p", "0"]);
    let to = server.address();
    for size in ["24", "4000", "65536"] {
        let client = run(&["rping", "-c", &to, "-C", "2", "-V", "-S", size]);
        assert_eq!(client.code, 0, "{size}: {client:?}");
    }
}
