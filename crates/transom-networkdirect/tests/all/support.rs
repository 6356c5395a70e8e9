//! Compiles C++ programs as a user compiles them, on the headers and the shared library, and runs
//! them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Where cargo has put the shared library that this test run has built.
pub(crate) fn library_dir() -> PathBuf {
    let mut dir = std::env::current_exe().unwrap();
    dir.pop();
    assert!(dir.join("libtransom_nd.so").exists(), "no libtransom_nd.so in {}", dir.display());
    dir
}

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

/// Compile `tests/cpp/{source}.cpp`.
pub(crate) fn build(source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("../../include");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    // Whole or not at all under its name: another run of these tests may be running the one there
    // is.
    let fresh = program.with_extension(std::process::id().to_string());
    let libraries = library_dir();
    let done = Command::new(compiler())
        .args(["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(std::env::var("CXXFLAGS").unwrap_or_default().split_whitespace())
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(include.join("win32"))
        .arg(here.join("tests/cpp").join(format!("{source}.cpp")))
        .arg("-o")
        .arg(&fresh)
        .arg("-L")
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-ltransom_nd", "-ldl", "-lpthread"])
        .output()
        .expect("a C++ compiler: install g++, or set CXX");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{source}.cpp does not compile:\n{words}");
    std::fs::rename(&fresh, &program).unwrap();
    program
}

/// Run it; it must end well. Returns its standard error.
pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library_dir())
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{} {arguments:?}: {}\n{words}", program.display(), done.status);
    words.into_owned()
}

/// Run it over each path, both at a time; both must end well.
pub(crate) fn over_each_path(program: &Path, arguments: &[&str]) {
    std::thread::scope(|scope| {
        let over = |path| move || run(program, arguments, &[("TRANSOM_PATH", path)]);
        let ends = ["tcp", "auto"].map(|path| scope.spawn(over(path)));
        for (end, path) in ends.into_iter().zip(["tcp", "auto"]) {
            assert!(end.join().is_ok(), "TRANSOM_PATH={path}");
        }
    });
}

/// The program of a source file: one build, whichever test comes first.
pub(crate) fn program(source: &'static str) -> &'static Path {
    type Cell = &'static OnceLock<PathBuf>;
    static PROGRAMS: Mutex<Option<HashMap<&'static str, Cell>>> = Mutex::new(None);
    let cell: Cell = {
        let mut programs = PROGRAMS.lock().unwrap();
        programs.get_or_insert_default().entry(source).or_insert_with(|| Box::leak(Box::default()))
    };
    cell.get_or_init(|| build(source))
}
