//! A network of adapters in one thread, from one seed.
//!
//! The crates that ship are linked as they are: `transom-core`, `transom-memory`, and both wires,
//! `transom-iwarp` and `transom-process` with its rings. Only their arguments are replaced: links,
//! the clock, host memory, random seeds. Programs, good and bad, do what programs do (`workload`);
//! the network loses, delays and spoils (`faults`); a watcher (`watch`) sees every frame, copy,
//! refusal and completion, and compares it with a reference model of which byte each peer may touch
//! (`model`), which is written from docs/rules/design.md.
//!
//! `cargo run --release -p transom-sim -- --hours 1` runs many seeds; a failure prints its seed, and
//! the command that replays it with a trace.

#![forbid(unsafe_code)]
// A simulator that finds something impossible must stop. Nothing here meets a foreign byte.
#![allow(clippy::missing_panics_doc)]

pub mod arena;
pub mod counters;
pub mod faults;
pub mod finale;
pub mod model;
pub mod network;
pub mod process;
pub mod profile;
pub mod rings;
pub mod rng;
pub mod spy;
pub mod watch;
pub mod workload;
pub mod world;

pub use counters::{Counters, OTHERS, SCENARIOS};
pub use world::World;

/// The outcome of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first rule that was broken, if one was.
    pub failure: Option<String>,
    /// Scenarios that were reached.
    pub counters: Counters,
}

/// Run one seed.
#[must_use]
pub fn run(seed: u64, aloud: bool) -> Outcome {
    let mut world = World::new(seed, aloud);
    world.run();
    world.outcome()
}

/// The command that replays a seed.
#[must_use]
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p transom-sim -- --seed {seed:#x} --trace")
}
