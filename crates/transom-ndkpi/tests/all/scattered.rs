//! The example as it is meant: a C program registers scattered pages of a real file, and another
//! process (this one) reads them by RDMA and verifies the digest.

#[path = "../../examples/fetch_pages.rs"]
mod fetch_pages;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The library that Cargo has built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    [deps, deps.parent().unwrap()]
        .iter()
        .map(|folder| folder.join("libtransom_ndkpi.a"))
        .find(|path| path.exists())
        .expect("libtransom_ndkpi.a beside the test")
}

#[test]
fn a_c_program_lends_scattered_pages_and_another_process_reads_them() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("serve_pages-{}", std::process::id()));
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(here.join("include"))
        .arg(here.join("examples/serve_pages.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(compiled.success());
    // A real file: this very test.
    let file = std::env::current_exe().unwrap();
    let mut server = Command::new(&program).arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let bytes = fetch_pages::fetch(([127, 0, 0, 1], port).into()).unwrap();
    assert_eq!(bytes as u64, std::fs::metadata(&file).unwrap().len() / 4096 * 4096);
    println!("{}", lines.next().unwrap().unwrap());
    assert!(server.wait().unwrap().success());
    std::fs::remove_file(&program).unwrap();
}
