//! Medians and quartiles.

/// The value below which the part `q` (0 to 1) of the samples lies, interpolated. `NaN` of nothing.
pub(crate) fn quantile(samples: &mut [f64], q: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let Some(last) = samples.len().checked_sub(1) else { return f64::NAN };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    match (samples.get(low), samples.get(high)) {
        (Some(a), Some(b)) => a + (b - a) * (position - low as f64),
        _ => f64::NAN,
    }
}

pub(crate) fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 0.5)
}

/// Ratios of adjacent measurements: their median, and their quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) quartiles: [f64; 2],
}

/// Ours over baseline, pair by pair: what the machine did to both at the same time cancels out.
pub(crate) fn pairwise(ours: &[f64], baseline: &[f64]) -> Ratio {
    let mut ratios: Vec<f64> = ours.iter().zip(baseline).map(|(a, b)| a / b).collect();
    Ratio {
        median: median(&mut ratios),
        quartiles: [quantile(&mut ratios, 0.25), quantile(&mut ratios, 0.75)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let mut five = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(median(&mut five), 3.0);
        assert_eq!(quantile(&mut five, 0.25), 2.0);
        assert_eq!(quantile(&mut five, 0.99), 4.96);
        assert_eq!(median(&mut [1.0, 2.0]), 1.5);
        assert_eq!(median(&mut [7.0]), 7.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn drift_that_hits_both_cancels_out() {
        // The machine halves its speed half-way; the ratio does not notice, the medians would.
        let (ours, baseline) = ([8.0, 8.0, 4.0, 4.0, 4.0], [10.0, 10.0, 5.0, 5.0, 5.0]);
        let ratio = pairwise(&ours, &baseline);
        assert!((ratio.median - 0.8).abs() < 1e-12);
        assert!((ratio.quartiles[0] - 0.8).abs() < 1e-12);
    }
}
