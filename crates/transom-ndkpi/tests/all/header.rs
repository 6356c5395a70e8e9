//! `ndkpi.h` has the layout of the original, in C and in C++: `layout.c` says so to the compiler;
//! and the tables that the library fills in have the same order.

use std::path::Path;
use std::process::Command;

use transom_ndkpi::dispatch::*;

#[test]
fn ndk_4_5_the_header_has_the_layout_of_the_original() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (variable, compiler, language) in
        [("CC", "cc", ["-xc", "-std=c11"]), ("CXX", "c++", ["-xc++", "-std=c++17"])]
    {
        let compiler = std::env::var(variable).unwrap_or_else(|_| compiler.into());
        let held = Command::new(compiler)
            .args(language)
            .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(here.join("include"))
            .arg(here.join("tests/layout.c"))
            .status()
            .unwrap();
        assert!(held.success());
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
