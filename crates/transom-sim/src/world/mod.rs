//! The world: processes, links, one clock, one thread. Chance takes the place of a driver's sockets
//! and threads.
//!
//! | file | what a driver would do there |
//! |---|---|
//! | `calls` | take the lock, call the engine, carry out its effects |
//! | `bytes` | move bytes between links and connections, tell them the time |
//! | `rings` | the same with records and rings; sleep, and be woken |

mod bytes;
mod calls;
mod rings;

use std::sync::Arc;
use std::time::Duration;

use transom_core::trace::{TraceEvent, Tracer, What};
use transom_core::{Connection, ConnectionConfig, Connector, Effects, QueuePair, Status};
use transom_iwarp::Stream as Tcp;
use transom_memory::{ConnectionId, QueuePairId};
use transom_process::Channel;
use transom_wire::{Config, Role, Time, Wire};

use crate::arena::Arena;
use crate::network::{End, Link, Way};
use crate::process::Process;
use crate::profile::Profile;
use crate::rings::{Memory, Rings};
use crate::rng::Rng;
use crate::spy::Spy;
use crate::watch::{EndId, PairId, Stream, Watcher};

/// Everything.
#[derive(Debug)]
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) watcher: Watcher,
    pub(crate) now: Time,
    pub(crate) profile: Profile,
    pub(crate) processes: Vec<Process>,
    /// The process that is running in each place.
    pub(crate) places: Vec<usize>,
    pub(crate) links: Vec<Link>,
    pub(crate) board: Vec<crate::workload::Grant>,
    epochs: u32,
    /// Private data that each end has sent.
    said: std::collections::HashMap<EndId, Vec<u8>>,
    /// Completion queues that ran over: their connections are to be ended.
    overrun: Vec<(usize, usize)>,
}

/// The medium that carries messages between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// iWARP.
    Tcp,
    /// Rings.
    Process,
}

/// The objects that a call on one end may use.
pub(crate) struct Call<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) connector: Option<&'a mut Connector>,
    pub(crate) front: Option<&'a mut QueuePair>,
    pub(crate) rings: Option<&'a mut Rings>,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) arena: &'a Arena,
    pub(crate) watcher: &'a Watcher,
}

impl World {
    /// A world from a seed.
    #[must_use]
    pub fn new(seed: u64, aloud: bool) -> World {
        let mut rng = Rng::new(seed);
        let profile = Profile::new(&mut rng);
        let watcher = Watcher::default();
        watcher.see().aloud = aloud;
        let mut world = World {
            rng,
            watcher,
            now: Time(1_000_000_000),
            profile,
            processes: Vec::new(),
            places: Vec::new(),
            links: Vec::new(),
            board: Vec::new(),
            epochs: 0,
            said: std::collections::HashMap::default(),
            overrun: Vec::new(),
        };
        for place in 0..world.profile.processes {
            world.places.push(place);
            world.start_process();
        }
        world
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        self.watcher.see().say(what);
    }

    pub(crate) fn hit(&self, name: &'static str) {
        self.watcher.see().counters.hit(name);
    }

    /// Whether a rule was broken.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.watcher.see().failure.clone()
    }

    /// A process begins.
    pub(crate) fn start_process(&mut self) -> usize {
        let index = self.processes.len();
        let process = self.profile.process(&mut self.rng, index, &self.watcher);
        self.processes.push(process);
        index
    }

    /// All of it: steps, and the end.
    pub fn run(&mut self) {
        for _ in 0..self.profile.opening {
            // A world in which some have met already.
            let place = self.rng.index(self.places.len());
            self.connections(self.places[place]);
            self.register(self.places[place]);
            for id in self.ends() {
                self.transmit(id, 1 << 16);
                self.deliver(id, usize::MAX);
            }
            self.pass_time(Duration::from_micros(100));
        }
        for step in 0..self.profile.steps {
            self.step();
            self.check_tables(step % 64 == 0);
            if self.failure().is_some() {
                return;
            }
        }
        self.finish();
    }

    /// The outcome of the run.
    #[must_use]
    pub fn outcome(&self) -> crate::Outcome {
        let watch = self.watcher.see();
        let mut counters = watch.counters.clone();
        counters.0.insert("steps", u64::from(self.profile.steps));
        counters.0.insert("seeds", 1);
        crate::Outcome { failure: watch.failure.clone(), counters }
    }

    // ---- links --------------------------------------------------------------------------------

    /// A link between two processes; its active side has a queue pair.
    pub(crate) fn link(&mut self, from: usize, pair: usize, to: usize) -> usize {
        self.epochs += 1;
        let epoch = self.epochs;
        let link = self.links.len();
        let both = [(from, Role::Active), (to, Role::Passive)];
        let path = self.path();
        let mut checksum = false;
        let size = (self.profile.slots, self.profile.data);
        let memory =
            (path == Path::Process).then(|| Arc::new(Memory::new(link, self.profile.data)));
        let ends = [0, 1].map(|side| {
            let (process, role) = both[side];
            let process = self.processes.get(process)?;
            let number = self.epochs % 2;
            let id = ConnectionId { number, epoch };
            let wire: Box<dyn Wire> = match path {
                Path::Tcp => {
                    checksum |= process.wire.checksum;
                    let mut config = process.wire.clone();
                    config.common.role = role;
                    Box::new(Tcp::new(config, self.now))
                }
                Path::Process => Box::new(Channel::new(Config::new(role), self.now)),
            };
            let spy = Spy::new(wire, self.watcher.clone());
            let dialect = process.dialect;
            let config = ConnectionConfig { id, role, dialect, explain: process.explain };
            let stream = Stream::new(process, role, id, self.now);
            self.watcher.see().ends.insert((link, side), stream);
            Some(End {
                process: process.index,
                pair: (role == Role::Active).then_some(pair),
                connection: Connection::new(config, Box::new(spy), self.now),
                out: Vec::new(),
                held: Vec::new(),
                rings: memory.as_ref().map(|memory| {
                    process.arena.maps.add(memory);
                    Rings::new(Arc::clone(memory), side, size)
                }),
                read_paused: false,
                shut: false,
                effects: Effects::default(),
            })
        });
        self.links.push(Link {
            ends,
            ways: [Way::default(), Way::default()],
            window: self.profile.window,
            checksum,
        });
        self.join((link, 0), pair);
        *self.watcher.see().counters.0.entry("connections").or_default() += 1;
        link
    }

    /// Which of the paths that exist a new link takes.
    fn path(&mut self) -> Path {
        let share = self.profile.same_host;
        if share > 0 && self.rng.below(4) < share {
            self.hit("link between processes of one host");
            Path::Process
        } else {
            Path::Tcp
        }
    }

    /// A queue pair goes to an end.
    pub(crate) fn join(&mut self, id: EndId, pair: usize) {
        let Some(end) = self.end_mut(id) else { return };
        end.pair = Some(pair);
        let index = end.process;
        let Some(pair) = self.processes.get_mut(index).and_then(|p| p.pairs.get_mut(pair)) else {
            return;
        };
        pair.end = Some(id);
        let (number, domain) = (pair.number, pair.domain);
        let mut watch = self.watcher.see();
        if let Some(stream) = watch.ends.get_mut(&id) {
            stream.pair = Some((index, number));
            stream.actor.domain = domain;
            stream.actor.queue_pair = QueuePairId(number);
        }
        if let Some(pair) = watch.pairs.get_mut(&(index, number)) {
            pair.end = Some(id);
        }
    }

    pub(crate) fn end_mut(&mut self, (link, side): EndId) -> Option<&mut End> {
        self.links.get_mut(link)?.ends.get_mut(side)?.as_mut()
    }

    /// Every end that exists.
    pub(crate) fn ends(&self) -> Vec<EndId> {
        let both = self.links.iter().enumerate();
        both.flat_map(|(link, l)| [0, 1].map(|side| (link, side, l.ends[side].is_some())))
            .filter(|(.., exists)| *exists)
            .map(|(link, side, _)| (link, side))
            .collect()
    }

    pub(crate) fn pair_id(&self, process: usize, pair: usize) -> Option<PairId> {
        let pair = self.processes.get(process)?.pairs.get(pair)?;
        Some((process, pair.number))
    }
}

/// Listens to the event stream: to all of it, or to what whole Writes do not pass by.
struct Ears<'a>(&'a Watcher, bool);

impl Tracer for Ears<'_> {
    fn wants_messages(&self) -> bool {
        self.1
    }

    fn event(&mut self, event: &TraceEvent) {
        let mut watch = self.0.see();
        watch.say(|| format!("  engine {:?} connection {}", event.what, event.connection));
        match event.what {
            What::Established => watch.established(),
            What::FrameOut { .. } => watch.frame_out(),
            What::Ended { reason } => watch.ended(reason),
            _ => {}
        }
    }
}

/// Whether a status says that there is no room.
pub(crate) fn is_full(status: Status) -> bool {
    status == Status::NoMoreEntries
}
