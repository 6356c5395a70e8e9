//! Shared by the tests: one owner, its peers, and short ways to ask.

use transom_memory::*;

pub(crate) const DOMAIN: DomainId = DomainId(1);
pub(crate) const QP: QueuePairId = QueuePairId(7);
pub(crate) const OTHER_QP: QueuePairId = QueuePairId(8);
pub(crate) const BASE: u64 = 0x7f12_3400_0000;
pub(crate) const HOST: u64 = 0x5500_0000_0000;
pub(crate) const SIZE: u64 = 0x1_0000;
pub(crate) const NOW: Nanoseconds = 1_000_000_000;

pub(crate) const ALL: Rights = Rights(0b111_1111);

pub(crate) fn connection(queue_pair: QueuePairId) -> ConnectionId {
    ConnectionId { number: queue_pair.0 + 100, epoch: 1 }
}

/// A connected queue pair of `DOMAIN`.
pub(crate) fn actor(queue_pair: QueuePairId) -> Actor {
    Actor { domain: DOMAIN, queue_pair, connection: Some(connection(queue_pair)) }
}

pub(crate) fn access(purpose: Purpose, token: Token, address: u64, length: u64) -> Access {
    Access { actor: actor(QP), purpose, token, address, length }
}

pub(crate) fn memory() -> Memory {
    Memory::new([0x5a; 32], Config::default())
}

/// ND2 R22: the base is the address that peers use; here it differs from where the bytes lie.
pub(crate) fn region_of(memory: &Memory, scope: Scope, rights: Rights) -> Token {
    let segments = [Segment { host: HOST, length: SIZE }];
    memory.register(&Registration { scope, rights, base: BASE, segments: &segments }).unwrap()
}

pub(crate) fn region(memory: &Memory, rights: Rights) -> Token {
    region_of(memory, Scope::Domain(DOMAIN), rights)
}

pub(crate) fn window_spec(region: Token, rights: Rights) -> WindowSpec {
    WindowSpec {
        region,
        domain: DOMAIN,
        scope: Scope::QueuePair(DOMAIN, QP),
        base: BASE + 0x1000,
        length: 0x2000,
        rights,
    }
}

/// A window of `QP` over [BASE + 0x1000, BASE + 0x3000), bound and active for two milliseconds.
pub(crate) fn window(memory: &Memory, region: Token, rights: Rights) -> Token {
    let token = memory.reserve(&window_spec(region, rights), NOW - 2_000_000).unwrap();
    assert!(memory.activate(token));
    token
}

/// The verdict on an access.
pub(crate) fn judge(memory: &Memory, access: &Access) -> Result<(), Box<Denial>> {
    memory.check(&mut memory.lane(), access, NOW).map(drop)
}

pub(crate) fn rule(memory: &Memory, access: &Access) -> Option<Rule> {
    judge(memory, access).err().map(|denial| denial.rule)
}

/// Wait for another thread. Gives up rather than hang, when what is awaited can no longer happen.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed().as_secs() < 120, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
