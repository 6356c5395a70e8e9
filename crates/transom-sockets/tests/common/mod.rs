//! Programs that the tests start, with the library before the C library's or without it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libtransom_sockets.so")
}

pub fn command(program: &str, switched: bool) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").env_remove("TRANSOM_SOCKETS");
    if switched {
        command.env("LD_PRELOAD", library());
    }
    command
}

/// `false`, said as SKIPPED: a program is not installed.
pub fn there(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    for program in programs {
        if !has(program) {
            eprintln!("SKIPPED: {program} is not installed");
            return false;
        }
    }
    // The kernel's word for who the peer is, and a folder for segments.
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("SKIPPED: /dev/shm is not there");
        return false;
    }
    true
}

/// A program that ends with its test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder of this test's own.
pub fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("sockets-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

pub fn noise(length: usize) -> Vec<u8> {
    let mut word = 0x9E37_79B9_u32;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Python prints a line and then this is read; what follows is the test's.
pub fn python(code: &str, words: &[&str], switched: bool) -> Running {
    let mut command = command(interpreter(), switched);
    command.arg("-u").arg("-c").arg(code).args(words);
    Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Python itself, where `python3` is a script in front of it.
pub fn interpreter() -> &'static str {
    static PATH: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PATH.get_or_init(|| {
        let asked =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        String::from_utf8(asked.unwrap().stdout).unwrap().trim().to_owned()
    })
}

pub fn line(of: &mut Running) -> String {
    let mut text = String::new();
    let mut byte = [0];
    let out = of.0.stdout.as_mut().unwrap();
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        text.push(char::from(byte[0]));
    }
    text
}

/// A program or a library, made of C by the system's compiler.
pub fn compiled(name: &str, source: &str, words: &[&str]) -> PathBuf {
    let folder = folder(name);
    let (from, to) = (folder.join("source.c"), folder.join("made"));
    fs::write(&from, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin"]).args(words).arg("-o").arg(&to).arg(&from);
    assert!(compiler.status().unwrap().success());
    to
}
