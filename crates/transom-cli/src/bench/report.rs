//! The output of a bench.

use serde::Serialize;

use crate::bench::line::{self, Distance, Group, Looks};
use crate::bench::stats::{self, Ratio};
use crate::command::print_json;
use crate::command::show;

/// A result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    /// Lower and upper quartile of the slices.
    pub(crate) quartiles: [f64; 2],
    /// 99 of 100 samples are at least this good.
    pub(crate) p99: f64,
    pub(crate) baseline_median: Option<f64>,
    /// Which variant the baseline is: the fastest.
    pub(crate) baseline: Option<String>,
    /// Ours over baseline: the median of pairs.
    pub(crate) ratio: Option<f64>,
    pub(crate) ratio_quartiles: Option<[f64; 2]>,
    pub(crate) pairs: usize,
    /// A second baseline, where one does not tell all.
    pub(crate) second: Option<Second>,
    /// Between two processes: the pairs by what a cache line cost meanwhile.
    pub(crate) by_line: Vec<Group>,
    /// Pairs during which that changed. No group has them.
    pub(crate) mixed: usize,
    #[serde(flatten)]
    pub(crate) about: About,
}

/// The circumstances.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct About {
    pub(crate) path: &'static str,
    pub(crate) path_reason: &'static str,
    pub(crate) size: usize,
    pub(crate) wait: &'static str,
    pub(crate) crc: &'static str,
    pub(crate) largest_frame: usize,
    /// The congestion control of both sides of a ratio.
    pub(crate) congestion: String,
    /// Each process has a processor of its own.
    pub(crate) pinned: bool,
    pub(crate) pid: u32,
    pub(crate) peer_pid: u32,
    /// How an access to a revoked window was refused before anything was timed.
    pub(crate) refused: String,
    /// How long ours was measured, baselines apart, and the processor time of both processes then.
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peer_cpu_seconds: f64,
}

/// A second thing to compare with.
#[derive(Debug, Serialize)]
pub(crate) struct Second {
    pub(crate) baseline: String,
    pub(crate) baseline_median: f64,
    pub(crate) ratio: f64,
    pub(crate) ratio_quartiles: [f64; 2],
}

/// Measurements of one side, one value per slice.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

impl Baseline {
    pub(crate) fn new(name: impl Into<String>) -> Baseline {
        Baseline { name: name.into(), values: Vec::new() }
    }

    pub(crate) fn median(&self) -> f64 {
        stats::median(&mut self.values.clone())
    }
}

impl Report {
    /// `ours`: one value per slice.
    pub(crate) fn new(
        bench: &'static str,
        unit: &'static str,
        ours: &[f64],
        p99: f64,
        about: About,
    ) -> Report {
        Report {
            bench,
            unit,
            median: stats::median(&mut ours.to_vec()),
            quartiles: [0.25, 0.75].map(|q| stats::quantile(&mut ours.to_vec(), q)),
            p99,
            baseline_median: None,
            baseline: None,
            ratio: None,
            ratio_quartiles: None,
            pairs: 0,
            second: None,
            by_line: Vec::new(),
            mixed: 0,
            about,
        }
    }

    pub(crate) fn compare(&mut self, ours: &[f64], baseline: &Baseline) {
        let Ratio { median, quartiles } = stats::pairwise(ours, &baseline.values);
        self.baseline_median = Some(baseline.median());
        self.baseline = Some(baseline.name.clone());
        self.ratio = Some(median);
        self.ratio_quartiles = Some(quartiles);
        self.pairs = ours.len().min(baseline.values.len());
    }

    /// Compares with a second baseline as well.
    pub(crate) fn also(&mut self, ours: &[f64], baseline: &Baseline) {
        let Ratio { median: ratio, quartiles: ratio_quartiles } =
            stats::pairwise(ours, &baseline.values);
        let (baseline, baseline_median) = (baseline.name.clone(), baseline.median());
        self.second = Some(Second { baseline, baseline_median, ratio, ratio_quartiles });
    }

    /// Sorts the pairs by what a cache line cost before and after each slice of ours.
    pub(crate) fn sort(&mut self, ours: &[f64], baseline: Option<&Baseline>, looks: &[Looks]) {
        (self.by_line, self.mixed) =
            line::sort(ours, baseline.map(|baseline| &baseline.values[..]), looks);
    }

    pub(crate) fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        let About { size, wait, crc, path, largest_frame, .. } = &self.about;
        println!("{}  {size} bytes, wait {wait}, crc {crc}", self.bench);
        println!("  path       {path}, frames up to {largest_frame} bytes");
        if !self.about.pinned {
            println!(
                "  note       one processor for two processes: the figures are the scheduler's"
            );
        }
        println!("  transom    {}   99 %: {}", self.value(self.median), self.value(self.p99));
        if let (Some(baseline), Some(name)) = (self.baseline_median, &self.baseline) {
            let congestion = &self.about.congestion;
            println!("  baseline   {}   {name}, {congestion}", self.value(baseline));
        }
        if let (Some(ratio), Some([low, high])) = (self.ratio, self.ratio_quartiles) {
            println!(
                "  ratio      {ratio:.2}   quartiles {low:.2} to {high:.2}, {} pairs",
                self.pairs
            );
        }
        if let Some(Second { baseline, baseline_median, ratio, ratio_quartiles: [low, high] }) =
            &self.second
        {
            println!("  baseline   {}   {baseline}", self.value(*baseline_median));
            println!("  ratio      {ratio:.2}   quartiles {low:.2} to {high:.2}");
        }
        for group in &self.by_line {
            let (line, pairs, ours) = (group.line, group.pairs, self.value(group.median));
            let name = match group.distance {
                Distance::Near => "near",
                Distance::Far => "far",
            };
            let ratio = match (group.ratio, group.ratio_quartiles) {
                (Some(ratio), Some([low, high])) => {
                    format!(", ratio {ratio:.2}, quartiles {low:.2} to {high:.2}")
                }
                _ => String::new(),
            };
            println!("  {name:<9}  {ours}{ratio}   {pairs} pairs, a cache line costs {line:.0} ns");
        }
        if self.mixed > 0 {
            println!("  mixed      {} pairs, in which that cost changed", self.mixed);
        }
        let About { seconds, cpu_seconds, peer_cpu_seconds, pid, peer_pid, .. } = &self.about;
        println!(
            "  processor  {cpu_seconds:.2} s here (process {pid}), {peer_cpu_seconds:.2} s at the \
             peer (process {peer_pid}), in {seconds:.2} s"
        );
    }

    fn value(&self, value: f64) -> String {
        match self.unit {
            "bytes/s" => show::rate(value),
            "messages/s" => format!("{:.2} million/s", value / 1e6),
            unit => format!("{value:.1} {unit}"),
        }
    }
}
