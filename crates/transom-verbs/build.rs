//! Makes the version script of the library, and the assembly that gives its functions their names and
//! versions, of the one table `exports.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// The numbers that `IBVERBS_PRIVATE_<n>` has had (rdma-core 15 to 65).
const PRIVATE: [u32; 15] = [15, 16, 17, 18, 19, 20, 21, 22, 25, 33, 34, 57, 59, 64, 65];

/// The public nodes of each library, each inheriting the one before.
const VERBS: [&str; 16] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18",
];
const RDMACM: [&str; 6] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];

/// An exported name in a version node.
struct Export {
    node: String,
    name: String,
    function: String,
}

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=exports.txt");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let table = fs::read_to_string("exports.txt")?;
    let exports = expand(&table)?;
    let script = Path::new(&out).join("libibverbs.map");
    fs::write(&script, version_script(&exports))?;
    fs::write(Path::new(&out).join("exports.rs"), assembly(&exports))?;
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // LLD joins this script with the anonymous one that rustc passes; GNU ld refuses.
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    Ok(())
}

/// The lines of the table, with those of `*` once for every private node.
fn expand(table: &str) -> io::Result<Vec<Export>> {
    let mut exports = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(node), Some(name), Some(function)) = (words.next(), words.next(), words.next())
        else {
            let text = format!("exports.txt: `{line}` is not a node, a name and a function");
            return Err(io::Error::other(text));
        };
        if node == "*" {
            exports.extend(PRIVATE.iter().map(|n| Export {
                node: format!("IBVERBS_PRIVATE_{n}"),
                name: name.replace("<n>", &n.to_string()),
                function: function.clone(),
            }));
        } else {
            exports.push(Export { node, name, function });
        }
    }
    Ok(exports)
}

fn version_script(exports: &[Export]) -> String {
    let mut script = String::new();
    let mut node = |name: String, parent: Option<String>| {
        let names: Vec<&str> =
            exports.iter().filter(|e| e.node == name).map(|e| e.name.as_str()).collect();
        let global = names.iter().fold(String::new(), |all, n| all + n + "; ");
        let global = if global.is_empty() { global } else { format!("global: {global}") };
        let local = if parent.is_none() { "local: *; " } else { "" };
        let parent = parent.unwrap_or_default();
        let _ = writeln!(script, "{name} {{ {global}{local}}} {parent};");
    };
    for (library, versions) in [("IBVERBS", &VERBS[..]), ("RDMACM", &RDMACM[..])] {
        let mut parent = None;
        for version in versions {
            let name = format!("{library}_{version}");
            node(name.clone(), parent);
            parent = Some(name);
        }
    }
    node("TRANSOM_1.0".into(), Some("IBVERBS_1.0".into()));
    for n in PRIVATE {
        node(format!("IBVERBS_PRIVATE_{n}"), Some("IBVERBS_1.0".into()));
    }
    script
}

/// For each function one jump to it, under a label for every name and version that it has.
fn assembly(exports: &[Export]) -> String {
    let mut default: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, export) in exports.iter().enumerate() {
        // The table has the nodes in ascending order: the last one that is public.
        if !export.node.starts_with("IBVERBS_PRIVATE") || !default.contains_key(&*export.name) {
            default.insert(&export.name, at);
        }
    }
    let mut by_function: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, export) in exports.iter().enumerate() {
        by_function.entry(&export.function).or_default().push(at);
    }
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "b {f}",
        _ => "jmp {f}",
    };
    let mut code = String::new();
    for (function, all) in by_function {
        let mut text = String::new();
        let data = function == "data";
        let kind = if data { "object" } else { "function" };
        let section = if data { ".section .rodata" } else { ".text" };
        let _ = write!(text, "\"{section}\",\n\".balign 16\",\n");
        for at in &all {
            let Export { node, name, .. } = &exports[*at];
            let sign = if default.get(&**name) == Some(at) { "@@" } else { "@" };
            let _ = write!(
                text,
                "\".globl transom_export_{at}\",\n\".type transom_export_{at},@{kind}\",\n\
                 \".size transom_export_{at}, {size}\",\n\
                 \".symver transom_export_{at}, {name}{sign}{node}\",\n\"transom_export_{at}:\",\n",
                size = if data { 1 } else { 5 },
            );
        }
        if data {
            let _ = write!(text, "\".byte 0\",\n\".text\"");
        } else {
            let _ = write!(text, "\"{jump}\",\nf = sym crate::entry::{function}");
        }
        let _ = writeln!(code, "core::arch::global_asm!(\n{text}\n);");
    }
    code
}
