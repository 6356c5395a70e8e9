//! The cost of one 8-byte Write in the core: post, transmit, receive, acknowledgement, completion,
//! both sides in one thread, without a link. `cargo run --release -p transom-core --example
//! core_cost`

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../tests/all/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "of the tests"
)]
mod support;

use std::time::Instant;

use support::{ACTIVE, PASSIVE, Pair};
use transom_core::{Flags, Operation, dialect};
use transom_memory::Rights;
use transom_wire::Buffer;

fn main() {
    let mut pair = Pair::connected(&dialect::ND2);
    let [a, p] = &mut pair.hosts;
    let source = a.register(vec![1; 4096], Rights::NONE);
    let target = p.register(vec![0; 4096], Rights::REMOTE_WRITE | Rights::LOCAL_WRITE);
    (a.quiet, p.quiet) = (true, true);
    let mut out = [0, 1].map(|_| Buffer::new(1 << 16));
    let operation = Operation::Write { token: target.token.0, address: target.address };
    let (now, list) = (pair.now, [source.sge(0, 8)]);
    const ROUNDS: u32 = 1_000_000;
    for pass in 0..3 {
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            let [a, p] = &mut pair.hosts;
            if a.post(1, operation, Flags::NONE, &list).is_err() {
                return eprintln!("the queue is full");
            }
            a.transmit(now, &mut out[ACTIVE]);
            p.receive(now, &out[ACTIVE].bytes);
            out[ACTIVE].bytes.clear();
            if let Some(link) = &mut p.connection {
                link.before_blocking();
            }
            p.transmit(now, &mut out[PASSIVE]);
            a.receive(now, &out[PASSIVE].bytes);
            out[PASSIVE].bytes.clear();
            if a.cq.pop().is_none() {
                return eprintln!("no completion");
            }
        }
        let each = begin.elapsed().as_nanos() / u128::from(ROUNDS);
        println!("pass {pass}: {each} ns per Write, both sides and the acknowledgement together");
    }
}
