//! The names and versions that the library exports, and the layouts of the distribution's headers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use object::Endianness;
use object::elf::{DF_1_NODELETE, DT_FLAGS_1, DT_NEEDED, DT_SONAME, FileHeader64, VERSYM_HIDDEN};
use object::read::elf::{Dyn as _, FileHeader as _, Sym as _};

/// Names with their versions.
fn exported() -> BTreeSet<(String, String)> {
    exported_by("libtransom_verbs.so")
}

fn exported_by(library: &str) -> BTreeSet<(String, String)> {
    let bytes = std::fs::read(support::built().join(library)).unwrap();
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

/// The part of a library that the loader reads.
#[derive(Default)]
struct Dynamic {
    name: String,
    needed: Vec<String>,
    stays_loaded: bool,
    nodes: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

fn dynamic(library: &str) -> Dynamic {
    let bytes = std::fs::read(support::built().join(library)).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Dynamic::default();
    let (entries, link) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, link).unwrap();
    for entry in entries {
        match entry.tag32(endian) {
            Some(DT_NEEDED) => found.needed.push(text(entry.string(endian, strings).unwrap())),
            Some(DT_SONAME) => found.name = text(entry.string(endian, strings).unwrap()),
            Some(DT_FLAGS_1) => {
                found.stays_loaded = entry.d_val(endian) & u64::from(DF_1_NODELETE) != 0;
            }
            _ => {}
        }
    }
    if let Some((mut definitions, link)) = sections.gnu_verdef(endian, &*bytes).unwrap() {
        let strings = sections.strings(endian, &*bytes, link).unwrap();
        while let Some((_, mut names)) = definitions.next().unwrap() {
            found.nodes.insert(text(names.next().unwrap().unwrap().name(endian, strings).unwrap()));
        }
    }
    if let Some((mut files, link)) = sections.gnu_verneed(endian, &*bytes).unwrap() {
        let strings = sections.strings(endian, &*bytes, link).unwrap();
        while let Some((_, mut versions)) = files.next().unwrap() {
            while let Some(version) = versions.next().unwrap() {
                found.wanted.insert(text(version.name(endian, strings).unwrap()));
            }
        }
    }
    found
}

/// Verbs V3, Verbs V4: one library has the code; the other one names it, and has the nodes of its own.
#[test]
fn v3_v4_librdmacm_has_version_nodes_and_no_symbol() {
    let (verbs, cm) = (dynamic("libtransom_verbs.so"), dynamic("libtransom_rdmacm.so"));
    assert_eq!((&*verbs.name, &*cm.name), ("libibverbs.so.1", "librdmacm.so.1"));
    assert!(cm.needed.contains(&"libibverbs.so.1".to_owned()), "{:?}", cm.needed);
    assert!(!verbs.needed.contains(&"librdmacm.so.1".to_owned()), "{:?}", verbs.needed);
    for minor in 0..=5 {
        assert!(cm.nodes.contains(&format!("RDMACM_1.{minor}")), "{:?}", cm.nodes);
    }
    assert_eq!(exported_by("libtransom_rdmacm.so"), BTreeSet::new());
    assert!(verbs.stays_loaded && cm.stays_loaded);
}

/// Verbs V11: a name of two public nodes has the newer one as its default, and is hidden in the older.
#[test]
fn v11_each_name_has_one_default_version() {
    let bytes = std::fs::read(support::built().join("libtransom_verbs.so")).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).unwrap();
    let (entries, _) = sections.gnu_versym(endian, &*bytes).unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut defaults, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, symbol) in symbols.enumerate() {
        if !symbol.is_definition(endian) {
            continue;
        }
        let name = text(symbol.name(endian, symbols.strings()).unwrap());
        let version = versions.version(versions.version_index(endian, index)).unwrap().unwrap();
        let version = text(version.name());
        names.insert(name.clone());
        if entries[index.0].0.get(endian) & VERSYM_HIDDEN == 0 {
            assert!(defaults.insert(name.clone()), "{name} has two default versions");
            assert!(
                version != "IBVERBS_1.0" || !exported().contains(&(name, "IBVERBS_1.1".into()))
            );
        }
    }
    assert_eq!(defaults, names, "a name without a default version");
}

/// Verbs V12: the loader of a program that was linked with the distribution's libraries finds every
/// version, also of what is not called, and prints nothing.
#[test]
fn v12_the_loader_misses_no_version() {
    let theirs = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("versions.c");
    let text = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
                int main(int count, char **words) {\n\
                struct rdma_addrinfo *(*volatile unused)(void) = (void *)&rdma_getaddrinfo;\n\
                struct ibv_device **list = ibv_get_device_list(0);\n\
                return !list || !unused; }\n";
    std::fs::write(&source, text).unwrap();
    let program = source.with_extension("program");
    let libraries = ["libibverbs.so", "librdmacm.so"].map(|name| format!("{theirs}/{name}"));
    if libraries.iter().any(|library| !Path::new(library).exists()) {
        return eprintln!("SKIPPED: libibverbs-dev and librdmacm-dev are not installed");
    }
    let built =
        Command::new("cc").arg("-o").arg(&program).arg(&source).args(&libraries).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = |libraries: &Path| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", libraries).env("LD_BIND_NOW", "1").output().unwrap()
    };
    let done = run(&support::libraries());
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
}

/// Verbs V14: what is built on Debian 12 runs with its C library, and with older ones from 2.34 on.
#[test]
fn v14_no_newer_c_library_is_needed() {
    // SAFETY: a constant text.
    let here = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let number = |version: &str| -> Option<(u32, u32)> {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    if number(here.to_str().unwrap()).unwrap() > (2, 36) {
        return eprintln!("SKIPPED: releases are built with glibc 2.36, this is {here:?}");
    }
    for library in ["libtransom_verbs.so", "libtransom_rdmacm.so"] {
        let wanted = dynamic(library).wanted;
        let newest = wanted.iter().filter_map(|v| number(v.strip_prefix("GLIBC_")?)).max();
        assert!(newest.unwrap() <= (2, 34), "{library}: {wanted:?}");
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
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layouts.c");
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
