#!/usr/bin/env python3
"""Scenarios of stream sockets, each as one line: its name, a tab, and the answers that a program gets.

Each scenario is a function and runs in a process of its own, with a limit of time. Over TCP the answers
are always the same; tests/semantics.rs compares them with those under the switch. With --warm, most
connections exchange some bytes first, so that they are switched when their scenario begins.
"""
import array, errno, fcntl, hashlib, json, os, random, resource, select, signal, socket, struct, subprocess, sys, tempfile, termios, threading, time

def err(e):
    return errno.errorcode.get(e.errno, str(e.errno)) if isinstance(e, OSError) and e.errno else type(e).__name__

def attempt(f, *a):
    try:
        r = f(*a)
        return r.decode("latin1") if isinstance(r, bytes) else r
    except (OSError, BlockingIOError) as e:
        return err(e)

def listener(family=socket.AF_INET, addr="127.0.0.1", backlog=16):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((addr, 0)); s.listen(backlog)
    return s

def child(f, *a):
    """Runs f in a forked process; the exit status says whether it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            f(*a); code = 0
        except BaseException as e:
            print("child:", repr(e), file=sys.stderr)
        finally:
            sys.stderr.flush(); os._exit(code)
    return pid

def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def pair(server_in_child=False, **kw):
    """A connected pair in this process."""
    l = listener(**kw)
    c = socket.socket(l.family, socket.SOCK_STREAM)
    c.connect(l.getsockname())
    s, _ = l.accept(); l.close()
    warm(c, s)
    return c, s

def exchange(c, s):
    c.sendall(b"w"); s.recv(1); s.sendall(b"w"); c.recv(1)

def received(c):
    """Bytes that came over TCP, in the kernel's count."""
    return struct.unpack_from("Q", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 128)[0]

def warm(c, s):
    """Under the switch the connection is switched behind this."""
    for _ in range(WARM):
        exchange(c, s)
    if WARM and "transom" in os.environ.get("LD_PRELOAD", ""):
        before = received(c) + received(s)
        exchange(c, s)
        assert received(c) + received(s) == before, "the connection is not switched"

WARM = 40 if "--warm" in sys.argv else 0

def dial(l):
    """Connects to a listener of another process or thread, which calls answer()."""
    c = socket.create_connection(l.getsockname())
    for _ in range(WARM):
        c.sendall(b"w"); c.recv(1)
    return c

def answer(l):
    s, _ = l.accept()
    for _ in range(WARM):
        s.recv(1); s.sendall(b"w")
    return s

def recv_exactly(s, n):
    b = b""
    while len(b) < n:
        x = s.recv(n - len(b))
        if not x: break
        b += x
    return b

def recv_all(s):
    b = bytearray()
    while True:
        x = s.recv(65536)
        if not x: return bytes(b)
        b += x

def until(cond, limit=5):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if cond(): return True
        time.sleep(0.005)
    return False

def sleeps(thread):
    """The thread sleeps in a call of its own: not on a futex (202), where the interpreter's threads wait for each other."""
    of = lambda what: open(f"/proc/self/task/{thread.native_id}/{what}").read()
    return of("stat").rsplit(")", 1)[1].split()[0] == "S" and of("syscall").split()[0] not in ("running", "202")

def ev(mask):
    names = [(select.POLLIN, "IN"), (select.POLLOUT, "OUT"), (select.POLLPRI, "PRI"), (select.POLLERR, "ERR"), (select.POLLHUP, "HUP"), (select.POLLRDHUP, "RDHUP"), (select.POLLNVAL, "NVAL")]
    return "|".join(n for b, n in names if mask & b)

def polled(s, mask=select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP, ms=0):
    p = select.poll(); p.register(s, mask)
    r = p.poll(ms)
    return ev(r[0][1]) if r else ""

def pattern(n, seed):
    return random.Random(seed).randbytes(n)

S = []
def scenario(f): S.append(f); return f

def between(first=b"z" * 1000):
    """Under the switch c sends by its ring, while bytes lie at s unread that came over TCP."""
    l = listener()
    c = socket.create_connection(l.getsockname()); s, _ = l.accept(); l.close()
    for _ in range(32): exchange(c, s)
    c.sendall(first); s.recv(1); s.sendall(b"w"); c.recv(1)
    before = received(s)
    for _ in range(50): c.sendall(b"y")
    until(lambda: unread(s) == 1049)
    if "transom" in os.environ.get("LD_PRELOAD", ""):
        assert received(s) < before + 10, "the connection is not switched"
    return c, s

def unread(s):
    n = array.array("i", [0]); fcntl.ioctl(s, termios.FIONREAD, n); return n[0]

@scenario
def an_end_behind_bytes_that_came_over_tcp():
    out = []
    for way in ("poll", "level", "edge", "deaf", "sleeps", "sleeps in a set"):
        c, s = between(); found = []
        def wait(ms):
            if way in ("poll", "sleeps"): return polled(s, select.POLLRDHUP | (select.POLLIN if way == "poll" else 0), ms)
            return [ev(events) for _, events in e.poll(ms / 1000)]
        e = select.epoll()
        e.register(s, select.EPOLLRDHUP | {"level": select.EPOLLIN, "edge": select.EPOLLIN | select.EPOLLET}.get(way, 0))
        found.append(wait(0))
        if way.startswith("sleeps"):
            t = threading.Thread(target=lambda: found.append(wait(20000))); t.start()
            until(lambda: any("S" in open(f"/proc/self/task/{t}/stat").read().split(")")[1][:3] for t in os.listdir("/proc/self/task")))
            c.shutdown(socket.SHUT_WR); t.join()
        else:
            c.shutdown(socket.SHUT_WR)
            until(lambda: "RDHUP" in polled(s))
        found += [wait(0), wait(0), polled(s)]
        s.shutdown(socket.SHUT_WR)
        until(lambda: "HUP" in polled(s, 0))
        out.append(found + [wait(0), wait(0), polled(s), len(recv_all(s)), polled(s), c.recv(9).decode()])
    return out

@scenario
def a_reset_of_a_connection_that_is_read_no_more():
    """The end of one's own reads, made while bytes came over TCP, has the kernel report an end whatever happens."""
    out = []
    for abortive in (True, False):
        c, s = between(); s.shutdown(socket.SHUT_RD); out.append(len(recv_exactly(s, 1049))); c.sendall(b"more"); until(lambda: unread(s) == 4); out.append(polled(s))
        if abortive: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else: s.sendall(b"unread"); until(lambda: unread(c) == 6)
        c.close(); out += [until(lambda: "ERR|HUP" in polled(s, 0)), polled(s), attempt(s.recv, 9), attempt(s.recv, 9), attempt(s.send, b"x")]
    return out

@scenario
def an_urgent_byte_behind_bytes_that_came_over_tcp():
    c, s = between()
    out = [polled(s), attempt(s.recv, 1, socket.MSG_OOB)]
    c.send(b"!", socket.MSG_OOB)
    until(lambda: "PRI" in polled(s))
    out += [polled(s), attempt(s.recv, 1, socket.MSG_OOB), polled(s), attempt(s.recv, 1, socket.MSG_OOB)]
    c.sendall(b"behind"); c.shutdown(socket.SHUT_WR)
    return out + [len(recv_all(s))]

@scenario
def a_look_at_nothing_from_an_offset_on():
    c, s = pair(); out = []
    s.setsockopt(socket.SOL_SOCKET, 42, 0)
    c.sendall(b"ab")
    until(lambda: unread(s) == 2)
    for n in (0, 1, 0, 1, 0, 5, 0):
        # Python makes no call of a recv of nothing.
        out.append(attempt(lambda: s.recvmsg(n, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)[0]))
    return out

@scenario
def a_look_moves_back_as_bytes_are_taken_that_came_over_tcp():
    c, s = between(b"z" * 981 + b"abcdefghijklmnopqrs"); s.setsockopt(socket.SOL_SOCKET, 42, 989); offset = lambda: s.getsockopt(socket.SOL_SOCKET, 42)
    out = [attempt(s.recv, 4, socket.MSG_PEEK), offset(), len(attempt(s.recv, 980)), offset(), attempt(s.recv, 10, socket.MSG_PEEK), offset()]
    return out + [attempt(s.recv, 10), offset(), attempt(s.recv, 12), offset(), attempt(s.recv, 9, socket.MSG_PEEK), offset()]

@scenario
def shutdown_where_tcp_has_no_connection_left():
    out = []
    for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        # A reset; an answer to what was sent behind the end; an end that is answered.
        for way in ("reset", "refused", "ended"):
            c, s = pair()
            if way == "reset": c.sendall(b"unread"); until(lambda: unread(s) == 6)
            s.close(); until(lambda: "RDHUP" in polled(c))
            if way == "refused": c.send(b"x"); until(lambda: "HUP" in polled(c, 0))
            found = [attempt(c.shutdown, how)]
            if way == "ended" and how != socket.SHUT_RD: until(lambda: "HUP" in polled(c, 0))
            found += [attempt(c.recv, 9), attempt(c.recv, 9)]
            if how != socket.SHUT_RD: found.append(attempt(c.send, b"x"))
            out.append(found + [polled(c), c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
    return out

def spliced(*a):
    """As os.splice, with any flags and offsets."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); at = lambda o: None if o is None else ctypes.byref(ctypes.c_int64(o)) if o < 8 else ctypes.c_void_p(o)
    source, skip, target, place, count, flags = a
    n = libc.splice(source, at(skip), target, at(place), ctypes.c_size_t(count), flags)
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]

@scenario
def a_splice_is_refused_as_by_the_kernel():
    c, s = pair(); r, w = os.pipe(); f = os.memfd_create("file"); os.write(f, b"in the file")
    c.sendall(b"abc"); until(lambda: unread(s) == 3); os.write(w, b"piped"); i = s.fileno()
    out = [spliced(i, 0, w, None, 9, 0), spliced(i, None, w, 0, 9, 0), spliced(i, 8, w, None, 9, 0), spliced(i, None, w, None, 9, 99), spliced(i, None, f, None, 9, 0), spliced(i, None, c.fileno(), None, 9, 0), spliced(i, None, 999, None, 9, 0), spliced(i, None, w, None, 0, 99)]
    out += [spliced(r, None, i, 0, 9, 0), spliced(r, 0, i, None, 9, 0), spliced(r, None, i, 8, 9, 0), spliced(r, None, i, None, 9, 99), spliced(f, None, i, None, 9, 0), spliced(f, 0, i, None, 9, 0), spliced(999, None, i, None, 9, 0), spliced(r, None, i, None, 0, 99)]
    return out + [recv_exactly(s, 3).decode(), os.read(r, 9).decode(), os.lseek(f, 0, os.SEEK_CUR)]

@scenario
def a_splice_of_a_connection_waits_as_its_socket_does():
    c, s = pair(); r, w = os.pipe(); NONBLOCK = 2
    threading.Timer(0.1, lambda: c.sendall(b"late")).start()
    out = [spliced(s.fileno(), None, w, None, 9, NONBLOCK), os.read(r, 9).decode(), spliced(r, None, s.fileno(), None, 9, NONBLOCK)]
    s.setblocking(False)
    return out + [spliced(s.fileno(), None, w, None, 9, 0), spliced(s.fileno(), None, w, None, 9, NONBLOCK)]

@scenario
def a_pipe_keeps_what_a_connection_refuses():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN); out = []
    for way in ("finished", "closed", "reset"):
        c, s = pair(); r, w = os.pipe(); os.write(w, b"piped")
        if way == "finished": c.shutdown(socket.SHUT_WR)
        if way == "reset": c.sendall(b"unread"); until(lambda: unread(s) == 6)
        if way != "finished": s.close(); until(lambda: "RDHUP" in polled(c))
        first = spliced(r, None, c.fileno(), None, 2, 0)
        until(lambda: way == "finished" or "HUP" in polled(c, 0))
        out.append([first, spliced(r, None, c.fileno(), None, 9, 0), os.read(r, 9).decode()])
    return out

@scenario
def messages_at_once_none_and_behind_a_reset():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); room = ctypes.create_string_buffer(8)
    class Vector(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    class Message(ctypes.Structure): _fields_ = [("name", ctypes.c_void_p), ("length", ctypes.c_uint), ("iov", ctypes.POINTER(Vector)), ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("size", ctypes.c_size_t), ("flags", ctypes.c_int), ("none", ctypes.c_int), ("got", ctypes.c_uint)]
    v = Vector(ctypes.addressof(room), 3); m = Message(iov=ctypes.pointer(v), count=1)
    def get(s, n, flags=0):
        k = libc.recvmmsg(s.fileno(), ctypes.byref(m), n, flags, None); return [k, m.got] if k >= 0 else errno.errorcode[ctypes.get_errno()]
    c, s = pair(); out = [get(s, 0)]
    c.sendall(b"unread"); s.sendall(b"answer"); until(lambda: unread(s) == 6 and unread(c) == 6)
    s.close(); until(lambda: "RDHUP" in polled(c))
    return out + [get(c, 1), get(c, 1), attempt(c.recv, 9), attempt(c.recv, 9)]

@scenario
def the_state_of_a_connection_is_that_of_its_ends():
    state = lambda s: s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0]
    ESTABLISHED, FIN_WAIT2, CLOSE, CLOSE_WAIT = 1, 5, 7, 8
    c, s = pair(); out = [state(c), state(s)]
    c.shutdown(socket.SHUT_RD); out += [state(c), state(s)]
    c.shutdown(socket.SHUT_WR); out += [until(lambda: state(c) == FIN_WAIT2), until(lambda: state(s) == CLOSE_WAIT)]
    s.shutdown(socket.SHUT_WR); out += [until(lambda: state(s) == CLOSE)]
    c, s = pair(); s.close(); out += [until(lambda: state(c) == CLOSE_WAIT)]
    c.shutdown(socket.SHUT_WR); out += [until(lambda: state(c) == CLOSE)]
    return out + [len(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, n)) for n in (1, 4, 104)]

@scenario
def echo_in_one_process():
    c, s = pair(); out = []
    for n in (1, 2, 63, 64, 65, 4095, 4096, 4097, 16384):
        d = pattern(n, n); c.sendall(d); out.append(recv_exactly(s, n) == d)
        s.sendall(d[::-1]); out.append(recv_exactly(c, n) == d[::-1])
    return out

@scenario
def echo_with_a_forked_server():
    l = listener()
    def serve():
        s = answer(l)
        while True:
            d = s.recv(1000)
            if not d: break
            s.sendall(d)
    p = child(serve)
    c = dial(l); l.close()
    ok = []
    for n in (1, 100, 1000, 50000):
        d = pattern(n, n); c.sendall(d); ok.append(recv_exactly(c, n) == d)
    c.shutdown(socket.SHUT_WR); ok.append(c.recv(1) == b""); c.close()
    return ok, reap(p)

@scenario
def large_in_both_directions():
    l = listener(); n = 24 << 20
    a, b = pattern(n, 1), pattern(n, 2)
    def both(s, mine, other):
        t = threading.Thread(target=lambda: (s.sendall(mine), s.shutdown(socket.SHUT_WR))); t.start()
        r = recv_all(s); t.join()
        return hashlib.sha256(r).hexdigest() == hashlib.sha256(other).hexdigest()
    def serve():
        s = answer(l); assert both(s, a, b)
    p = child(serve)
    c = dial(l)
    return both(c, b, a), reap(p)

@scenario
def peek_waitall_dontwait():
    c, s = pair(); out = []
    out.append(attempt(s.recv, 10, socket.MSG_DONTWAIT))
    c.sendall(b"hello"); until(lambda: polled(s, select.POLLIN))
    out.append(attempt(s.recv, 3, socket.MSG_PEEK)); out.append(attempt(s.recv, 10, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    out.append(attempt(s.recv, 2)); out.append(attempt(s.recv, 10))
    out.append(attempt(s.recv, 10, socket.MSG_DONTWAIT))
    t = threading.Timer(0.05, lambda: c.sendall(b"67890")); c.sendall(b"12345"); t.start()
    out.append(attempt(s.recv, 10, socket.MSG_WAITALL)); t.join()
    c.sendall(b"abc"); c.shutdown(socket.SHUT_WR)
    out.append(attempt(s.recv, 10, socket.MSG_WAITALL)); out.append(attempt(s.recv, 10, socket.MSG_WAITALL))
    return out

@scenario
def recv_of_nothing():
    c, s = pair(); c.sendall(b"x"); until(lambda: polled(s, select.POLLIN))
    return attempt(s.recv, 0), attempt(s.recv, 5)

@scenario
def half_close_each_way():
    c, s = pair(); out = []
    c.sendall(b"request"); c.shutdown(socket.SHUT_WR)
    out.append(recv_all(s).decode()); out.append(attempt(s.recv, 1))
    s.sendall(b"response"); s.close()
    out.append(recv_all(c).decode())
    return out

@scenario
def poll_through_a_life():
    c, s = pair(); out = [polled(s), polled(c)]
    c.sendall(b"x"); until(lambda: "IN" in polled(s)); out.append(polled(s))
    s.recv(1); out.append(polled(s))
    c.shutdown(socket.SHUT_WR); until(lambda: "RDHUP" in polled(s)); out += [polled(s), polled(c)]
    out.append(attempt(s.recv, 1)); out.append(polled(s))
    s.shutdown(socket.SHUT_WR); until(lambda: "HUP" in polled(c).replace("RDHUP", "")); out += [polled(s), polled(c)]
    return out

@scenario
def send_after_shutdown():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    c, s = pair(); c.shutdown(socket.SHUT_WR)
    return attempt(c.send, b"x"), attempt(c.shutdown, socket.SHUT_WR), attempt(c.shutdown, socket.SHUT_RDWR), attempt(c.shutdown, socket.SHUT_RD)

@scenario
def sigpipe_is_raised():
    got = []
    signal.signal(signal.SIGPIPE, lambda *_: got.append(1))
    c, s = pair(); c.shutdown(socket.SHUT_WR)
    a = attempt(c.send, b"x"); n = len(got)
    b = attempt(c.send, b"x", socket.MSG_NOSIGNAL)
    return a, n, b, len(got)

@scenario
def shutdown_of_reading():
    c, s = pair(); s.shutdown(socket.SHUT_RD)
    out = [attempt(s.recv, 5)]
    out.append(attempt(s.send, b"still")); out.append(recv_exactly(c, 5).decode())
    return out

@scenario
def close_with_unread_data():
    c, s = pair(); c.sendall(b"unread"); until(lambda: polled(s, select.POLLIN))
    s.close()
    until(lambda: polled(c, select.POLLIN))
    return attempt(c.recv, 10), attempt(c.recv, 10)

@scenario
def close_with_linger_zero():
    c, s = pair(); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()
    until(lambda: polled(c, select.POLLIN))
    return attempt(c.recv, 10), attempt(c.recv, 10)

@scenario
def linger_zero_behind_data():
    c, s = pair(); s.sendall(b"data"); until(lambda: polled(c, select.POLLIN))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()
    until(lambda: "HUP" in polled(c))
    return attempt(c.recv, 10)

@scenario
def send_to_a_closed_peer():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    c, s = pair(); s.close(); until(lambda: "RDHUP" in polled(c))
    out = [attempt(c.recv, 1), attempt(c.send, b"first")]
    until(lambda: "ERR" in polled(c) or polled(c).endswith("HUP"))
    last = None
    def failed():
        nonlocal last
        last = attempt(c.send, b"x"); return isinstance(last, str)
    until(failed); out.append(last)
    return out

@scenario
def data_before_accept():
    l = listener()
    c = socket.create_connection(l.getsockname()); c.sendall(b"early"); c.shutdown(socket.SHUT_WR)
    s, _ = l.accept(); d = recv_all(s).decode(); s.sendall(b"late"); s.close()
    return d, recv_all(c).decode()

@scenario
def gone_before_accept():
    l = listener()
    def f():
        c = socket.create_connection(l.getsockname()); c.sendall(b"from the dead"); c.close()
    r = reap(child(f))
    s, _ = l.accept()
    return r, recv_all(s).decode()

@scenario
def exit_without_close():
    l = listener()
    def f():
        c = socket.create_connection(l.getsockname()); c.sendall(b"z" * 100000); os._exit(0)
    p = child(f)
    s, _ = l.accept(); n = len(recv_all(s))
    return n, reap(p)

@scenario
def server_speaks_first():
    l = listener()
    def serve():
        s = answer(l); s.sendall(b"220 hello\r\n"); assert recv_exactly(s, 4) == b"EHLO"; s.sendall(b"250\r\n")
    p = child(serve)
    c = dial(l)
    a = recv_exactly(c, 11).decode(); c.sendall(b"EHLO"); b = recv_exactly(c, 5).decode()
    return a, b, reap(p)

@scenario
def peer_killed():
    l = listener()
    r, w = os.pipe()
    def f():
        c = dial(l); c.sendall(b"last words"); os.write(w, b"x"); signal.pause()
    p = child(f)
    s = answer(l); os.read(r, 1)
    os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
    return recv_exactly(s, 10).decode(), attempt(s.recv, 1)

@scenario
def blocked_reader_of_a_killed_peer():
    l = listener()
    def f():
        c = dial(l); c.sendall(b"x"); signal.pause()
    p = child(f)
    s = answer(l); s.recv(1)
    threading.Timer(0.1, lambda: os.kill(p, signal.SIGKILL)).start()
    r = attempt(s.recv, 1); os.waitpid(p, 0)
    return r

@scenario
def blocked_writer_of_a_killed_peer():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    l = listener()
    def f():
        c = dial(l); signal.pause()
    p = child(f)
    s = answer(l)
    threading.Timer(0.2, lambda: os.kill(p, signal.SIGKILL)).start()
    r = attempt(s.sendall, b"y" * (64 << 20)); os.waitpid(p, 0)
    return r in ("ECONNRESET", "EPIPE") or r

@scenario
def full_buffers():
    c, s = pair(); c.setblocking(False); n = 0
    while True:
        try: n += c.send(b"q" * 65536)
        except BlockingIOError: break
    time.sleep(0.05)
    try:
        while True: n += c.send(b"q" * 65536)
    except BlockingIOError: pass
    out = [n > 100000, polled(c, select.POLLOUT), select.select([], [c], [], 0)[1] == [], select.select([s], [], [], 1)[0] == [s]]
    got = 0
    while got < n: got += len(s.recv(1 << 20))
    out += [got == n, until(lambda: polled(c, select.POLLOUT) == "OUT"), attempt(c.send, b"more")]
    return out

@scenario
def a_poller_for_room_is_woken():
    c, s = pair(); c.setblocking(False); n = 0
    try:
        while True: n += c.send(b"q" * 65536)
    except BlockingIOError: pass
    def drain():
        g = 0
        while g < n: g += len(s.recv(65536))
    t = threading.Timer(0.1, drain); t.start()
    r = polled(c, select.POLLOUT, 5000); t.join()
    return r

@scenario
def a_blocked_sender_goes_on():
    l = listener(); d = pattern(20 << 20, 5)
    def serve():
        s = answer(l); time.sleep(0.2); assert hashlib.sha256(recv_all(s)).digest() == hashlib.sha256(d).digest()
    p = child(serve)
    c = dial(l); c.sendall(d); c.close()
    return reap(p)

@scenario
def epoll_level():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN)
    out = [len(e.poll(0))]
    c.sendall(b"ab"); out.append(len(e.poll(2))); out.append(len(e.poll(0)))
    s.recv(1); out.append(len(e.poll(0))); s.recv(1); out.append(len(e.poll(0)))
    c.sendall(b"c"); out.append(len(e.poll(2)))
    e.modify(s, 0); out.append(len(e.poll(0))); e.modify(s, select.EPOLLIN); out.append(len(e.poll(1)))
    e.unregister(s); out.append(len(e.poll(0)))
    return out

@scenario
def epoll_edge():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLET)
    out = [len(e.poll(0))]
    c.sendall(b"ab"); out.append(len(e.poll(2))); out.append(len(e.poll(0.05)))
    c.sendall(b"cd"); out.append(len(e.poll(2))); out.append(len(e.poll(0.05)))
    out.append(attempt(s.recv, 10)); out.append(len(e.poll(0.05)))
    c.sendall(b"e"); out.append(len(e.poll(2)))
    out.append(attempt(s.recv, 10)); out.append(attempt(s.recv, 10, socket.MSG_DONTWAIT))
    c.shutdown(socket.SHUT_WR); out.append(len(e.poll(2))); out.append(len(e.poll(0.05)))
    return out

@scenario
def epoll_edge_in_and_out():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    out = [[ev(m) for _, m in e.poll(0)], [ev(m) for _, m in e.poll(0.05)]]
    c.sendall(b"x"); out.append(["IN" in ev(m) for _, m in e.poll(2)])
    return out

@scenario
def epoll_oneshot():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLONESHOT)
    c.sendall(b"ab"); out = [len(e.poll(2)), len(e.poll(0))]
    s.recv(1); e.modify(s, select.EPOLLIN | select.EPOLLONESHOT); out += [len(e.poll(2)), len(e.poll(0))]
    s.recv(1); e.modify(s, select.EPOLLIN | select.EPOLLONESHOT); out += [len(e.poll(0))]
    c.sendall(b"c"); out += [len(e.poll(2)), len(e.poll(0))]
    return out

@scenario
def epoll_nested():
    c, s = pair(); e = select.epoll(); o = select.epoll(); e.register(s, select.EPOLLIN); o.register(e, select.EPOLLIN)
    out = [len(o.poll(0))]; c.sendall(b"x"); out += [len(o.poll(2)), len(e.poll(0))]; s.recv(1); out += [len(o.poll(0))]
    c.sendall(b"x"); out += [len(o.poll(2))]
    return out

@scenario
def epoll_nested_and_taken_without_asking():
    c, s = pair(); e = select.epoll(); o = select.epoll(); e.register(s, select.EPOLLIN); o.register(e, select.EPOLLIN); out = []
    for _ in range(3):
        c.sendall(b"xy"); out.append(len(o.poll(2)))
        s.recv(1); out.append(len(o.poll(0))); s.recv(1); out.append(len(o.poll(0)))
    return out

@scenario
def epoll_nested_for_room():
    out = []
    for known in (False, True):
        c, s = pair(); c.setblocking(False); e = select.epoll(); o = select.epoll(); e.register(c, select.EPOLLOUT)
        if known: e.poll(0); e.unregister(c); e.register(c, select.EPOLLOUT)
        o.register(e, select.EPOLLIN); out += [len(o.poll(2)), len(e.poll(0))]; n = 0
        try:
            while True: n += c.send(b"q" * 65536)
        except BlockingIOError: out.append(len(o.poll(0)))
        while n: n -= len(s.recv(n))
        out += [len(o.poll(2)), len(e.poll(0))]
    return out

@scenario
def a_signal_ends_poll_whatever_its_flags():
    class Rang(Exception): pass
    def ring(*_): signal.setitimer(signal.ITIMER_REAL, 0); raise Rang
    c, s = pair(); signal.signal(signal.SIGALRM, ring); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try: return polled(s, select.POLLIN, -1)
    except Rang: return "ended"

@scenario
def poll_sleeps_until_there_are_bytes_or_its_time_is_over():
    c, s = pair(); t = threading.Thread(target=lambda: s.recv(1) and s.sendall(b"y")); t.start()
    out = [polled(c, select.POLLIN, 20), polled(c, select.POLLIN, 120)]; c.sendall(b"x")
    out += [polled(c, select.POLLIN, 5000), attempt(c.recv, 1), polled(c, select.POLLIN)]; t.join()
    t = threading.Thread(target=lambda: s.shutdown(socket.SHUT_WR)); t.start()
    out.append(polled(c, select.POLLIN, 5000)); t.join()
    return out

@scenario
def poll_sleeps_and_the_peer_is_killed():
    l = listener()
    def serve():
        s = answer(l); s.sendall(b"x"); signal.pause()
    p = child(serve); c = dial(l); out = [recv_exactly(c, 1)]
    t = threading.Timer(0.1, lambda: os.kill(p, signal.SIGKILL)); t.start()
    out += [polled(c, select.POLLIN, 5000), attempt(c.recv, 1)]; t.join(); reap(p)
    return [str(x) for x in out]

@scenario
def epoll_sleeps_while_many_become_ready():
    pairs = [pair() for _ in range(20)]; e = select.epoll(); by = {s.fileno(): s for _, s in pairs}; out = []
    for fd in by: e.register(fd, select.EPOLLIN)
    for turn in range(40):
        def put():
            time.sleep(0.002 * (turn % 3))
            for c, _ in pairs: c.sendall(b"x")
        t = threading.Thread(target=put); t.start(); n = 0
        while n < 20 and (found := e.poll(5)):
            for fd, _ in found:
                n += len(by[fd].recv(1))
                if turn % 2: e.unregister(fd); e.register(fd, select.EPOLLIN)
        t.join(); out.append(n)
    return out

@scenario
def epoll_forgets_what_is_removed():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); out = [len(e.poll(0))]
    e.unregister(s); c.sendall(b"x"); out.append(len(e.poll(0.05)))
    out += [attempt(e.unregister, s), attempt(e.modify, s, select.EPOLLIN)]
    e.register(s, select.EPOLLIN); out += [len(e.poll(2)), attempt(e.register, s, select.EPOLLIN)]
    e.unregister(s); d, r = pair(); d.sendall(b"y"); e.register(r, select.EPOLLIN)
    return out + [[fd == r.fileno() for fd, _ in e.poll(2)]]

@scenario
def epoll_sleeps_and_another_thread_closes():
    a, r = pair(); b, s = pair(); e = select.epoll(); out = []
    for one in (r, s): e.register(one, select.EPOLLIN)
    for _ in range(3):
        for one in (a, b): one.sendall(b"x")
        for fd, _ in e.poll(2): (r if fd == r.fileno() else s).recv(1)
    t = threading.Thread(target=lambda: out.append([fd == s.fileno() for fd, _ in e.poll(5)])); t.start()
    time.sleep(0.05); r.close(); b.sendall(b"x"); t.join(6)
    return out

@scenario
def a_set_that_was_duplicated():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); d = select.epoll.fromfd(os.dup(e.fileno()))
    c.sendall(b"x"); out = [len(e.poll(2))]; e.close(); out.append(len(d.poll(2)))
    s.recv(1); out.append(len(d.poll(0))); c.sendall(b"y"); out.append(len(d.poll(2)))
    return out

@scenario
def flags_that_block_again():
    import fcntl
    c, s = pair(); flags = fcntl.fcntl(s, fcntl.F_GETFL); out = []
    fcntl.fcntl(s, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try: os.read(s.fileno(), 1)
    except OSError as e: out.append(err(e))
    fcntl.fcntl(s, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
    t = threading.Thread(target=lambda: (time.sleep(0.05), c.sendall(b"x"))); t.start()
    out.append(os.read(s.fileno(), 1)); t.join()
    return out

@scenario
def more_room_than_one_urgent_byte():
    c, s = pair(); c.send(b"abc!", socket.MSG_OOB); until(lambda: "PRI" in polled(s))
    return attempt(s.recv, 10, socket.MSG_OOB), attempt(s.recv, 10)

@scenario
def a_reset_by_linger_that_was_set_before():
    l = listener(); c = socket.socket(); s = None
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.connect(l.getsockname())
    s, _ = l.accept(); l.close()
    warm(c, s)
    c.close()
    return attempt(s.recv, 1)

@scenario
def epoll_within_another_is_woken_again_and_again():
    c, s = pair(); e = select.epoll(); o = select.epoll(); e.register(s, select.EPOLLIN); o.register(e, select.EPOLLIN)
    out = []
    for _ in range(20):
        c.sendall(b"x"); out.append((len(o.poll(2)), len(e.poll(0)))); s.recv(1)
    return out

@scenario
def epoll_of_a_duplicate():
    c, s = pair(); d = s.dup(); e = select.epoll(); e.register(d, select.EPOLLIN)
    c.sendall(b"x"); out = [len(e.poll(2))]; s.recv(1); out.append(len(e.poll(0)))
    s.close(); c.sendall(b"y"); out.append(len(e.poll(2))); out.append(attempt(d.recv, 1))
    return out

@scenario
def epoll_with_a_closed_descriptor():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN)
    c.sendall(b"x"); out = [len(e.poll(2))]; s.recv(1); s.close(); out.append(len(e.poll(0)))
    return out

@scenario
def epoll_waits_in_another_thread():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); s.setblocking(False)
    got = []; ready = threading.Event()
    def w():
        while len(got) < 20:
            if e.poll(5): got.append(s.recv(1)); ready.set()
    t = threading.Thread(target=w); t.start()
    for i in range(20):
        ready.clear(); c.sendall(b"x"); ready.wait(5)
    t.join(10)
    return len(got), t.is_alive()

@scenario
def another_thread_reads_what_epoll_waits_for():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); s.setblocking(False)
    seen = []
    t = threading.Thread(target=lambda: seen.append(len(e.poll(5)))); t.start()
    time.sleep(0.05)
    for _ in range(1000): attempt(s.recv, 1)
    c.sendall(b"x"); t.join(6)
    return seen

@scenario
def epoll_hup_flags():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLRDHUP)
    c.shutdown(socket.SHUT_WR); a = [ev(m) for _, m in e.poll(2)]
    s.shutdown(socket.SHUT_WR); until(lambda: "HUP" in polled(s).replace("RDHUP", "")); b = [ev(m) for _, m in e.poll(2)]
    return a, b

@scenario
def epoll_writable_again():
    c, s = pair(); c.setblocking(False); n = 0; e = select.epoll(); e.register(c, select.EPOLLOUT | select.EPOLLET)
    out = [len(e.poll(1))]
    try:
        while True: n += c.send(b"q" * 65536)
    except BlockingIOError: pass
    time.sleep(0.05)
    try:
        while True: n += c.send(b"q" * 65536)
    except BlockingIOError: pass
    e.poll(0); out.append(len(e.poll(0)))
    def drain():
        g = 0
        while g < n: g += len(s.recv(1 << 20))
    t = threading.Thread(target=drain); t.start()
    out.append(len(e.poll(5))); t.join(); out.append(attempt(c.send, b"x"))
    return out

@scenario
def select_three_ways():
    c, s = pair(); r = select.select([s, c], [s, c], [s, c], 0); out = [[len(x) for x in r]]
    c.sendall(b"x"); out.append(len(select.select([s], [], [], 2)[0])); s.recv(1); out.append(len(select.select([s], [], [], 0)[0]))
    c.close(); out.append(len(select.select([s], [], [], 2)[0])); return out

@scenario
def nonblocking_connect():
    l = listener(); c = socket.socket(); c.setblocking(False)
    a = c.connect_ex(l.getsockname()); out = [errno.errorcode.get(a, a)]
    out.append(polled(c, select.POLLOUT, 2000)); out.append(c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    out.append(errno.errorcode.get(c.connect_ex(l.getsockname()), 0))
    s, _ = l.accept(); c.sendall(b"x"); out.append(attempt(s.recv, 1)); s.sendall(b"y"); out.append(polled(c, select.POLLIN, 2000)); out.append(attempt(c.recv, 1))
    return out

@scenario
def nonblocking_connect_epoll_before():
    l = listener(); c = socket.socket(); c.setblocking(False); e = select.epoll()
    c.connect_ex(l.getsockname()); e.register(c, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    out = [[ev(m) for _, m in e.poll(2)]]
    s, _ = l.accept(); s.sendall(b"hi"); r = e.poll(2); out.append(["IN" in ev(m) for _, m in r]); out.append(attempt(c.recv, 10))
    return out

@scenario
def refused():
    l = listener(); a = l.getsockname(); l.close(); c = socket.socket()
    x = attempt(c.connect, a); c2 = socket.socket(); c2.setblocking(False); c2.connect_ex(a); polled(c2, select.POLLOUT, 1000)
    return x, errno.errorcode.get(c2.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

@scenario
def names_and_options():
    c, s = pair()
    out = [c.getsockname() == s.getpeername(), s.getsockname() == c.getpeername(), c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM]
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); out.append(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); out.append(c.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    out.append(c.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)); out.append(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
    return out

@scenario
def families():
    out = []
    for fam, at, to in ((socket.AF_INET6, "::1", "::1"), (socket.AF_INET6, "::", "127.0.0.1"), (socket.AF_INET, "0.0.0.0", "127.0.0.1"), (socket.AF_INET, "0.0.0.0", "127.0.0.2"), (socket.AF_INET6, "::", "::1")):
        l = socket.socket(fam); 
        if fam == socket.AF_INET6: l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        l.bind((at, 0)); l.listen(); c = socket.create_connection((to, l.getsockname()[1])); s, _ = l.accept()
        c.sendall(b"hello"); out.append(recv_exactly(s, 5).decode()); s.sendall(b"you"); s.close(); out.append(recv_all(c).decode()); c.close(); l.close()
    return out

@scenario
def fionread():
    c, s = pair(); n = array.array("i", [0])
    def pending(): fcntl.ioctl(s, termios.FIONREAD, n); return n[0]
    out = [pending()]; c.sendall(b"x" * 1000); until(lambda: pending() == 1000); out.append(pending()); s.recv(400); out.append(pending()); s.recv(600); out.append(pending())
    return out

@scenario
def readv_writev_sendmsg():
    c, s = pair(); out = [c.sendmsg([b"ab", b"", b"cde"])]; a, b = bytearray(2), bytearray(10)
    n, anc, fl, addr = s.recvmsg_into([a, b]); out += [n, a.decode(), bytes(b[:n - 2]).decode(), fl]
    out.append(os.writev(c.fileno(), [b"12", b"345"])); x, y = bytearray(1), bytearray(9); n = os.readv(s.fileno(), [x, y]); out += [n, x.decode(), bytes(y[:n - 1]).decode()]
    os.write(c.fileno(), b"plain"); out.append(os.read(s.fileno(), 100).decode())
    return out

@scenario
def sendfile_to_a_socket():
    l = listener(); d = pattern(3 << 20, 9)
    with tempfile.TemporaryFile() as f:
        f.write(d); f.flush()
        def serve():
            s, _ = l.accept(); off = 0
            while off < len(d): off += os.sendfile(s.fileno(), f.fileno(), off, len(d) - off)
        p = child(serve); c = socket.create_connection(l.getsockname()); r = recv_all(c)
    return r == d, reap(p)

@scenario
def splice_both_ways():
    c, s = pair(); r, w = os.pipe(); os.write(w, b"through a pipe")
    out = [os.splice(r, c.fileno(), 100)]; out.append(recv_exactly(s, 14).decode())
    s.sendall(b"and back"); until(lambda: polled(c, select.POLLIN)); out.append(os.splice(c.fileno(), w, 100)); out.append(os.read(r, 100).decode())
    return out

@scenario
def splice_without_waiting():
    c, s = pair(); r, w = os.pipe(); nonblock = 2; out = []
    splice = lambda a, b, flags=0: attempt(lambda: os.splice(a, b, 100, flags=flags))
    out.append(splice(r, c.fileno(), nonblock))
    t = threading.Thread(target=lambda: (time.sleep(0.05), os.write(w, b"late"))); t.start()
    out.append(splice(r, c.fileno())); t.join(); out.append(recv_exactly(s, 4).decode())
    c.setblocking(False); end = time.monotonic() + 5
    while time.monotonic() < end and attempt(c.send, b"f" * 65536) != "EAGAIN": pass
    while time.monotonic() < end and attempt(c.send, b"f") != "EAGAIN": pass
    os.write(w, b"kept"); out.append(splice(r, c.fileno())); out.append(os.read(r, 100).decode())
    os.write(w, b"end"); os.close(w); out.append(os.read(r, 3).decode()); out.append(splice(r, s.fileno()))
    return out

@scenario
def epoll_oneshot_again_and_again():
    c, s = pair(); e = select.epoll(); out = []; mask = select.EPOLLIN | select.EPOLLONESHOT
    e.register(s, mask)
    for _ in range(80):
        c.sendall(b"x"); first = len(e.poll(2)); again = len(e.poll(0)); s.recv(1)
        s.sendall(b"y"); c.recv(1); out.append((first, again)); e.modify(s, mask)
    return sorted(set(out))

@scenario
def duplicates():
    c, s = pair(); d = os.dup(c.fileno()); c.close(); os.write(d, b"by the duplicate"); out = [recv_exactly(s, 16).decode()]
    e = os.open("/dev/null", os.O_RDWR); os.dup2(d, e); os.close(d); s.sendall(b"to dup2"); out.append(os.read(e, 100).decode())
    f = fcntl.fcntl(e, fcntl.F_DUPFD_CLOEXEC, 100); os.write(f, b"three"); out += [f >= 100, recv_exactly(s, 5).decode()]
    os.close(e); os.close(f); out.append(attempt(s.recv, 1)); return out

@scenario
def dup2_over_a_connection():
    c, s = pair(); n = os.open("/dev/null", os.O_RDWR); os.dup2(n, c.fileno()); out = [attempt(s.recv, 1)]
    os.write(c.fileno(), b"nowhere"); c.detach(); return out

@scenario
def descriptor_numbers_are_used_again():
    out = []
    for i in range(50):
        c, s = pair(); c.sendall(b"%d" % i); out.append(recv_exactly(s, len(str(i))) == b"%d" % i)
        if i % 2: c.close(); out.append(s.recv(1) == b""); s.close()
        else: s.close(); out.append(c.recv(1) == b""); c.close()
        p, q = os.pipe(); os.write(q, b"p"); out.append(os.read(p, 1) == b"p"); os.close(p); os.close(q)
    return all(out)

@scenario
def fork_behind_accept():
    l = listener(); out = []
    def server():
        for _ in range(5):
            s, _ = l.accept()
            p = child(lambda: (s.sendall(b"from the child:" + s.recv(100)),)); s.close(); os.waitpid(p, 0)
    p = child(server)
    for i in range(5):
        c = socket.create_connection(l.getsockname()); c.sendall(b"%d" % i); out.append(recv_all(c).decode()); c.close()
    return out, reap(p)

@scenario
def fork_behind_io():
    c, s = pair(); c.sendall(b"first"); out = [recv_exactly(s, 5).decode()]
    p = child(lambda: (s.sendall(b"child says " + recv_exactly(s, 3)),)); c.sendall(b"abc"); out.append(recv_exactly(c, 14).decode()); out.append(reap(p))
    c.sendall(b"def"); out.append(recv_exactly(s, 3).decode()); s.sendall(b"parent"); out.append(recv_exactly(c, 6).decode())
    return out

@scenario
def workers_accept_from_one_listener():
    l = listener(backlog=64)
    def w():
        while True:
            s, _ = l.accept(); d = s.recv(10)
            if d == b"end": return
            s.sendall(d.upper()); s.close()
    ps = [child(w) for _ in range(4)]; out = []
    for i in range(40):
        c = socket.create_connection(l.getsockname()); c.sendall(b"req%d" % i); out.append(recv_all(c) == b"REQ%d" % i); c.close()
    ends = []
    for _ in range(4):
        c = socket.create_connection(l.getsockname()); c.sendall(b"end"); ends.append(c)
    return all(out), [reap(p) for p in ps]

@scenario
def exec_with_the_socket_as_standard_streams():
    l = listener()
    def serve():
        s, _ = l.accept(); os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); os.execvp("cat", ["cat"])
    p = child(serve); c = socket.create_connection(l.getsockname()); c.sendall(b"meow " * 1000); c.shutdown(socket.SHUT_WR)
    return recv_all(c) == b"meow " * 1000, reap(p)

@scenario
def exec_with_a_list_of_arguments():
    import ctypes
    words = [b"sh", b"-c", b"read x; echo $x $1 $2 $3 $4 $5 $6", b"sh", b"1", b"2", b"3", b"4", b"5", b"6", None]; own = (ctypes.c_char_p * 2)(b"A=b", None)
    libc = ctypes.CDLL(None, use_errno=True); out = []
    for name, path, behind in [("execl", b"/bin/sh", []), ("execlp", b"sh", []), ("execle", b"/bin/sh", [own])]:
        l = listener()
        def serve():
            s, _ = l.accept(); os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); getattr(libc, name)(path, *words, *behind)
        p = child(serve); c = socket.create_connection(l.getsockname()); c.sendall(b"heard\n"); out.append((recv_all(c).decode(), reap(p)))
    return out, libc.execl(b"/nowhere", b"x", None), ctypes.get_errno() == errno.ENOENT

@scenario
def exec_behind_io():
    l = listener()
    def serve():
        s, _ = l.accept(); s.sendall(b"banner\n"); s.recv(5); os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); os.execvp("tr", ["tr", "a-z", "A-Z"])
    p = child(serve); c = socket.create_connection(l.getsockname()); out = [recv_exactly(c, 7).decode()]; c.sendall(b"hello"); c.sendall(b"shout"); c.shutdown(socket.SHUT_WR)
    out.append(recv_all(c).decode()); return out, reap(p)

@scenario
def a_shell_with_redirections():
    l = listener()
    def serve():
        s, _ = l.accept(); os.set_inheritable(s.fileno(), True); os.dup2(s.fileno(), 9); os.execvp("sh", ["sh", "-c", "read x <&9; echo \"got $x\" >&9"])
    p = child(serve); c = socket.create_connection(l.getsockname()); c.sendall(b"line one\n"); return recv_all(c).decode(), reap(p)

@scenario
def passed_by_scm_rights():
    a, b = socket.socketpair(socket.AF_UNIX); l = listener()
    def f():
        a.close(); _, fds, _, _ = socket.recv_fds(b, 1, 1); s = socket.socket(fileno=fds[0]); s.sendall(b"passed on: " + recv_exactly(s, 4))
    p = child(f); b.close(); c = socket.create_connection(l.getsockname()); s, _ = l.accept(); c.sendall(b"used"); out = [recv_exactly(s, 4).decode()]
    socket.send_fds(a, [b"x"], [s.fileno()]); s.close(); c.sendall(b"more"); out.append(recv_all(c).decode()); return out, reap(p)

@scenario
def urgent_data():
    c, s = pair(); out = []
    c.sendall(b"abc"); c.send(b"!", socket.MSG_OOB); c.sendall(b"def"); until(lambda: "PRI" in polled(s)); out.append("PRI" in polled(s))
    out.append(attempt(s.recv, 1, socket.MSG_OOB)); out.append(attempt(s.recv, 1, socket.MSG_OOB))
    out.append(attempt(s.recv, 100)); until(lambda: polled(s, select.POLLIN)); out.append(attempt(s.recv, 100)); return out

@scenario
def urgent_data_inline():
    c, s = pair(); s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1); c.sendall(b"abc"); c.send(b"!", socket.MSG_OOB); c.sendall(b"def")
    time.sleep(0.1); out = []; m = array.array("i", [9])
    fcntl.ioctl(s, 0x8905, m); out.append(m[0]); out.append(attempt(s.recv, 100)); fcntl.ioctl(s, 0x8905, m); out.append(m[0]); out.append(attempt(s.recv, 100)); return out

@scenario
def no_urgent_data():
    c, s = pair(); return attempt(s.recv, 1, socket.MSG_OOB), "PRI" in polled(s)

@scenario
def receive_timeout():
    c, s = pair(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100000)); t = time.monotonic()
    r = attempt(s.recv, 1); took = time.monotonic() - t; s.settimeout(0.1); r2 = attempt(s.recv, 1); return r, 0.09 < took < 5, r2

@scenario
def send_timeout():
    c, s = pair(); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200000)); n = 0
    while True:
        r = attempt(c.send, b"x" * 1000000)
        if isinstance(r, str): return r
        n += 1
        if n > 1000: return "never"

@scenario
def interrupted_by_a_signal():
    # The timer repeats, so that a signal meets the call however late that begins; each of the second part says so.
    src = r"""
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/socket.h>
#include <unistd.h>
static volatile sig_atomic_t says;
static void h(int s) { (void)s; if (says) (void)!write(1, "s", 1); }
int main(int argc, char **argv) { int fd = 9; char b; struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = h; sigaction(SIGALRM, &a, 0);
 struct itimerval t = {{0,20000},{0,20000}}, off = {{0,0},{0,0}}; setitimer(ITIMER_REAL, &t, 0); long n = recv(fd, &b, 1, 0); int e = errno;
 setitimer(ITIMER_REAL, &off, 0); printf("%ld %s\n", n, n < 0 ? strerror(e) : ""); fflush(stdout);
 says = 1; a.sa_flags = SA_RESTART; sigaction(SIGALRM, &a, 0); setitimer(ITIMER_REAL, &t, 0); n = recv(fd, &b, 1, 0);
 setitimer(ITIMER_REAL, &off, 0); printf("%ld %c\n", n, b); return 0; }
"""
    d = tempfile.mkdtemp(); open(d + "/i.c", "w").write(src); subprocess.check_call(["cc", "-o", d + "/i", d + "/i.c"])
    c, s = pair(); os.dup2(s.fileno(), 9, inheritable=True)
    p = subprocess.Popen([d + "/i"], close_fds=False, stdout=subprocess.PIPE); line = p.stdout.readline(); p.stdout.read(3); c.sendall(b"z")
    return (line + p.communicate()[0].lstrip(b"s")).decode()

@scenario
def shutdown_wakes_a_blocked_reader():
    c, s = pair(); t = threading.Timer(0.1, lambda: s.shutdown(socket.SHUT_RDWR)); t.start(); r = attempt(s.recv, 1); t.join(); return r, attempt(c.recv, 1)

@scenario
def two_threads_send_whole_records():
    l = listener(); n = 3000
    def serve():
        s, _ = l.accept(); f = s.makefile("rb"); seen = {}
        for line in f:
            k, v = line.split(); assert int(v) == seen.get(k, 0), (k, v); seen[k] = int(v) + 1
        assert seen == {b"A": n, b"B": n}, seen
    p = child(serve); c = socket.create_connection(l.getsockname())
    ts = [threading.Thread(target=lambda k=k: [c.send(b"%s %d\n" % (k, i)) for i in range(n)]) for k in (b"A", b"B")]
    [t.start() for t in ts]; [t.join() for t in ts]; c.close(); return reap(p)

@scenario
def two_processes_send_over_one_connection():
    l = listener(); n = 2000
    def serve():
        s, _ = l.accept(); f = s.makefile("rb"); seen = {}
        for line in f:
            k, v = line.split(); assert int(v) == seen.get(k, 0), (k, v); seen[k] = int(v) + 1
        assert seen == {b"A": n, b"B": n}, seen
    p = child(serve); c = socket.create_connection(l.getsockname())
    q = child(lambda: [c.send(b"B %d\n" % i) for i in range(n)])
    for i in range(n): c.send(b"A %d\n" % i)
    r = reap(q); c.close(); return r, reap(p)

@scenario
def the_same_addresses_again_and_again():
    l = listener(backlog=64); to = l.getsockname(); out = []; x = socket.socket(); x.bind(("127.0.0.1", 0)); at = x.getsockname(); x.close()
    for i in range(30):
        c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); c.bind(at); c.connect(to); s, _ = l.accept()
        m = b"round %d" % i; c.sendall(m); out.append(recv_exactly(s, len(m)) == m); s.sendall(m); out.append(recv_exactly(c, len(m)) == m)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.close(); s.close()
    return all(out), len(out)

@scenario
def a_port_changes_hands():
    l = listener(); at = l.getsockname(); c = socket.create_connection(at); s, _ = l.accept(); c.sendall(b"1"); out = [attempt(s.recv, 1)]
    l.close(); l2 = socket.socket(); l2.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l2.bind(at); l2.listen()
    d = socket.create_connection(at); t, _ = l2.accept(); d.sendall(b"2"); out.append(attempt(t.recv, 1)); c.sendall(b"3"); out.append(attempt(s.recv, 1)); return out

@scenario
def many_connections():
    l = listener(backlog=512); n = 150
    def serve():
        e = select.epoll(); e.register(l, select.EPOLLIN); l.setblocking(False); m = {}; done = 0
        while done < n:
            for fd, _ in e.poll(10):
                if fd == l.fileno():
                    try:
                        while True:
                            s, _ = l.accept(); s.setblocking(False); m[s.fileno()] = s; e.register(s, select.EPOLLIN)
                    except BlockingIOError: pass
                else:
                    d = m[fd].recv(4096)
                    if d: m[fd].setblocking(True); m[fd].sendall(d); m[fd].setblocking(False)
                    else: e.unregister(fd); m.pop(fd).close(); done += 1
    p = child(serve); cs = [socket.create_connection(l.getsockname()) for _ in range(n)]; rnd = random.Random(3); ok = True
    for r in range(5):
        order = list(range(n)); rnd.shuffle(order); msgs = {}
        for i in order: msgs[i] = rnd.randbytes(rnd.randrange(1, 3000)); cs[i].sendall(msgs[i])
        for i in order: ok &= recv_exactly(cs[i], len(msgs[i])) == msgs[i]
    [c.close() for c in cs]; return ok, reap(p)

@scenario
def select_is_told_of_more_descriptors_than_its_sets_have():
    """Programs pass getdtablesize(): the kernel looks at no more bits than the process has places for descriptors."""
    import ctypes
    libc, out = ctypes.CDLL(None, use_errno=True), []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    c, s = pair(); high = fcntl.fcntl(s, fcntl.F_DUPFD, 1500)
    for fd, told in ((s.fileno(), 1024), (s.fileno(), 4096), (s.fileno(), 1 << 20), (high, 1400), (high, 4096)):
        room = (ctypes.c_ubyte * 1024)(*[0x5A] * 1024); size = 128 if fd == s.fileno() else 1024
        # The kernel has grown the table for `high`: 256 bytes of each set are the call's.
        for at in range(256 if fd == s.fileno() else 1024): room[at] = 0
        room[fd // 8] |= 1 << fd % 8
        for ready in (False, True):
            room[fd // 8] |= 1 << fd % 8
            if ready: c.sendall(b"x"); until(lambda: unread(s) == 1)
            out.append([told, libc.select(told, room, None, None, (ctypes.c_long * 2)(0, 1000)), room[fd // 8] >> fd % 8 & 1, bytes(room[512:]) == b"\x5a" * 512])
        s.recv(1)
    return out

@scenario
def a_message_that_is_sent_in_part_is_the_last_one():
    """sendmmsg(2): what follows it would not be behind the rest of it. And 1,024 messages are the most of one call."""
    import ctypes
    libc, out = ctypes.CDLL(None, use_errno=True), []
    class vector(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    class message(ctypes.Structure): _fields_ = [("name", ctypes.c_void_p), ("size", ctypes.c_int), ("vectors", ctypes.POINTER(vector)), ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("length", ctypes.c_size_t), ("flags", ctypes.c_int), ("sent", ctypes.c_ulong)]
    many = (message * 1500)(); one = ctypes.create_string_buffer(b"a"); own = vector(ctypes.addressof(one), 1)
    for m in many: m.vectors, m.count = ctypes.pointer(own), 1
    c, s = pair(); out.append(libc.sendmmsg(c.fileno(), many, 1500, 0)); out.append(len(recv_exactly(s, 1024)))
    text = ctypes.create_string_buffer(200_000); parts = (vector * 2)(vector(ctypes.addressof(text), 200_000), vector(8, 200_000))
    many[0].vectors, many[0].count = parts, 2
    done = libc.sendmmsg(c.fileno(), many, 2, socket.MSG_DONTWAIT); out += [done, 0 < many[0].sent < 400_000]
    c.shutdown(socket.SHUT_WR); return out, b"a" in recv_all(s)

@scenario
def nothing_is_sent_to_a_peer_that_has_closed():
    """A send of no byte brings about no reset."""
    c, s = pair(); s.close(); until(lambda: "RDHUP" in polled(c))
    out = [attempt(c.send, b""), attempt(c.send, b""), attempt(c.send, b"x", socket.MSG_NOSIGNAL)]
    until(lambda: "HUP" in polled(c, 0)); return out + [attempt(c.send, b"", socket.MSG_NOSIGNAL), attempt(c.send, b"", socket.MSG_NOSIGNAL)]

@scenario
def a_read_of_all_ends_before_an_urgent_byte():
    c, s = pair(); out = []
    for inline in (0, 1):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        c.sendall(b"ab"); c.send(b"!", socket.MSG_OOB); c.sendall(b"cd"); until(lambda: "PRI" in polled(s) and unread(s) >= (5 if inline else 2))
        out += [polled(s), unread(s), attempt(s.recv, 5, socket.MSG_WAITALL | socket.MSG_DONTWAIT), polled(s), attempt(s.recv, 5, socket.MSG_DONTWAIT), polled(s)]
        c.send(b"?", socket.MSG_OOB); until(lambda: "PRI" in polled(s)); out += [polled(s), attempt(s.recv, 5, socket.MSG_DONTWAIT), polled(s)]
    return out

@scenario
def random_sizes_random_waits():
    l = listener(); rnd = random.Random(11); d = pattern(4 << 20, 12)
    def serve():
        r2 = random.Random(13); s = answer(l); s.setblocking(False); e = select.epoll(); e.register(s, select.EPOLLIN | (select.EPOLLET if r2.random() < .5 else 0)); h = hashlib.sha256(); n = 0
        while True:
            e.poll(10); end = False
            while True:
                try: b = s.recv(r2.randrange(1, 70000))
                except BlockingIOError: break
                if not b: end = True; break
                h.update(b); n += len(b)
            if end: break
        assert n == len(d) and h.digest() == hashlib.sha256(d).digest(), n
    p = child(serve); c = dial(l); at = 0; c.setblocking(False)
    while at < len(d):
        try: at += c.send(d[at:at + rnd.randrange(1, 200000)])
        except BlockingIOError: select.select([], [c], [], 10)
    c.close(); return reap(p)

@scenario
def asyncio_echo():
    import asyncio
    async def main():
        async def h(r, w):
            while d := await r.read(10000): w.write(d); await w.drain()
            w.close()
        s = await asyncio.start_server(h, "127.0.0.1", 0); at = s.sockets[0].getsockname()
        async def client(i):
            r, w = await asyncio.open_connection(*at[:2]); d = pattern(300000, i); w.write(d); got = await r.readexactly(len(d)); w.close(); return got == d
        return all(await asyncio.gather(*(client(i) for i in range(20))))
    return asyncio.run(main())

@scenario
def socket_timeouts_in_python():
    c, s = pair(); s.settimeout(0.05); out = [attempt(s.recv, 1)]; c.sendall(b"x"); out.append(attempt(s.recv, 1)); return out

@scenario
def accept_gives_up_a_connection_unread():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    l = listener(); c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.close(); return attempt(c.recv, 1)

@scenario
def listener_closed_with_a_connection_in_its_backlog():
    l = listener(); c = socket.create_connection(l.getsockname()); l.close(); until(lambda: polled(c, select.POLLIN)); return attempt(c.recv, 1)

@scenario
def socketpairs_and_udp_are_left_alone():
    a, b = socket.socketpair(); a.sendall(b"x"); out = [attempt(b.recv, 1)]; u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v.connect(u.getsockname()); v.send(b"dgram"); out.append(attempt(u.recv, 10)); return out

@scenario
def disconnect_by_af_unspec():
    c, s = pair(); c.sendall(b"x"); s.recv(1)
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); r = libc.connect(c.fileno(), b"\0" * 16, 16); until(lambda: polled(s, select.POLLIN)); return r, attempt(s.recv, 1)

@scenario
def a_set_reports_a_connection_without_an_address_in_every_call():
    """connect(2) with AF_UNSPEC ends the connection, and epoll_ctl(2) knows the entry still."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); c, s = pair(); e = select.epoll(); e.register(c, select.EPOLLIN | select.EPOLLRDHUP)
    for _ in range(40): e.poll(0.001)
    out = [libc.connect(c.fileno(), b"\0" * 16, 16)] + [[ev(m) for _, m in e.poll(0)] for _ in range(3)]
    return out + [attempt(e.modify, c, select.EPOLLOUT), [ev(m) for _, m in e.poll(0)], attempt(e.unregister, c), e.poll(0)]

def cold(l, turns):
    """A connection that has exchanged a byte so often and is not switched."""
    c = socket.create_connection(l.getsockname()); s, _ = l.accept()
    for _ in range(turns): exchange(c, s)
    return c, s

def past_the_library(number, *words):
    """A system call by an instruction of the program's own: a negative answer is an error."""
    import ctypes, mmap
    if not CODE:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("4889f8" "4889f7" "4889d6" "4889ca" "4d89c2" "4d89c8" "4c8b4c2408" "0f05" "c3"))
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        CODE.extend([page, ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 7)(at)])
    words = [ctypes.cast(word, ctypes.c_void_p) if not isinstance(word, int) else word for word in words]
    return CODE[1](number, *words, *[0] * (6 - len(words)))

CODE = []

def bytes_over_tcp(c, s, turns):
    """Whether an exchange of so many bytes goes over TCP."""
    before = received(c) + received(s)
    for _ in range(turns): exchange(c, s)
    return received(c) + received(s) - before == 2 * turns

@scenario
def a_ring_of_the_kernel_beside_connections():
    """Bytes of a ring go past the library: where a process has got one, its connections are TCP's."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    set_up = lambda: libc.syscall(425, 8, ctypes.create_string_buffer(120))
    probe = child(lambda: os._exit(0 if set_up() >= 0 else 2))
    if reap(probe): return "SKIPPED: this kernel has no rings"
    c, s = pair()
    switched = WARM and "LD_PRELOAD" in os.environ
    ring, why = set_up(), ctypes.get_errno()
    if switched: assert (ring, why) == (-1, errno.EPERM), (ring, why)
    else: assert ring >= 0, why
    assert bytes_over_tcp(c, s, 60) == (ring >= 0)
    later = pair() if ring >= 0 and not WARM else None
    return "alone", bytes_over_tcp(*later, 60) if later else None

def is_asleep(pid):
    with open(f"/proc/{pid}/stat") as about: return about.read().rsplit(")")[-1].split()[0] == "S"

def mappings(of):
    with open("/proc/self/maps") as maps: return sum(of in line for line in maps)

@scenario
def epoll_asked_while_the_connection_is_switched():
    l = listener(); out = []
    for flag in [select.EPOLLONESHOT, select.EPOLLET, 0]:
        for turns in range(30, 36):
            c, s = cold(l, turns); e = select.epoll(); s.sendall(b"abc"); c.sendall(b"x"); one = []
            e.register(c, select.EPOLLIN | flag); one += [len(e.poll(2)), len(e.poll(0.02))]
            e.modify(c, select.EPOLLIN | flag); one += [len(e.poll(2)), attempt(c.recv, 3)]
            s.recv(1); s.sendall(b"d"); e.modify(c, select.EPOLLIN | flag); one += [len(e.poll(2)), attempt(c.recv, 3), len(e.poll(0))]
            out.append(one)
    return out

@scenario
def epoll_sleeps_where_nothing_happens():
    l = listener()
    def serve():
        s, _ = l.accept(); e = select.epoll(); e.register(s, select.EPOLLIN)
        while e.poll() and (b := s.recv(1)): s.sendall(b)
    p = child(serve); c = socket.create_connection(l.getsockname()); out = []
    for _ in range(60): c.sendall(b"w"); c.recv(1)
    out.append(until(lambda: is_asleep(p))); c.close()
    return out + [reap(p)]

@scenario
def few_doorbells_lie_in_the_socket_of_a_sleeper():
    import ctypes
    l = listener()
    def serve():
        s = answer(l)
        for _ in range(2):
            e = select.epoll(); e.register(s, select.EPOLLIN); e.close()
        e = select.epoll(); e.register(s, select.EPOLLIN)
        while e.poll() and (b := s.recv(1)):
            unread = ctypes.c_int(); past_the_library(16, s.fileno(), termios.FIONREAD, ctypes.byref(unread))
            s.sendall(bytes([unread.value > 8]))
    p = child(serve); c = dial(l); most = b""
    for _ in range(60):
        until(lambda: is_asleep(p)); c.sendall(b"x"); most = max(most, c.recv(1))
    c.close()
    return [most.hex(), reap(p)]

@scenario
def the_sockets_of_an_orderly_end_see_no_reset():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN)
    t = threading.Thread(target=lambda: e.poll(5)); t.start()
    until(lambda: is_asleep(t.native_id)); c.sendall(b"x"); t.join(); s.recv(1); s.close()
    until(lambda: "RDHUP" in polled(c)); return c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

@scenario
def room_while_bytes_from_before_the_switch_are_unread():
    l = listener(); out = []; d = b"q" * (256 << 10)
    for wait in [lambda c: polled(c, select.POLLOUT, 5000), lambda c: [ev(m) for _, m in e.poll(5)]]:
        c, s = cold(l, 0); c.sendall(d); recv_exactly(s, len(d)); s.sendall(b"abc"); c.sendall(b"xx"); s.recv(1); s.recv(1)
        c.setblocking(False); n = 0
        try:
            while True: n += c.send(d)
        except BlockingIOError: pass
        e = select.epoll(); e.register(c, select.EPOLLOUT)
        t = threading.Timer(0.1, lambda: recv_exactly(s, n)); t.start(); out.append(wait(c)); t.join()
        out.append(attempt(c.recv, 9))
    return out

@scenario
def a_connection_becomes_descriptor_0():
    c, s = pair(); os.dup2(s.fileno(), 0); p = select.poll(); p.register(0, select.POLLIN); out = [p.poll(0)]
    c.sendall(b"x"); out += [[ev(m) for _, m in p.poll(2000)], attempt(os.read, 0, 9)]
    return out

@scenario
def poll_sleeps_for_urgent_bytes_behind_the_end():
    l = listener(); r, w = os.pipe()
    def serve():
        s = answer(l); recv_all(s); os.write(w, b"!"); polled(s, select.POLLPRI, -1)
    p = child(serve); c = dial(l); c.close(); os.read(r, 1); out = [until(lambda: is_asleep(p))]
    os.kill(p, signal.SIGKILL); return out + [reap(p)]

@scenario
def closed_connections_leave_nothing_mapped():
    ends = [pair() for _ in range(5)]
    for c, s in ends: c.close(); s.close()
    return mappings("/SYSV")

@scenario
def connections_behind_a_fork_leave_no_memory_behind():
    reap(child(lambda: None)); l = listener()
    for _ in range(3000):
        for one in cold(l, 0): one.close()
    return mappings("/dev/zero") < 4

@scenario
def a_pipe_by_edge_beside_a_busy_connection():
    c, s = pair(); r, w = os.pipe(); e = select.epoll(); e.register(s, select.EPOLLIN); e.register(r, select.EPOLLIN | select.EPOLLET)
    c.sendall(b"x"); e.poll(2); os.write(w, b"y")
    return sum(fd == r for _ in range(40) for fd, _ in e.poll(0))

@scenario
def an_echo_of_all_that_was_sent_before_anything_is_read():
    out = []
    for size, limit in [(1 << 20, None), (5 << 20, None), (5 << 20, 20)]:
        c, s = pair()
        def serve():
            while d := s.recv(65536): s.sendall(d)
        t = threading.Thread(target=serve); t.start()
        c.settimeout(limit); d = pattern(size, 3); c.sendall(d); c.settimeout(None)
        out.append(recv_exactly(c, size) == d); c.close(); t.join()
    return out

@scenario
def both_sides_send_before_they_read():
    c, s = pair(); size = 512 << 10; a, b = pattern(size, 1), pattern(size, 2)
    t = threading.Thread(target=s.sendall, args=(b,)); t.start(); c.sendall(a); t.join()
    return [recv_exactly(s, size) == a, recv_exactly(c, size) == b]

@scenario
def a_send_that_does_not_wait_takes_megabytes():
    c, s = pair(); c.setblocking(False); s.setblocking(False); out = []
    d = pattern(3 << 20, 4)
    for x, y in [(c, s), (s, c), (c, s)]:
        n = 0
        while n < len(d): n += x.send(d[n:n + 50021])
        y.setblocking(True); out.append(recv_exactly(y, len(d)) == d); y.setblocking(False)
    return out

@scenario
def memory_of_a_burst_goes_back():
    c, s = pair(); c.setblocking(False); d = bytes(3 << 20); n = 0
    while n < len(d): n += c.send(d[n:])
    recv_exactly(s, n); lines = open("/proc/self/smaps").read().split("\n")
    at = [i for i, line in enumerate(lines) if "/SYSV" in line]
    return all(int(lines[i + 1 + k].split()[1]) < 600 for i in at for k in range(4) if lines[i + 1 + k].startswith("Rss"))

@scenario
def a_peer_that_is_gone_is_seen_by_the_first_call():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN); out = []; look = socket.MSG_PEEK | socket.MSG_DONTWAIT
    def ended(how):
        l = listener(); go, done = os.pipe(), os.pipe()
        def f():
            c = dial(l); os.write(done[1], b"x"); os.read(go[0], 1)
            if how == "reset": c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how in ("close", "reset"): c.close(); os.write(done[1], b"x"); signal.pause()
            if how == "killed": signal.pause()
        p = child(f); s = answer(l); os.read(done[0], 1)
        first = attempt(s.recv, 1, look); os.write(go[1], b"x")
        if how in ("close", "reset"): os.read(done[0], 1)
        if how == "killed": os.kill(p, signal.SIGKILL)
        if how in ("exit", "killed"): os.waitpid(p, 0)
        seen = attempt(s.recv, 1, look if how != "reset" else socket.MSG_DONTWAIT); again = attempt(s.recv, 1, look)
        last = [attempt(s.send, b"x"), attempt(s.send, b"x")]
        if how in ("close", "reset"): os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
        return [how, first, seen, again, last if how != "close" else last[0]]
    return [ended(how) for how in ("close", "exit", "killed", "reset")]

@scenario
def a_peer_that_closes_between_two_calls_is_seen():
    out = []
    for _ in range(20):
        c, s = pair(); out.append(attempt(c.recv, 1, socket.MSG_DONTWAIT)); s.close()
        out.append(attempt(c.recv, 1, socket.MSG_DONTWAIT)); c.close()
    return sorted(set(out))

@scenario
def vectors_that_are_longer_than_a_piece():
    c, s = pair(); d = pattern(700_001, 8); out = []
    for lengths in [(1, 70_000, 3, 130_001, 65_536, 65_537, 2), (65_535, 2, 200_000), (700_001,), (3,) * 40]:
        parts, at = [], 0
        for n in lengths: parts.append(d[at:at + n]); at += n
        whole = d[:at]
        t = threading.Thread(target=c.sendmsg, args=(parts,)); t.start()
        room = [bytearray(n) for n in reversed(lengths)]; n = 0
        while n < at:
            views, skip = [], n
            for r in room: views.append(memoryview(r)[min(skip, len(r)):]); skip -= min(skip, len(r))
            n += s.recvmsg_into(views, 0, socket.MSG_WAITALL)[0]
        t.join(); out.append(b"".join(room) == whole)
    return out

@scenario
def a_peek_sees_all_there_is():
    l = listener(); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    c = socket.create_connection(l.getsockname()); s, _ = l.accept(); warm(c, s)
    c.setblocking(False); d = pattern(1 << 20, 6); n = 0
    while n < len(d): n += c.send(d[n:])
    until(lambda: len(s.recv(n, socket.MSG_PEEK)) == n)
    return [s.recv(k, socket.MSG_PEEK) == d[:k] for k in (1, 16_384, 16_385, 65_537, 300_000, n)] + [recv_exactly(s, n) == d]

@scenario
def a_killed_client_leaves_no_shared_memory():
    l = listener(); pids = []
    for how in (signal.SIGTERM, signal.SIGKILL):
        def f():
            signal.signal(signal.SIGTERM, signal.SIG_DFL); c = dial(l); c.sendall(bytes(300_000)); signal.pause()
        p = child(f); s = answer(l); recv_exactly(s, 300_000); os.kill(p, how); os.waitpid(p, 0)
        while s.recv(9): pass
        s.close(); pids.append(p)
    return [line for line in open("/proc/sysvipc/shm") if any(str(p) in line.split() for p in pids)]

@scenario
def words_that_a_peer_writes_stop_no_call():
    """The peer writes the number of a living process into every word of its segment, this side's included."""
    l = listener(); r, w = os.pipe(); go = os.pipe()
    def f():
        import ctypes
        c = dial(l); os.read(go[0], 1)
        for line in open("/proc/self/maps"):
            if "/SYSV" in line:
                at = int(line.split("-")[0], 16)
                ctypes.memmove(at, struct.pack("I", os.getpid()) * 1024, 4096)
        os.write(w, b"x"); signal.pause()
    p = child(f); s = answer(l); s.setblocking(False); os.write(go[1], b"x"); os.read(r, 1)
    for _ in range(3): attempt(s.recv, 10), attempt(s.send, b"answer"), polled(s), attempt(s.recv, 1, socket.MSG_PEEK)
    s.close(); os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
    return "all returned"

@scenario
def a_peer_that_says_it_has_never_left_tcp_and_dies_is_seen():
    """The peer takes back every word of its segment. A set that reports by level does so in every call."""
    l = listener(); r, w = os.pipe()
    def f():
        import ctypes
        c = dial(l); os.read(r, 1)
        for line in open("/proc/self/maps"):
            if "/SYSV" in line: ctypes.memset(int(line.split("-")[0], 16) + 512, 0, 4096 - 512)
        os.kill(os.getpid(), signal.SIGKILL)
    p = child(f); s = answer(l); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLRDHUP)
    for _ in range(40): e.poll(0.001)
    os.write(w, b"x"); reap(p)
    return [bool(e.poll(10)) for _ in range(4)]

@scenario
def two_programs_write_to_one_connection():
    c, s = pair(); n = 800
    script = "import os\nfor _ in range(%d): os.write(1, b'c' * 99 + b'\\n')" % n
    p = subprocess.Popen([sys.executable, "-c", script], stdout=c)
    for _ in range(n): c.sendall(b"p" * 99 + b"\n")
    p.wait(); c.close(); d = recv_all(s).split(b"\n")
    return [len(d), sorted({bytes(set(line)) for line in d})]

@scenario
def bad_addresses_are_errors():
    """write(2), readv(2), sendmsg(2): EFAULT, and EINVAL and EMSGSIZE for vectors. What was refused changes nothing."""
    import ctypes, mmap
    libc = ctypes.CDLL(None, use_errno=True)
    class Vec(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    class Message(ctypes.Structure): _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]
    def call(name, *a):
        r = getattr(libc, name)(*[ctypes.c_size_t(x) if isinstance(x, int) and abs(x) > 1 << 30 else x for x in a])
        return r if r >= 0 else errno.errorcode[ctypes.get_errno()]
    kept = []
    def at(x): kept.append(x); return ctypes.c_void_p(ctypes.addressof(x))
    c, s = pair(); c.setblocking(False); s.setblocking(False); out = []
    libc.mmap.restype = ctypes.c_void_p
    gone = libc.mmap(None, 4096, 3, 0x22, -1, 0); libc.write(c.fileno(), ctypes.c_void_p(gone), 5)
    until(lambda: polled(s, select.POLLIN)); assert s.recv(9) == bytes(5)
    libc.mprotect(ctypes.c_void_p(gone), 4096, 0)
    fixed = libc.mmap(None, 4096, 1, 0x22, -1, 0); hidden = libc.mmap(None, 4096, 0, 0x22, -1, 0)
    good = ctypes.create_string_buffer(b"abcdefghij", 10); big = 1 << 62
    vec = lambda *parts: (Vec * len(parts))(*[Vec(*part) for part in parts]); g = ctypes.addressof(good)
    for p in [8, gone, hidden, 1 << 63, (1 << 64) - 8]:
        p = ctypes.c_void_p(p); a = vec((p.value, 10)); m = Message(iov=at(a), iovlen=1)
        out.append([call("write", c.fileno(), p, 10), call("send", c.fileno(), p, 10, 0), call("sendto", c.fileno(), p, 10, 0, None, 0), call("writev", c.fileno(), a, 1), call("sendmsg", c.fileno(), at(m), 0)])
        out.append([call("writev", c.fileno(), p, 2), call("sendmsg", c.fileno(), p, 0), call("sendmsg", c.fileno(), at(Message(iov=p, iovlen=3)), 0)])
    many = (Vec * 1025)(*[Vec(g, 0)] * 1025)
    for parts in [((g, big * 2), (g, 1)), ((g, 1), (8, 5)), ((None, 0), (g, 2)), ((None, 3), (g, 2))]:
        a = vec(*parts); out.append([call("writev", c.fileno(), a, len(parts)), call("sendmsg", c.fileno(), at(Message(iov=at(a), iovlen=len(parts))), 0)])
    out.append([call("writev", c.fileno(), many, 1024), call("writev", c.fileno(), many, 1025), call("writev", c.fileno(), many, -1), call("sendmsg", c.fileno(), at(Message(iov=at(many), iovlen=1025)), 0)])
    s.setblocking(True); out.append(recv_exactly(s, 4).decode()); s.setblocking(False)
    c.sendall(b"0123456789"); until(lambda: polled(s, select.POLLIN))
    for p in [8, gone, hidden, fixed, 1 << 63]:
        p = ctypes.c_void_p(p); a = vec((p.value, 10)); m = Message(iov=at(a), iovlen=1)
        out.append([call("read", s.fileno(), p, 10), call("recv", s.fileno(), p, 10, 0), call("recv", s.fileno(), p, 10, socket.MSG_PEEK), call("readv", s.fileno(), a, 1), call("recvmsg", s.fileno(), at(m), 0)])
        out.append([call("readv", s.fileno(), p if p.value != fixed else None, 2), call("recvmsg", s.fileno(), p if p.value != fixed else None, 0), call("ioctl", s.fileno(), termios.FIONREAD, p), call("ioctl", c.fileno(), termios.TIOCOUTQ, p), call("ioctl", s.fileno(), 0x8905, p)])
    out.append([call("readv", s.fileno(), many, 1025), call("readv", s.fileno(), many, -1), call("recvmsg", s.fileno(), at(Message(iov=at(many), iovlen=1025)), 0)])
    return out + [attempt(s.recv, 99)]

@scenario
def bad_addresses_in_a_thread_that_blocks_every_signal():
    """As services do it that wait for signals in one thread (sigwait(3))."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); c, s = pair(); c.setblocking(False); s.setblocking(False); out = []
    c.sendall(b"0123456789"); until(lambda: polled(s, select.POLLIN))
    def calls():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        bad = ctypes.c_void_p(8)
        for name, *rest in [("write", c.fileno(), bad, 10), ("recv", s.fileno(), bad, 10, 0), ("readv", s.fileno(), bad, 2), ("sendmsg", c.fileno(), bad, 0), ("poll", bad, 1, 0)]:
            r = getattr(libc, name)(*rest); out.append(r if r >= 0 else errno.errorcode[ctypes.get_errno()])
    t = threading.Thread(target=calls); t.start(); t.join()
    return out + [attempt(s.recv, 99)]

@scenario
def sends_of_every_place_and_length():
    """Bytes arrive as they were, wherever they lie and however many; of memory that ends, those that were taken."""
    import ctypes
    c, s = pair(); data = bytes(range(1, 252)) * 300; out = []
    for length in [4095, 4096, 4097, 4159, 4160, 8191, 20001, 70000]:
        for first in [1, 15, 48, 64]:
            c.sendall(data[:first]); c.sendall(memoryview(data)[first:first + length]); c.sendmsg([data[:7], data[7:length]])
            got = recv_exactly(s, first + 2 * length); out.append(got == data[:first + length] + data[:length])
    libc = ctypes.CDLL(None, use_errno=True); libc.mmap.restype = ctypes.c_void_p
    pages = libc.mmap(None, 3 * 4096, 3, 0x22, -1, 0); ctypes.memmove(pages, data, 2 * 4096)
    libc.mprotect(ctypes.c_void_p(pages + 2 * 4096), 4096, 0)
    for there in [1, 4095, 4096, 4100, 8192]:
        taken = max(libc.write(c.fileno(), ctypes.c_void_p(pages + 2 * 4096 - there), there + 2000), 0)
        out.append(taken <= there and recv_exactly(s, taken) == data[2 * 4096 - there:][:taken])
    return out

@scenario
def a_send_with_an_address():
    """A stream takes none (send(2)), and opens no second connection (MSG_FASTOPEN of tcp(7))."""
    c, s = pair(); at = s.getsockname(); fast = 0x20000000
    out = [attempt(c.sendto, b"ab", at), attempt(c.sendto, b"cd", 0, ("127.0.0.1", 1)), attempt(c.sendmsg, [b"ef"], [], 0, at)]
    out += [attempt(c.sendto, b"gh", fast, at), attempt(c.sendmsg, [b"ij"], [], fast, at), attempt(c.send, b"kl", fast)]
    c.close(); return out + [recv_all(s).decode()]

@scenario
def several_threads_send_at_once():
    c, s = pair(); failed = []
    def put(of):
        try:
            for _ in range(8): c.sendall(bytes([of]) * (1 << 20))
        except OSError as e: failed.append(err(e))
    ts = [threading.Thread(target=put, args=(of,)) for of in range(4)]
    for t in ts: t.start()
    def close():
        for t in ts: t.join()
        c.close()
    threading.Thread(target=close).start(); d = recv_all(s)
    return [failed, [d.count(bytes([of])) for of in range(4)]]

@scenario
def a_program_of_stdio_on_a_connection():
    c, s = pair(); p = subprocess.Popen(["cut", "-c2-"], stdin=s, stdout=s); s.close()
    c.sendall(b"xb\nxa\n"); c.shutdown(socket.SHUT_WR)
    return [recv_all(c).decode(), p.wait()]

def sent_by_each_name(c):
    """Sends a word by every call of the C library that writes; their answers, and the words."""
    import ctypes
    libc = ctypes.CDLL(None); fd = c.fileno(); text = ctypes.create_string_buffer(b"12345", 5)
    entry = (ctypes.c_void_p * 2)(ctypes.addressof(text), 5); flags = fcntl.fcntl(c, fcntl.F_GETFL)
    libc.fdopen.restype = libc.backtrace_symbols_fd.restype = ctypes.c_void_p
    out = [libc.dprintf(fd, b"%d %s %.1f %d %d %d %d;", 1, b"two", ctypes.c_double(3.5), 4, 5, 6, 7), libc.__dprintf_chk(fd, 1, b"%s %d;", b"a", 9)]
    for name in ["write", "__write"]: out.append(getattr(libc, name)(fd, text, 5))
    for name in ["send", "__send"]: out.append(getattr(libc, name)(fd, text, 5, 0))
    for name in ["pwritev2", "pwritev64v2"]: out.append(getattr(libc, name)(fd, entry, 1, ctypes.c_long(-1), 0))
    out += [libc.eventfd_write(fd, ctypes.c_ulong(0x3837363534333231)), libc.syscall(1, fd, text, 5), libc.syscall(20, fd, entry, 1)]
    out += [libc.pwrite(fd, text, 5, ctypes.c_long(0)), libc.pwritev2(fd, entry, 1, ctypes.c_long(0), 0), libc.syscall(328, fd, entry, 1, -1, -1, 1 << 30)]
    stream = ctypes.c_void_p(libc.fdopen(os.dup(fd), b"r+")); out += [libc.fileno(stream) > 2, libc.fprintf(stream, b"%d.", 42), libc.fclose(stream)]
    assert fcntl.fcntl(c, fcntl.F_GETFL) == flags
    return out

@scenario
def every_call_that_writes():
    c, s = pair(); out = sent_by_each_name(c); c.close()
    return out, recv_all(s).decode()

@scenario
def every_call_that_reads():
    import ctypes
    c, s = pair(); libc = ctypes.CDLL(None, use_errno=True); fd = s.fileno(); room = ctypes.create_string_buffer(8); out = []
    entry = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8); libc.fdopen.restype = libc.fgets.restype = ctypes.c_void_p
    calls = [lambda: libc.read(fd, room, 8), lambda: libc.__read(fd, room, 8), lambda: libc.preadv2(fd, entry, 1, ctypes.c_long(-1), 0),
        lambda: libc.preadv64v2(fd, entry, 1, ctypes.c_long(-1), 8), lambda: libc.eventfd_read(fd, room), lambda: libc.syscall(0, fd, room, 8),
        lambda: libc.__read_chk(fd, room, 8, 8), lambda: libc.__recv_chk(fd, room, 8, 8, 0), lambda: libc.syscall(45, fd, room, 8, 0, 0, 0)]
    for n, call in enumerate(calls):
        c.sendall(b"word %d.." % n); polled(s, select.POLLIN, 2000); out.append([call(), room.raw.decode("latin1")])
    for place in [0, -2]: ctypes.set_errno(0); out.append([libc.preadv2(fd, entry, 1, ctypes.c_long(place), 0), ctypes.get_errno()])
    ctypes.set_errno(0); out.append([libc.preadv2(fd, entry, 1, ctypes.c_long(-1), 8), ctypes.get_errno()])
    c.sendall(b"line\nrest"); stream = ctypes.c_void_p(libc.fdopen(os.dup(fd), b"r")); libc.fgets(room, 8, stream); out.append(room.value.decode())
    return out

@scenario
def bytes_that_go_past_the_library_are_never_lost_silently():
    """They arrive, as on a connection that is not switched, or the connection is reset at both ends."""
    import ctypes
    signal.signal(signal.SIGPIPE, signal.SIG_IGN); out = []; l = listener()
    raw = ctypes.create_string_buffer(b"raw", 3); put = lambda c: past_the_library(1, c.fileno(), raw, 3)
    def sends(c): polled(c, 0); return [attempt(c.send, b"x") for _ in range(200)]
    def by_epoll(s): e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLET); return e.poll(5)
    for before in [lambda s: True, lambda s: polled(s, select.POLLIN, 5000), lambda s: select.select([s], [], []), by_epoll]:
        for behind in [lambda c: None, lambda c: attempt(c.shutdown, socket.SHUT_WR), lambda c: c.close()]:
            c, s = pair(); put(c); behind(c); out.append(bool(before(s))); got = attempt(s.recv, 9)
            out.append(got in ["raw", "ECONNRESET"] or got)
            if got == "ECONNRESET" and c.fileno() >= 0: out.append("EPIPE" in sends(c) or sends(c)); out.pop()
    c, s = pair(); t = threading.Thread(target=lambda: out.append(attempt(s.recv, 9) in ["raw", "ECONNRESET"])); t.start(); until(lambda: is_asleep(t.native_id)); put(c); t.join()
    # The end that has noticed first: its set reports that in every call.
    c, s = pair(); e = select.epoll(); e.register(c, select.EPOLLIN | select.EPOLLRDHUP)
    for _ in range(40): e.poll(0.001)
    put(c)
    if WARM and "LD_PRELOAD" in os.environ: until(lambda: attempt(c.recv, 9, socket.MSG_DONTWAIT) == "ECONNRESET")
    else: s.close()
    out.append([bool(e.poll(10)) for _ in range(4)])
    def dies(): c = dial(l); put(c); os._exit(0)
    p = child(dies); s = answer(l); reap(p); out.append(attempt(s.recv, 9) in ["raw", "ECONNRESET"])
    c, s = pair(); put(c); got = attempt(lambda: [c.send(b"x") for _ in range(200)] and recv_exactly(s, 203).count(b"raw")); out.append(got in [1, "ECONNRESET", "EPIPE"] or got)
    return out

@scenario
def a_signal_ends_a_call_with_a_time_limit():
    """Whatever its handler is installed with (signal(7))."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); room = ctypes.create_string_buffer(9); out = []; signal.signal(signal.SIGUSR1, lambda *_: None)
    for limited in [False, True]:
        c, s = pair(); signal.siginterrupt(signal.SIGUSR1, False); over = []
        if limited: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 100, 0))
        me = threading.get_native_id(); to = threading.main_thread().ident
        def poke():
            until(lambda: is_asleep(me)); signal.pthread_kill(to, signal.SIGUSR1); time.sleep(0.05)
            while limited and not over: signal.pthread_kill(to, signal.SIGUSR1); time.sleep(0.02)
            c.sendall(b"on")
        t = threading.Thread(target=poke); t.start(); ctypes.set_errno(0); got = libc.recv(s.fileno(), room, 9, 0); why = ctypes.get_errno(); over.append(1); t.join(); out.append([got, why if got < 0 else 0])
    return out

@scenario
def recvmmsg_takes_as_many_messages_as_it_is_asked_for():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); out = []
    def take(s, count, flags, limit=None):
        rooms = [ctypes.create_string_buffer(4) for _ in range(count)]; entries = [(ctypes.c_void_p * 2)(ctypes.addressof(one), 4) for one in rooms]
        heads = (ctypes.c_uint64 * (8 * count))()
        for at, entry in enumerate(entries): heads[8 * at + 2], heads[8 * at + 3] = ctypes.addressof(entry), 1
        got = libc.recvmmsg(s.fileno(), heads, count, flags, limit); return [got, [[heads[8 * at + 7] & 0xffffffff, rooms[at].raw.decode()] for at in range(max(got, 0))]]
    c, s = pair(); c.sendall(b"abc"); polled(s, select.POLLIN, 2000)
    t = threading.Timer(0.05, lambda: c.sendall(b"def")); t.start(); out.append(take(s, 2, 0)); t.join()
    c.sendall(b"abc"); polled(s, select.POLLIN, 2000); out.append(take(s, 3, 0x10000)); out.append(take(s, 2, socket.MSG_DONTWAIT))
    c.sendall(b"abc"); polled(s, select.POLLIN, 2000); limit = (ctypes.c_long * 2)(0, 1); out.append(take(s, 2, 0, limit)); out.append(list(limit))
    c.close(); until(lambda: "RDHUP" in polled(s)); out.append(take(s, 2, 0)); return out

@scenario
def options_that_the_switch_needs_read_back_as_the_program_set_them():
    c, s = pair(); out = []; tcp = socket.IPPROTO_TCP
    for end in (c, s):
        for value in [0, 1, 0]:
            for name in [socket.TCP_NODELAY, socket.TCP_CORK]: end.setsockopt(tcp, name, value); exchange(c, s); out.append(end.getsockopt(tcp, name))
        for name in [b"cubic", b"reno"]: end.setsockopt(tcp, socket.TCP_CONGESTION, name); exchange(c, s); out.append(end.getsockopt(tcp, socket.TCP_CONGESTION, 16).decode())
        out.append([attempt(end.setsockopt, tcp, socket.TCP_CONGESTION, b"none"), end.getsockopt(tcp, socket.TCP_CONGESTION, 3).decode(), end.getsockopt(tcp, socket.TCP_NODELAY, 1).hex()])
    default, = {l.getsockopt(tcp, socket.TCP_CONGESTION, 16) for l in [listener()]}
    return out, pair()[0].getsockopt(tcp, socket.TCP_CONGESTION, 16) == default

@scenario
def messages_beside_the_bytes():
    c, s = pair(); out = []; INQ = 36; stamps = [29, 35]; tcp = socket.IPPROTO_TCP
    s.setsockopt(tcp, INQ, 1); c.sendall(b"0123456789"); polled(s, select.POLLIN, 2000)
    def take(n, room=200): d, control, flags, _ = s.recvmsg(n, room); return [d.decode(), [(l, k, struct.unpack("i", v)[0] if k == INQ else len(v)) for l, k, v in control], flags & socket.MSG_CTRUNC]
    out += [take(4), take(2, 0), take(4)]; s.setsockopt(tcp, INQ, 0)
    for stamp in stamps:
        s.setsockopt(socket.SOL_SOCKET, stamp, 1)
        def stamped(): c.sendall(b"x"); return take(1)[1] != []
        until(stamped); c.sendall(b"time"); before = time.time(); polled(s, select.POLLIN, 2000); _, control, _, _ = s.recvmsg(9, 99)
        at = struct.unpack("ll", control[0][2]); at = at[0] + at[1] / (10 ** (6 if stamp == 29 else 9))
        out.append([control[0][0], control[0][1], len(control), abs(at - before) < 60]); s.setsockopt(socket.SOL_SOCKET, stamp, 0)
    s.setsockopt(tcp, INQ, 1); c.sendall(b"end"); c.close(); until(lambda: "RDHUP" in polled(s)); out += [take(3), take(3)]
    return out

@scenario
def nothing_is_on_its_way_to_a_peer_that_does_not_read():
    c, s = pair(); c.sendall(b"hello"); return until(lambda: struct.unpack("i", fcntl.ioctl(c, termios.TIOCOUTQ, b"    "))[0] == 0)

@scenario
def errors_of_a_peer_that_is_killed_while_bytes_are_on_their_way():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN); out = []; l = listener()
    for first in ["send", "recv", "error", "poll"]:
        def dies(): s = answer(l); os.kill(os.getpid(), signal.SIGSTOP); s.close()
        p = child(dies); c = dial(l); os.waitpid(p, os.WUNTRACED); c.setblocking(False)
        try:
            while True: c.send(b"x" * 65536)
        except BlockingIOError: pass
        c.setblocking(True)
        os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
        until(lambda: "HUP" in polled(c, select.POLLIN))
        steps = {"send": lambda: attempt(c.send, b"x"), "recv": lambda: attempt(c.recv, 1), "error": lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "poll": lambda: polled(c)}
        out.append([first] + [steps[one]() for one in [first, first, "poll", "error", "recv", "send", "error", "poll"]])
    return out

@scenario
def poll_of_thousands_of_entries():
    import ctypes
    c, s = pair(); count = min(5000, resource.getrlimit(resource.RLIMIT_NOFILE)[0]); room = bytearray(struct.pack("ihh", -1, 1, 0) * (count - 1) + struct.pack("ihh", s.fileno(), 5, 0))
    entries = (ctypes.c_char * len(room)).from_buffer(room); poll = lambda limit: [ctypes.CDLL(None).poll(entries, count, limit), ev(struct.unpack_from("h", room, len(room) - 2)[0])]
    out = [poll(0)]; c.sendall(b"x"); until(lambda: "IN" in poll(0)[1]); return out + [poll(1000)]

@scenario
def looks_that_wait_and_looks_that_move_on():
    """MSG_PEEK with MSG_WAITALL, SO_RCVLOWAT, and SO_PEEK_OFF."""
    c, s = pair(); out = []; PEEK, ALL = socket.MSG_PEEK, socket.MSG_WAITALL
    later = lambda d: threading.Timer(0.05, lambda: c.sendall(d)).start()
    c.sendall(b"12345"); polled(s, select.POLLIN, 2000); later(b"67890"); out.append(attempt(s.recv, 10, PEEK | ALL)); later(b"ab"); out.append(attempt(s.recv, 12, ALL))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 3); later(b"123"); out.append(attempt(s.recv, 9)); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if not attempt(s.setsockopt, socket.SOL_SOCKET, 42, 2): 
        c.sendall(b"abcdefgh"); polled(s, select.POLLIN, 2000); until(lambda: struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"    "))[0] == 8); offset = lambda: s.getsockopt(socket.SOL_SOCKET, 42)
        out += [attempt(s.recv, 3, PEEK), offset(), attempt(s.recv, 2, PEEK), attempt(s.recv, 4), offset(), attempt(s.recv, 9, PEEK), attempt(s.recv, 9, PEEK | socket.MSG_DONTWAIT)]
        later(b"ij"); out += [attempt(s.recv, 9, PEEK), offset()]; s.setsockopt(socket.SOL_SOCKET, 42, -1); out += [attempt(s.recv, 9, PEEK), attempt(s.recv, 9)]
    c.sendall(b"end"); c.shutdown(socket.SHUT_WR); until(lambda: "RDHUP" in polled(s)); out += [attempt(s.recv, 9, PEEK | ALL), attempt(s.recv, 9, ALL)]
    return out

@scenario
def a_file_goes_out_of_a_connection_into_a_pipe():
    c, s = pair(); r, w = os.pipe(); c.sendall(b"into the pipe"); polled(s, select.POLLIN, 2000)
    f = tempfile.TemporaryFile(); out = [attempt(os.sendfile, f.fileno(), s.fileno(), None, 5), attempt(os.sendfile, w, s.fileno(), None, 100)]
    return out + [attempt(os.read, r, 100), attempt(s.recv, 9, socket.MSG_DONTWAIT)]

@scenario
def what_a_stream_holds_back_goes_where_its_descriptor_goes():
    import ctypes
    c, s = pair(); libc = ctypes.CDLL(None); keep = os.dup(1)
    room = ctypes.create_string_buffer(1000); libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), room, 0, 1000); libc.printf(b"held back "); os.dup2(c.fileno(), 1); libc.printf(b"and %d;", 7); libc.fflush(None); out = recv_exactly(s, 16).decode()
    os.dup2(keep, 1); c.close(); return out, attempt(s.recv, 9)

def young(l, n):
    """A connection whose first end has the number n, which is free."""
    d = socket.socket()
    if d.fileno() != n:
        os.dup2(d.fileno(), n); d.close(); d = socket.socket(fileno=n)
    d.connect(l.getsockname()); r, _ = l.accept()
    return d, r

def another(l, n):
    """As young, and one that has lasted."""
    d, r = young(l, n); warm(d, r)
    return d, r

def exchanged(d, r):
    """Both ends move bytes, for some time."""
    for _ in range(20):
        for one, other in ((d, r), (r, d)):
            one.sendall(b"12345")
            if attempt(recv_exactly, other, 5) != "12345": return False
        time.sleep(0.005)
    return True

@scenario
def a_recv_goes_on_whose_descriptor_another_thread_closes():
    l = listener(); c, s = pair(); n = s.fileno(); got = bytearray(6); out = []
    t = threading.Thread(target=lambda: out.append(attempt(s.recv_into, got, 6, socket.MSG_WAITALL))); t.start()
    c.sendall(b"a"); until(lambda: got[0]); os.close(s.detach())
    d, r = another(l, n); out += [polled(c, select.POLLIN | select.POLLRDHUP), exchanged(d, r)]
    c.sendall(b"bcdef"); t.join(); until(lambda: "RDHUP" in polled(c))
    return out + [got.decode(), attempt(c.recv, 1)]

@scenario
def a_send_goes_on_whose_descriptor_another_thread_closes():
    l = listener(); c, s = pair(); n = c.fileno(); data = pattern(40 << 20, 8); out = []
    t = threading.Thread(target=lambda: out.append(attempt(c.send, data))); t.start()
    until(lambda: unread(s) > 0); os.close(c.detach())
    d, r = another(l, n); out += [exchanged(d, r), recv_all(s) == data]; t.join()
    return out

@scenario
def a_poll_whose_descriptor_another_thread_closes():
    c, s = pair(); n = s.fileno(); out = []
    t = threading.Thread(target=lambda: out.append(polled(n, select.POLLIN, 1000))); t.start()
    until(lambda: sleeps(t)); os.close(s.detach()); t.join()
    return out

@scenario
def a_poll_takes_nothing_of_what_its_number_names_next():
    l = listener(); c, s = pair(); n = s.fileno(); out = []; p = select.poll(); p.register(s, select.POLLIN); p.register(l, select.POLLIN)
    p.poll(1); c.sendall(b"z"); s.recv(1)  # A doorbell lies unread.
    t = threading.Thread(target=lambda: out.append(polled(n, select.POLLIN, 1000))); t.start()
    until(lambda: sleeps(t)); os.close(s.detach()); d, r = young(l, n); r.sendall(b"k" * 9); t.join()
    return out + [attempt(recv_exactly, d, 9)]

@scenario
def a_descriptor_is_closed_under_a_recv_that_has_a_duplicate():
    c, s = pair(); d = s.dup(); got = bytearray(6); out = []
    t = threading.Thread(target=lambda: out.append(attempt(s.recv_into, got, 6, socket.MSG_WAITALL))); t.start()
    c.sendall(b"a"); until(lambda: got[0]); os.close(s.detach()); d.sendall(b"on"); out.append(recv_exactly(c, 2)); d.close()
    out.append(polled(c, select.POLLIN | select.POLLRDHUP)); c.sendall(b"bcdef"); t.join(); until(lambda: "RDHUP" in polled(c))
    return [str(x) for x in out] + [got.decode(), attempt(c.recv, 1)]

@scenario
def a_child_closes_what_another_thread_of_its_parent_reads():
    c, s = pair(); got = bytearray(6)
    t = threading.Thread(target=lambda: s.recv_into(got, 6, socket.MSG_WAITALL)); t.start()
    c.sendall(b"a"); until(lambda: got[0]); r, w = os.pipe(); p = os.fork()
    if p == 0:
        s.close(); c.close(); os.close(w); os.read(r, 1); os._exit(0)
    c.sendall(b"bcdef"); t.join(); s.close(); until(lambda: "RDHUP" in polled(c)); out = [got.decode(), polled(c, select.POLLRDHUP), attempt(c.recv, 1)]
    os.close(w); return out + [reap(p)]

@scenario
def a_close_behind_unread_bytes_is_one_edge_with_them():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET); found = lambda ms=2: [ev(m) for _, m in e.poll(ms)]
    out = [found(0)]; c.sendall(b"x" * 1000); c.close(); until(lambda: s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 8)
    out += [found(), attempt(s.recv, 10), found(0.05), len(attempt(s.recv, 2000)), attempt(s.recv, 1), found(0.05)]
    return out + [attempt(s.send, b"x"), found(), found(0.05), attempt(s.recv, 1), attempt(s.send, b"x")]

@scenario
def a_signal_ends_what_has_done_a_part_whatever_its_flags():
    rings = []; signal.signal(signal.SIGALRM, lambda *_: rings.append(1)); signal.siginterrupt(signal.SIGALRM, False)
    c, s = pair(); signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05); sent = c.send(bytes(100 << 20)); d, r = pair(); d.sendall(b"abc")
    return [0 < sent < 100 << 20, attempt(r.recv, 10, socket.MSG_WAITALL)]

@scenario
def an_end_whose_peer_has_not_taken_the_offer():
    out = []
    for way in ("shutdown", "close", "reset"):
        for read in (True, False):
            l = listener(); c, s = cold(l, 32); l.close(); c.sendall(b"asked")  # Under the switch this offers.
            s.sendall(b"bytes"); until(lambda: unread(s) == unread(c) == 5); many = lambda: several(c)
            if way == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if read: s.recv(5)
            s.shutdown(socket.SHUT_WR) if way == "shutdown" else s.close()
            until(lambda: polled(c, select.POLLRDHUP)); out.append([attempt(c.recv, 2) if way != "reset" else "", many(), polled(c), attempt(c.recv, 9), many(), attempt(c.shutdown, socket.SHUT_WR), polled(c), number_of_error(c)])
    return out

@scenario
def sends_over_tcp_behind_the_close_of_a_switched_peer():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN); out = []
    for way in ("error", "send", "shutdown", "reset"):
        l = listener(); c, s = cold(l, 1); l.close()
        t = threading.Thread(target=c.sendall, args=(bytes(400_000),)); t.start(); recv_exactly(s, 400_000); t.join()
        if way == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close(); until(lambda: polled(c, select.POLLRDHUP))
        first = attempt(c.shutdown, socket.SHUT_WR) if way == "shutdown" else attempt(c.send, b"late"); until(lambda: "HUP" in polled(c, 0))
        out.append([first, polled(c)] + [number_of_error(c) if way == "error" else attempt(c.send, b"later"), polled(c), number_of_error(c), attempt(c.recv, 9), attempt(c.send, b"x"), polled(c)])
    return out

@scenario
def a_connection_that_is_over_has_no_peer():
    out = []
    for way in ("closed", "reset", "unread", "both closed"):
        for first in ("name", "state", "shutdown"):
            c, s = pair(); c.sendall(b"unread") if way == "unread" else None; until(lambda: unread(s) == 6 * (way == "unread"))
            if way == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if way == "both closed": c.shutdown(socket.SHUT_WR); until(lambda: "RDHUP" in polled(s))
            s.close(); until(lambda: c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (7, 8) if first == "state" else polled(c, select.POLLRDHUP))
            calls = [("name", lambda: isinstance(attempt(c.getpeername), tuple)), ("state", lambda: c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]), ("shutdown", lambda: attempt(c.shutdown, socket.SHUT_RD))]
            out.append([way, [call() for _, call in sorted(calls, key=lambda one: one[0] != first)]])
    return out

@scenario
def a_reset_that_ends_a_sleep_is_told_once():
    c, s = cold(listener(), 1); out = []
    t = threading.Thread(target=c.sendall, args=(bytes(400_000),)); t.start(); recv_exactly(s, 400_000); t.join()
    t = threading.Thread(target=lambda: out.append(attempt(s.recv, 9))); t.start(); until(lambda: sleeps(t))
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.close(); t.join()
    return out + [polled(s), number_of_error(s), attempt(s.recv, 9)]

@scenario
def a_receiver_that_sleeps_behind_an_offset_of_looks():
    """SO_PEEK_OFF concerns looks only: a byte before it wakes a thread that receives."""
    c, s = pair(); out = []; s.setsockopt(socket.SOL_SOCKET, 42, 3)
    t = threading.Thread(target=lambda: out.append(attempt(s.recv, 9)), daemon=True); t.start()
    # In the kernel (45), where a doorbell wakes it, and no longer on a word.
    until(lambda: open(f"/proc/self/task/{t.native_id}/syscall").read().startswith("45 ")); c.sendall(b"x"); t.join(20); c.sendall(b"abcdef"); until(lambda: unread(s) == 6)
    return out + [s.getsockopt(socket.SOL_SOCKET, 42), attempt(s.recv, 9, socket.MSG_PEEK), s.getsockopt(socket.SOL_SOCKET, 42)]

@scenario
def a_close_behind_which_nothing_is_kept():
    """TCP_LINGER2 below 0: the peer can send nothing more, and is told so at once."""
    out = []
    for seconds in (-1, 0, 1):
        for first in ("nothing", "bytes", "half", "behind", "young"):
            l = listener(); c = socket.create_connection(l.getsockname()); s, _ = l.accept(); l.close()
            for end in (c, s): end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if first == "young": c.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, seconds)
            warm(c, s)
            if first != "young": c.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, seconds)
            if first == "bytes": c.sendall(b"bytes"); until(lambda: unread(s) == 5)
            if first == "half": c.shutdown(socket.SHUT_WR); until(lambda: "RDHUP" in polled(s, select.POLLRDHUP))
            if first == "behind": s.shutdown(socket.SHUT_WR); until(lambda: "RDHUP" in polled(c, select.POLLRDHUP))
            c.close(); until(lambda: polled(s, 0 if seconds < 0 else select.POLLRDHUP))
            v = [seconds, first, polled(s), attempt(s.recv, 3), attempt(s.recv, 9), attempt(s.send, b"x")]
            until(lambda: polled(s, 0)); out.append(v + [polled(s), number_of_error(s), attempt(s.send, b"x"), attempt(s.recv, 9)])
    return out

@scenario
def files_that_are_on_no_disk():
    """What sendfile says of files of /proc and of devices, and where the offset is behind it."""
    import ctypes
    sendfile = ctypes.CDLL(None, use_errno=True).sendfile; sendfile.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]; sendfile.restype = ctypes.c_ssize_t
    out = []; empty = tempfile.NamedTemporaryFile(); some = tempfile.NamedTemporaryFile(); some.write(bytes(range(30))); some.flush()
    for path in ("/proc/self/status", "/proc/version", "/proc/self/limits", "/proc/sys/kernel/ostype", "/proc/self", "/dev/null", "/dev/zero", empty.name, some.name):
        for offset in (None, 0, 5, 1 << 40):
            for count in (20, 0):
                c, s = pair(); f = os.open(path, os.O_RDONLY); at = ctypes.c_int64(offset or 0)
                n = sendfile(c.fileno(), f, None if offset is None else ctypes.byref(at), count); v = n if n >= 0 else errno.errorcode[ctypes.get_errno()]
                c.shutdown(socket.SHUT_WR); out.append([path if path[1] != "t" else "file", offset, v, at.value, os.lseek(f, 0, os.SEEK_CUR), recv_all(s).decode("latin1")]); os.close(f)
    return out

@scenario
def masks_of_another_length():
    """System calls that wait, with masks of signals of all lengths: the kernel takes those of eight bytes."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long; c, s = pair(); out = []
    def call(number, *a):
        done = libc.syscall(*(ctypes.c_long(x) if isinstance(x, int) else x for x in (number, *a)))
        return done if done >= 0 else errno.errorcode[ctypes.get_errno()]
    e = select.epoll(); e.register(s, select.EPOLLIN); room = ctypes.create_string_buffer(64); none = ctypes.c_uint64(0)
    for sent in (b"", b"x"):
        c.sendall(sent); until(lambda: unread(s) == len(sent))
        for length in (0, 4, 7, 8, 9, 16, 128, -1):
            for mask in (0, ctypes.addressof(none), 1):
                # ppoll, epoll_pwait, epoll_pwait2, pselect6
                entry = ctypes.create_string_buffer(struct.pack("ihh", s.fileno(), select.POLLIN, 0)); time_0 = (ctypes.c_long * 2)(0, 0); sets = (ctypes.c_uint64 * 16)(); sets[s.fileno() // 64] = 1 << s.fileno() % 64; pack = (ctypes.c_long * 2)(mask, length)
                v = [call(271, entry, 1, time_0, mask, length), entry.raw[6], call(281, e.fileno(), room, 4, 0, mask, length), call(441, e.fileno(), room, 4, time_0, mask, length), call(270, s.fileno() + 1, sets, 0, 0, time_0, pack)]
                out.append([sent.decode(), length, mask if mask < 2 else "a mask", v])
    return out

def number_of_error(s):
    return errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "none")

def several(s):
    """What recvmmsg gets for two messages of two bytes: lengths, or an error."""
    import ctypes
    room = ctypes.create_string_buffer(4); entries = [(ctypes.c_void_p * 2)(ctypes.addressof(room) + at, 2) for at in (0, 2)]; heads = (ctypes.c_uint64 * 16)()
    for at, entry in enumerate(entries): heads[8 * at + 2], heads[8 * at + 3] = ctypes.addressof(entry), 1
    got = ctypes.CDLL(None, use_errno=True).recvmmsg(s.fileno(), heads, 2, socket.MSG_DONTWAIT, None)
    return [heads[8 * at + 7] & 0xffffffff for at in range(got)] if got >= 0 else errno.errorcode[ctypes.get_errno()]

# Seconds that no scenario needs on a machine that is busy with other things: what takes longer hangs.
LIMIT = 600

def run_one(name):
    f = {g.__name__: g for g in S}[name]
    print(json.dumps(f(), default=str)); sys.stdout.flush(); os._exit(0)

def main(script=__file__):
    words = [word for word in sys.argv[1:] if word != "--warm"]
    if len(words) > 1 and words[0] == "--one": return run_one(words[1])
    names = words or [f.__name__ for f in S]
    for n in names:
        t = time.monotonic()
        try:
            r = subprocess.run([sys.executable, script, "--one", n] + ["--warm"] * (WARM > 0), capture_output=True, text=True, timeout=LIMIT, start_new_session=True)
            v = r.stdout.strip() if r.returncode == 0 else f"FAILED {r.returncode} {r.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired: v = "TIMEOUT"
        print(f"{n}\t{v}"); sys.stdout.flush()
if __name__ == "__main__": main()
