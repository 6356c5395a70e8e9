//! Random operations against a model of the rights that is too simple to be wrong.

use std::collections::HashMap;

use crate::common::*;
use proptest::prelude::*;
use transom_memory::*;

/// The model's knowledge of a token.
#[derive(Clone, Debug)]
struct Thing {
    scope: Scope,
    rights: Rights,
    base: u64,
    length: u64,
    host: u64,
    /// Of a window: its region.
    region: Option<Token>,
    state: State,
    standing: bool,
    posted: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Reserved,
    Live,
    Dead,
}

#[derive(Clone, Debug)]
enum Step {
    Register { scope: usize, rights: u16, base: u64, length: u64 },
    Standing { scope: usize },
    FastRegister { of: usize, rights: u16, base: u64, length: u64 },
    Reserve { of: usize, scope: usize, rights: u16, at: u64, length: u64 },
    Activate { of: usize },
    Abandon { of: usize },
    Close { of: usize, on: Option<usize> },
    CloseForPeer { of: usize, actor: usize },
    Deregister { of: usize, unless: u8 },
    Posted { of: usize },
    Retired { of: usize },
    CloseQueuePair { which: usize },
    CloseConnection { which: usize },
    Check { of: usize, actor: usize, purpose: usize, at: u64, length: u64, pass: bool },
    Guess { token: u32 },
}

const QPS: [QueuePairId; 2] = [QP, OTHER_QP];

fn scopes() -> [Scope; 6] {
    let other = DomainId(2);
    [
        Scope::Domain(DOMAIN),
        Scope::QueuePair(DOMAIN, QP),
        Scope::QueuePair(DOMAIN, OTHER_QP),
        Scope::Connection(DOMAIN, connection(QP)),
        Scope::Connection(DOMAIN, connection(OTHER_QP)),
        Scope::Domain(other),
    ]
}

fn actors() -> [Actor; 5] {
    [
        actor(QP),
        actor(OTHER_QP),
        Actor { connection: None, ..actor(QP) },
        Actor { connection: Some(ConnectionId { epoch: 9, ..connection(QP) }), ..actor(QP) },
        Actor { domain: DomainId(2), ..actor(QP) },
    ]
}

const PURPOSES: [Purpose; 9] = [
    Purpose::LocalSource,
    Purpose::ReceiveBuffer,
    Purpose::ReadSink,
    Purpose::MarkedReadSink,
    Purpose::RemoteRead,
    Purpose::RemoteWrite,
    Purpose::RemoteAtomic,
    Purpose::Bind,
    Purpose::Close,
];

fn steps() -> impl Strategy<Value = Step> {
    let (of, on) = (0..32_usize, proptest::option::of(0..2_usize));
    let base = prop_oneof![Just(0x1000_u64), Just(u64::MAX - 39), Just(0)];
    prop_oneof![
        4 => (0..6_usize, any::<u16>(), base.clone(), 1..50_u64).prop_map(|(scope, rights, base, length)| Step::Register { scope, rights, base, length }),
        1 => (0..6_usize).prop_map(|scope| Step::Standing { scope }),
        2 => (of.clone(), any::<u16>(), base, 1..50_u64).prop_map(|(of, rights, base, length)| Step::FastRegister { of, rights, base, length }),
        6 => (of.clone(), 0..6_usize, any::<u16>(), 0..45_u64, 0..45_u64).prop_map(|(of, scope, rights, at, length)| Step::Reserve { of, scope, rights, at, length }),
        6 => of.clone().prop_map(|of| Step::Activate { of }),
        1 => of.clone().prop_map(|of| Step::Abandon { of }),
        2 => (of.clone(), on).prop_map(|(of, on)| Step::Close { of, on }),
        2 => (of.clone(), 0..5_usize).prop_map(|(of, actor)| Step::CloseForPeer { of, actor }),
        2 => (of.clone(), 0..4_u8).prop_map(|(of, unless)| Step::Deregister { of, unless }),
        1 => of.clone().prop_map(|of| Step::Posted { of }),
        1 => of.clone().prop_map(|of| Step::Retired { of }),
        1 => (0..2_usize).prop_map(|which| Step::CloseQueuePair { which }),
        1 => (0..2_usize).prop_map(|which| Step::CloseConnection { which }),
        16 => (of, 0..5_usize, 0..8_usize, 0..60_u64, 0..50_u64, any::<bool>()).prop_map(|(of, actor, purpose, at, length, pass)| Step::Check { of, actor, purpose, at, length, pass }),
        1 => any::<u32>().prop_map(|token| Step::Guess { token }),
    ]
}

/// The whole truth, in the simplest form.
#[derive(Default)]
struct Model {
    things: HashMap<Token, Thing>,
    /// In order of their making.
    tokens: Vec<Token>,
}

impl Model {
    fn pick(&self, of: usize) -> Option<Token> {
        if self.tokens.is_empty() { None } else { Some(self.tokens[of % self.tokens.len()]) }
    }

    fn in_scope(scope: Scope, actor: &Actor) -> bool {
        match scope {
            Scope::Domain(domain) => domain == actor.domain,
            Scope::QueuePair(domain, queue_pair) => {
                domain == actor.domain && queue_pair == actor.queue_pair
            }
            Scope::Connection(domain, connection) => {
                domain == actor.domain && Some(connection) == actor.connection
            }
        }
    }

    fn windows(&self, region: Token) -> u32 {
        let open = |thing: &&Thing| thing.region == Some(region) && thing.state != State::Dead;
        self.things.values().filter(open).count() as u32
    }

    /// Regions that are live or standing.
    fn open_region(&self, token: Token) -> bool {
        self.things.get(&token).is_some_and(|t| t.region.is_none() && t.state != State::Dead)
    }

    fn allows(&self, ask: &Access) -> bool {
        if ask.length == 0 {
            return true;
        }
        let Some(thing) = self.things.get(&ask.token) else { return false };
        let remote = matches!(
            ask.purpose,
            Purpose::RemoteRead | Purpose::RemoteWrite | Purpose::RemoteAtomic
        );
        let has = |right: Rights| thing.rights.contains(right);
        let right = match ask.purpose {
            Purpose::LocalSource => has(Rights::LOCAL_READ),
            Purpose::ReceiveBuffer => has(Rights::LOCAL_WRITE),
            Purpose::ReadSink => has(Rights::LOCAL_WRITE) || has(Rights::READ_SINK),
            Purpose::MarkedReadSink => has(Rights::READ_SINK),
            Purpose::RemoteRead => has(Rights::REMOTE_READ),
            Purpose::RemoteWrite => has(Rights::REMOTE_WRITE),
            Purpose::RemoteAtomic => has(Rights::REMOTE_ATOMIC),
            Purpose::Bind => has(Rights::BIND),
            Purpose::Close => false,
        };
        let end = u128::from(ask.address) + u128::from(ask.length);
        thing.state == State::Live
            && Model::in_scope(thing.scope, &ask.actor)
            && (!remote || ask.actor.connection.is_some())
            && right
            && ask.address >= thing.base
            && end <= u128::from(thing.base) + u128::from(thing.length)
    }

    fn allows_bind(&self, spec: &WindowSpec) -> bool {
        let Some(region) = self.things.get(&spec.region) else { return false };
        let wider =
            !(region.scope == spec.scope || region.scope == Scope::Domain(spec.scope.domain()));
        let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        let writes = spec.rights.0 & (Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC).0 != 0;
        region.region.is_none()
            && region.state == State::Live
            && spec.length > 0
            && remote.contains(spec.rights)
            && !wider
            && region.rights.contains(Rights::BIND)
            && (!writes || region.rights.contains(Rights::LOCAL_WRITE))
            && spec.base >= region.base
            && u128::from(spec.base) + u128::from(spec.length)
                <= u128::from(region.base) + u128::from(region.length)
    }

    fn kill(&mut self, dies: impl Fn(Token, &Thing) -> bool) {
        for (token, thing) in &mut self.things {
            if dies(*token, thing) {
                thing.state = State::Dead;
            }
        }
    }
}

fn run(steps: &[Step]) {
    let memory = memory();
    let mut lane = memory.lane();
    let mut model = Model::default();
    let mut next_host = 0x10_0000;
    for step in steps {
        match *step {
            Step::Register { scope, rights, base, length } => {
                let (scope, rights) = (scopes()[scope], Rights(rights & ALL.0));
                next_host += 0x1000;
                let segments = [Segment { host: next_host, length }];
                let registration = Registration { scope, rights, base, segments: &segments };
                let fits = u128::from(base) + u128::from(length) <= 1 << 64;
                match memory.register(&registration) {
                    Ok(token) => {
                        assert!(fits);
                        let thing = Thing {
                            scope,
                            rights,
                            base,
                            length,
                            host: next_host,
                            region: None,
                            state: State::Live,
                            standing: false,
                            posted: 0,
                        };
                        assert!(model.things.insert(token, thing).is_none(), "issued twice");
                        model.tokens.push(token);
                    }
                    Err(error) => assert!(!fits && error == RegisterError::Wraps),
                }
            }
            Step::Standing { scope } => {
                let scope = scopes()[scope];
                let token = memory.reserve_region(scope).unwrap();
                let thing = Thing {
                    scope,
                    rights: Rights::NONE,
                    base: 0,
                    length: 0,
                    host: 0,
                    region: None,
                    state: State::Reserved,
                    standing: true,
                    posted: 0,
                };
                assert!(model.things.insert(token, thing).is_none(), "issued twice");
                model.tokens.push(token);
            }
            Step::FastRegister { of, rights, base, length } => {
                let Some(token) = model.pick(of) else { continue };
                let Some(thing) = model.things.get_mut(&token) else { continue };
                next_host += 0x1000;
                let segments = [Segment { host: next_host, length }];
                let rights = Rights(rights & ALL.0);
                let registration =
                    Registration { scope: thing.scope, rights, base, segments: &segments };
                let may = thing.standing
                    && thing.state == State::Reserved
                    && u128::from(base) + u128::from(length) <= 1 << 64;
                assert_eq!(memory.fast_register(token, &registration).is_ok(), may);
                if may {
                    (thing.rights, thing.base, thing.length) = (rights, base, length);
                    (thing.host, thing.state) = (next_host, State::Live);
                }
            }
            Step::Reserve { of, scope, rights, at, length } => {
                let Some(region) = model.pick(of) else { continue };
                let base = model.things[&region].base.wrapping_add(at).wrapping_sub(2);
                let scope = scopes()[scope];
                let rights = Rights(rights & (Rights::REMOTE.0 | rights >> 15));
                let domain = model.things[&region].scope.domain();
                let spec = WindowSpec { region, domain, scope, base, length, rights };
                let may = model.allows_bind(&spec);
                let answer = memory.reserve(&spec, NOW);
                assert_eq!(answer.is_ok(), may, "{spec:?}: {answer:?}");
                if let Ok(token) = answer {
                    let of = &model.things[&region];
                    let thing = Thing {
                        scope,
                        rights,
                        base,
                        length,
                        host: of.host + (base - of.base),
                        region: Some(region),
                        state: State::Reserved,
                        standing: false,
                        posted: 0,
                    };
                    assert!(model.things.insert(token, thing).is_none(), "issued twice");
                    model.tokens.push(token);
                }
            }
            Step::Activate { of } => {
                let Some(token) = model.pick(of) else { continue };
                let Some(thing) = model.things.get_mut(&token) else { continue };
                // A standing region is activated by its memory only.
                if thing.standing {
                    continue;
                }
                assert_eq!(memory.activate(token), thing.state == State::Reserved);
                if thing.state == State::Reserved {
                    thing.state = State::Live;
                }
            }
            Step::Abandon { of } => {
                let Some(token) = model.pick(of) else { continue };
                memory.abandon(token, NOW);
                model.kill(|other, thing| {
                    other == token && thing.region.is_some() && thing.state == State::Reserved
                });
            }
            Step::Close { of, on } => {
                let Some(token) = model.pick(of) else { continue };
                let on = on.map(|which| QPS[which]);
                let answer = memory.close(token, on, NOW);
                let thing = &model.things[&token];
                let bound = match thing.scope {
                    Scope::QueuePair(_, queue_pair) => Some(queue_pair),
                    _ => None,
                };
                let yours = on.is_none() || bound.is_none() || on == bound;
                let open = match thing.state {
                    State::Live => thing.region.is_some() || thing.standing,
                    State::Reserved => thing.region.is_some(),
                    State::Dead => false,
                };
                let busy = thing.region.is_none() && model.windows(token) > 0;
                assert_eq!(answer.is_ok(), open && yours && !busy, "{thing:?}: {answer:?}");
                match answer {
                    Ok(()) => end(&mut model, token),
                    Err(DeregisterError::NotYours(_)) => assert!(open && !yours),
                    Err(DeregisterError::NotLive(_)) => assert!(!open),
                    Err(DeregisterError::Busy(_)) => assert!(open && yours && busy),
                }
            }
            Step::CloseForPeer { of, actor } => {
                let Some(token) = model.pick(of) else { continue };
                let actor = actors()[actor];
                let thing = &model.things[&token];
                let may = thing.state == State::Live
                    && (thing.region.is_some() || thing.standing)
                    && actor.connection.is_some()
                    && Model::in_scope(thing.scope, &actor)
                    && !(thing.standing && model.windows(token) > 0);
                let dead = thing.state == State::Dead;
                let answer = memory.close_for_peer(token, &actor, NOW);
                // A dead token may be closed again by its former owner, without effect.
                assert!(answer.is_ok() == may || dead, "{thing:?}: {answer:?}");
                if may {
                    end(&mut model, token);
                }
            }
            Step::Deregister { of, unless } => {
                let Some(token) = model.pick(of) else { continue };
                let unless = Unless { windows: unless & 1 != 0, posted: unless & 2 != 0 };
                let answer = memory.deregister(token, unless, NOW);
                let busy = unless.windows && model.windows(token) > 0
                    || unless.posted && model.things[&token].posted > 0;
                let open = model.open_region(token);
                assert_eq!(answer.is_ok(), open && !busy, "{answer:?}");
                if answer.is_ok() {
                    model.kill(|other, thing| other == token || thing.region == Some(token));
                }
            }
            Step::Posted { of } => {
                let Some(token) = model.pick(of) else { continue };
                let open = model.open_region(token);
                assert_eq!(memory.posted(token, NOW).is_ok(), open);
                if let Some(thing) = model.things.get_mut(&token).filter(|_| open) {
                    thing.posted += 1;
                }
            }
            Step::Retired { of } => {
                let Some(token) = model.pick(of) else { continue };
                memory.retired(token);
                let open = model.open_region(token);
                if let Some(thing) = model.things.get_mut(&token).filter(|_| open) {
                    thing.posted = thing.posted.saturating_sub(1);
                }
            }
            Step::CloseQueuePair { which } => {
                memory.close_queue_pair(QPS[which], NOW);
                model.kill(
                    |_, thing| matches!(thing.scope, Scope::QueuePair(_, q) if q == QPS[which]),
                );
            }
            Step::CloseConnection { which } => {
                let connection = connection(QPS[which]);
                memory.close_connection(connection, NOW);
                model.kill(
                    |_, thing| matches!(thing.scope, Scope::Connection(_, c) if c == connection),
                );
            }
            Step::Check { of, actor, purpose, at, length, pass } => {
                let Some(token) = model.pick(of) else { continue };
                let thing = model.things[&token].clone();
                let address = thing.base.wrapping_add(at).wrapping_sub(5);
                let (actor, purpose) = (actors()[actor], PURPOSES[purpose]);
                let ask = Access { actor, purpose, token, address, length };
                let may = model.allows(&ask);
                let look = |answer: Result<Grant<'_>, Box<Denial>>| {
                    assert_eq!(answer.is_ok(), may, "{ask:?} of {thing:?}: {answer:?}");
                    if let Ok(grant) = answer {
                        let offset = address.wrapping_sub(thing.base);
                        let segments: Vec<Segment> = grant.segments().collect();
                        if length > 0 {
                            let segment = Segment { host: thing.host.wrapping_add(offset), length };
                            assert_eq!(segments, [segment]);
                            assert_eq!(grant.region(), thing.region.unwrap_or(token));
                        }
                    }
                };
                if pass {
                    look(memory.pass(&mut lane).check(&ask, NOW));
                } else {
                    look(memory.check(&mut lane, &ask, NOW));
                }
            }
            Step::Guess { token } => {
                let ask = access(Purpose::LocalSource, Token(token), 0x1000, 1);
                assert_eq!(memory.check(&mut lane, &ask, NOW).is_ok(), model.allows(&ask));
            }
        }
        for token in &model.tokens {
            let thing = &model.things[token];
            let counts = model.open_region(*token).then(|| Counts {
                windows: model.windows(*token),
                posted: thing.posted,
                guards: 0,
            });
            assert_eq!(memory.counts(*token), counts);
        }
    }
}

/// A window dies; a standing region waits for its next memory.
fn end(model: &mut Model, token: Token) {
    if let Some(thing) = model.things.get_mut(&token) {
        thing.state = if thing.standing { State::Reserved } else { State::Dead };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Design rules 1, 2, 6: exactly what the model allows, after any history.
    #[test]
    fn the_table_agrees_with_the_model(steps in proptest::collection::vec(steps(), 1..120)) {
        run(&steps);
    }
}
