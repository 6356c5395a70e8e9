//! Unmodified programs with the switch at both ends, at one, and at none: the same bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use common::{Running, command, compiled, folder, interpreter, line, noise, python, there};
use transom_sockets as _;
use transom_testing::ports::Held;
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

/// Prints whether a connection is switched behind 40 exchanges; of two arguments, the listener is at one port and
/// the client at the other.
const IS_SWITCHED: &str = r"
import os, socket, sys
listens, connects = map(int, sys.argv[1:] or ('0', '0'))
l = socket.create_server(('127.0.0.1', listens))
c = socket.socket()
c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if connects: c.bind(('127.0.0.1', connects))
c.connect(l.getsockname())
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

#[test]
fn rules_name_the_port_of_the_listening_side() {
    if !there(&["python3"]) {
        return;
    }
    for (rule, at_listener, expected) in
        [(":", true, "True"), (":", false, "False"), ("!:", true, "False"), ("!:", false, "True")]
    {
        let held = [(); 2].map(|()| Held::new().unwrap());
        let [listens, connects] = held.each_ref().map(|held| held.address().port().to_string());
        let rules = format!("{rule}{}", if at_listener { &listens } else { &connects });
        let mut command = command(interpreter(), true);
        command.args(["-c", IS_SWITCHED, &listens, &connects]).env("TRANSOM_SOCKETS", &rules);
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
    let held = Held::new().unwrap();
    let port = held.address().port().to_string();
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

/// Prints how many doorbells come for each round of requests on fifty connections, one after the other, behind a
/// sleep of their set that nothing has ended. Then for two connections, one of which had nothing for so many turns,
/// and whether its request ends a sleep.
const BELLS: &str = r"
import os, select, socket, struct, threading
l = socket.create_server(('127.0.0.1', 0))
def pair():
    c = socket.create_connection(l.getsockname())
    return c, l.accept()[0]
def received(s):
    return struct.unpack_from('Q', s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 128)[0]
pairs = [pair() for _ in range(50)]
e = select.epoll()
for c, s in pairs: e.register(s, select.EPOLLIN)
def wants(s, events, how):
    if how == 'again':
        e.unregister(s)
        e.register(s, events)
    elif how == 'changed': e.modify(s, events)
def exchange(c, s, how):
    c.sendall(b'x')
    assert e.poll(0) == [(s.fileno(), select.EPOLLIN)]
    assert s.recv(9) == b'x'
    if how != 'kept':
        wants(s, select.EPOLLOUT, how)
        assert e.poll(0) == [(s.fileno(), select.EPOLLOUT)]
        wants(s, select.EPOLLIN, how)
    s.sendall(b'y')
    assert c.recv(9) == b'y'
for c, s in pairs:
    for _ in range(40): exchange(c, s, 'kept')
for how in ['kept', 'changed', 'again']:
    bells = []
    for turn in range(4):
        assert e.poll(0.001) == []
        before = sum(received(s) for _, s in pairs)
        for c, s in pairs: exchange(c, s, how)
        # The first round comes behind sockets that had nothing for very long.
        if turn > 0: bells.append(sum(received(s) for _, s in pairs) - before)
    print(how, *bells)
# A doorbell that is over would have the kernel report an entry each time it is renewed.
port = f':{l.getsockname()[1]:04X}'
rows = [row.split() for row in open('/proc/net/tcp')]
print('left', sum(int(row[4].split(':')[1], 16) for row in rows if row[1].endswith(port)))
e = select.epoll()
busy, quiet = pairs[:2]
for c, s in busy, quiet: e.register(s, select.EPOLLIN)
exchange(*quiet, 'kept')
def asleep(thread=os.getpid()):
    with open(f'/proc/self/task/{thread}/stat') as about: return about.read().rsplit(')')[-1].split()[0] == 'S'
def request():
    while not asleep(): pass
    quiet[0].sendall(b'x')
for turns in 200, 300:
    for _ in range(turns): exchange(*busy, 'kept')
    assert e.poll(0.001) == []
    before = received(busy[1]) + received(quiet[1])
    exchange(*busy, 'kept')
    exchange(*quiet, 'kept')
    print('behind', turns, 'turns', received(busy[1]) + received(quiet[1]) - before)
    for _ in range(turns): exchange(*busy, 'kept')
    thread = threading.Thread(target=request)
    thread.start()
    print('woken', e.poll(60) == [(quiet[1].fileno(), select.EPOLLIN)], quiet[1].recv(9))
    thread.join()
    quiet[1].sendall(b'y')
    assert quiet[0].recv(9) == b'y'
";

/// Each of many busy connections has nothing for many turns of the set, while others have: its requests ring at the
/// set no more often than it sleeps, whether the program renews its interest for each request or not.
#[test]
fn busy_connections_of_a_set_ring_once_for_a_sleep() {
    if !there(&["python3"]) {
        return;
    }
    let said = |switched: bool| {
        let mut running = python(BELLS, &[], switched);
        let out = BufReader::new(running.0.stdout.take().unwrap());
        out.lines().map(Result::unwrap).collect::<Vec<String>>()
    };
    // Over TCP each request is a byte.
    let rounds = |count: &str| ["kept", "changed", "again"].map(|how| format!("{how}{count}"));
    let of = |rounds: [String; 3], few: usize, many: usize| {
        let quiet = |turns: usize, bells: usize| {
            [format!("behind {turns} turns {bells}"), "woken True b'x'".to_owned()]
        };
        [&rounds[..], &["left 0".to_owned()], &quiet(200, few), &quiet(300, many)].concat()
    };
    assert_eq!(said(false), of(rounds(" 50 50 50"), 2, 2));
    assert_eq!(said(true), of(rounds(" 1 1 1"), 1, 2));
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

/// A connection in a set for which nobody waits stays with TCP, and that is the reason that is given.
#[test]
fn a_set_that_nobody_waits_for_is_the_reason_that_is_given() {
    if !there(&["python3"]) {
        return;
    }
    let code = "import select,socket\n\
        l=socket.create_server(('127.0.0.1',0))\n\
        c=socket.create_connection(l.getsockname()); s,_=l.accept()\n\
        e=select.epoll(); e.register(c); e.register(s)\n\
        for _ in range(90): c.send(b'x'); s.recv(1); s.send(b'y'); c.recv(1)";
    let mut command = command(interpreter(), true);
    let done = command.args(["-c", code]).env("TRANSOM_EXPLAIN", "1").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains(" 2 are in an epoll set that nobody waits for"), "{said}");
}

/// A sender that ends its direction before its peer has read so far: no byte went past the library.
#[test]
fn an_end_before_the_peer_takes_the_offer_is_said_to_be_one() {
    if !there(&["python3"]) {
        return;
    }
    let code = "import socket\n\
        l=socket.create_server(('127.0.0.1',0))\n\
        c=socket.create_connection(l.getsockname()); s,_=l.accept()\n\
        c.sendall(b'x'*300000); c.shutdown(1)\n\
        left=300000\n\
        while left: left-=len(s.recv(65536))\n\
        assert s.recv(1) == b''";
    let mut command = command(interpreter(), true);
    let done = command.args(["-c", code]).env("TRANSOM_EXPLAIN", "1").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    for line in [
        " 1 were offered, and the other side has not taken them",
        " 1 ended in one direction before they had lasted",
    ] {
        assert!(said.contains(line), "{line:?}: {said}");
    }
    assert!(done.status.success(), "{said}");
}

/// tcp(7): an urgent byte that comes over TCP while the connection is offered is no byte of the stream behind it,
/// received or passed over.
#[test]
fn an_urgent_byte_of_tcp_takes_no_place_in_the_ring() {
    if !there(&["python3"]) {
        return;
    }
    // The active side has offered, and the passive one, which has read nothing yet, has not taken the offer.
    let code = "import socket\n\
        l=socket.create_server(('127.0.0.1',0))\n\
        for takes in (0,1):\n  \
          for more in (b'',b'34'):\n    \
            c=socket.create_connection(l.getsockname()); s,_=l.accept()\n    \
            for _ in range(2): c.sendall(b'x'*150000)\n    \
            c.sendall(b'x')\n    \
            s.sendall(b'12'); s.send(b'U', socket.MSG_OOB)\n    \
            assert c.recv(9)==b'12'\n    \
            if takes: assert c.recv(1, socket.MSG_OOB)==b'U'\n    \
            s.sendall(more)\n    \
            left=300001\n    \
            while left: left-=len(s.recv(65536))\n    \
            s.sendall(b'0123456789'); s.close(); got=b''\n    \
            while True:\n      \
              part=c.recv(99)\n      \
              if not part: break\n      \
              got+=part\n    \
            assert got==more+b'0123456789', (takes, more, got); c.close()";
    for switched in [false, true] {
        let mut command = command(interpreter(), switched);
        let done = command.args(["-c", code]).env("TRANSOM_EXPLAIN", "1").output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "switched {switched}: {said}");
        assert!(!switched || said.contains(": 8 connections switched, 0 stayed"), "{said}");
    }
}

/// A child of `fork` says what has become of the connections that it has, and not of those that its parent had.
#[test]
fn a_child_counts_its_own_connections() {
    if !there(&["python3"]) {
        return;
    }
    let code = "import os,socket,sys\n\
        l=socket.create_server(('127.0.0.1',0))\n\
        def pair(n):\n    \
            c=socket.create_connection(l.getsockname()); s,_=l.accept()\n    \
            for _ in range(n): c.send(b'x'); s.recv(1); s.send(b'y'); c.recv(1)\n    \
            return c,s\n\
        pair(40)\n\
        pair(3)\n\
        p=os.fork()\n\
        kept=[] if p else [pair(40), pair(3)]\n\
        p and os.waitpid(p, 0)";
    let mut command = command(interpreter(), true);
    let done = command.args(["-c", code]).env("TRANSOM_EXPLAIN", "1").output();
    let said = String::from_utf8(done.unwrap().stderr).unwrap();
    // Each of the two has its line.
    assert_eq!(said.matches(": 2 connections switched, 2 stayed with TCP\n").count(), 2, "{said}");
}
