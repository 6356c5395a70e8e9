//! Tests of `lease.rs`, in a file of their own because a model test includes that file.

use std::time::Duration;

use transom_wire::Time;

use super::lease::{Lease, SHORTEST};

const LONGEST: u64 = 64_000;

fn lease() -> Lease {
    Lease::new(Duration::from_nanos(LONGEST))
}

#[test]
fn a_lease_is_renewed_when_half_of_it_is_over() {
    let lease = lease();
    assert_eq!(lease.held(Time(1)), None);
    assert_eq!(lease.take(Time(1000)), Some(Time(1000 + LONGEST)));
    assert_eq!(lease.take(Time(1000 + LONGEST / 2)), None);
    assert_eq!(lease.held(Time(1000 + LONGEST - 1)), Some(Time(1000 + LONGEST)));
    assert_eq!(lease.take(Time(1001 + LONGEST / 2)), Some(Time(1001 + LONGEST * 3 / 2)));
}

#[test]
fn bytes_that_waited_make_the_next_lease_short_and_renewals_let_it_grow_to_the_longest() {
    let lease = lease();
    lease.kept_waiting();
    assert_eq!(lease.take(Time(1)), Some(Time(1 + LONGEST / SHORTEST)));
    for _ in 0..3 {
        lease.renewed();
    }
    assert_eq!(lease.take(Time(100_000)), Some(Time(100_000 + 8 * LONGEST / SHORTEST)));
    for _ in 0..100 {
        lease.renewed();
    }
    assert_eq!(lease.take(Time(900_000)), Some(Time(900_000 + LONGEST)));
}
