//! C++ programs on the headers and the shared library, compiled here as a user compiles them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where cargo has put the shared library that this test run has built.
fn library_dir() -> PathBuf {
    let mut dir = std::env::current_exe().unwrap();
    dir.pop();
    assert!(dir.join("libtransom_nd.so").exists(), "no libtransom_nd.so in {}", dir.display());
    dir
}

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

fn build(source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("../../include");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    let libraries = library_dir();
    let done = Command::new(compiler())
        .args(["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(&include)
        .arg("-I")
        .arg(include.join("win32"))
        .arg(here.join("tests/cpp").join(format!("{source}.cpp")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-ltransom_nd", "-ldl", "-lpthread"])
        .output()
        .expect("a C++ compiler: install g++, or set CXX");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{source}.cpp does not compile:\n{words}");
    program
}

fn run(program: &Path, arguments: &[&str]) {
    let done = Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library_dir())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{} {arguments:?}: {}\n{words}", program.display(), done.status);
}

fn program(cell: &'static OnceLock<PathBuf>, source: &str) -> &'static Path {
    cell.get_or_init(|| build(source))
}

#[test]
fn layout_of_the_headers_is_the_library_s() {
    run(&build("layout"), &[]);
}

macro_rules! cases {
    ($source:literal: $($name:ident = $argument:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run(shared($source), &[$argument]);
            }
        )*
    };
}

/// One build per source file, whichever test comes first.
fn shared(source: &'static str) -> &'static Path {
    static EASY: OnceLock<PathBuf> = OnceLock::new();
    static V1: OnceLock<PathBuf> = OnceLock::new();
    static MISUSE: OnceLock<PathBuf> = OnceLock::new();
    static TRAFFIC: OnceLock<PathBuf> = OnceLock::new();
    match source {
        "easy" => program(&EASY, source),
        "v1" => program(&V1, source),
        "misuse" => program(&MISUSE, source),
        _ => program(&TRAFFIC, source),
    }
}

cases!("easy":
    easy_01 = "1", easy_02 = "2", easy_03 = "3", easy_04 = "4", easy_05 = "5", easy_06 = "6",
    easy_07 = "7", easy_08 = "8", easy_09 = "9", easy_10 = "10", easy_11 = "11", easy_12 = "12",
    easy_13 = "13", easy_14 = "14", easy_15 = "15", easy_16 = "16", easy_17 = "17", easy_18 = "18",
    easy_19 = "19", easy_20 = "20", easy_21 = "21", easy_22 = "22", easy_23 = "23", easy_24 = "24",
    easy_25 = "25", easy_26 = "26", easy_27 = "27", easy_28 = "28", easy_29 = "29", easy_30 = "30",
    easy_31 = "31", easy_32 = "32",
);

cases!("v1":
    nd1_t1_identity_and_factory = "identity",
    nd1_t5_t6_t8_t14_t15_windows_and_send_and_invalidate = "window",
    nd1_t9_the_wrong_right_is_a_remote_error = "refused",
    a_version_1_and_a_version_2_program_talk = "mixed",
);

cases!("misuse":
    misuse_foreign_objects = "foreign",
    misuse_another_adapter_s_objects = "adapter",
    misuse_handles = "handles",
    misuse_null_pointers = "null",
);

cases!("traffic":
    send_and_receive_driven_by_polling = "poll",
    send_and_receive_driven_by_an_event = "event",
    send_and_receive_driven_by_an_event_without_packets = "event1",
    send_and_receive_driven_by_a_port_with_four_threads = "port",
    ping_pong_by_read = "read",
    four_byte_writes_through_notify_and_wait = "notify",
    every_row_of_nd2_5_5 = "rights",
    many_connections_one_port = "churn",
);
