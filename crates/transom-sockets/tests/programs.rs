//! Unmodified programs with the switch at both ends, at one, and at none: the same bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Running, command, folder, interpreter, library, line, noise, python, there};
use transom_sockets as _;

/// Whether the server is under the switch, and whether the client is.
const SIDES: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

#[test]
fn a_file_comes_whole_from_pythons_web_server() {
    if !there(&["python3", "curl"]) {
        return;
    }
    let folder = folder("web");
    let file = noise(3_000_000);
    fs::write(folder.join("file"), &file).unwrap();
    let code = "import http.server,os,sys\nos.chdir(sys.argv[1])\n\
        s=http.server.ThreadingHTTPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler)\n\
        print(s.server_port)\ns.serve_forever()";
    for (server, client) in SIDES {
        let mut running = python(code, &[folder.to_str().unwrap()], server);
        let port = line(&mut running);
        for _ in 0..3 {
            let url = format!("http://127.0.0.1:{port}/file");
            let got =
                command("curl", client).args(["-s", "--max-time", "60", &url]).output().unwrap();
            assert!(
                got.stdout == file,
                "{server} {client}: {} bytes, {:?}",
                got.stdout.len(),
                got.status
            );
        }
    }
}

/// Each end is a process that sends while it receives, and then ends its direction.
const ECHO: &str = r"
import hashlib, os, select, socket, sys
mode = sys.argv[1]
def serve(s):
    while True:
        data = s.recv(70000)
        if not data: break
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    s.close()
if mode == 'serve':
    l = socket.create_server(('127.0.0.1', 0))
    print(l.getsockname()[1])
    while True:
        s, _ = l.accept()
        if os.fork() == 0:
            l.close()
            serve(s)
            os._exit(0)
        s.close()
port, size, wait = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
data = os.urandom(size)
s = socket.create_connection(('127.0.0.1', port))
s.setblocking(False)
got, sent, ended = bytearray(), 0, False
if wait == 'epoll' or wait == 'edge':
    e = select.epoll()
    edge = select.EPOLLET if wait == 'edge' else 0
    e.register(s, select.EPOLLIN | select.EPOLLOUT | edge)
elif wait == 'poll':
    p = select.poll()
while True:
    if sent == size and not ended:
        ended = True
        s.shutdown(socket.SHUT_WR)
    more = sent < size
    if wait == 'select':
        r, w, _ = select.select([s], [s] if more else [], [])
    elif wait == 'poll':
        p.register(s, select.POLLIN | (select.POLLOUT if more else 0))
        p.poll()
    else:
        if wait == 'epoll': e.modify(s, select.EPOLLIN | (select.EPOLLOUT if more else 0))
        e.poll()
    while sent < size:
        try: sent += s.send(data[sent:sent + 50000])
        except BlockingIOError: break
    end = False
    while True:
        try: piece = s.recv(60000)
        except BlockingIOError: break
        if not piece:
            end = True
            break
        got += piece
    if end: break
print('same' if bytes(got) == data else 'other: %d of %d' % (len(got), size))
";

#[test]
fn every_way_to_wait_sees_every_byte_and_the_end() {
    if !there(&["python3"]) {
        return;
    }
    for (server, client) in SIDES {
        let mut running = python(ECHO, &["serve"], server);
        let port = line(&mut running);
        for wait in ["select", "poll", "epoll", "edge"] {
            for size in ["0", "1", "5000000"] {
                let mut one = python(ECHO, &["talk", &port, size, wait], client);
                assert_eq!(line(&mut one), "same", "{server} {client} {wait} {size}");
            }
        }
    }
}

/// The end of a peer comes between the state and the counts that the kernel gives of a TCP socket.
#[test]
fn an_end_that_comes_while_a_call_looks_for_it_is_an_end() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("ends", include_str!("ends.c"), &["-pthread"]);
    let output = command(program.to_str().unwrap(), true).output().unwrap();
    match String::from_utf8(output.stdout).unwrap().as_str() {
        "SKIPPED\n" => eprintln!("SKIPPED: no userfaultfd"),
        said => assert_eq!(said, "0 the end, seen while looking\n"),
    }
}

/// A server that dies, one that resets, one that leaves bytes unread: as over TCP.
const ENDS: &str = r"
import os, signal, socket, struct, sys
l = socket.create_server(('127.0.0.1', 0))
port = l.getsockname()[1]
for how in ['exit', 'kill', 'reset', 'unread', 'half']:
    child = os.fork()
    if child == 0:
        s, _ = l.accept()
        for _ in range(40): s.sendall(s.recv(1))
        s.sendall(b'hello')
        s.recv(5)
        if how == 'reset':
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            s.close()
        if how == 'unread': s.recv(1)
        if how == 'half':
            s.shutdown(socket.SHUT_WR)
            assert s.recv(9) == b'more'
        if how == 'kill': os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    c = socket.create_connection(('127.0.0.1', port))
    for _ in range(40):
        c.sendall(b'w')
        c.recv(1)
    assert c.recv(5, socket.MSG_WAITALL) == b'hello'
    c.sendall(b'12345' if how != 'unread' else b'123456789')
    if how != 'half': os.waitpid(child, 0)
    try:
        got = c.recv(9)
        said = 'end' if got == b'' else repr(got)
    except ConnectionResetError:
        said = 'reset'
    if how == 'half':
        c.sendall(b'more')
        assert os.waitpid(child, 0)[1] == 0
    else:
        try:
            for _ in range(3): c.sendall(b'x')
            said += ', sends'
        except (BrokenPipeError, ConnectionResetError):
            said += ', no peer'
    print(how, said)
    c.close()
print('done')
";

#[test]
fn ends_and_resets_are_those_of_tcp() {
    if !there(&["python3"]) {
        return;
    }
    let outcome = |switched: bool| {
        let mut running = python(ENDS, &[], switched);
        let out = BufReader::new(running.0.stdout.take().unwrap());
        out.lines().map(Result::unwrap).collect::<Vec<String>>()
    };
    let tcp = outcome(false);
    assert_eq!(tcp.last().unwrap(), "done");
    assert_eq!(outcome(true), tcp);
}

/// Prints behind which number of exchanges a segment is there, and whether the bytes were the same: of a
/// connection by requests and answers, of one whose peer sleeps in `poll`, of one with two descriptors, of one
/// that only sends, of one whose descriptor was passed on early, of one that a program has inherited, of one that
/// was written past the library, of one that a child serves, and of two that get low descriptors.
const LASTS: &str = r"
import os, select, socket, struct, subprocess, sys
def switched(c):
    cookie = c.getsockopt(socket.SOL_SOCKET, 57, 8)
    name = '/dev/shm/transom-%d/connections-%x' % (os.geteuid(), os.stat('/proc/self/ns/net').st_ino)
    if not os.path.exists(name): return False
    entries = open(name, 'rb').read()
    return any(entries[at:at + 8] == cookie for at in range(0, len(entries), 16))
l = socket.create_server(('127.0.0.1', 0))
def pair():
    c = socket.create_connection(l.getsockname())
    return c, l.accept()[0]
def exchanges(c, s, most=100):
    for turn in range(1, most + 1):
        c.sendall(bytes([turn]))
        assert s.recv(1) == bytes([turn])
        s.sendall(bytes([turn + 1]))
        assert c.recv(1) == bytes([turn + 1])
        if switched(c): return turn
    return 0
def received(c):
    return struct.unpack_from('Q', c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 128)[0]
def over_tcp(c, s):
    before = received(c) + received(s)
    for turn in range(50):
        c.sendall(b'12345')
        assert s.recv(5, socket.MSG_WAITALL) == b'12345'
        s.sendall(b'678')
        assert c.recv(3, socket.MSG_WAITALL) == b'678'
    return received(c) + received(s) - before
c, s = pair()
print('exchanges', exchanges(c, s), exchanges(c, s))
print('over TCP', over_tcp(c, s))
c, s = pair()
exchanges(c, s), exchanges(c, s)
child = os.fork()
if child == 0:
    c.close()
    p = select.poll()
    p.register(s, select.POLLIN)
    while p.poll() and (byte := s.recv(1)): s.sendall(byte)
    os._exit(0)
def sleeps(pid):
    with open(f'/proc/{pid}/stat') as about: return about.read().rsplit(')')[-1].split()[0] == 'S'
before = received(c) + received(s)
for turn in range(50):
    while not sleeps(child): pass
    c.sendall(b'p')
    assert c.recv(1) == b'p'
# A sleep of more than 43 ms is one in the kernel.
print('a sleeper in poll needs no doorbell', received(c) + received(s) - before < 25)
c.shutdown(socket.SHUT_WR)
print('ended', os.waitpid(child, 0)[1])
c, s = pair()
d = c.dup()
print('duplicate', exchanges(d, s), exchanges(c, s))
subprocess.run(['true'])
print('beside another program, over TCP', over_tcp(c, s))
c, s = pair()
for size in [256 << 10, 1, 1]:
    c.sendall(b'x' * size)
    assert len(s.recv(size, socket.MSG_WAITALL)) == size
    print('bytes', size, switched(c))
c, s = pair()
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [c.fileno()])
print('passed', exchanges(c, s))
print('over TCP', over_tcp(c, s))
c, s = pair()
subprocess.run(['true'])
print('beside another program', exchanges(c, s))
c, s = pair()
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'\xb8\x01\0\0\0\x0f\x05\xc3')  # mov eax, 1; syscall; ret
past = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
assert past(ctypes.addressof(ctypes.c_char.from_buffer(page)))(c.fileno(), b'y', 1) == 1
assert s.recv(1) == b'y'
print('past the library', exchanges(c, s))
c, s = pair()
os.write(c.fileno(), b'y')
assert s.recv(1) == b'y'
print('write', exchanges(c, s))
c, s = pair()
child = os.fork()
if child == 0:
    c.close()
    while byte := s.recv(1): s.sendall(byte)
    os._exit(0)
for turn in range(1, 101):
    c.sendall(b'z')
    assert c.recv(1) == b'z'
    if switched(c): break
print('child', turn)
assert s.send(b'!') == 1 and c.recv(1) == b'!'
c.close()
s.close()
print('ended', os.waitpid(child, 0)[1])
ends = [pair() for _ in range(2)]
for number, (c, s) in zip([3, 2], ends):
    if number != c.fileno(): os.dup2(c.fileno(), number)
    print('descriptor', number, exchanges(c, s))
";

#[test]
fn a_connection_is_switched_once_it_has_lasted() {
    if !there(&["python3"]) {
        return;
    }
    let mut running = python(LASTS, &[], true);
    let out = BufReader::new(running.0.stdout.take().unwrap());
    let said: Vec<String> = out.lines().map(Result::unwrap).collect();
    let expected = [
        // The 33rd request is the 32nd send behind something received.
        "exchanges 33 1",
        "over TCP 0",
        "a sleeper in poll needs no doorbell True",
        "ended 0",
        "duplicate 33 1",
        "beside another program, over TCP 0",
        "bytes 262144 False",
        "bytes 1 True",
        "bytes 1 True",
        "passed 0",
        "over TCP 400",
        "beside another program 0",
        "past the library 0",
        "write 33",
        "child 33",
        "ended 0",
        // Streams of the C library write to standard error past this library.
        "descriptor 3 33",
        "descriptor 2 0",
    ];
    assert_eq!(said, expected);
}

/// Prints whether a connection is switched behind 40 exchanges.
const IS_SWITCHED: &str = r"
import os, socket, struct
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
s, _ = l.accept()
for turn in range(40):
    c.sendall(b'x'), s.recv(1), s.sendall(b'x'), c.recv(1)
cookie = c.getsockopt(socket.SOL_SOCKET, 57, 8)
name = '/dev/shm/transom-%d/connections-%x' % (os.geteuid(), os.stat('/proc/self/ns/net').st_ino)
entries = open(name, 'rb').read() if os.path.exists(name) else b''
print(any(entries[at:at + 8] == cookie for at in range(0, len(entries), 16)))
";

#[test]
fn rules_name_programs() {
    if !there(&["python3"]) {
        return;
    }
    let name = Path::new(interpreter()).file_name().unwrap().to_str().unwrap();
    for (rules, expected) in [
        (format!("!{name}@"), "False"),
        (format!("!un{name}@"), "True"),
        (format!("{name}@"), "True"),
    ] {
        let mut command = command(interpreter(), true);
        command.args(["-c", IS_SWITCHED]).env("TRANSOM_SOCKETS", &rules);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{rules}");
    }
}

/// Prints whether a connection is switched between a listener at one port and a client at another one.
const AT_PORTS: &str = r"
import os, socket, sys
listens, connects = map(int, sys.argv[1:])
l = socket.create_server(('127.0.0.1', listens))
c = socket.create_connection(('127.0.0.1', listens), source_address=('127.0.0.1', connects))
s, _ = l.accept()
for turn in range(40):
    c.sendall(b'x'), s.recv(1), s.sendall(b'x'), c.recv(1)
cookie = c.getsockopt(socket.SOL_SOCKET, 57, 8)
name = '/dev/shm/transom-%d/connections-%x' % (os.geteuid(), os.stat('/proc/self/ns/net').st_ino)
entries = open(name, 'rb').read() if os.path.exists(name) else b''
print(any(entries[at:at + 16][:8] == cookie for at in range(0, len(entries), 16)))
";

#[test]
fn rules_name_the_port_of_the_listening_side() {
    if !there(&["python3"]) {
        return;
    }
    let free = "import socket\nends=[socket.create_server(('127.0.0.1',0)) for _ in range(2)]\n\
        for end in ends: print(end.getsockname()[1])";
    for (rule, at_listener, expected) in
        [(":", true, "True"), (":", false, "False"), ("!:", true, "False"), ("!:", false, "True")]
    {
        let mut ports = python(free, &[], false);
        let (listens, connects) = (line(&mut ports), line(&mut ports));
        let rules = format!("{rule}{}", if at_listener { &listens } else { &connects });
        let mut command = command(interpreter(), true);
        command.args(["-c", AT_PORTS, &listens, &connects]).env("TRANSOM_SOCKETS", &rules);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{rules}");
    }
}

/// Each end in turn has no descriptor left when its connection has lasted.
const SHORT_OF: &str = r"
import os, resource, socket, struct
directory = '/dev/shm/transom-%d/connections-%x' % (os.geteuid(), os.stat('/proc/self/ns/net').st_ino)
l = socket.create_server(('127.0.0.1', 0))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
def limit(most): resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
def echo(c, s, turns):
    for turn in range(turns):
        c.sendall(bytes([turn]))
        assert s.recv(1) == bytes([turn])
        s.sendall(bytes([turn]))
        assert c.recv(1) == bytes([turn])
def exchanges(active, passive):
    c = socket.create_connection(l.getsockname())
    s, _ = l.accept()
    echo(c, s, 32)
    free = os.dup(c.fileno())
    os.close(free)
    c.sendall(b'!') if not active else None
    limit(free)
    if active: c.sendall(b'!')
    limit(soft)
    if passive: limit(free)
    assert s.recv(1) == b'!'
    s.sendall(b'?')
    limit(soft)
    assert c.recv(1) == b'?'
    echo(c, s, 100)
    cookie = c.getsockopt(socket.SOL_SOCKET, 57, 8)
    entries = open(directory, 'rb').read() if os.path.exists(directory) else b''
    return any(entries[at:at + 8] == cookie for at in range(0, len(entries), 16))
print(exchanges(True, False), exchanges(False, True), exchanges(False, False))
";

/// WSD W14: what fails on the way to the switch costs the switch, and nothing else.
#[test]
fn w14_without_resources_a_connection_stays_with_tcp() {
    if !there(&["python3"]) {
        return;
    }
    // The offer that nobody takes stays until the connection ends.
    assert_eq!(line(&mut python(SHORT_OF, &[], true)), "False True True");
}

#[test]
fn redis_serves_clients_with_and_without_the_switch() {
    if !there(&["redis-server", "redis-cli", "redis-benchmark", "python3"]) {
        return;
    }
    let free = "import socket\ns=socket.create_server(('127.0.0.1',0))\nprint(s.getsockname()[1])";
    let port = line(&mut python(free, &[], false));
    let mut server = command("redis-server", true);
    server.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let mut running = Running(server.stdout(Stdio::piped()).spawn().unwrap());
    let out = running.0.stdout.take().unwrap();
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    lines.find(|line| line.contains("Ready to accept")).expect("the server starts");
    let rest = std::thread::spawn(move || lines.count());
    let value = "v".repeat(100_000);
    for (key, client) in [("a", true), ("b", false)] {
        let mut set = command("redis-cli", client);
        let mut set =
            set.args(["-p", &port, "-x", "set", key]).stdin(Stdio::piped()).spawn().unwrap();
        set.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(set.wait().unwrap().success());
        for reader in [true, false] {
            let got =
                command("redis-cli", reader).args(["-p", &port, "get", key]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&got.stdout).trim_end(), value, "{key} {reader}");
        }
    }
    for client in [true, false] {
        let done = command("redis-benchmark", client)
            .args(["-p", &port, "-t", "set,get", "-n", "2000", "-c", "20", "-q"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(said.matches("requests per second").count(), 2, "{said}");
    }
    drop(running);
    rest.join().unwrap();
}

/// A program or a library, made of C by the system's compiler.
fn compiled(name: &str, source: &str, words: &[&str]) -> PathBuf {
    let folder = folder(name);
    let (from, to) = (folder.join("source.c"), folder.join("made"));
    fs::write(&from, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin"]).args(words).arg("-o").arg(&to).arg(&from);
    assert!(compiler.status().unwrap().success());
    to
}

#[test]
fn calls_of_handlers_of_signals_take_no_memory_from_malloc() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("handlers", include_str!("handlers.c"), &[]);
    let said = |switched| {
        let output = command(program.to_str().unwrap(), switched).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (tcp, switched) = (said(false), said(true));
    assert!(tcp.0 == Some(0) && tcp.1.ends_with("done\n") && !tcp.1.contains("memory"), "{tcp:?}");
    assert_eq!(switched, tcp);
}

/// Programs with rights that their caller lacks, which have the library on their own path: no connection is
/// switched, nothing is written where the caller or the user has files of the switch, and nothing is said.
#[test]
fn a_privileged_program_switches_nothing() {
    const NOBODY: u32 = 65_534;
    /// CAP_DAC_OVERRIDE, permitted and effective (capabilities(7), version 2).
    const GIVES: &str = "import os, sys; os.setxattr(sys.argv[1], 'security.capability', \
                         bytes([1, 0, 0, 2, 2] + [0] * 15))";
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
        fs::copy(&made, &program).unwrap();
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

/// How many connections were switched, and why others were not.
#[test]
fn a_process_says_at_its_end_what_has_become_of_its_connections() {
    if !there(&["python3"]) {
        return;
    }
    let code = "import os,socket,sys\n\
        l=socket.create_server(('127.0.0.1',0))\n\
        def pair(n):\n    \
            c=socket.create_connection(l.getsockname()); s,_=l.accept()\n    \
            for _ in range(n): c.send(b'x'); s.recv(1); s.send(b'y'); c.recv(1)\n    \
            return c,s\n\
        kept=[pair(3), pair(40)]\n\
        c,s=pair(3); c.shutdown(1); c.close(); s.close()\n\
        c,s=pair(3); os.system('true'); c.close(); s.close()\n\
        c,s=pair(40); c.close(); s.close()\n\
        getattr(os, sys.argv[1])(0) if len(sys.argv) > 1 else None";
    let forgets = format!("import os\nos.environ.clear()\n{code}");
    for words in [&["-c", code][..], &["-c", code, "_exit"], &["-c", &forgets]] {
        let done = command(interpreter(), true).args(words).env("TRANSOM_EXPLAIN", "1").output();
        let said = String::from_utf8(done.unwrap().stderr).unwrap();
        for line in [
            ": 4 connections switched, 6 stayed with TCP",
            " 1 ended in one direction before they had lasted",
            " 4 were there when another program was started",
            " 1 ended before they had lasted (32 answers, or 256 KiB)",
        ] {
            assert!(said.contains(line), "{line:?}: {said}");
        }
        let quiet = command(interpreter(), true).args(words).output().unwrap();
        assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
    }
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

/// A handler sends on a blocking connection on which its thread may be sending; the reader counts.
const SENDS_IN_A_HANDLER: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static int c, s;
static volatile long runs, fails;
static void handler(int n) { (void)n; if (send(c, "SS", 2, MSG_NOSIGNAL) != 2) fails++; runs++; }
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    static char b[65536];
    long sent = 0, blocks = 0, all = 0, marks = 0, n;
    c = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    connect(c, (void *)&at, size); s = accept(l, 0, 0);
    for (int i = 0; i < 45; i++) { send(c, "x", 1, 0); recv(s, b, 1, 0); send(s, "y", 1, 0); recv(c, b, 1, 0); }
    int told[2];
    if (pipe(told)) return 1;
    if (!fork()) {
        close(c);
        while ((n = recv(s, b, sizeof b, 0)) > 0) for (all += n; n-- > 0;) marks += b[n] == 'S';
        long counts[2] = {all, marks};
        _exit(write(told[1], counts, sizeof counts) != sizeof counts);
    }
    close(s);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 200}, {0, 200}}, 0);
    memset(b, 'b', sizeof b);
    while (runs < 2000) { n = send(c, b, 4096, 0); if (n > 0) sent += n; blocks++; }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    long counts[2] = {0, 0}, expected = sent + 2 * (runs - fails), from_handler = 2 * (runs - fails);
    close(c);
    if (read(told[0], counts, sizeof counts) != sizeof counts) return 1;
    printf("%ld failed, bytes %ld, of the handler %ld\n", fails, counts[0] - expected, counts[1] - from_handler);
    wait(0);
}
"#;

#[test]
fn a_handler_of_a_signal_sends_while_its_thread_does() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("send-handler", SENDS_IN_A_HANDLER, &[]);
    for switched in [false, true] {
        let output = command(program.to_str().unwrap(), switched).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "0 failed, bytes 0, of the handler 0\n", "{switched}");
    }
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

/// A handler receives on the blocking connection on which its thread is receiving; both together get each byte.
const RECEIVES_IN_A_HANDLER: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static int c, s;
static volatile long got, runs, fails;
static void handler(int n) {
    char b[50];
    (void)n;
    long r = recv(s, b, sizeof b, 0);
    if (r > 0) got += r;
    else if (r < 0 && errno != EAGAIN) fails++;
    runs++;
}
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    static char b[65536];
    long n, sent = 0;
    c = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    connect(c, (void *)&at, size); s = accept(l, 0, 0);
    for (int i = 0; i < 45; i++) { send(c, "x", 1, 0); recv(s, b, 1, 0); send(s, "y", 1, 0); recv(c, b, 1, 0); }
    for (int i = 0; i < 20000; i++) sent += 1 + i % 4096;
    if (!fork()) {
        close(s);
        for (int i = 0; i < 20000; i++) if (send(c, b, 1 + i % 4096, 0) < 0) _exit(1);
        _exit(0);
    }
    close(c);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, 0);
    while ((n = recv(s, b, sizeof b, 0)) != 0) if (n > 0) got += n; else if (errno != EINTR) fails++;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    wait(0);
    printf("%ld failed, bytes %ld, %s\n", fails, got - sent, runs > 0 ? "interrupted" : "never interrupted");
}
"#;

#[test]
fn a_handler_of_a_signal_receives_while_its_thread_does() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("receive-handler", RECEIVES_IN_A_HANDLER, &[]);
    for switched in [false, true] {
        let output = command(program.to_str().unwrap(), switched).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "0 failed, bytes 0, interrupted\n", "{switched}");
    }
}
