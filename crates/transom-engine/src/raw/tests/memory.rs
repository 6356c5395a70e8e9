//! The calls of fronts on the memory table, and the state behind each refusal.

use transom_memory::{BindError, Purpose, Rights, Scope, Segment, Token, Unless};

use super::harness::*;
use crate::raw::{Error, Options, Window, WindowError};
use crate::{CompletionKind, Data, Flags, Operation, Request, Sge, Status};

fn window_on(buffer: &Buffer) -> Window {
    let (region, base) = (buffer.token, buffer.address());
    Window { region, base, length: buffer.length as u64, rights: Rights::REMOTE_READ }
}

fn windows(end: &End, region: Token) -> u32 {
    end.adapter.counts(region).unwrap().windows
}

/// ND2 5.6: a reservation keeps the region busy; one whose Bind was not posted does not.
#[test]
fn a_reservation_that_is_dropped_is_given_up() {
    let (_active, passive) = pair();
    let buffer = passive.buffer(64);
    let reserved = passive.qp.reserve_window(&window_on(&buffer)).unwrap();
    let token = reserved.token();
    assert!(passive.adapter.is_open(token));
    let busy = passive.adapter.deregister(buffer.token).unwrap_err();
    assert_eq!((busy.status, windows(&passive, buffer.token)), (Status::DeviceBusy, 1));
    drop(reserved);
    assert!(!passive.adapter.is_open(token));
    assert_eq!(windows(&passive, buffer.token), 0);
    let kept = passive.qp.reserve_window(&window_on(&buffer)).unwrap().posted();
    assert!(passive.adapter.is_open(kept));
    assert_eq!(windows(&passive, buffer.token), 1);
    passive.adapter.close_region(buffer.token);
    assert!(!passive.adapter.is_open(kept));
    assert_eq!(passive.adapter.counts(buffer.token), None);
}

/// A window lies on a region of its queue pair's adapter; the numbers of domains and of queue pairs
/// repeat from adapter to adapter, tokens do not.
#[test]
fn a_window_on_a_region_of_another_adapter_is_refused() {
    let (active, passive) = pair();
    let buffer = passive.buffer(64);
    let refused = active.qp.reserve_window(&window_on(&buffer)).unwrap_err();
    assert!(matches!(refused, WindowError::Refused(BindError::Region(_))), "{refused:?}");
    assert_eq!(Error::from(refused).status, Status::LocalAccess);
    assert_eq!(windows(&passive, buffer.token), 0);
}

/// A call that is refused at once for its memory has a record, as a request has one that is refused later.
#[test]
fn calls_that_are_refused_at_once_are_recorded() {
    let (_active, passive) = pair();
    let buffer = passive.buffer(64);
    let number = Some(passive.qp.config().number);
    let latest = || {
        let mut all = passive.adapter.denials(|record| record.request.is_none());
        let count = all.len();
        (count, all.pop().map(|(_, record)| (record.queue_pair, record.cause.to_string())))
    };
    let says = |count: usize, pair, words: &str| {
        let (found, last) = latest();
        let (queue_pair, text) = last.unwrap();
        assert_eq!((found, queue_pair), (count, pair), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(passive.adapter.counters().denials, count as u64);
    };
    assert_eq!(latest().0, 0);
    let mut outside = window_on(&buffer);
    outside.length = 65;
    assert!(passive.qp.reserve_window(&outside).is_err());
    says(1, number, "1 byte past the end");
    let mut empty = window_on(&buffer);
    empty.length = 0;
    assert!(passive.qp.reserve_window(&empty).is_err());
    says(2, number, "bind: ");
    let entry = Sge { token: buffer.token.0 ^ 1, address: window_on(&buffer).base, length: 8 };
    assert!(passive.qp.probe(None, Purpose::LocalSource, &entry).is_err());
    says(3, number, "transom explain live_token");
    let nowhere = [Segment { host: 16, length: 8 }];
    let domain = passive.adapter.domain().unwrap();
    // SAFETY: refused, because nothing is mapped there.
    let refused = unsafe { passive.adapter.register(domain, 16, &nowhere, Rights::LOCAL_READ) };
    assert_eq!(refused.unwrap_err().status, Status::LocalAccess);
    says(4, None, "register: no memory is mapped at 0x10");
}

/// A Bind that cannot be posted leaves no reservation behind.
#[test]
fn a_bind_that_is_not_posted_reserves_nothing() {
    let end = End::new(&Options::from_env());
    let buffer = end.buffer(64);
    let refused = end.qp.post_bind(1, Flags::NONE, &window_on(&buffer)).unwrap_err();
    assert_eq!(Error::from(refused).status, Status::ConnectionInvalid);
    assert_eq!(windows(&end, buffer.token), 0);
    let (_active, passive) = pair();
    let buffer = passive.buffer(64);
    let window = passive.qp.post_bind(1, Flags::NONE, &window_on(&buffer)).unwrap();
    passive.expect(CompletionKind::Bind);
    assert!(passive.adapter.is_open(window));
}

#[test]
fn a_held_region_is_not_deregistered_by_a_front_that_asks() {
    let end = End::new(&Options::from_env());
    let buffer = end.buffer(64);
    let posted = Unless { posted: true, ..Unless::default() };
    for _ in 0..2 {
        end.adapter.hold(buffer.token).unwrap();
    }
    end.adapter.release(buffer.token);
    let busy = end.adapter.deregister_unless(buffer.token, posted).unwrap_err();
    assert_eq!(busy.status, Status::DeviceBusy);
    end.adapter.release(buffer.token);
    end.adapter.deregister_unless(buffer.token, posted).unwrap();
    assert_eq!(end.adapter.hold(buffer.token).unwrap_err().status, Status::LocalAccess);
    let again = end.adapter.deregister_unless(buffer.token, posted).unwrap_err();
    assert_eq!(again.status, Status::InvalidParameter(0));
}

/// A front learns why a use is refused: by mistake, or because the connection took the region along.
#[test]
fn a_region_of_a_connection_ends_with_it_and_says_so() {
    let (_active, passive) = pair();
    let connection = passive.connector.connection();
    let bytes: &'static [u8] = vec![0; 64].leak();
    let segments = [Segment { host: bytes.as_ptr() as u64, length: 64 }];
    let scope = Scope::Connection(passive.domain.0, connection.unwrap());
    // SAFETY: leaked bytes, which no code writes to.
    let region =
        unsafe { passive.adapter.register_in(scope, 0, &segments, Rights::LOCAL_READ) }.unwrap();
    let ask = |connection, purpose, length| {
        let entry = Sge { token: region.0, address: 0, length };
        passive.qp.probe(connection, purpose, &entry).map_err(|e| e.status)
    };
    let denied = Err(Status::LocalAccess);
    assert_eq!(ask(connection, Purpose::LocalSource, 64), Ok(()));
    assert_eq!(ask(connection, Purpose::LocalSource, 65), denied);
    assert_eq!(ask(connection, Purpose::ReceiveBuffer, 64), denied);
    assert_eq!(ask(None, Purpose::LocalSource, 64), denied);
    passive.adapter.close_connection(connection.unwrap());
    assert_eq!(ask(connection, Purpose::LocalSource, 64), Err(Status::ConnectionInvalid));
    assert_eq!(passive.adapter.hold(region).unwrap_err().status, Status::ConnectionInvalid);
}

/// Memory as the data of a request is a registration without its promise.
#[test]
fn no_safe_post_names_memory() {
    let (_active, passive) = pair();
    let buffer = passive.buffer(64);
    let region = passive.adapter.reserve_region(passive.domain).unwrap();
    let segments = [Segment { host: buffer.address(), length: 64 }];
    let all =
        [Operation::FastRegister { region, base: 0, rights: Rights::REMOTE_READ }, Operation::Send];
    for operation in all {
        let request = Request { context: 1, operation, flags: Flags::NONE };
        let one = passive.qp.post(&request, Data::Memory(&segments)).unwrap_err();
        let send = Request { operation: Operation::Send, ..request };
        let list = [(send, Data::Sges(&[])), (request, Data::Memory(&segments))];
        let many = passive.qp.post_chain(2, |chain| chain.post_all(list)).unwrap().unwrap_err();
        assert_eq!((one.status, many.status), (Status::InvalidRequest, Status::InvalidRequest));
    }
    assert_eq!(passive.qp.outstanding().0, 0);
    assert!(!passive.adapter.touches(region, 0, u64::MAX));
}
