//! Consumers in C, each a program of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// A program that is compiled from a source of this crate, and removed with this value.
pub(crate) struct Program(PathBuf);

impl Program {
    /// Compile `sources`, with every warning an error. `CC` names another compiler than `cc`.
    pub(crate) fn compile(sources: &[&str]) -> Program {
        let stem = Path::new(sources[0]).file_stem().unwrap().to_str().unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        // Two tests may compile the same source.
        let thread = std::thread::current().name().unwrap_or("").replace("::", "-");
        let program = folder.join(format!("{stem}-{}-{thread}", std::process::id()));
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"])
            .arg(here.join("include"))
            .args(sources.iter().map(|source| here.join(source)))
            .arg(library())
            .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
            .arg(&program)
            .status()
            .unwrap();
        assert!(compiled.success(), "{sources:?}");
        Program(program)
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.0)
    }

    /// Run it to its end, in success.
    fn run(&self) {
        let Output { status, stdout, stderr } = self.command().output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{status}\n{out}{err}");
        assert_eq!((&*out, &*err), ("ok\n", ""));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_consumer_shares_an_endpoint_and_moderates_its_queue() {
    Program::compile(&["tests/c/endpoints.c"]).run();
}

#[test]
fn a_port_of_a_kernel_consumer_finds_what_it_needs() {
    Program::compile(&["tests/c/kernel.c"]).run();
}
