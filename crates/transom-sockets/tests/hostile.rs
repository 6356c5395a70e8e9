//! Programs under the switch, beside what other processes and limits of the user's do to them: these go on over TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::{command, folder, interpreter, line, python, there};
use transom_sockets as _;
use transom_testing::ports::Held;

/// Names and places of the files by which processes find each other.
const FILES: &str = r"
import ctypes, encodings.idna, os, resource, signal, socket, struct, sys
def files(): return '/dev/shm/transom-%d/' % os.geteuid()
def namespace(): return '%x' % os.stat('/proc/self/ns/net').st_ino
def connections(): return files() + 'connections-' + namespace()
def marker(port): return files() + 'l-%s-%d' % (namespace(), port)
def cookie(c): return c.getsockopt(socket.SOL_SOCKET, 57, 8)
def place(cookie):
    mixed = struct.unpack('Q', cookie)[0] * 0x9E3779B97F4A7C15 % (1 << 64) >> 40
    return mixed % 2048 * 128
def is_entered(c):
    if not os.path.isfile(connections()): return False
    entries = open(connections(), 'rb').read()
    return any(entries[at:at + 8] == cookie(c) for at in range(0, len(entries), 16))
def enter(c, segment):
    f = os.open(connections(), os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(f, cookie(c) + struct.pack('II', segment + 1, 0), place(cookie(c)))
    os.close(f)
def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
def exchanges(c, s, turns=100):
    for turn in range(turns):
        c.sendall(bytes([turn]))
        assert s.recv(1) == bytes([turn])
        s.sendall(bytes([turn]))
        assert c.recv(1) == bytes([turn])
def pair(l):
    c = socket.create_connection(l.getsockname())
    return c, l.accept()[0]
";

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

/// A server and a client in a process with a limit of file sizes, which is there before they begin or comes when
/// the connection has been listed.
const LIMITED: &str = r"
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
limit, late = int(sys.argv[1]), sys.argv[2] == 'late'
lower = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
late or lower()
l = socket.create_server(('127.0.0.1', 0))
late and lower()
c, s = pair(l)
exchanges(c, s)
print(is_entered(c))
";

#[test]
fn no_limit_of_file_sizes_ends_a_program() {
    if !there(&["python3"]) {
        return;
    }
    let code = format!("{FILES}{LIMITED}");
    let folder = folder("limit");
    for limit in ["0", "2", "100", "262143", "262144"] {
        for when in ["early", "late"] {
            let words = ["-c", &code, limit, when];
            let mut program = command(interpreter(), true);
            let done = program.args(words).env("TRANSOM_EXPLAIN", "1").output().unwrap();
            let (said, why) =
                (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
            assert!(done.status.success(), "{limit} {when}: {}, {why}", done.status);
            // The list has 256 KiB.
            let fits = limit == "262144";
            assert_eq!(said.trim(), if fits { "True" } else { "False" }, "{limit} {when}: {why}");
            assert_eq!(why.contains(" 2 are not listed: the limit of file sizes"), !fits, "{why}");
            // The line at its end is too long for the file.
            let path = folder.join("said");
            fs::write(&path, vec![b'.'; 300_000]).unwrap();
            let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            let mut program = command(interpreter(), true);
            program.args(words).env("TRANSOM_EXPLAIN", "1").stdout(Stdio::null()).stderr(file);
            let status = program.status().unwrap();
            assert!(status.success(), "{limit} {when}, with a long file: {status}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 300_000);
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_reader_that_is_gone_ends_no_program() {
    if !there(&["python3"]) {
        return;
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let code = format!("{FILES}{LIMITED}");
    let mut program = command(interpreter(), true);
    program.args(["-c", &code, "1000000", "early"]).env("TRANSOM_EXPLAIN", "1");
    let status = program.stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

/// A server that prints its port, and then what it has received of one connection.
const SERVES: &str = r"
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
s, _ = l.accept()
count = 0
while byte := s.recv(1): s.sendall(byte); count += 1
print(count)
";

/// A client without the switch, which enters a segment of its own for its connection: of huge pages, of which there
/// are none, or an ordinary one. Prints whether the server has taken it.
const ENTERS: &str = r"
C = ctypes.CDLL(None, use_errno=True)
C.shmat.restype = ctypes.c_void_p
C.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
port, huge = int(sys.argv[1]), sys.argv[2] == 'huge'
ring = 16384
length = 4096 + 2 * sum(ring << larger for larger in (0, 4, 8, 10))
flags = 0o600 | 0o1000 | 0o10000 | (0o4000 if huge else 0)
segment = C.shmget(0, ctypes.c_size_t(length), flags)
if segment < 0:
    print('none')
    sys.exit()
c = socket.create_connection(('127.0.0.1', port))
if not huge:
    at = C.shmat(segment, None, 0)
    memory = (ctypes.c_char * length).from_address(at)
    def put(at, form, value): memory[at:at + struct.calcsize(form)] = struct.pack(form, value)
    put(0, '8s', b'trnsock1'), put(8, 'I', 5), put(16, 'Q', ring), put(256, '8s', cookie(c))
enter(c, segment)
C.shmctl(segment, 0 if not huge else 99, None)
c.settimeout(0.05)
def is_taken(): return not huge and memory[128] == b'\x01'
def answer():
    while not is_taken():
        try: return c.recv(1)
        except TimeoutError: pass
        except ConnectionError: return b''
for turn in range(200):
    c.sendall(b'x')
    if answer() != b'x': break
if huge: C.shmctl(segment, 0, None)
print('taken' if is_taken() else 'left' if turn == 199 else 'ended')
";

/// The kernel has no page for such memory when it is touched, which is SIGBUS.
#[test]
fn memory_of_huge_pages_is_not_attached() {
    if !there(&["python3"]) {
        return;
    }
    let (serves, enters) = (format!("{FILES}{SERVES}"), format!("{FILES}{ENTERS}"));
    for (pages, expected) in [("small", "taken"), ("huge", "left")] {
        let mut server = python(&serves, &[], true);
        let port = line(&mut server);
        let mut client = python(&enters, &[&port, pages], false);
        let outcome = line(&mut client);
        if outcome == "none" {
            return eprintln!("SKIPPED: this user may have no huge pages");
        }
        assert_eq!(outcome, expected, "{pages}");
        if pages == "huge" {
            assert_eq!(line(&mut server), "200", "over TCP");
            assert!(server.0.wait().unwrap().success());
        }
    }
}

/// A server that may use five seconds of a processor, and says how its connection ends. It waits in `poll`, in `epoll`
/// without a blocking call, or in `recv`. To an exclamation mark it has no answer.
const WAITS: &str = r"
import select
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
l = socket.create_server(('127.0.0.1', 0))
print(l.getsockname()[1], flush=True)
s, _ = l.accept()
p = select.epoll() if sys.argv[1] == 'epoll' else select.poll()
p.register(s, select.POLLIN)
s.setblocking(sys.argv[1] != 'epoll')
try:
    while True:
        if sys.argv[1] != 'recv': p.poll()
        try: byte = s.recv(1)
        except BlockingIOError: continue
        if not byte: break
        if byte != b'!': s.sendall(byte)
    print('end')
except ConnectionResetError: print('reset')
";

/// Behind [`ENTERS`], whose segment was taken: the client changes to its ring, counts as many doorbells as it says
/// that the server has taken, and sends bytes that are none.
const UNCOUNTED: &str = r"
put(256 + 80, 'Q', 1 << 40), put(384 + 88, 'Q', 1 << 40)
put(512 + 40, 'Q', turn + 2)
try:
    c.settimeout(None)
    c.sendall(b'zzz')
    while c.recv(1): pass
except ConnectionError: pass
";

/// Behind [`ENTERS`], too: the client changes to its ring, has the server read a byte there, and claims then that more
/// bytes come over TCP first.
const GOES_BACK: &str = r"
def ring(count):
    put(256 + 80, 'Q', count)
    c.sendall(b'!')
try:
    c.settimeout(None)
    put(512 + 40, 'Q', turn + 2)
    put(512, 'Q', 1)
    ring(1)
    while memory[640] != b'\x01': os.sched_yield()
    put(512 + 40, 'Q', 1 << 40)
    ring(2)
    while c.recv(1): pass
except ConnectionError: pass
";

/// Behind [`ENTERS`], too: the client says that nothing follows in its ring, and that bytes come over TCP first, of which it
/// sends one. It leaves when the server sleeps.
const LACKS_BYTES: &str = r"
try:
    c.settimeout(None)
    put(512 + 60, 'I', 1)
    put(512 + 40, 'Q', turn + 2 + 5)
    c.sendall(b'!')
    while memory[1168:1176] != struct.pack('Q', turn + 2): os.sched_yield()
    while open('/proc/%s/stat' % sys.argv[3]).read().rsplit(')')[-1].split()[0] != 'S': os.sched_yield()
except (ConnectionError, FileNotFoundError): pass
";

/// The kernel says that there are bytes, and the segment that there are none: a call that asks again and again would
/// use up a processor while the peer does nothing.
#[test]
fn bytes_that_no_word_of_the_segment_counts_end_their_connection() {
    if !there(&["python3"]) {
        return;
    }
    let (waits, enters) = (format!("{FILES}{WAITS}"), format!("{FILES}{ENTERS}{UNCOUNTED}"));
    for way in ["poll", "recv"] {
        let mut server = python(&waits, &[way], true);
        let port = line(&mut server);
        let mut client = python(&enters, &[&port, "small"], false);
        assert_eq!(line(&mut client), "taken", "{way}");
        assert_eq!(line(&mut server), "reset", "{way}");
    }
}

/// `epoll` says that the connection is broken: a call that says that there is nothing yet would be made again and again.
#[test]
fn a_peer_that_goes_back_to_tcp_ends_its_connection() {
    if !there(&["python3"]) {
        return;
    }
    let (waits, enters) = (format!("{FILES}{WAITS}"), format!("{FILES}{ENTERS}{GOES_BACK}"));
    let mut server = python(&waits, &["epoll"], true);
    let port = line(&mut server);
    let mut client = python(&enters, &[&port, "small"], false);
    assert_eq!(line(&mut client), "taken");
    assert_eq!(line(&mut server), "reset");
}

/// An end behind bytes that never come is none of which a program is told.
#[test]
fn an_end_behind_bytes_that_are_lacking_keeps_no_program_busy() {
    if !there(&["python3"]) {
        return;
    }
    let (waits, enters) = (format!("{FILES}{WAITS}"), format!("{FILES}{ENTERS}{LACKS_BYTES}"));
    let mut server = python(&waits, &["epoll"], true);
    let (port, number) = (line(&mut server), server.0.id().to_string());
    let mut client = python(&enters, &[&port, "small", &number], false);
    assert_eq!(line(&mut client), "taken");
    assert_eq!(line(&mut server), "end");
}

/// A client under the switch and another user's server, at whose port a process of the client's user claims to
/// listen: it could take the connection in that server's place.
const ANOTHER_USERS: &str = r"
l = socket.create_server(('127.0.0.1', 0))
user = 54321 if sys.argv[1] == 'other' else 0
child = os.fork()
if child == 0:
    become(user)
    s, _ = l.accept()
    while byte := s.recv(1): s.sendall(byte)
    os._exit(0)
open(marker(l.getsockname()[1]), 'wb').write(struct.pack('I', os.getpid()))
c = socket.create_connection(l.getsockname())
for turn in range(100):
    c.sendall(b'x')
    assert c.recv(1) == b'x'
print(is_entered(c))
c.close()
os.unlink(marker(l.getsockname()[1]))
";

/// The switch in the client alone; `l` is no listener of the switch in its child.
#[test]
fn a_connection_to_another_users_server_is_offered_to_nobody() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play two users");
    }
    let code = format!("{FILES}{ANOTHER_USERS}");
    for (user, offered) in [("other", "False"), ("same", "True")] {
        assert_eq!(line(&mut python(&code, &[user], true)), offered, "{user}");
    }
}

/// A server and a client, one of which has little address space, and thirty connections that last: whether some of
/// these have memory, and whether the program has room.
const NARROW: &str = r"
l = socket.create_server(('127.0.0.1', 0))
client = os.fork() == 0
if client: ctypes.CDLL(None).prctl(1, 9)
narrow = client == (sys.argv[1] == 'client')
if narrow:
    size = int(open('/proc/self/statm').read().split()[0]) * 4096
    highest = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + (800 << 20), highest))
every = []
for _ in range(30):
    every.append(socket.create_connection(l.getsockname()) if client else l.accept()[0])
    for turn in range(100):
        if client: every[-1].sendall(b'x')
        assert every[-1].recv(1) == b'x'
        if not client: every[-1].sendall(b'x')
if narrow:
    memory = sum('/SYSV' in line for line in open('/proc/self/maps'))
    print(0 < memory < 30, len(bytearray(400 << 20)) >> 20)
elif client: signal.pause()
else: os.wait()
";

#[test]
fn connections_leave_address_space_to_a_program() {
    if !there(&["python3"]) {
        return;
    }
    let code = format!("{FILES}{NARROW}");
    for which in ["server", "client"] {
        assert_eq!(line(&mut python(&code, &[which], true)), "True 400", "{which}");
    }
}

/// A client of another user's server, or of this one's, enters a segment for its connection, with bytes in it, and executes a
/// program that inherits the connection: what that receives.
const INHERITS: &str = r"
l = socket.create_server(('127.0.0.1', 0))
user = 54321 if sys.argv[1] == 'other' else 0
if os.fork() == 0:
    become(user)
    s, _ = l.accept()
    s.sendall(b'real')
    try: s.recv(1)
    finally: os._exit(0)
c = socket.create_connection(l.getsockname())
os.set_inheritable(c.fileno(), True)
C = ctypes.CDLL(None)
C.shmat.restype = ctypes.c_void_p
C.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
ring = 16384
side = sum(ring << larger for larger in (0, 4, 8, 10))
length = 4096 + 2 * side
segment = C.shmget(0, ctypes.c_size_t(length), 0o600 | 0o1000)
memory = (ctypes.c_char * length).from_address(C.shmat(segment, None, 0))
def put(at, form, value): memory[at:at + struct.calcsize(form)] = struct.pack(form, value)
put(0, '8s', b'trnsock1'), put(8, 'I', 5), put(16, 'Q', ring), put(128, 'I', 1)
put(256, '8s', cookie(c)), put(384, 'Q', 1)
put(4096 + side, '4s', b'EVIL'), put(1280, 'Q', 4), put(1280 + 40, 'Q', 1)
enter(c, segment)
if os.fork() == 0:
    # The segment stays while the parent lives.
    c.close()
    C.prctl(1, 9)
    signal.pause()
C.shmctl(segment, 0, None)
after = 'import socket, sys; print(socket.socket(fileno=int(sys.argv[1])).recv(4))'
os.execv(sys.executable, [sys.executable, '-u', '-c', after, str(c.fileno())])
";

/// Within a user that can be done, and is said in docs/SECURITY.md; a connection that leaves the user is none of it.
#[test]
fn an_inherited_connection_to_another_users_server_stays_with_tcp() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play two users");
    }
    let code = format!("{FILES}{INHERITS}");
    for (user, received) in [("same", "b'EVIL'"), ("other", "b'real'")] {
        assert_eq!(line(&mut python(&code, &[user], true)), received, "{user}");
    }
}

/// Many peers that do not read, of a process in a control group: how much was sent, and whether all of it is there.
const STUCK: &str = r"
open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))
l = socket.create_server(('127.0.0.1', 0))
pairs = [pair(l) for _ in range(40)]
sent = []
for c, s in pairs:
    exchanges(c, s)
    c.setblocking(False)
    sent.append(0)
    try:
        while True: sent[-1] += c.send(bytes(1 << 20))
    except BlockingIOError: pass
whole = True
for (c, s), bytes_sent in zip(pairs, sent):
    c.close()
    got = 0
    while piece := s.recv(1 << 20): got += len(piece)
    whole &= got == bytes_sent
print(whole, min(sent) >= 256 << 10, sum(sent) > 10 << 20)
";

/// Over TCP such a process goes on: the kernel bounds what connections take of the group's memory.
#[test]
fn peers_that_do_not_read_take_no_more_memory_than_a_control_group_has() {
    if !there(&["python3"]) {
        return;
    }
    let places =
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let made = places.into_iter().find_map(|(root, file)| {
        let group = format!("{root}/transom-sockets-{}", std::process::id());
        fs::create_dir(&group).ok()?;
        let limited = fs::write(format!("{group}/{file}"), "67108864").is_ok();
        if limited {
            return Some(group);
        }
        let _ = fs::remove_dir(&group);
        None
    });
    let Some(group) = made else {
        return eprintln!("SKIPPED: no control group of memory can be made");
    };
    let mut program = python(&format!("{FILES}{STUCK}"), &[&group], true);
    let mut said = String::new();
    program.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = program.0.wait().unwrap();
    fs::remove_dir(&group).unwrap();
    assert_eq!((said.as_str(), status.code()), ("True True True\n", Some(0)), "{status}");
}

/// A user whose folder another one has made, or who lets others into it.
const FOLDERS: &str = r"
user, owner, mode = 54324, int(sys.argv[1]), int(sys.argv[2], 8)
place = '/dev/shm/transom-%d' % user
os.mkdir(place)
os.chown(place, owner, owner)
os.chmod(place, mode)
child = os.fork()
if child == 0:
    become(user)
    for turn in range(3):
        l = socket.create_server(('127.0.0.1', 0))
        c, s = pair(l)
        exchanges(c, s)
    os._exit(0)
status = os.waitpid(child, 0)[1]
used = os.listdir(place)
for name in used: os.unlink(place + '/' + name)
os.rmdir(place)
print(status, len(used) > 0)
";

#[test]
fn nothing_is_put_into_a_folder_that_is_not_the_users_alone() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play two users");
    }
    let code = format!("{FILES}{FOLDERS}");
    for (owner, mode, used) in [
        ("54325", "777", false),
        ("54324", "770", false),
        ("54324", "707", false),
        ("54324", "700", true),
    ] {
        let said = line(&mut python(&code, &[owner, mode], true));
        assert_eq!(said, format!("0 {}", if used { "True" } else { "False" }), "{owner} {mode}");
    }
}

/// In a namespace of users, the folder of one who has no number there, and opens it now and then.
const NOBODYS: &str = r"
place, libc = '/dev/shm/transom-65534', ctypes.CDLL(None)
# Folders of this process's alone, because the user nobody may have one. CLONE_NEWNS; MS_REC, MS_PRIVATE.
assert libc.unshare(0x20000) == 0 and libc.mount(b'none', b'/', None, 0x44000, None) == 0
assert libc.mount(b'none', b'/dev/shm', b'tmpfs', 0, None) == 0
os.mkdir(place, 0o700)
os.chown(place, 54325, 54325)
other = os.fork()
if other == 0:
    become(54325)
    while True:
        os.chmod(place, 0o777)
        os.chmod(place, 0o700)
child = os.fork()
if child == 0:
    become(54324)
    assert libc.prctl(4, 1) == 0 # PR_SET_DUMPABLE: it may write to its files in /proc
    assert libc.unshare(0x10000000) == 0 # CLONE_NEWUSER
    with open('/proc/self/uid_map', 'w') as f: f.write('65534 54324 1')
    assert files()[:-1] == place and os.stat(place).st_uid == 65534
    for turn in range(20):
        all = [socket.create_server(('127.0.0.1', 0)) for turn in range(300)]
    os._exit(0)
status = os.waitpid(child, 0)[1]
os.kill(other, signal.SIGKILL)
os.waitpid(other, 0)
used = os.listdir(place)
for name in used: os.unlink(place + '/' + name)
os.rmdir(place)
print(status, len(used))
";

#[test]
fn a_folder_of_a_user_without_a_number_is_not_used() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play two users");
    }
    let said = line(&mut python(&format!("{FILES}{NOBODYS}"), &[], true));
    assert_eq!(said, "0 0");
}

/// A user whose folder is taken away while a program runs, and replaced by a link to another one.
const REPLACED: &str = r"
target = sys.argv[1]
become(54326)
if os.path.islink(files()[:-1]): os.unlink(files()[:-1])
l = socket.create_server(('127.0.0.1', 0))
assert os.path.isfile(marker(l.getsockname()[1]))
os.rename(files()[:-1], target + '/before')
os.symlink(target, files()[:-1])
later = socket.create_server(('127.0.0.1', 0))
c, s = pair(later)
exchanges(c, s)
print(os.listdir(target))
os.unlink(files()[:-1])
";

#[test]
fn a_folder_is_looked_at_each_time_that_it_is_used() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play another user");
    }
    let target = format!("/dev/shm/transom-replaced-{}", std::process::id());
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
    let said = line(&mut python(&format!("{FILES}{REPLACED}"), &[&target], true));
    fs::remove_dir_all(&target).unwrap();
    assert_eq!(said, "['before']");
}

/// A user whose files are pipes that nobody reads or writes.
const PIPES: &str = r"
become(54322)
os.makedirs(files(), 0o700, exist_ok=True)
for name in os.listdir(files()): os.unlink(files() + name)
port, which = int(sys.argv[1]), sys.argv[2]
if which != 'marker': os.mkfifo(connections())
if which != 'list':
    os.mkfifo(marker(port))
l = socket.create_server(('127.0.0.1', port))
c, s = pair(l)
exchanges(c, s)
print('done')
for name in os.listdir(files()): os.unlink(files() + name)
os.rmdir(files())
";

#[test]
fn a_pipe_in_place_of_a_file_keeps_no_program_waiting() {
    if !there(&["python3"]) {
        return;
    }
    if !is_root() {
        return eprintln!("SKIPPED: only root can play another user");
    }
    let code = format!("{FILES}{PIPES}");
    for which in ["marker", "list", "both"] {
        let held = Held::new().unwrap();
        let port = held.address().port().to_string();
        let mut program = python(&code, &[&port, which], true);
        let mut said = String::new();
        program.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "done\n", "{which}");
    }
}
