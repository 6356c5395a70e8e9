//! The budget of the ordinary tests: a fixed number of seeds, every scenario reached, no rule broken.

use transom_sim::{Counters, replay, run};

/// Seeds of the budget, and on how many threads they run.
const SEEDS: u64 = 4000;
const THREADS: u64 = 8;

/// Design rules 1 to 11, over whole lives of processes: what the crate's documentation says.
#[test]
fn no_seed_of_the_budget_breaks_a_rule_and_every_scenario_is_reached() {
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut counters = Counters::default();
                for seed in (1 + thread..=SEEDS).step_by(THREADS as usize) {
                    let outcome = run(seed, false);
                    if let Some(failure) = outcome.failure {
                        let again = replay(seed);
                        return Err(format!("seed {seed:#x} fails: {failure}\n  {again}"));
                    }
                    counters.add(&outcome.counters);
                }
                Ok(counters)
            })
        })
        .collect();
    let mut counters = Counters::default();
    for thread in threads {
        match thread.join().unwrap() {
            Ok(reached) => counters.add(&reached),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert_eq!(counters.below(), [], "scenarios that were reached too seldom");
    assert_eq!(counters.unlisted(), [""; 0], "scenarios that are in no list");
}

/// A failure can be replayed: the same seed does the same.
#[test]
fn a_seed_does_the_same_every_time() {
    for seed in [3, 17, 29] {
        assert_eq!(run(seed, false).counters.0, run(seed, false).counters.0);
    }
}
