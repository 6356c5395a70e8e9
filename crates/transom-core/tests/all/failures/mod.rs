//! Failures, as each side sees them: ND2 4.1, 4.5, 4.9; iW 14 where the engine decides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ends;
mod flags;
mod found;
mod hostile;
mod joining;
mod order;
mod outcomes;
mod posting;
mod revocation;
mod silence;
mod table;
mod unreliable;
mod verbs;

use std::time::Duration;

use crate::support::{ACTIVE, Buffer, Host, PASSIVE, Pair, PairConfig, Seen, Wires};
use transom_core::dialect::{self, DeadWindow, Dialect, PeerGone};
use transom_core::tables::Posting;
use transom_core::{
    CompletionFlags, ConnectionEvent, Data, DenialCause, EndReason, Flags, Operation,
    QueuePairState, Request, Sge, Status,
};
use transom_memory::{Mistake, Rights, Rule, Scope, Token, Unless, WindowSpec};
use transom_wire::RefusalClass;

const WRITABLE: Rights = Rights(Rights::REMOTE_WRITE.0 | Rights::LOCAL_WRITE.0);

/// How long a plain peer is quiet before an orderly close follows.
const QUIET: Duration = Duration::from_millis(50);

fn connected(dialect: &'static Dialect, wires: Wires) -> Pair {
    let mut pair = Pair::connected_with(PairConfig { wires, ..PairConfig::new(dialect) });
    pair.advance(Duration::from_millis(20)); // iW L1
    pair
}

/// Every dialect, and both kinds of peer.
fn each(test: impl Fn(Pair, &'static Dialect)) {
    for dialect in dialect::ALL {
        for wires in [Wires::transom(), Wires::plain()] {
            test(connected(dialect, wires), dialect);
        }
    }
}

/// A window for the whole domain, which does not end with its queue pair; its Bind is still to come.
fn domain_window(host: &Host, region: &Buffer) -> Token {
    let domain = host.queue_pair.config().domain;
    let spec = WindowSpec {
        region: region.token,
        domain,
        scope: Scope::Domain(domain),
        base: region.address,
        length: region.length,
        rights: Rights::REMOTE_WRITE,
    };
    host.memory.reserve(&spec, 0).unwrap()
}

fn write(target: &Buffer, offset: u64) -> Operation {
    Operation::Write { token: target.token.0, address: target.address.wrapping_add(offset) }
}

fn read(target: &Buffer, offset: u64) -> Operation {
    Operation::Read { token: target.token.0, address: target.address.wrapping_add(offset) }
}

fn ended(pair: &Pair, host: usize) -> Option<EndReason> {
    pair.hosts[host].seen.iter().find_map(|seen| match seen {
        Seen::Event(ConnectionEvent::Ended(end)) => Some(end.reason),
        _ => None,
    })
}
