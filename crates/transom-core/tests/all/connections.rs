//! Random sequences of calls on both sides of a connection against a model of ND2 4.7: the answer
//! of each call, and the states it leads both sides to. Each accepted waiter and each accepted
//! receive ends exactly once (design rule 10). All dialects, both wires.

#![allow(missing_docs, clippy::unwrap_used)]

use crate::support::{ACTIVE, PASSIVE, Pair, PairConfig, Path, Seen};
use proptest::prelude::*;
use transom_core::dialect::{self, Dialect};
use transom_core::tables::{Cell, ConnectorCall as Call, ConnectorState as State};
use transom_core::{Connector, Status};
use transom_wire::ReadLimits;

const READS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

#[derive(Clone, Copy, Debug)]
enum Step {
    Bind(usize),
    Take,
    Connect,
    Accept(usize),
    Complete(usize),
    /// With private data, or without.
    Reject(usize, bool),
    Notify(usize),
    Disconnect(usize),
    Cancel(usize),
    Ask(usize),
    Receive(usize),
    /// The passive side goes on with a new connector.
    Renew,
}

fn step() -> impl Strategy<Value = Step> {
    let host = || prop_oneof![Just(ACTIVE), Just(PASSIVE)];
    prop_oneof![
        1 => host().prop_map(Step::Bind),
        5 => Just(Step::Take),
        6 => Just(Step::Connect),
        2 => host().prop_map(Step::Accept),
        4 => Just(Step::Accept(PASSIVE)),
        2 => host().prop_map(Step::Complete),
        4 => Just(Step::Complete(ACTIVE)),
        2 => (host(), any::<bool>()).prop_map(|(host, data)| Step::Reject(host, data)),
        3 => host().prop_map(Step::Notify),
        2 => host().prop_map(Step::Disconnect),
        1 => host().prop_map(Step::Cancel),
        2 => host().prop_map(Step::Ask),
        2 => host().prop_map(Step::Receive),
        2 => Just(Step::Renew),
    ]
}

/// A side, as a model keeps book of it.
#[derive(Clone, Copy, Default)]
struct Side {
    state: State,
    refused: bool,
    rejected: bool,
    tried: bool,
    peer_left: bool,
    /// The queue pair has been connected, or was about to be: it is not for another connector.
    used: bool,
}

struct World {
    pair: Pair,
    dialect: &'static Dialect,
    sides: [Side; 2],
    /// Numbers of the waiters, with their status as far as that is certain.
    waiting: [Vec<u64>; 2],
    receives: [Vec<u64>; 2],
    next: u64,
}

impl World {
    fn new(dialect: &'static Dialect) -> World {
        let mut pair = Pair::new(PairConfig::new(dialect));
        pair.listen();
        World {
            pair,
            dialect,
            sides: Default::default(),
            waiting: Default::default(),
            receives: Default::default(),
            next: 1,
        }
    }

    /// The answer of the table (ND2 4.7.3).
    fn expected(&self, host: usize, call: Call) -> Result<(), Status> {
        let side = self.sides[host];
        let row = Call::ALL.iter().position(|one| *one == call).unwrap();
        match self.dialect.connector[row][side.state as usize] {
            Cell::Ok => Ok(()),
            Cell::Fail(status) | Cell::IfAlone(status) => Err(status),
            Cell::IfRejected(status) => {
                if side.rejected {
                    Ok(())
                } else {
                    Err(status)
                }
            }
            Cell::IfRefused(status) => {
                if side.refused {
                    Ok(())
                } else {
                    Err(status)
                }
            }
            Cell::IfTried(yes, no) => Err(if side.tried { yes } else { no }),
            Cell::IfPeerLeft(yes, no) => Err(if side.peer_left { yes } else { no }),
        }
    }

    fn waiter(&mut self, host: usize) -> u64 {
        self.next += 1;
        self.waiting[host].push(self.next);
        self.next
    }

    /// A call was answered: as the model says, and who was refused does not wait.
    fn check(
        &mut self,
        host: usize,
        call: Call,
        expected: Result<(), Status>,
        got: Result<(), Status>,
    ) {
        assert_eq!(got, expected, "{}: {call:?} of {host}", self.dialect.name);
        let waits = [Call::Connect, Call::Accept, Call::NotifyDisconnect, Call::Disconnect];
        if got.is_err() && (waits.contains(&call) || call == Call::TakeRequest) {
            self.waiting[host].pop();
        }
    }

    /// The connection of `host` is over by its own doing: where that leads the other side.
    fn end_reaches_the_peer(&mut self, host: usize) {
        let peer = &mut self.sides[1 - host];
        match peer.state {
            State::Connected => peer.state = State::PeerGone,
            State::Requested | State::Replied => {
                peer.state = State::Disconnected;
                peer.peer_left = true;
            }
            State::Accepting | State::Disconnecting => peer.state = State::Disconnected,
            _ => {}
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Bind(host) => {
                let expected = self.expected(host, Call::Bind);
                let got = self.pair.hosts[host].connector.bind();
                self.check(host, Call::Bind, expected, got);
                if expected.is_ok() {
                    self.sides[host].state = State::Bound;
                }
            }
            Step::Take => {
                let expected = self.expected(PASSIVE, Call::TakeRequest);
                let waiter = self.waiter(PASSIVE);
                let got = self.pair.take_request(waiter);
                self.check(PASSIVE, Call::TakeRequest, expected, got);
                if expected.is_ok() {
                    self.sides[PASSIVE].state = State::Queued;
                }
            }
            // Whether a program takes a request is the listener's business: not in this model.
            Step::Connect if self.sides[PASSIVE].state != State::Queued => {}
            Step::Connect => {
                if self.expected(ACTIVE, Call::Bind).is_ok() {
                    self.sides[ACTIVE].state = State::Bound; // `Pair::connect` calls that first
                }
                let expected = self.expected(ACTIVE, Call::Connect);
                let waiter = self.waiter(ACTIVE);
                let got = self.pair.connect(waiter, READS, b"");
                self.check(ACTIVE, Call::Connect, expected, got);
                if expected.is_ok() {
                    let before = self.sides[ACTIVE];
                    self.sides[ACTIVE] = Side {
                        state: State::Connecting,
                        tried: true,
                        refused: false,
                        rejected: false,
                        ..before
                    };
                    self.sides[PASSIVE].state = State::Requested;
                }
            }
            Step::Accept(host) => {
                let expected = self.expected(host, Call::Accept);
                if host == ACTIVE && expected.is_ok() {
                    return;
                }
                let waiter = self.waiter(host);
                let now = self.pair.now;
                let got = self.pair.hosts[host].with(now, |connector, link, qp, cx| {
                    connector.accept(cx, link, qp, waiter, READS, b"")
                });
                self.check(host, Call::Accept, expected, got);
                if expected.is_ok() {
                    self.sides[host].state = State::Accepting;
                    self.sides[host].used = true;
                    self.sides[ACTIVE].state = State::Replied;
                }
            }
            Step::Complete(host) => {
                let expected = self.expected(host, Call::CompleteConnect);
                let now = self.pair.now;
                let got = self.pair.hosts[host]
                    .with(now, |connector, link, _, cx| connector.complete_connect(cx, link));
                self.check(host, Call::CompleteConnect, expected, got);
                if expected.is_ok() {
                    self.sides[ACTIVE].state = State::Connected;
                    self.sides[PASSIVE].state = State::Connected;
                }
            }
            Step::Reject(host, data) => {
                let expected = self.expected(host, Call::Reject);
                let requested = self.sides[host].state == State::Requested;
                let private: &[u8] = if data { b"no" } else { b"" };
                let got = self.pair.reject(host, private);
                self.check(host, Call::Reject, expected, got);
                if expected.is_ok() && requested {
                    let active = &mut self.sides[ACTIVE];
                    (active.state, active.refused, active.rejected) = (State::Bound, true, data);
                } else if expected.is_ok() {
                    self.end_reaches_the_peer(host);
                }
                if expected.is_ok() {
                    self.sides[host].state = State::Disconnected;
                }
            }
            Step::Notify(host) => {
                let expected = self.expected(host, Call::NotifyDisconnect);
                let waiter = self.waiter(host);
                let got = self.pair.notify_disconnect(host, waiter);
                self.check(host, Call::NotifyDisconnect, expected, got);
            }
            Step::Disconnect(host) => {
                let expected = self.expected(host, Call::Disconnect);
                let waiter = self.waiter(host);
                let got = self.pair.disconnect(host, waiter);
                self.check(host, Call::Disconnect, expected, got);
                if expected.is_ok() {
                    // The other side's end answers at once, whatever its program does (NDK DC-1).
                    self.sides[host].state = State::Disconnected;
                    self.end_reaches_the_peer(host);
                }
            }
            Step::Cancel(host) => {
                let state = self.sides[host].state;
                self.pair.cancel(host);
                match state {
                    State::Connecting | State::Accepting => {
                        self.sides[host].state = State::Disconnected;
                        self.end_reaches_the_peer(host);
                    }
                    State::Disconnecting => self.sides[host].state = State::Disconnected,
                    _ => {}
                }
            }
            Step::Ask(host) => {
                let connector = &self.pair.hosts[host].connector;
                let answers = [
                    (Call::GetReadLimits, connector.read_limits().map(drop)),
                    (Call::GetPrivateData, connector.private_data().map(drop)),
                    (Call::GetLocalAddress, connector.gate(Call::GetLocalAddress)),
                    (Call::GetPeerAddress, connector.gate(Call::GetPeerAddress)),
                ];
                for (call, got) in answers {
                    let expected = self.expected(host, call);
                    self.check(host, call, expected, got);
                }
            }
            Step::Receive(host) => {
                self.next += 1;
                if self.pair.hosts[host].post_receive(self.next, &[]).is_ok() {
                    self.receives[host].push(self.next);
                }
            }
            Step::Renew => {
                let side = &mut self.sides[PASSIVE];
                if side.state == State::Disconnected && !side.used {
                    *side = Side::default();
                    let host = &mut self.pair.hosts[PASSIVE];
                    host.connector = Connector::new(self.dialect, host.config.caps);
                }
            }
        }
        self.pair.pump();
        for host in [ACTIVE, PASSIVE] {
            let now = self.pair.hosts[host].connector.state();
            let name = self.dialect.name;
            assert_eq!(now, self.sides[host].state, "{name}: {host} after {step:?}");
        }
    }

    /// Both programs drop their handles: no waiter is left.
    fn end(mut self) {
        for host in [ACTIVE, PASSIVE] {
            self.pair.release(host);
            self.pair.pump();
        }
        for host in [ACTIVE, PASSIVE] {
            self.pair.flush(host);
            let mut told: Vec<u64> = self.pair.hosts[host]
                .seen
                .iter()
                .filter_map(|seen| match seen {
                    Seen::Finished(finished) => Some(finished.waiter),
                    _ => None,
                })
                .collect();
            told.sort_unstable();
            assert_eq!(told, self.waiting[host], "{}: who waits at {host}", self.dialect.name);
            let outcomes = self.pair.hosts[host].outcomes();
            // In posting order, and canceled: nothing was ever sent.
            let expected: Vec<_> =
                self.receives[host].iter().map(|one| (*one, Status::Canceled)).collect();
            assert_eq!(outcomes, expected, "{}: receives of {host}", self.dialect.name);
        }
    }
}

fn play(steps: &[Step]) {
    for dialect in dialect::ALL {
        let mut world = World::new(dialect);
        for step in steps {
            world.play(*step);
        }
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nd2_4_7_two_connectors_go_where_the_model_goes(steps in prop::collection::vec(step(), 1..40)) {
        play(&steps);
        Path::Process.over(|| play(&steps));
    }
}
