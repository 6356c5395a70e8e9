//! `ndkpi.h` has the layout of the original, in C and in C++: `layout.c` says so to the compiler;
//! and the tables that the library fills in have the same order.

use transom_ndkpi::Status;
use transom_ndkpi::dispatch::*;

#[test]
fn ndk_4_5_the_header_has_the_layout_of_the_original() {
    transom_testing::compilers::accept_layout(env!("CARGO_MANIFEST_DIR"));
}

/// NDK 0.3: programs in C have every status by its name.
#[test]
fn ndk_0_3_the_header_has_every_status_with_its_value() {
    let header = include_str!("../../include/ndkpi.h");
    for (name, Status(value)) in Status::ALL {
        let prefix = if value >> 16 == -0x3FFF { "NDIS_" } else { "" };
        let line = format!("#define {prefix}STATUS_{name} ((NTSTATUS)0x{value:08X})");
        assert!(header.lines().any(|has| has == line), "ndkpi.h lacks: {line}");
    }
}

/// The Rust names differ from the header's in form, and in what the table's name says already.
#[test]
fn ndk_5_the_library_fills_the_tables_in_the_headers_order() {
    let layout = include_str!("../layout.c");
    for (table, entries) in [
        ("ADAPTER", AdapterDispatch::ENTRIES),
        ("PD", PdDispatch::ENTRIES),
        ("CQ", CqDispatch::ENTRIES),
        ("QP", QpDispatch::ENTRIES),
        ("MR", MrDispatch::ENTRIES),
        ("MW", MwDispatch::ENTRIES),
        ("SRQ", SrqDispatch::ENTRIES),
        ("CONNECTOR", ConnectorDispatch::ENTRIES),
        ("LISTENER", ListenerDispatch::ENTRIES),
        ("SHARED_ENDPOINT", SharedEndpointDispatch::ENTRIES),
    ] {
        let slot = format!("SLOT(NDK_{table}_DISPATCH, Ndk");
        let header: Vec<String> = layout
            .lines()
            .filter_map(|line| line.strip_prefix(&slot)?.split(',').next())
            .map(|name| {
                let of = ["Cq", "Pd", "Qp", "Mr", "Mw", "Srq", "Connector", "Listener"];
                let name = name.replace(
                    "SharedEndpoint",
                    if table == "SHARED_ENDPOINT" { "" } else { "SharedEndpoint" },
                );
                let short = of.iter().fold(name.clone(), |short, suffix| match table {
                    "ADAPTER" | "PD" => short,
                    _ => short.replace(&format!("From{suffix}"), "").replace(suffix, ""),
                });
                snake(if short.is_empty() { &name } else { &short })
            })
            .collect();
        let own: Vec<String> = entries
            .iter()
            .enumerate()
            .map(|(index, (name, offset))| {
                assert_eq!(*offset, index * size_of::<usize>());
                (*name).to_owned()
            })
            .collect();
        let shorter = |name: &String| name.replace("close_pd", "close");
        assert_eq!(header.iter().map(shorter).collect::<Vec<_>>(), own, "{table}");
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut upper = true;
    for c in name.chars() {
        if c.is_uppercase() && !upper {
            out.push('_');
        }
        upper = c.is_uppercase();
        out.push(c.to_ascii_lowercase());
    }
    out
}
