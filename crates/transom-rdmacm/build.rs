//! The version nodes, and the dependency on `libibverbs.so.1`: an empty library of that name to link
//! with, because only the name enters.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let out = Path::new(&out);
    let mut nodes = String::new();
    let mut parent = String::from("{ local: *; }");
    for node in ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"] {
        let _ = writeln!(nodes, "RDMACM_{node} {parent};");
        parent = format!("{{}} RDMACM_{node}");
    }
    let script = out.join("librdmacm.map");
    fs::write(&script, nodes)?;
    let verbs = out.join("libibverbs.so.1");
    let linker = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".into());
    let linked = Command::new(linker)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libibverbs.so.1", "-o"])
        .arg(&verbs)
        .args(["-x", "c", "/dev/null"])
        .status()?;
    if !linked.success() {
        return Err(io::Error::other("the linker has made no library"));
    }
    for argument in [
        // LLD joins this script with the anonymous one that rustc passes; GNU ld refuses.
        "-fuse-ld=lld".to_owned(),
        format!("-Wl,--version-script={}", script.display()),
        "-Wl,-soname,librdmacm.so.1".to_owned(),
        "-Wl,-z,nodelete".to_owned(),
        "-Wl,--no-as-needed".to_owned(),
        verbs.display().to_string(),
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    Ok(())
}
