//! The life of a window.
mod common;
use common::*;
use transom_memory::*;

#[test]
fn a_window_opens_and_closes() {
    let memory = memory();
    let region = region(&memory, Rights::LOCAL_READ | Rights::LOCAL_WRITE | Rights::BIND);
    let token = memory.reserve(&window_spec(region, Rights::REMOTE_READ), NOW).unwrap();
    let read = access(Purpose::RemoteRead, token, BASE + 0x1010, 16);
    let denial = judge(&memory, &read).unwrap_err();
    assert_eq!(denial.likely, Mistake::NotYetBound);
    assert!(memory.activate(token));
    let mut lane = memory.lane();
    let grant = memory.check(&mut lane, &read, NOW).unwrap();
    assert_eq!(grant.segments().collect::<Vec<_>>(), [Segment { host: HOST + 0x1010, length: 16 }]);
    assert_eq!((grant.region(), grant.offset()), (region, 0x1010));
    drop(grant);
    let busy = Unless { windows: true, ..Unless::default() };
    assert!(matches!(memory.deregister(region, busy, NOW), Err(DeregisterError::Busy(_))));
    memory.close(token, Some(QP), NOW).unwrap();
    let denial = memory.check(&mut lane, &read, NOW + 3_200_000).unwrap_err();
    println!("{denial}\n{}", denial.for_peer());
    assert_eq!(denial.likely, Mistake::Stale);
    memory.deregister(region, busy, NOW).unwrap();
}
