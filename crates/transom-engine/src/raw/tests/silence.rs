//! The cause of a silence, over real sockets.

use std::net::TcpListener;
use std::time::Duration;

use super::namespace::{OURS, PEERS, ip, with_addresses};
use crate::raw::Silence;
use crate::sys::{IoError, Options, Stream};

/// A program that does not read, on a host that answers each probe. The first one comes after 2 s, the
/// second would come after the time is up: the last word of a host that is well is as old as the silence.
#[test]
fn a_host_that_is_seldom_asked_has_left_nothing_unanswered() {
    with_addresses(|| {
        let slow = "route replace local 10.203.9.1 dev peers table local rto_min 2s";
        if let Err(why) = ip(slow) {
            return eprintln!("SKIPPED: {why}");
        }
        let reads_nothing = TcpListener::bind((PEERS, 0)).unwrap();
        let silence = Duration::from_secs(4);
        let options = Options { silence, congestion: None };
        let to = reads_nothing.local_addr().unwrap();
        let stream = Stream::connect(Some((OURS, 0).into()), to, &options).unwrap();
        let end = loop {
            match stream.send(&[0; 65536]) {
                Ok(_) => {}
                Err(IoError::NotNow) => std::thread::sleep(Duration::from_millis(1)),
                Err(end) => break end,
            }
        };
        assert_eq!(end, IoError::TimedOut);
        let progress = stream.progress().unwrap();
        assert!(progress.waits && !progress.unanswered, "{progress:?}");
        assert_eq!(Silence::of(progress, true, silence), Silence::Untaken, "{progress:?}");
    });
}
