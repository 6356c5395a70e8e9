//! Programs that fork, execute other programs, or have rights that their caller lacks, under the switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{command, compiled, interpreter, library, line, python, there};
use transom_sockets as _;
use transom_testing::programs;

/// Programs with rights that their caller lacks, which have the library on their own path: no connection is
/// switched, nothing is written where the caller or the user has files of the switch, and nothing is said.
#[test]
fn a_privileged_program_switches_nothing() {
    const NOBODY: u32 = 65_534;
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    if !is_root || !there(&["cc", "python3"]) {
        return eprintln!("SKIPPED: only root can give a program rights");
    }
    let here = std::env::temp_dir().canonicalize().unwrap();
    let here = here.join(format!("transom-sockets-privileged-{}", std::process::id()));
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    let copied = here.join("libtransom_sockets.so");
    fs::copy(library(), &copied).unwrap();
    let (way, library) = (format!("-Wl,-rpath,{}", here.display()), copied.display().to_string());
    let words = ["-Wl,--no-as-needed", &library, &way];
    let made = compiled("privileged", include_str!("privileged.c"), &words);
    let run = |name: &str, mode: u32| {
        let program = here.join(name);
        programs::copied(&made, &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        if name == "capable" {
            let given = Command::new("python3").args(["-c", GIVES]).arg(&program).output().unwrap();
            if !given.status.success() {
                return None;
            }
        }
        let output = Command::new(&program)
            .env_clear()
            .envs([("TRANSOM_SOCKETS", "on"), ("TRANSOM_EXPLAIN", "1")])
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        // The process that executes it, which is this one, may say that it will not be served.
        let own = |line: &&str| {
            !line.ends_with("with another user's rights: its connections stay with TCP")
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let stderr: Vec<_> = stderr.lines().filter(own).collect();
        let said = [output.stdout, stderr.join("\n").into_bytes()].concat();
        Some((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    };
    let (plain, set) = (run("plain", 0o755).unwrap(), run("set-uid", 0o4755).unwrap());
    let capable = run("capable", 0o755);
    fs::remove_dir_all(&here).unwrap();
    assert!(plain.1.contains("1 segments\n") && plain.1.contains("switched"), "{plain:?}");
    for (code, said) in [Some(set), capable].into_iter().flatten() {
        if said.contains("switched") {
            eprintln!("SKIPPED, if the file system gives no rights: {said}");
        }
        assert_eq!((code, said.as_str()), (Some(0), "0 segments\n"));
    }
}

/// CAP_DAC_OVERRIDE, permitted and effective (capabilities(7), version 2).
const GIVES: &str = "import os, sys; os.setxattr(sys.argv[1], 'security.capability', \
                     bytes([1, 0, 0, 2, 2] + [0] * 15))";

/// Handlers that use a descriptor which this library knows, in parent and child.
const FORK_HANDLERS: &str = r"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
static void use(void) {
    char byte;
    int ends[2];
    close(socket(AF_INET, SOCK_STREAM, 0));
    close(dup(0));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    send(ends[0], &byte, 1, 0);
    poll(&(struct pollfd){ends[1], POLLIN, 0}, 1, -1);
    recv(ends[1], &byte, 1, 0);
    close(ends[0]);
    close(ends[1]);
}
__attribute__((constructor)) static void start(void) { __register_atfork(use, use, use, 0); }
";

#[test]
fn handlers_of_a_fork_run_before_and_behind_the_librarys() {
    if !there(&["cc", "python3"]) {
        return;
    }
    let other = compiled("atfork", FORK_HANDLERS, &["-shared", "-fPIC"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forks.py");
    let (ours, other) = (library().display().to_string(), other.display().to_string());
    let mut said = Vec::new();
    // The loader starts the last one first.
    for preload in [other.clone(), format!("{ours}:{other}"), format!("{other}:{ours}")] {
        let mut command = command(interpreter(), false);
        command.arg(&script).arg("--warm").env("LD_PRELOAD", preload);
        command.args(["handlers_of_others_use_the_connection", "a_child_of_a_system_call"]);
        command.args(["children_by_every_way_of_the_language", "a_child_becomes_a_daemon"]);
        said.push(String::from_utf8(command.output().unwrap().stdout).unwrap());
    }
    assert!(said[0].lines().count() == 4 && !said[0].contains("FAILED"), "{}", said[0]);
    assert!(said[1] == said[0] && said[2] == said[0], "{said:#?}");
}

/// The look at what is started, to say whether the library follows, waits for nobody.
#[test]
fn a_pipe_in_place_of_a_program_is_not_waited_for() {
    if !there(&["python3"]) {
        return;
    }
    let code = "import os,signal,tempfile\n\
        signal.alarm(120)\n\
        with tempfile.TemporaryDirectory() as folder:\n    \
            os.mkfifo(folder + '/pipe', 0o755); os.chmod(folder + '/pipe', 0o755)\n    \
            try: os.execv(folder + '/pipe', ['pipe'])\n    \
            except PermissionError: print('refused')";
    let done = command(interpreter(), true)
        .args(["-c", code])
        .env("TRANSOM_EXPLAIN", "1")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "refused\n");
}

/// Starts another program in its place with a connection whose peer has sent and ended: nobody has the segment
/// meanwhile.
const TOO_LATE: &str = r"
import os, socket, sys
l = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    c = socket.create_connection(l.getsockname())
    for _ in range(45): c.sendall(b'x'), c.recv(1)
    c.sendall(b'last words')
    os._exit(0)
s, _ = l.accept()
for _ in range(45): s.recv(1), s.sendall(b'y')
os.wait()
os.set_inheritable(s.fileno(), True)
read = f'import socket\ns = socket.socket(fileno={s.fileno()})\ntry: print(s.recv(99))\nexcept ConnectionResetError: print(1)'
os.execv(sys.executable, [sys.executable, '-c', read])
";

#[test]
fn bytes_that_are_lost_on_the_way_to_another_program_are_an_error() {
    if there(&["python3"]) {
        assert_eq!(line(&mut python(TOO_LATE, &[], true)), "1");
    }
}

/// Starts a program whose standard input and output are a connection that has lasted, and prints what its peer got.
const HANDS_OVER: &str = r"
import os, select, socket, sys
l = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    c = socket.create_connection(l.getsockname())
    for _ in range(45): c.sendall(b'x'), c.recv(1)
    c.sendall(b'first line\nsecond line\n')
    c.shutdown(socket.SHUT_WR)
    got = b''
    try:
        while piece := c.recv(999): got += piece
    except ConnectionResetError: got += b'reset'
    print(got, flush=True)
    os._exit(0)
s, _ = l.accept()
for _ in range(45): s.recv(1), s.sendall(b'y')
# All of it has come, the end included: none of it is sent behind the end of this side.
p = select.poll()
p.register(s, select.POLLRDHUP)
p.poll()
child = os.fork()
if child == 0:
    os.dup2(s.fileno(), 0), os.dup2(s.fileno(), 1)
    s.close()
    os.execvp(sys.argv[1], sys.argv[1:])
s.close()
status = os.waitpid(child, 0)[1]
os.wait()
print('status', os.waitstatus_to_exitcode(status))
";

/// A shell stays with TCP, and serves what it was started with; a program without the library reads no byte that is not
/// its peer's.
#[test]
fn a_program_that_is_left_out_inherits_a_switched_connection() {
    if !there(&["python3", "sh", "bash", "env", "cat"]) {
        return;
    }
    let said = |words: &[&str], switched| {
        let mut running = python(HANDS_OVER, words, switched);
        let out = BufReader::new(running.0.stdout.take().unwrap());
        out.lines().map(Result::unwrap).collect::<Vec<String>>()
    };
    for shell in ["sh", "bash"] {
        let words = [shell, "-c", "read a; echo \"got $a\"; cat; echo done"];
        let tcp = said(&words, false);
        assert_eq!(tcp, [r"b'got first line\nsecond line\ndone\n'", "status 0"], "{shell}");
        assert_eq!(said(&words, true), tcp, "{shell}");
    }
    assert_eq!(said(&["env", "-i", "/bin/cat"], true), ["b'reset'", "status 1"]);
}

/// The loader gives such programs no library of the caller's choice.
#[test]
fn a_program_with_rights_of_its_own_inherits_no_switched_connection() {
    const NOBODY: u32 = 65_534;
    const BECOMES: &str = "import os, select, socket, sys, encodings.idna\nos.setgroups([])\nos.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, 65534)\n";
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    if !is_root || !there(&["python3", "cat"]) {
        return eprintln!("SKIPPED: only root can give a program rights");
    }
    let here = std::env::temp_dir().join(format!("transom-sockets-rights-{}", std::process::id()));
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    let said = |name: &str, mode: u32, owner: u32, code: &str| {
        let program = here.join(name);
        programs::copied("/bin/cat".as_ref(), &program);
        std::os::unix::fs::chown(&program, Some(owner), None).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        if name == "capable" {
            let given = Command::new("python3").args(["-c", GIVES]).arg(&program).output().unwrap();
            if !given.status.success() {
                return None;
            }
        }
        let mut running = python(code, &[program.to_str().unwrap()], true);
        let out = BufReader::new(running.0.stdout.take().unwrap());
        Some(out.lines().map(Result::unwrap).collect::<Vec<String>>())
    };
    let becomes = format!("{BECOMES}{HANDS_OVER}");
    let runs = [
        ("plain", said("plain", 0o755, NOBODY, HANDS_OVER)),
        ("plain of nobody's", said("plain", 0o755, NOBODY, &becomes)),
        ("of the caller", said("set-uid", 0o4755, 0, HANDS_OVER)),
        ("set-uid", said("set-uid", 0o4755, NOBODY, HANDS_OVER)),
        ("set-gid", said("set-gid", 0o2755, 0, HANDS_OVER)),
        ("capable", said("capable", 0o755, 0, &becomes)),
    ];
    fs::remove_dir_all(&here).unwrap();
    for (at, (name, said)) in runs.into_iter().enumerate() {
        let Some(said) = said else { continue };
        let whole = [r"b'first line\nsecond line\n'", "status 0"];
        let expected = if at > 2 { ["b'reset'", "status 1"] } else { whole };
        assert_eq!(said, expected, "{name}");
    }
}

/// Starts cat by `execle`, with as many words and with the variables that it is told, and prints what its peer got.
const BY_EXECLE: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char b[99];
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s, status;
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    connect(c, (void *)&at, size); s = accept(l, 0, 0);
    for (int i = 0; i < 45; i++) { send(c, "x", 1, 0); recv(s, b, 1, 0); send(s, "y", 1, 0); recv(c, b, 1, 0); }
    send(c, "bytes", 5, 0);
    shutdown(c, SHUT_WR);
    if (!fork()) {
        char *none[] = {"ANOTHER=1", 0}, **variables = strcmp(words[1], "with") ? none : environ;
        dup2(s, 0); dup2(s, 1); close(s); close(c);
        if (count == 3) execle("/bin/cat", "cat", (char *)0, variables);
        else execle("/bin/cat", "cat", "-", "-", "-", "-", "-", "-", "-", (char *)0, variables);
        _exit(9);
    }
    close(s);
    long n = recv(c, b, sizeof b, 0);
    if (n < 0) puts(strerror(errno)); else printf("%.*s\n", (int)n, b);
    wait(&status);
}
"#;

/// Variables are those that the call was given, wherever its words end.
#[test]
fn execle_says_whether_the_library_follows() {
    if !there(&["cc", "cat"]) {
        return;
    }
    let program = compiled("execle", BY_EXECLE, &[]);
    for (variables, expected) in [("with", "bytes\n"), ("without", "Connection reset by peer\n")] {
        for more in [&["few"][..], &["more", "words"]] {
            let mut command = command(program.to_str().unwrap(), true);
            let output = command.arg(variables).args(more).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(said, expected, "{variables} {more:?}");
            // The program's first read fails: it gets no doorbell that it could send on.
            let complaint = String::from_utf8(output.stderr).unwrap();
            let reset = complaint.starts_with("cat: -: Connection reset by peer\n");
            assert_eq!(reset, variables == "without", "{complaint}");
        }
    }
}
