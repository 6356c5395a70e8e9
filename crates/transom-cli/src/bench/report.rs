//! What a bench prints.

use serde::Serialize;

use super::stats::{self, Ratio};
use crate::adapters::print_json;
use crate::show;

/// One result. `p99`: 99 of 100 samples are at least this good.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) bench: &'static str,
    pub(super) path: &'static str,
    pub(super) size: usize,
    pub(super) wait: &'static str,
    pub(super) crc: &'static str,
    pub(super) unit: &'static str,
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) baseline_median: Option<f64>,
    /// Which raw variant the baseline is: the fastest.
    pub(super) baseline: Option<String>,
    /// Ours over baseline: the median of pairs.
    pub(super) ratio: Option<f64>,
    pub(super) ratio_quartiles: Option<[f64; 2]>,
    pub(super) pairs: usize,
    pub(super) largest_frame: usize,
    pub(super) congestion: String,
    /// Each process has a processor of its own.
    pub(super) pinned: bool,
}

/// Measurements of one side, one value per slice.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

impl Report {
    pub(super) fn compare(&mut self, ours: &[f64], baseline: &Baseline) {
        let Ratio { median, quartiles } = stats::pairwise(ours, &baseline.values);
        self.baseline_median = Some(stats::median(&mut baseline.values.clone()));
        self.baseline = Some(baseline.name.clone());
        self.ratio = Some(median);
        self.ratio_quartiles = Some(quartiles);
        self.pairs = ours.len().min(baseline.values.len());
    }

    pub(super) fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        println!("{}  {} bytes, wait {}, crc {}", self.bench, self.size, self.wait, self.crc);
        println!("  path       {}, frames up to {} bytes", self.path, self.largest_frame);
        if !self.pinned {
            println!(
                "  note       one processor for two processes: the figures are the scheduler's"
            );
        }
        println!("  transom    {}   99 %: {}", self.value(self.median), self.value(self.p99));
        if let (Some(baseline), Some(name)) = (self.baseline_median, &self.baseline) {
            println!("  baseline   {}   {name}, {}", self.value(baseline), self.congestion);
        }
        if let (Some(ratio), Some([low, high])) = (self.ratio, self.ratio_quartiles) {
            println!(
                "  ratio      {ratio:.2}   quartiles {low:.2} to {high:.2}, {} pairs",
                self.pairs
            );
        }
    }

    fn value(&self, value: f64) -> String {
        match self.unit {
            "bytes/s" => show::rate(value),
            unit => format!("{value:.1} {unit}"),
        }
    }
}
