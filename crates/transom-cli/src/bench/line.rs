//! The cost of a cache line that another processor has written.
//!
//! Between two processes of one host every figure hangs on it, and on a virtual machine it changes
//! within seconds, as the processors move between chips. So it is measured before and after each
//! slice; a pair counts as near or far if both looks agree, and is left out if they do not.

use std::time::Duration;

use serde::Serialize;

use crate::bench::same_host;
use crate::bench::stats::{self, Ratio};

/// A line that costs less than this, in nanoseconds, is near: both processors share a cache.
const NEAR: f64 = 90.0;
/// Two looks at a far line that differ by more than this factor belong to different distances.
const ALIKE: f64 = 1.5;
/// How long a look takes.
const LOOK: Duration = Duration::from_millis(2);

/// The cost of a line now, in nanoseconds.
pub(crate) fn look() -> f64 {
    stats::median(&mut same_host::bounce(LOOK))
}

/// The cost before and after one slice.
pub(crate) type Looks = [f64; 2];

/// Where the two processors were during a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Distance {
    Near,
    Far,
}

/// `None`: they moved in between.
fn distance([before, after]: Looks) -> Option<Distance> {
    let (low, high) = (before.min(after), before.max(after));
    match (low < NEAR, high < NEAR) {
        (true, true) => Some(Distance::Near),
        (false, false) if high <= low * ALIKE => Some(Distance::Far),
        _ => None,
    }
}

/// The pairs of one distance.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) distance: Distance,
    pub(crate) pairs: usize,
    /// The median cost of a line, in nanoseconds.
    pub(crate) line: f64,
    /// The median of ours.
    pub(crate) median: f64,
    /// Ours over baseline: the median of pairs.
    pub(crate) ratio: Option<f64>,
    pub(crate) ratio_quartiles: Option<[f64; 2]>,
}

/// The pairs sorted by distance, and how many were left out.
pub(crate) fn sort(ours: &[f64], baseline: Option<&[f64]>, looks: &[Looks]) -> (Vec<Group>, usize) {
    let of = |distance: Distance| -> Vec<usize> {
        let numbered = looks.iter().enumerate();
        numbered
            .filter(|(_, looks)| self::distance(**looks) == Some(distance))
            .map(|(at, _)| at)
            .collect()
    };
    let pick = |values: &[f64], at: &[usize]| -> Vec<f64> {
        at.iter().filter_map(|at| values.get(*at).copied()).collect()
    };
    let group = |distance| {
        let at = of(distance);
        let mut mine = pick(ours, &at);
        let mut lines: Vec<f64> =
            pick(&looks.iter().map(|[a, b]| (a + b) / 2.0).collect::<Vec<_>>(), &at);
        let ratio = baseline.map(|baseline| stats::pairwise(&mine, &pick(baseline, &at)));
        (!at.is_empty()).then(|| Group {
            distance,
            pairs: at.len(),
            line: stats::median(&mut lines),
            median: stats::median(&mut mine),
            ratio: ratio.map(|Ratio { median, .. }| median),
            ratio_quartiles: ratio.map(|Ratio { quartiles, .. }| quartiles),
        })
    };
    let groups: Vec<Group> =
        [Distance::Near, Distance::Far].into_iter().filter_map(group).collect();
    let sorted: usize = groups.iter().map(|group| group.pairs).sum();
    (groups, looks.len() - sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_near_or_far_if_both_looks_agree() {
        for (looks, expected) in [
            ([40.0, 89.9], Some(Distance::Near)),
            ([89.9, 90.0], None),
            ([90.0, 135.0], Some(Distance::Far)),
            ([135.1, 90.0], None),
            ([220.0, 210.0], Some(Distance::Far)),
            ([220.0, 40.0], None),
        ] {
            assert_eq!(distance(looks), expected, "{looks:?}");
        }
    }

    #[test]
    fn pairs_are_sorted_and_mixed_ones_left_out() {
        let baseline = [50.0, 200.0, 50.0, 100.0];
        let looks = [[50.0, 50.0], [200.0, 220.0], [60.0, 60.0], [50.0, 200.0]];
        let (groups, mixed) = sort(&[100.0, 300.0, 150.0, 1.0], Some(&baseline), &looks);
        assert_eq!(mixed, 1);
        let [near, far] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((near.distance, near.pairs, near.line), (Distance::Near, 2, 55.0));
        assert_eq!((near.median, near.ratio), (125.0, Some(2.5)));
        assert_eq!((far.distance, far.pairs, far.ratio), (Distance::Far, 1, Some(1.5)));
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio_and_without_looks_no_group() {
        let (groups, mixed) = sort(&[100.0], None, &[[50.0, 50.0]]);
        assert_eq!((groups.len(), mixed), (1, 0));
        assert!(groups.iter().all(|group| group.ratio.is_none()));
        let (groups, mixed) = sort(&[100.0], None, &[]);
        assert_eq!((groups.len(), mixed), (0, 0));
    }
}
