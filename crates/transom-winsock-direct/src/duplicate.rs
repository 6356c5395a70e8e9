//! A socket that goes to another process: the half that gives it, and the half that takes it (WSD
//! 12).
//!
//! The giver waits at a place that is named after the token (`os`). The taker connects
//! there; the system tells the giver whether it is the process for which the token was made, and
//! each of them that the other is the same user's (WSD D-1). The taker is told what it needs to
//! continue: of a connection, where the peer takes it and the name by which the peer knows it; of a
//! listener, its address.
//!
//! The giver's connection stays, idle, until the peer has taken the taker's in its place. So the peer
//! sees the end of the giver, and of the taker, as it sees the end of any process (WSD D-8).

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use transom_engine::raw;

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::hello::Secret;
use crate::os::{self, Place, Stream};
use crate::provider::{Provider, lock};
use crate::socket::{Socket, SocketPhase};

/// The other process answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a record, at most.
const LONGEST: u64 = 256;
/// Attempts to find a token that no other socket of this system has.
const ATTEMPTS: u32 = 64;
/// The taker's word that it has all it needs.
const TAKEN: [u8; 1] = [1];

/// Everything that the taker needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A listener's address and backlog.
    Listener { local: SocketAddr, backlog: usize },
    /// The application's address, where the peer takes the connection, and its name there.
    Connection { local: SocketAddr, peer: SocketAddr, secret: Secret },
}

impl Record {
    fn to_text(self) -> String {
        match self {
            Record::Listener { local, backlog } => format!("listener {local} {backlog}\n"),
            Record::Connection { local, peer, secret } => {
                format!("connection {local} {peer} {:032x}\n", u128::from_be_bytes(secret))
            }
        }
    }

    fn read(text: &str) -> Option<Record> {
        let text = text.strip_suffix('\n')?;
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["listener", local, backlog] => Some(Record::Listener {
                local: local.parse().ok()?,
                backlog: backlog.parse().ok()?,
            }),
            ["connection", local, peer, secret] => {
                let secret = u128::from_str_radix(secret, 16).ok()?.to_be_bytes();
                let (local, peer) = (local.parse().ok()?, peer.parse().ok()?);
                Some(Record::Connection { local, peer, secret })
            }
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Taken,
    Closed,
}

/// A socket on its way to another process.
#[derive(Debug)]
pub(crate) struct Handover {
    place: Place,
    /// The process for which the token is (WSD D-1).
    process: u32,
    record: Record,
    stage: Mutex<Stage>,
}

impl Handover {
    /// Wait for the other process. The token names the socket until [`Handover::close`]. `lifeline`
    /// is the connection that stays until the peer has another in its place.
    fn begin(
        process: u32,
        record: Record,
        lifeline: Option<Arc<Connection>>,
    ) -> Result<(u32, Arc<Handover>)> {
        let (token, place) = (0..ATTEMPTS).find_map(|_| free_token()).ok_or(Error::WSAENOBUFS)?;
        let stage = Mutex::new(Stage::Waiting);
        let handover = Arc::new(Handover { place, process, record, stage });
        let serving = Arc::clone(&handover);
        transom_os::threads::builder()
            .name("transom-wsd-give".into())
            .spawn(move || serving.serve(lifeline))
            .map_err(|_| Error::WSAENOBUFS)?;
        Ok((token, handover))
    }

    /// Whether another process has taken the socket; if not, none will.
    pub(crate) fn close(&self) -> bool {
        let mut stage = lock(&self.stage);
        let taken = *stage == Stage::Taken;
        if !taken {
            *stage = Stage::Closed;
        }
        drop(stage);
        self.place.close();
        taken
    }

    fn serve(&self, lifeline: Option<Arc<Connection>>) {
        let taker = loop {
            let Some(taker) = self.place.accept() else { return };
            if taker.is_process(Some(self.process)) {
                break taker;
            }
        };
        {
            let mut stage = lock(&self.stage);
            if *stage != Stage::Waiting {
                return;
            }
            *stage = Stage::Taken;
        }
        self.place.close();
        let mut said = [0];
        taker.say(self.record.to_text().as_bytes());
        let taken = (&taker).read(&mut said).is_ok_and(|count| count == said.len());
        if let Some(lifeline) = lifeline
            && !taken
        {
            lifeline.end(); // the taker has failed, or died: so the peer learns of it (WSD D-8)
        }
        // Otherwise the peer ends it when the other connection has its place; or this process does,
        // when it exits.
    }
}

fn free_token() -> Option<(u32, Place)> {
    let seed = raw::random_seed().ok()?;
    // 0 is no token: it says that a socket is a new one.
    let token = NonZeroU32::new(u32::from_ne_bytes(*seed.first_chunk()?))?.get();
    Some((token, Place::new(token)?))
}

impl Socket {
    /// `WSPDuplicateSocket` of a connected or a listening socket. Every registration of this process
    /// on the socket ends (WSD A-29), and the receives under way complete with no bytes (12.1 step
    /// 6).
    pub(crate) fn duplicate(self: &Arc<Self>, process: u32) -> Result<u32> {
        os::check()?;
        let local = self.local();
        let mut state = lock(&self.state);
        let channel = state.channel.clone();
        match &state.phase {
            SocketPhase::Listening => {
                let record = Record::Listener { local: local?, backlog: state.backlog };
                // All that can fail comes first: a refused call leaves the listener as it was.
                let (token, handover) = Handover::begin(process, record, None)?;
                let parts = state.retire(SocketPhase::Suspended);
                state.handover = Some(handover);
                drop(state);
                self.end(parts); // and its port is free for the other process
                Ok(token)
            }
            SocketPhase::Connected => {
                let channel = channel.ok_or(Error::WSAEINVAL)?;
                let (peer, secret) = channel.continued_at().ok_or(Error::WSAENOBUFS)?;
                let record = Record::Connection { local: local?, peer, secret };
                let (token, handover) =
                    Handover::begin(process, record, Some(Arc::clone(&channel)))?;
                state.phase = SocketPhase::Suspended;
                state.handover = Some(handover);
                drop(state);
                self.give_up_receives(&channel);
                Ok(token)
            }
            _ => Err(Error::WSAEINVAL), // WSD D-7
        }
    }

    /// Complete every operation under way. A message whose sender has had its completion is in its
    /// receive: no message can come in once the registrations have ended, because its receive has no
    /// memory, and the link is asked for all that came before.
    fn give_up_receives(self: &Arc<Self>, channel: &Arc<Connection>) {
        // A message that has arrived and was not processed yet takes its receive while that has its
        // memory.
        let _ = channel.queue_pair.process_arrived();
        lock(&self.state).registrations.end();
        let _ = channel.queue_pair.process_arrived();
        self.drain(channel);
        let posted = std::mem::take(&mut lock(&self.state).posted);
        let mut posted: Vec<_> = posted.into_iter().collect();
        posted.sort_by_key(|(request, _)| *request);
        for (_, posted) in posted {
            let failed = posted.receive.is_none().then_some(Error::WSA_OPERATION_ABORTED);
            self.signal(&posted, failed, 0);
        }
    }

    /// The other half: a socket in the state in which the giver's was. Always a new descriptor (WSD
    /// D-2).
    pub(crate) fn taken(provider: &Arc<Provider>, token: u32) -> Result<Arc<Socket>> {
        let giver = Stream::to(token, PATIENCE)?;
        if !giver.is_process(None) {
            return Err(Error::WSAEINVAL);
        }
        let mut text = String::new();
        BufReader::new(&giver).take(LONGEST).read_line(&mut text).map_err(|_| Error::WSAEINVAL)?;
        let record = Record::read(&text).ok_or(Error::WSAEINVAL)?;
        let socket = Socket::new(provider)?;
        let continued = match record {
            Record::Listener { local, backlog } => {
                socket.bind(local).and_then(|()| socket.listen(backlog))
            }
            Record::Connection { local, peer, secret } => socket.carry_on(local, peer, secret),
        };
        match continued {
            Ok(()) => {
                giver.say(&TAKEN);
                Ok(socket)
            }
            Err(error) => {
                let parts = lock(&socket.state).retire(SocketPhase::Closed);
                socket.close(parts);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::mem;
    use crate::memory::Key;
    use crate::provider::open;
    use crate::region::Region;
    use transom_memory::{Purpose, Rights};

    /// WSD W22, D-8: a taker that has the record and dies before it has the connection ends that of the
    /// giver, so that the peer learns of it. A taker that has it does not.
    #[test]
    #[allow(unsafe_code)]
    fn w22_a_taker_that_dies_half_way_ends_the_connection() {
        let adapter = open([127, 0, 0, 1].into()).unwrap();
        let page = Box::new([0u8; 64]);
        let address = page.as_ptr().expose_provenance() as u64;
        let key = Key { address, length: 64, flags: mem::READ };
        for takes in [false, true] {
            let connected = Connection::lone(&adapter).unwrap();
            // SAFETY: the page outlives the adapter, and no reference to it exists.
            let region =
                unsafe { Region::of_connection(&connected, Rights::LOCAL_READ, address, key) };
            let region = region.unwrap();
            let is_up = || region.permits(&connected, Purpose::LocalSource, address, 64).is_ok();
            let at = "127.0.0.1:1".parse().unwrap();
            let record = Record::Connection { local: at, peer: at, secret: [1; 16] };
            let weak = Arc::downgrade(&connected);
            let (token, handover) =
                Handover::begin(std::process::id(), record, Some(Arc::clone(&connected))).unwrap();
            let taker = Stream::to(token, PATIENCE).unwrap();
            let mut text = String::new();
            BufReader::new(&taker).take(LONGEST).read_line(&mut text).unwrap();
            assert_eq!(Record::read(&text), Some(record));
            assert!(Stream::to(token, PATIENCE).is_err(), "a token is good once");
            if takes {
                taker.say(&TAKEN);
            }
            drop(taker);
            // The thread that gives has ended when it holds the connection no more.
            while weak.strong_count() > 1 {
                std::thread::yield_now();
            }
            assert_eq!(is_up(), takes);
            assert!(handover.close());
        }
    }

    #[test]
    fn w21_a_record_in_words_and_back() {
        let (local, peer) = ("192.0.2.1:80".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap());
        let secret = *b"\x00123456789abcdef";
        let connection = Record::Connection { local, peer, secret };
        let text = "connection 192.0.2.1:80 [2001:db8::1]:9 00313233343536373839616263646566\n";
        assert_eq!(connection.to_text(), text);
        assert_eq!(Record::read(text), Some(connection));
        let listener = Record::Listener { local, backlog: 5 };
        assert_eq!(listener.to_text(), "listener 192.0.2.1:80 5\n");
        assert_eq!(Record::read("listener 192.0.2.1:80 5\n"), Some(listener));
    }

    #[test]
    fn w21_other_words_are_no_record() {
        let words = [
            "",
            "\n",
            "listener 192.0.2.1:80 5",
            "listener 192.0.2.1:80\n",
            "listener 192.0.2.1 5\n",
            "listener 192.0.2.1:80 -5\n",
            "other 192.0.2.1:80 5\n",
            "connection 192.0.2.1:80 192.0.2.1:80\n",
            "connection 192.0.2.1:80 192.0.2.1 00\n",
            "connection 192.0.2.1 192.0.2.1:80 00\n",
            "connection 192.0.2.1:80 192.0.2.1:80 xx\n",
        ];
        for text in words {
            assert_eq!(Record::read(text), None, "{text:?}");
        }
    }
}
