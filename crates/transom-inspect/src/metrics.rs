//! Counters as OpenMetrics text.

use std::fmt::Write;

use crate::{Adapter, Counters, Record};

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// Only grows.
    Counter,
    /// A number of this moment.
    Gauge,
}

/// A metric of each adapter.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name, without the suffix `_total` that samples of counters have.
    pub name: &'static str,
    /// The type.
    pub kind: MetricType,
    /// The unit; empty for a number of things.
    pub unit: &'static str,
    /// The things counted, in words.
    pub help: &'static str,
    value: fn(&Counters) -> u64,
}

/// Every metric, in the order in which they are printed.
pub const METRICS: &[Metric] = &[
    counter("transom_refusals", "Refusals of any kind, by this side or by a peer.", |c| c.refusals),
    counter(
        "transom_refusals_forgotten",
        "Records of refusals that made room for later ones.",
        |c| c.refusals_forgotten,
    ),
    counter("transom_guesses", "Refusals of peers for a token that was never theirs.", |c| {
        c.guesses
    }),
    counter("transom_slowed", "Connections that were not let in because of guesses.", |c| c.slowed),
    counter(
        "transom_refused_half_open",
        "Connects that were refused because too many were half-way through start-up.",
        |c| c.refused_half_open,
    ),
    counter(
        "transom_refused_backlog",
        "Connects that were refused because the listener's backlog was full.",
        |c| c.refused_backlog,
    ),
    counter(
        "transom_refused_closed",
        "Connects that were refused because their listener was closed.",
        |c| c.refused_closed,
    ),
    counter(
        "transom_refused_resources",
        "Connects that were refused because the system had no descriptor or no memory.",
        |c| c.refused_resources,
    ),
    counter(
        "transom_refused_unfinished",
        "Connects that were refused because start-up was not finished in time, or was none.",
        |c| c.refused_unfinished,
    ),
    counter(
        "transom_refused_by_program",
        "Connects that the program rejected, or whose request it dropped.",
        |c| c.refused_by_program,
    ),
    counter(
        "transom_unasked",
        "Refusals whose peer was told less than it might have been, to spare the system.",
        |c| c.unasked,
    ),
    gauge("transom_connections", "", "Connections.", |c| c.connections),
    gauge("transom_shared_connections", "", "Connections that share memory.", |c| {
        c.shared_connections
    }),
    gauge("transom_shared_regions", "", "Shared regions.", |c| c.shared_regions),
    gauge("transom_shared_bytes", "bytes", "Bytes of shared regions.", |c| c.shared_bytes),
    gauge(
        "transom_lent_regions",
        "",
        "Shared regions, once for each peer that has one mapped.",
        |c| c.lent_regions,
    ),
    gauge("transom_regions", "", "Regions registered.", |c| c.regions),
    gauge("transom_region_bytes", "bytes", "Bytes that regions cover.", |c| c.region_bytes),
    gauge("transom_windows", "", "Windows reserved or bound.", |c| c.windows),
    gauge("transom_window_bytes", "bytes", "Bytes that windows cover.", |c| c.window_bytes),
    gauge("transom_held_bytes", "bytes", "Bytes that connections hold because of peers.", |c| {
        c.held_bytes
    }),
    gauge("transom_table_bytes", "bytes", "Bytes that the table of tokens occupies.", |c| {
        c.table_bytes
    }),
];

const fn counter(name: &'static str, help: &'static str, value: fn(&Counters) -> u64) -> Metric {
    Metric { name, kind: MetricType::Counter, unit: "", help, value }
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    value: fn(&Counters) -> u64,
) -> Metric {
    Metric { name, kind: MetricType::Gauge, unit, help, value }
}

/// The metrics of every adapter of an answer, with its end.
#[must_use]
pub fn metrics(records: &[Record]) -> String {
    let adapters: Vec<&Adapter> = records
        .iter()
        .filter_map(|record| match record {
            Record::Adapter(adapter) => Some(&**adapter),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for Metric { name, kind, unit, help, value } in METRICS {
        let (word, suffix) = match kind {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE {name} {word}");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for Adapter { adapter, address, counters, .. } in &adapters {
            let value = value(counters);
            let labels = format!("adapter=\"{adapter}\",address=\"{}\"", label(address));
            let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}");
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A value of a label, escaped as OpenMetrics asks.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/debugging.md has each metric, with its type and its unit.
    #[test]
    fn the_documentation_has_each_metric() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/debugging.md");
        let document = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> =
            document.lines().filter(|row| row.starts_with("| `transom_")).collect();
        assert_eq!(rows.len(), METRICS.len());
        for (row, Metric { name, kind, unit, .. }) in rows.iter().zip(METRICS) {
            let kind = format!("{kind:?}").to_lowercase();
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            let begin = format!("| `{name}` | {kind} |{unit} |");
            assert!(row.starts_with(&begin), "{begin} is not the beginning of {row}");
        }
    }

    /// A process chooses its records, addresses included, and no line of the text.
    #[test]
    fn a_label_ends_where_its_value_does() {
        let address = "x\"} 1\ntransom_refusals_total{adapter=\"7\\".to_owned();
        let text = metrics(&[Record::Adapter(Box::new(Adapter { address, ..Adapter::default() }))]);
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), METRICS.len());
        let sample = r#"transom_refusals_total{adapter="0",address="x\"} 1\ntransom_refusals_total{adapter=\"7\\"} 0"#;
        assert!(text.lines().any(|line| line == sample), "{text}");
    }

    #[test]
    fn each_metric_has_a_type_a_help_and_a_sample_of_each_adapter() {
        let adapter = |number, refusals| {
            let counters = Counters { refusals, held_bytes: 9, ..Counters::default() };
            let address = "127.0.0.1".to_owned();
            Record::Adapter(Box::new(Adapter {
                adapter: number,
                address,
                counters,
                ..Adapter::default()
            }))
        };
        let text = metrics(&[adapter(1, 3), adapter(2, 4)]);
        assert!(text.contains("\ntransom_refusals_total{adapter=\"2\",address=\"127.0.0.1\"} 4\n"));
        assert!(text.contains("# UNIT transom_held_bytes bytes\n"));
        assert!(text.contains("\ntransom_held_bytes{adapter=\"1\",address=\"127.0.0.1\"} 9\n"));
        assert!(text.ends_with("# EOF\n"));
        for metric in METRICS {
            assert_eq!(text.matches(&format!("# TYPE {} ", metric.name)).count(), 1);
            // A unit is the end of the name (OpenMetrics).
            assert!(metric.name.ends_with(metric.unit), "{}", metric.name);
        }
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 2 * METRICS.len());
    }
}
