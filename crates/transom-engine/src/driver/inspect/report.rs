//! From the engine's tables to records.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use transom_inspect::{
    Adapter, Closed, Connection, Counters, End, Hex, Named, Process, Queue, Record, Refusal,
    Region, TimeOut, Uses, VERSION, Window,
};
use transom_memory::{Denial, Listed, NamedState, Purpose, Rights, Scope};
use transom_wire::Time;

use super::Inspected;
use crate::driver::limits::refused_connects::ConnectRefusal;
use crate::driver::link::Link;
use crate::driver::schedule::shared::Shared;
use crate::{ConnectionOverview, DenialCause, DenialRecord, TIME_OUTS, sys};

/// Refusals in a report: the latest.
const REFUSALS: usize = 100;
/// Closed regions and windows that are told of, likewise.
const CLOSED: usize = 100;

/// Tell everything, in the order that [`Record`] promises, until `tell` fails. No lock is held
/// meanwhile.
pub(super) fn tell<E>(
    adapters: &[Inspected],
    mut tell: impl FnMut(&Record) -> Result<(), E>,
) -> Result<(), E> {
    let here: Vec<(&Inspected, Arc<Shared>)> =
        adapters.iter().filter_map(|one| Some((one, one.shared.upgrade()?))).collect();
    let counted: Vec<Counters> = here.iter().map(|(_, shared)| counters(shared)).collect();
    let records = Cell::new(0);
    let mut tell = |record: Record| {
        records.set(records.get() + 1);
        tell(&record)
    };
    tell(Record::Process(process(&counted)))?;
    for ((inspected, shared), counters) in here.iter().zip(counted) {
        let number = inspected.number;
        tell(Record::Adapter(Box::new(adapter(inspected, shared, counters))))?;
        for link in Link::all(shared) {
            tell(Record::Connection(Box::new(connection(number, &link))))?;
        }
        let now = sys::now();
        for one in shared.memory.inventory(now.0).flatten() {
            tell(listed(number, &one))?;
        }
        for one in shared.memory.lately_closed(CLOSED, now.0) {
            tell(Record::Closed(closed(number, &one)))?;
        }
        let latest: Vec<(u64, DenialRecord)> = {
            let log = shared.denials();
            let skip = (log.total() - log.dropped()).saturating_sub(REFUSALS as u64);
            log.iter().skip(skip as usize).map(|(id, record)| (id, record.clone())).collect()
        };
        for (id, record) in &latest {
            tell(Record::Refusal(Box::new(refusal(number, *id, record, now))))?;
        }
    }
    let end = End { records: records.get() };
    tell(Record::End(end))
}

/// The counters of one adapter, as OpenMetrics text.
pub(crate) fn open_metrics(shared: &Arc<Shared>, address: IpAddr) -> String {
    let inspected = Inspected { number: 0, address, shared: Arc::downgrade(shared) };
    let adapter = adapter(&inspected, shared, counters(shared));
    transom_inspect::metrics(&[Record::Adapter(Box::new(adapter))])
}

fn process(counted: &[Counters]) -> Process {
    let sum = |part: fn(&Counters) -> u64| counted.iter().map(part).sum();
    Process {
        version: VERSION,
        pid: std::process::id(),
        program: sys::program(),
        transom: env!("CARGO_PKG_VERSION").to_owned(),
        adapters: counted.len() as u64,
        connections: sum(|counters| counters.connections),
        regions: sum(|counters| counters.regions),
        windows: sum(|counters| counters.windows),
        refusals: sum(|counters| counters.refusals),
    }
}

fn counters(shared: &Shared) -> Counters {
    let (refusals, refusals_forgotten) = {
        let log = shared.denials();
        (log.total(), log.dropped())
    };
    let (guesses, slowed) = shared.guess_limiter.counts();
    let links = Link::all(shared);
    let (shared_regions, shared_bytes, lent_regions) = shared.regions.counts();
    let mut counters = Counters {
        refusals,
        refusals_forgotten,
        guesses,
        slowed,
        refused_half_open: shared.refused_connects.of(ConnectRefusal::HalfOpen),
        refused_backlog: shared.refused_connects.of(ConnectRefusal::Backlog),
        refused_closed: shared.refused_connects.of(ConnectRefusal::Closed),
        refused_resources: shared.refused_connects.of(ConnectRefusal::Resources),
        refused_unfinished: shared.refused_connects.of(ConnectRefusal::Unfinished),
        refused_by_program: shared.refused_connects.of(ConnectRefusal::ByProgram),
        unasked: shared.query_budget.unasked(),
        connections: links.len() as u64,
        shared_connections: shared.sharing.taken() as u64,
        shared_regions: shared_regions as u64,
        shared_bytes,
        lent_regions: lent_regions as u64,
        held_bytes: links.iter().map(|link| link.held() as u64).sum(),
        table_bytes: shared.memory.footprint() as u64,
        ..Counters::default()
    };
    for one in shared.memory.inventory(sys::now().0).flatten() {
        let (number, bytes) = if one.named.window {
            (&mut counters.windows, &mut counters.window_bytes)
        } else {
            (&mut counters.regions, &mut counters.region_bytes)
        };
        *number += 1;
        *bytes = bytes.saturating_add(one.named.length);
    }
    counters
}

fn adapter(inspected: &Inspected, shared: &Shared, counters: Counters) -> Adapter {
    let options = &shared.options;
    Adapter {
        adapter: inspected.number,
        name: options.name.clone().unwrap_or_default(),
        address: inspected.address.to_string(),
        dialect: options.dialect.name.to_owned(),
        path: options.path.name().to_owned(),
        checksum: options.checksum,
        extension: options.extension,
        silence_ms: options.silence.as_millis() as u64,
        answer_ms: options.dialect.silence.as_millis() as u64,
        counters,
    }
}

fn connection(adapter: u64, link: &Link) -> Connection {
    let overview = link.overview();
    let queue = |(taken, depth)| Queue { taken: u64::from(taken), depth: u64::from(depth) };
    let path = if link.is_over_rings() { transom_process::NAME } else { "tcp" };
    let now = sys::now();
    // A deadline in the past was put off since, and is computed anew by the next pass.
    let until = |deadline: Time| Some(deadline.0.checked_sub(now.0)? / 1_000_000);
    Connection {
        adapter,
        number: overview.connection.id.number,
        epoch: overview.connection.id.epoch,
        state: overview.connection.state.to_owned(),
        unaccepted: overview.unaccepted,
        local: link.local().map(|local| local.to_string()).unwrap_or_default(),
        peer: link.peer.to_string(),
        path: path.to_owned(),
        path_reason: overview.reason.text().to_owned(),
        queue_pair: overview.connection.queue_pair.map(|number| number.0),
        requests: overview.queues.map(|queues| queue(queues.requests)),
        receives: overview
            .queues
            .filter(|_| !overview.shares_receives)
            .map(|queues| queue(queues.receives)),
        reads: u64::from(overview.connection.reads),
        credit: overview.connection.credit.map(u64::from),
        waits_for_peer: overview.connection.waits_for_peer,
        peer_waits_for_receive: overview.connection.peer_waits_for_receive,
        unread_bytes: overview.unread as u64,
        unsent_bytes: overview.unsent as u64,
        lent_regions: overview.lent.0 as u64,
        lent_bytes: overview.lent.1,
        borrowed_regions: overview.borrowed.0 as u64,
        borrowed_bytes: overview.borrowed.1,
        deadline_ms: overview.deadline.and_then(until),
        time_outs: time_outs(&overview.connection, now),
    }
}

fn time_outs(connection: &ConnectionOverview, now: Time) -> Vec<TimeOut> {
    let running = TIME_OUTS.iter().zip(connection.time_outs);
    let running = running.filter_map(|(what, end)| {
        let in_ms = end?.0.saturating_sub(now.0) / 1_000_000;
        Some(TimeOut { waits_for: (*what).to_owned(), in_ms })
    });
    running.collect()
}

fn uses(one: &Listed) -> Uses {
    let counted = one.uses.unwrap_or_default();
    let (touched, touched_length) = counted.touched.unzip();
    let rights = match counted.rights {
        Rights::NONE => String::new(),
        rights => rights.to_string(),
    };
    Uses {
        copies: counted.copies,
        bytes: counted.bytes,
        last_ns: counted.last,
        last_address: counted.last_address.map(Hex),
        touched: touched.map(Hex),
        touched_length,
        rights,
    }
}

fn named(named: &transom_memory::Named) -> Named {
    let (state, closed_by, closed_before_ns) = match named.state {
        NamedState::Live => ("live", String::new(), None),
        NamedState::Reserved => ("reserved", String::new(), None),
        NamedState::Dead { reason, ago } => ("closed", reason.to_string(), Some(ago)),
    };
    let (queue_pair, connection) = match named.scope {
        Scope::Domain(_) => (None, None),
        Scope::QueuePair(_, number) => (Some(number.0), None),
        Scope::Connection(_, id) => (None, Some(id.number)),
    };
    Named {
        what: if named.window { "window" } else { "region" }.to_owned(),
        token: Hex(u64::from(named.token.0)),
        name: named.name.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        region: Hex(u64::from(named.region.0)),
        address: Hex(named.base),
        length: named.length,
        rights: named.rights.to_string(),
        scope: named.scope.to_string(),
        queue_pair,
        connection,
        state: state.to_owned(),
        closed_by,
        closed_before_ns,
    }
}

fn closed(adapter: u64, one: &Listed) -> Closed {
    let mut named = named(&one.named);
    let closed_ns = named.closed_before_ns.take().unwrap_or_default();
    Closed {
        adapter,
        named,
        age_ns: one.age.unwrap_or_default().saturating_sub(closed_ns),
        closed_ns,
        uses: uses(one),
    }
}

fn listed(adapter: u64, one: &Listed) -> Record {
    let windows = u64::from(one.windows);
    let (age_ns, uses) = (one.age.unwrap_or_default(), uses(one));
    let named = named(&one.named);
    let Named { token, name, region, address, length, rights, scope, state, .. } = named;
    let Named { queue_pair, connection, .. } = named;
    if one.named.window {
        Record::Window(Window {
            adapter,
            token,
            name,
            region,
            address,
            length,
            rights,
            scope,
            queue_pair,
            connection,
            state,
            age_ns,
            uses,
        })
    } else {
        Record::Region(Region {
            adapter,
            token,
            name,
            address,
            length,
            rights,
            scope,
            connection,
            state,
            windows,
            age_ns,
            uses,
        })
    }
}

fn refusal(adapter: u64, id: u64, record: &DenialRecord, now: Time) -> Refusal {
    let (refused, denial) = match &record.cause {
        DenialCause::Own(denial) => ("program", Some(&**denial)),
        DenialCause::Peer(denial) => ("peer", Some(&**denial)),
        DenialCause::QueuePair(_) => ("peer", None),
        DenialCause::ByPeer(_) => ("by_peer", None),
        DenialCause::Violation(_) => ("protocol", None),
        DenialCause::Register(_) | DenialCause::Bind(_) | DenialCause::Call(_) => ("program", None),
        DenialCause::Vanished { .. } | DenialCause::Other(_) => {
            (if record.request.is_some() { "program" } else { "peer" }, None)
        }
    };
    // A close names no bytes.
    let bytes = |denial: &&Denial| denial.access.purpose != Purpose::Close;
    Refusal {
        adapter,
        id,
        ago_ns: now.0.saturating_sub(record.time.0),
        refused: refused.to_owned(),
        peer: record.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        queue_pair: record.queue_pair.map(|number| number.0),
        rule: denial.map(|denial| denial.rule.named().name().to_owned()),
        operation: denial.map(|denial| denial.access.purpose.to_string()),
        token: denial.map(|denial| Hex(u64::from(denial.access.token.0))),
        address: denial.filter(bytes).map(|denial| Hex(denial.access.address)),
        length: denial.filter(bytes).map(|denial| denial.access.length),
        wanted: denial.filter(bytes).map(|denial| denial.wanted.to_string()),
        likely: denial.map(|denial| denial.likely.name().to_owned()),
        advice: denial.map(|denial| denial.advice().to_string()),
        named: denial.and_then(|denial| denial.named.as_ref()).map(named),
        meant: denial.and_then(|denial| denial.meant.as_ref()).map(named),
        explanation: format!("{:#}", record.cause),
    }
}
