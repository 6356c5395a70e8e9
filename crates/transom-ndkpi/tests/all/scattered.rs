//! The example as it is meant: a C program registers scattered pages of a real file, and another
//! process (this one) reads them by RDMA and verifies the digest.

#[path = "../../examples/fetch_pages.rs"]
mod fetch_pages;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::programs::Program;

#[test]
fn a_c_program_lends_scattered_pages_and_another_process_reads_them() {
    let program = Program::compile(&["examples/serve_pages.c"]);
    // A real file: this very test.
    let file = std::env::current_exe().unwrap();
    let mut server = program.command().arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let bytes = fetch_pages::fetch(([127, 0, 0, 1], port).into()).unwrap();
    assert_eq!(bytes as u64, std::fs::metadata(&file).unwrap().len() / 4096 * 4096);
    println!("{}", lines.next().unwrap().unwrap());
    assert!(server.wait().unwrap().success());
}
