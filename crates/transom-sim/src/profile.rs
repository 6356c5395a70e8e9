//! The kind of world that a seed makes: few seeds do everything, each does some things much.

use std::time::Duration;

use transom_core::dialect::{self, DeadWindow};
use transom_core::{Caps, Dialect};
use transom_iwarp::Config;
use transom_memory::{DomainId, Memory};
use transom_process::record::LARGEST_PAYLOAD;
use transom_process::ring::{DATA, SLOTS};
use transom_wire::{ReadLimits, Role};

use crate::process::Process;
use crate::rng::Rng;
use crate::watch::Watcher;
use crate::workload::DOMAINS;

/// The choices of one world.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Places for processes.
    pub processes: usize,
    /// Rounds before the first step in which connections are made in peace.
    pub opening: u32,
    /// Steps before everything is taken down.
    pub steps: u32,
    /// Depth of queue pairs.
    pub depth: u32,
    /// Entries of a list.
    pub sges: u32,
    /// Depth of completion queues, where that is asked for exactly.
    pub cq_depth: usize,
    /// Bytes that a link holds.
    pub window: usize,
    /// The largest frame.
    pub frame: u32,
    /// The largest buffer.
    pub buffer: u64,
    /// Links take some of what they are offered.
    pub partial: bool,
    /// Timers come late.
    pub late: bool,
    /// Peers that use what they should not: once in so many requests, 0 for never.
    pub hostile: u64,
    /// Faults of the network: once in so many steps, 0 for never.
    pub faults: u64,
    /// Pages that vanish.
    pub vanishing: bool,
    /// Processes that die.
    pub dying: bool,
    /// Programs that do not read their completion queues, or post no receives.
    pub careless: bool,
    /// Programs that use up every token.
    pub hoarding: bool,
    /// Late packets.
    pub slow: bool,
    /// None at all: for the end.
    pub instant: bool,
    /// Frames with a checksum.
    pub checksum: bool,
    /// All are Transoms.
    pub extension: bool,
    /// Slots of a ring, and bytes of its data area.
    pub slots: usize,
    /// See `slots`.
    pub data: usize,
    /// Links between processes of one host, of every four.
    pub same_host: u64,
    /// Processes that take immediate data, of every four.
    pub immediate: u64,
    /// The dialect of everything, by its place in the list of them, or several.
    pub dialect: Option<usize>,
    /// Messages name the shared receive queue that they are for (Verbs V155).
    pub xrc: bool,
}

static DIALECTS: [Dialect; 7] = [
    dialect::ND2,
    dialect::ND1,
    dialect::NDK,
    dialect::NDK_MARKED_SINKS,
    dialect::WSD,
    CLOSES_TWICE,
    dialect::VERBS,
];

/// The place of verbs in that list.
const VERBS: usize = 6;

/// The dialects of programs that take immediate data.
static WITH_IMMEDIATE: [Dialect; 7] = [
    Dialect { immediate: true, ..DIALECTS[0] },
    Dialect { immediate: true, ..DIALECTS[1] },
    Dialect { immediate: true, ..DIALECTS[2] },
    Dialect { immediate: true, ..DIALECTS[3] },
    Dialect { immediate: true, ..DIALECTS[4] },
    Dialect { immediate: true, ..DIALECTS[5] },
    DIALECTS[6],
];

/// ND2 where closing what is closed is no error (iW 8.4).
const CLOSES_TWICE: Dialect =
    Dialect { name: "ND2, closes twice", dead_window: DeadWindow::Ignored, ..dialect::ND2 };

impl Profile {
    /// By chance.
    pub fn new(rng: &mut Rng) -> Profile {
        let same_host = rng.one([0, 0, 2, 4]);
        // Records are as long as it gets: only what is big takes several.
        let big = rng.once_in(if same_host > 0 { 3 } else { 8 });
        let mut profile = Profile {
            processes: rng.between(2, 3) as usize,
            opening: if rng.once_in(5) { 0 } else { 25 },
            steps: rng.between(500, 2500) as u32,
            depth: rng.one([1, 2, 4, 8, 32]),
            sges: rng.one([1, 2, 4]),
            cq_depth: rng.one([2, 8, 64]),
            window: if big { 1 << 20 } else { rng.one([300, 1 << 14, 1 << 20]) },
            frame: if big { rng.one([4096, 65_480]) } else { rng.one([128, 300, 1500, 65_480]) },
            buffer: if big { 150_000 } else { rng.one([64, 2000, 8000]) },
            partial: rng.once_in(2),
            late: rng.once_in(4),
            hostile: rng.one([0, 10, 30, 100]),
            faults: rng.one([0, 0, 60, 300]),
            vanishing: rng.once_in(3),
            dying: rng.once_in(3),
            careless: rng.once_in(4),
            hoarding: rng.once_in(40),
            slow: rng.once_in(3),
            instant: false,
            checksum: !rng.once_in(3),
            extension: !rng.once_in(4),
            slots: rng.one([4, 16, SLOTS, SLOTS]),
            data: rng.one([2 * LARGEST_PAYLOAD, DATA]),
            same_host,
            immediate: rng.one([0, 2, 4, 4]),
            dialect: if rng.once_in(3) { None } else { Some(rng.index(DIALECTS.len())) },
            xrc: false,
        };
        profile.xrc = profile.dialect == Some(VERBS) && rng.once_in(2);
        profile
    }

    /// A process of this world.
    pub fn process(&self, rng: &mut Rng, index: usize, watcher: &Watcher) -> Process {
        let kind = self.dialect.unwrap_or_else(|| rng.index(DIALECTS.len()));
        let immediate = rng.below(4) < self.immediate;
        let dialect = if immediate { &WITH_IMMEDIATE[kind] } else { &DIALECTS[kind] };
        let mut wire = Config::new(Role::Active);
        wire.checksum = self.checksum && !rng.once_in(4);
        wire.extension = self.extension || rng.once_in(2);
        wire.largest_frame = self.frame;
        wire.peer_to_peer = !rng.once_in(6);
        // Each would be a Write that no program has posted, which is what the model looks for.
        wire.nudge = std::time::Duration::ZERO;
        // A peer that is asked something before it may answer would be silent when the clock leaps.
        wire.fence = std::time::Duration::MAX;
        wire.preferred_ready = rng.one([transom_iwarp::Ready::Read, transom_iwarp::Ready::Write]);
        let reads = rng.one([0, 1, 2, 16, 16, 16]);
        let caps = Caps {
            reads: ReadLimits { inbound: rng.one([0, 1, 4, 16, 16, 16]), outbound: reads },
            caller_data: 500,
            callee_data: 500,
        };
        let config = transom_memory::Config {
            largest_region: 1 << 30,
            most_tokens: 1,
            ..Default::default()
        };
        let memory = Memory::new(rng.key(), config);
        let mut process = Process::new(index, dialect, wire, caps, rng.once_in(2), memory, watcher);
        for _ in 0..rng.between(1, 2) {
            let name =
                (self.xrc).then(|| (rng.word() as u32, DomainId(rng.between(1, DOMAINS) as u32)));
            process.add_pool(self.depth as usize, self.sges as usize, name, watcher);
        }
        for _ in 0..rng.between(1, 3) {
            let depth = if self.careless { self.cq_depth } else { 1 << 10 };
            process.add_cq(depth, self.careless && rng.once_in(2));
        }
        let _ = process.listener.bind();
        let _ = process.listener.listen(if rng.once_in(3) { 1 } else { 8 });
        process
    }

    /// How long bytes are on their way.
    pub fn delay(&self, rng: &mut Rng) -> Duration {
        let most = if self.slow { 2_000_000 } else { 20_000 };
        if self.instant || rng.once_in(3) {
            Duration::ZERO
        } else {
            Duration::from_nanos(rng.below(most))
        }
    }
}
