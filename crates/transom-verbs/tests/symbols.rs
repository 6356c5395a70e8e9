//! The names and versions that the library exports, and the layouts of the distribution's headers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, Sym as _};

/// Names with their versions.
fn exported() -> BTreeSet<(String, String)> {
    let bytes = std::fs::read(support::built().join("libtransom_verbs.so")).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_definition(endian) {
            let name = text(symbol.name(endian, symbols.strings()).unwrap());
            let version = versions.version(versions.version_index(endian, index)).unwrap();
            found.insert((name, version.map_or_else(String::new, |v| text(v.name()))));
        }
    }
    found
}

/// Verbs V13, Verbs V16: as many as the interface has, and no other.
#[test]
fn v13_v16_names_and_versions_are_those_of_the_interface() {
    let found = exported();
    let of = |prefix: &str| found.iter().filter(|(_, v)| v.starts_with(prefix)).count();
    assert_eq!(of("RDMACM_"), 74);
    assert_eq!(of("IBVERBS_1."), 128);
    assert_eq!(of("IBVERBS_PRIVATE_"), 15 * 96);
    assert!(found.contains(&("transom_name".to_owned(), "TRANSOM_1.0".to_owned())));
    assert_eq!(found.len(), 74 + 128 + 15 * 96 + 1, "something else is exported");
    let names: BTreeSet<_> =
        found.iter().filter(|(_, v)| v.starts_with("IBVERBS_1.")).map(|(n, _)| n).collect();
    assert_eq!(names.len(), 95);
    for (name, version) in [
        ("ibv_alloc_pd", "IBVERBS_1.0"),
        ("ibv_alloc_pd", "IBVERBS_1.1"),
        ("ibv_reg_mr_iova2", "IBVERBS_1.8"),
        ("_ibv_query_gid_ex", "IBVERBS_1.11"),
        ("rdma_establish", "RDMACM_1.2"),
        ("verbs_register_driver_34", "IBVERBS_PRIVATE_34"),
        ("verbs_register_driver_65", "IBVERBS_PRIVATE_65"),
    ] {
        assert!(found.contains(&(name.to_owned(), version.to_owned())), "{name}@{version}");
    }
}

/// Verbs V13: what Debian's libraries have, ours has.
#[test]
fn v13_the_distribution_s_symbols_are_all_there() {
    let found = exported();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        let path = format!("/usr/lib/{}-linux-gnu/{library}", std::env::consts::ARCH);
        let Ok(bytes) = std::fs::read(&path) else {
            eprintln!("SKIPPED: {path} is not installed");
            continue;
        };
        let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, &*bytes).unwrap();
        let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
        let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).unwrap();
        for (index, symbol) in symbols.enumerate() {
            let version = versions.version(versions.version_index(endian, index)).unwrap();
            if let (true, Some(version)) = (symbol.is_definition(endian), version) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let name = text(symbol.name(endian, symbols.strings()).unwrap());
                let version = text(version.name());
                let node = name == version; // the nodes themselves are symbols, too
                assert!(
                    node || found.contains(&(name.clone(), version.clone())),
                    "{name}@{version}"
                );
            }
        }
    }
}

/// Verbs V10: sizes and offsets are those of the distribution's headers; structures have grown at their end.
#[test]
fn v10_layouts_are_those_of_the_headers() {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <infiniband/sa.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    // Unions and members without a name, or with one that is ours.
    let named = |structure: &str, member: &str| -> Option<String> {
        Some(match (structure, member) {
            ("verbs_context" | "ibv_context_ops", _)
            | ("ibv_device_attr_ex", "odp_caps" | "groups")
            | ("ibv_send_wr", "bind_mw")
            | ("ibv_send_wr", "wr") => return None,
            ("rdma_route", "src_addr") => "addr.src_storage".into(),
            ("rdma_route", "dst_addr") => "addr.dst_storage".into(),
            ("rdma_route", "sgid") => "addr.addr.ibaddr.sgid".into(),
            ("rdma_route", "dgid") => "addr.addr.ibaddr.dgid".into(),
            ("rdma_route", "pkey") => "addr.addr.ibaddr.pkey".into(),
            (_, member) => member.into(),
        })
    };
    for (structure, size, members) in transom_verbs::abi::LAYOUTS {
        let kind = "struct";
        let _ =
            writeln!(source, "printf(\"%zu {structure} {size}\\n\", sizeof({kind} {structure}));");
        if matches!(*structure, "verbs_context" | "ibv_context_ops") {
            source.truncate(source.trim_end().rfind('\n').unwrap() + 1);
            continue;
        }
        for (member, offset) in *members {
            // Newer members.
            if *member == "active_speed_ex" || matches!(*member, "wr_atomic_write" | "wr_flush") {
                continue;
            }
            if let Some(path) = named(structure, member) {
                let _ = writeln!(
                    source,
                    "printf(\"%zu {structure}.{member} {offset}\\n\", offsetof({kind} {structure}, {path}));"
                );
            }
        }
    }
    source.push_str("return 0; }\n");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("layouts.c");
    std::fs::write(&file, source).unwrap();
    let Some(program) = support::compile(&file, "layouts") else { return };
    let said = Command::new(program).env("LD_LIBRARY_PATH", support::libraries()).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.lines().count() > 200, "{said}");
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [theirs, name, ours] = words[..] else { panic!("{line}") };
        let (theirs, ours): (usize, usize) = (theirs.parse().unwrap(), ours.parse().unwrap());
        let grown = !name.contains('.') && matches!(name, "ibv_port_attr" | "ibv_qp_ex");
        assert!(theirs == ours || (grown && theirs < ours), "{name}: {theirs} there, {ours} here");
    }
}
