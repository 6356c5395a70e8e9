#!/usr/bin/env python3
"""Scenarios of epoll sets, as those of semantics.py: whatever a waiter gets is what the program has given, by
whatever way it waits. Calls are made through ctypes, for Python's own give each entry its descriptor as data."""
import ctypes, mmap
import semantics
from semantics import *

S.clear()

libc = ctypes.CDLL(None, use_errno=True)
IN, OUT, RDNORM, RDHUP, EXCLUSIVE, ONESHOT, EDGE = 1, 4, 0x40, 0x2000, 1 << 28, 1 << 30, 1 << 31
ADD, DEL, MOD = 1, 2, 3
POINTER = 0x7F12_3456_789A_BCD0  # as programs give addresses

class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]

def made(): return libc.epoll_create1(0)

def control(e, what, fd, events=IN, data=POINTER):
    done = libc.epoll_ctl(e, what, fd, ctypes.byref(Event(events, data)))
    return done if done == 0 else errno.errorcode[ctypes.get_errno()]

def wait(e, most=8, ms=5000, by=None):
    room = (Event * most)()
    n = (by or libc.epoll_wait)(e, room, most, ms)
    return sorted((v.events, hex(v.data)) for v in room[:max(n, 0)])

# A system call of the program's own, past every library.
CODE = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3".replace(" ", ""))
PAGE = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); PAGE.write(CODE)
system = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 7)(ctypes.addressof(ctypes.c_char.from_buffer(PAGE)))

def raw_wait(e, room, most, ms): return system(281, e, ctypes.addressof(room), most, ms, 0, 8)
def raw_control(e, what, fd, events=IN, data=POINTER):
    v = Event(events, data); return system(233, e, what, fd, ctypes.addressof(v), 0, 0)

def past(e, data=POINTER):
    """Whatever a call past every library is told of a connection that may be switched has the program's data."""
    return {d for _, d in wait(e, 8, 20, raw_wait)} <= {hex(data)}

def pwait2(e, room, most, ms):
    class Time(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
    return libc.epoll_pwait2(e, room, most, ctypes.byref(Time(ms // 1000, ms % 1000 * 1000000)), None)

def in_thread(f, *a):
    out = []; t = threading.Thread(target=lambda: out.append(f(*a))); t.start()
    return lambda: (t.join(), out[0])[1]

def is_waiting(thread_count=2):
    return until(lambda: sum(open(f"/proc/self/task/{t}/stat").read().split(") ")[1][0] == "S" for t in os.listdir("/proc/self/task")) >= thread_count - 1)

@scenario
def an_entry_whose_descriptor_is_closed_while_another_one_is_open():
    out = []
    for flags in (IN, IN | EDGE, IN | ONESHOT):
        c, s = pair(); e = made(); out.append(control(e, ADD, s.fileno(), flags, 1)); d = os.dup(s.fileno()); third = os.dup(d); closed = s.detach(); os.close(closed)
        c.sendall(b"x"); out += [wait(e), wait(e, ms=0), control(e, MOD, d, IN, 2), control(e, DEL, d), os.read(d, 9).decode(), wait(e, ms=0)]
        c.sendall(b"y"); os.close(d); out += [wait(e, ms=0 if flags & ONESHOT else 5000), os.read(third, 9).decode(), wait(e, ms=0), control(e, ADD, third, IN, 3), control(e, MOD, third, IN, 4)]
        c.sendall(b"z"); out += [(IN, "0x4") in wait(e), os.read(third, 9).decode()]; os.close(third); out += [wait(e, ms=0), attempt(c.recv, 9)]
    return out

@scenario
def an_entry_that_is_removed_when_its_bytes_have_ended_a_sleep():
    """The thread that slept runs a moment later, and finds the bytes of another entry."""
    out = []; a, b = pair(), pair(); e = made()
    for n, (c, s) in enumerate((a, b)): control(e, ADD, s.fileno(), IN, n)
    for remove in (lambda s: (control(e, DEL, s.fileno()), s)[1], lambda s: socket.socket(fileno=os.dup(s.fileno()))):
        for turn in range(10):
            for c, s in (a, b): c.sendall(b"x"); wait(e); s.recv(1); s.sendall(b"y"); c.recv(1)
            t = threading.Thread(target=wait, args=(e, 4, -1), daemon=True); t.start(); in_epoll = ("232", "281", "441")
            until(lambda: open(f"/proc/self/task/{t.native_id}/syscall").read().split()[0] in in_epoll)
            b[0].send(b"x"); a[0].send(b"x"); s = remove(b[1])
            if s is not b[1]: b[1].close()
            b = b[0], s; t.join(60); out.append(t.is_alive())
            if out[-1]: return out
            out.append([attempt(s.recv, 9) for s in (a[1], b[1])]); control(e, DEL, b[1].fileno()); control(e, ADD, b[1].fileno(), IN, 1)
            for c, s in (a, b): s.sendall(b"y"); c.recv(1)
    return out

@scenario
def a_set_that_was_duplicated_before_its_first_socket():
    out = []
    for duplicate in (os.dup, lambda fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3), lambda fd: os.dup2(fd, 90)):
        c, s = pair(); e = made(); d = duplicate(e)
        out += [control(d, ADD, s.fileno(), IN | OUT), wait(e), wait(d), control(e, MOD, s.fileno())]
        c.sendall(b"x"); out += [past(e), wait(e), past(e), wait(d, by=pwait2), s.recv(9).decode(), wait(d, ms=0)]
        os.close(e); c.sendall(b"y"); out += [wait(d), s.recv(9).decode()]; os.close(d)
    return out

@scenario
def a_thread_that_sleeps_before_the_first_socket_is_added():
    out = []
    for way in (None, pwait2, raw_wait):
        c, s = pair(); e = made(); answer = in_thread(wait, e, 4, 5000, way); is_waiting()
        control(e, ADD, s.fileno(), OUT); v = answer(); out += [[d for _, d in v], len(v)]
    for way in (None, pwait2):
        c, s = pair(); e = made(); answer = in_thread(wait, e, 4, 5000, way); is_waiting()
        control(e, ADD, s.fileno(), IN); c.sendall(b"x"); out.append(answer())
    return out

def echoes(c, s, e, data, turns=150, way=None):
    """A thread answers each byte that the set reports; the events that it has got, and how many bytes."""
    def serve():
        got, seen = 0, set()
        while got < turns:
            for v in wait(e, 4, 5000, way) or [("nothing", "")]:
                seen.add(v)
                if v[1] != hex(data): return got, sorted(seen)
                b = s.recv(1); got += len(b); s.sendall(b)
        return got, sorted(seen)
    answer = in_thread(serve); got = 0
    c.settimeout(6)
    try:
        for _ in range(turns): c.sendall(b"x"); got += len(c.recv(1))
    except OSError as x: got = err(x)
    return answer(), got

@scenario
def a_connection_that_is_switched_while_a_thread_sleeps_in_its_set():
    out = []
    for events in (IN, IN | EDGE):
        c, s = pair(); e = made(); control(e, ADD, s.fileno(), events); out.append(echoes(c, s, e, POINTER))
    return out

@scenario
def a_set_that_is_waited_for_past_every_library():
    c, s = cold(); s.setblocking(False); e = made(); control(e, ADD, s.fileno())
    return echoes(c, s, e, POINTER, way=raw_wait)

@scenario
def a_set_that_was_made_past_every_library():
    c, s = cold(); s.setblocking(False); e = system(291, 0, 0, 0, 0, 0, 0); raw_control(e, ADD, s.fileno())
    return echoes(c, s, e, POINTER, way=raw_wait)

@scenario
def a_set_that_was_made_past_every_library_and_waited_for_by_its_calls():
    c, s = cold(); s.setblocking(False); e = system(291, 0, 0, 0, 0, 0, 0); control(e, ADD, s.fileno())
    return echoes(c, s, e, POINTER)

def cold():
    l = listener(); c = socket.create_connection(l.getsockname()); return c, l.accept()[0]

@scenario
def a_connection_whose_set_has_another_descriptor_of_it():
    c, s = cold(); d = s.dup(); e = made(); control(e, ADD, d.fileno())
    return echoes(c, s, e, POINTER)

@scenario
def reported_once_until_it_is_renewed():
    out = []
    for events in (IN | ONESHOT, IN | EDGE | ONESHOT):
        c, s = cold(); e = made(); control(e, ADD, s.fileno(), events); seen, extra = set(), 0
        for turn in range(120):
            c.sendall(b"x"); seen.add(str(wait(e, 4, 5000)))
            if turn % 20 == 3: c.sendall(b"z"); extra += len(wait(e, 4, 20)); s.recv(1)
            s.recv(1); s.sendall(b"y"); c.recv(1); extra += len(wait(e, 4, 0)); control(e, MOD, s.fileno(), events)
        out += [sorted(seen), extra]
    return out

@scenario
def threads_share_a_set_by_reports_that_come_once():
    pairs = [cold() for _ in range(4)]; e = made(); done, twice, lock, busy = [], [], threading.Lock(), set()
    for at, (c, s) in enumerate(pairs): s.setblocking(False); control(e, ADD, s.fileno(), IN | ONESHOT, at)
    def serve():
        while len(done) < 4:
            room = (Event * 2)(); n = libc.epoll_wait(e, room, 2, 20)
            for v in room[:n]:
                c, s = pairs[v.data]
                with lock: twice.append(v.data) if v.data in busy else busy.add(v.data)
                d = attempt(s.recv, 4096)
                if d and d != "EAGAIN": s.sendall(d.encode())
                with lock: busy.discard(v.data)
                control(e, MOD, s.fileno(), IN | ONESHOT, v.data)
    ts = [threading.Thread(target=serve) for _ in range(3)]
    for t in ts: t.start()
    def ask(c):
        c.settimeout(8); ok = True
        try:
            for turn in range(200): c.sendall(b"%5d" % turn); ok = ok and recv_exactly(c, 5) == b"%5d" % turn
        except OSError as x: ok = err(x)
        done.append(1); return ok
    answers = [in_thread(ask, c) for c, _ in pairs]; out = [a() for a in answers]
    for t in ts: t.join()
    return out, twice

@scenario
def entries_with_equal_data():
    (a, b), (c, d) = pair(), pair(); r, w = os.pipe(); e = made(); out = []
    for s in (b, d): s.setblocking(False)
    os.set_blocking(r, False)
    for events in (IN, IN | EDGE, IN | RDNORM, IN | RDNORM | EDGE):
        for fd in (b.fileno(), d.fileno(), r): control(e, ADD, fd, events, 7)
        for turn in range(30):
            for sends in ((a,), (c,), (), (a, c)):
                for s in sends: s.sendall(b"x")
                if turn % 2 or not sends: os.write(w, b"y")
                left, seen = len(sends) + (turn % 2 or not sends), set()
                while left and (got := wait(e, 1 + turn % 3)):
                    seen |= {data for _, data in got}
                    for read in (b.recv, d.recv, lambda n: os.read(r, n)): left -= attempt(read, 9) in ("x", "y")
                out.append((left, sorted(seen))) if (left, sorted(seen)) not in out else None
        for fd in (b.fileno(), d.fileno(), r): control(e, DEL, fd)
    return out

@scenario
def new_data_for_an_entry():
    c, s = pair(); e = made(); out = [control(e, ADD, s.fileno(), IN, 1)]
    for data in (1 << 63, 0, 2, 2):
        out.append(control(e, MOD, s.fileno(), IN, data)); c.sendall(b"x"); out += [wait(e), past(e, data), s.recv(1).decode(), wait(e, ms=0)]
    out += [control(e, DEL, s.fileno()), control(e, ADD, s.fileno(), IN | EDGE, 5)]; c.sendall(b"x")
    return out + [wait(e), wait(e, ms=0), control(e, DEL, s.fileno()), wait(e, ms=0), past(e)]

@scenario
def what_epoll_ctl_refuses():
    c, s = pair(); e = made(); r, w = os.pipe(); out = [control(r, ADD, s.fileno()), control(c.fileno(), ADD, s.fileno()), control(999, ADD, s.fileno()), control(e, ADD, 999), control(e, 9, s.fileno())]
    out += [control(e, MOD, s.fileno()), control(e, DEL, s.fileno()), control(e, ADD, s.fileno(), IN, 1), control(e, ADD, s.fileno(), OUT, 2), control(e, MOD, s.fileno(), IN | EXCLUSIVE, 3)]
    c.sendall(b"x"); out += [wait(e), os.write(w, b"y"), os.read(r, 9).decode(), s.recv(9).decode()]
    control(e, DEL, s.fileno())
    out += [control(e, ADD, s.fileno(), IN | EXCLUSIVE | ONESHOT), control(e, ADD, s.fileno(), IN | EXCLUSIVE, 4), control(e, MOD, s.fileno(), IN, 5)]
    s.sendall(b"z"); out += [c.recv(9).decode()]; c.sendall(b"x")
    return out + [wait(e), s.recv(9).decode(), control(e, DEL, s.fileno()), control(e, DEL, s.fileno())]

@scenario
def an_entry_that_is_woken_alone_and_is_switched():
    c, s = cold(); e = made(); control(e, ADD, s.fileno(), IN | EXCLUSIVE)
    return echoes(c, s, e, POINTER)

def turns(most, events):
    """Behind as many busy connections as there is room for, everything else gets its turn."""
    pairs = [pair() for _ in range(most)]; e = made(); seen = set()
    for c, s in pairs: c.sendall(b"x" * 3000); control(e, ADD, s.fileno(), IN, 1)
    r, w = os.pipe(); l = listener(); t = os.pipe(); n = cold()
    other = {r: 2, l.fileno(): 3, t[0]: 4, n[1].fileno(): 5}
    for fd, data in other.items(): control(e, ADD, fd, IN | events, data)
    for turn in range(400):
        for c, s in pairs: s.recv(1); c.sendall(b"z")
        if turn == 50: os.write(w, b"x"); socket.create_connection(l.getsockname()); os.write(t[1], b"x"); n[0].sendall(b"x")
        seen |= {d for _, d in wait(e, most, 100)}
    return sorted(seen)

def fill(c):
    c.setblocking(False); n = 0
    while (sent := attempt(c.send, bytes(60000))) != "EAGAIN": n += sent
    return n

@scenario
def room_by_edge_once_it_was_reported():
    out = []
    for idle, sleeps in ((0, False), (40, False), (0, True), (40, True)):
        c, s = pair(); e = made(); control(e, ADD, c.fileno(), IN | OUT | EDGE); out += [wait(e)]
        for _ in range(idle): wait(e, ms=0)
        if sleeps: answer = in_thread(wait, e); is_waiting()
        else: answer = lambda: wait(e)
        n = fill(c); out += [len(recv_exactly(s, n)) == n, answer()]
    return out

@scenario
def a_listener_that_was_added_before_it_listened():
    l = socket.socket(); l.bind(("127.0.0.1", 0)); e = made(); out = [control(e, ADD, l.fileno(), IN, 9)]; l.listen(); wait(e, ms=0)
    for turn in range(3):
        c = socket.create_connection(l.getsockname()); out.append(wait(e)); s, _ = l.accept(); warm(c, s); out.append(wait(e, ms=0))
        out.append(control(e, (MOD, DEL, DEL)[turn], l.fileno(), IN, 9) if turn < 2 else None)
        if turn == 1: out.append(control(e, ADD, l.fileno(), IN, 9))
    return out

@scenario
def everything_comes_behind_the_close_of_one_that_waited_for_room():
    out = []
    for turn in range(4):
        c, s = pair(); e = made(); control(e, ADD, c.fileno(), OUT | EDGE); wait(e); n = fill(c); wait(e, ms=20); c.close()
        try: out.append(len(recv_all(s)) == n)
        except OSError as x: out.append(err(x))
    return out

@scenario
def a_mark_for_bytes_beyond_what_is_received():
    c, s = pair(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 28); e = made(); control(e, ADD, s.fileno()); n = 0
    sends = in_thread(lambda: (c.sendall(bytes(30 << 20)), c.shutdown(socket.SHUT_WR)))
    while wait(e) and (d := s.recv(1 << 20)): n += len(d)
    sends(); return n

@scenario
def busy_connections_leave_others_their_turn(): return [turns(most, 0) for most in (1, 2, 5)]

@scenario
def busy_connections_leave_others_their_turn_by_edge(): return [turns(most, EDGE) for most in (1, 2, 5)]

@scenario
def a_child_closes_what_its_parent_waits_for():
    out = []
    for how in (lambda s: s.close(), lambda s: os.closerange(3, 200), lambda s: os.close(s.fileno())):
        c, s = pair(); e = made(); control(e, ADD, s.fileno()); status = reap(child(how, s))
        c.sendall(b"x"); out += [status, wait(e), s.recv(9).decode(), echoes(c, s, e, POINTER)]
    return out

@scenario
def a_child_waits_for_the_set_of_its_parent():
    out = []
    for way in (None, raw_wait):
        c, s = pair(); e = made(); control(e, ADD, s.fileno(), IN, 77); r, w = os.pipe()
        def serve(): os.write(w, repr(wait(e, by=way)[0][1]).encode()); s.sendall(s.recv(9)[::-1])
        p = child(serve); c.sendall(b"abc"); out += [os.read(r, 99).decode(), recv_exactly(c, 3).decode(), reap(p), wait(e, ms=0)]
        c.sendall(b"d"); out += [wait(e), s.recv(9).decode()]
    return out

@scenario
def a_set_that_is_passed_to_another_process():
    c, s = cold(); e = made(); control(e, ADD, s.fileno(), IN, 77); a, b = socket.socketpair(); s.setblocking(False)
    def serve():
        fds = socket.recv_fds(b, 1, 2)[1]; n = 0
        while n < 150:
            v = wait(fds[0])
            if [d for _, d in v] != ["0x4d"]: raise ValueError(v)
            d = attempt(os.read, fds[1], 9); n += d != "EAGAIN"
            if d != "EAGAIN": os.write(fds[1], d.encode())
    p = child(serve); socket.send_fds(a, [b"x"], [e, s.fileno()]); c.settimeout(6); n = 0
    try:
        for _ in range(150): c.sendall(b"x"); n += len(c.recv(1))
    except OSError as x: n = err(x)
    return n, reap(p)

@scenario
def sets_within_sets():
    out = []
    for depth in (1, 3):
        c, s = pair(); inner = made(); sets = [inner]
        for at in range(depth): outer = made(); control(outer, ADD, sets[-1], IN, 100 + at); sets.append(outer)
        control(inner, ADD, s.fileno())
        for way in (None, raw_wait, pwait2):
            c.sendall(b"x"); out += [wait(sets[-1], by=way), wait(inner, by=way)[0][1], s.recv(9).decode(), wait(sets[-1], ms=0)]
        answer = in_thread(wait, sets[-1], 4, 5000, raw_wait); is_waiting(); c.sendall(b"y"); out += [answer(), wait(inner)]
    return out

@scenario
def polling_a_set():
    c, s = cold(); e = made(); control(e, ADD, s.fileno()); n = 0
    def serve():
        for _ in range(150):
            if not polled(e, select.POLLIN, 5000): return "nothing"
            if wait(e) != [(IN, hex(POINTER))]: return "other"
            s.sendall(s.recv(1))
    answer = in_thread(serve); c.settimeout(6)
    try:
        for _ in range(150): c.sendall(b"x"); n += len(c.recv(1))
    except OSError as x: n = err(x)
    return n, answer()

@scenario
def an_edge_while_bytes_that_came_over_tcp_are_unread():
    """Each arrival is one edge, by whichever road it comes, and no other call tells of it again."""
    out = []
    def sends(c, s, data=b"x"): n = unread(s) + len(data); c.sendall(data); return until(lambda: unread(s) == n)
    def in_child(c, s): n = unread(s) + 1; return reap(child(c.sendall, b"x")), until(lambda: unread(s) == n)
    for events in (IN | EDGE, IN | OUT | EDGE, OUT | EDGE, IN | OUT | RDHUP | EDGE):
        c, s = between(); e = made(); out.append(control(e, ADD, s.fileno(), events))
        # 999 bytes over TCP, and 50 in the ring.
        for step in (lambda: 0, lambda: sends(c, s), lambda: sends(c, s), lambda: in_child(c, s), lambda: sends(s, c), lambda: len(s.recv(998)), lambda: sends(c, s),
                     lambda: len(s.recv(1)), lambda: sends(c, s), lambda: len(s.recv(20)), lambda: sends(c, s), lambda: len(s.recv(9999)), lambda: sends(c, s),
                     lambda: (c.shutdown(socket.SHUT_WR), until(lambda: "RDHUP" in polled(s)))):
            out.append((step(), [v for v, _ in wait(e, ms=0)], wait(e, ms=0)))
    return out

MARKED = (IN, IN | OUT, IN | RDHUP, IN | EDGE, IN | OUT | EDGE, IN | RDHUP | EDGE, OUT | EDGE, IN | ONESHOT)

def arrives(c, s, data=b"x"): n = unread(s) + len(data); c.sendall(data); return until(lambda: unread(s) == n)

def marks(c, s, events):
    """What is told of a socket whose mark for bytes (SO_RCVLOWAT, socket(7)) is set, passed by bytes and by reads, and taken back."""
    out = []; there = unread(s); mark = lambda n: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, there + n)
    e = made(); control(e, ADD, s.fileno(), events)
    for step in (lambda: 0, lambda: mark(10), lambda: arrives(c, s, b"12345"), lambda: arrives(c, s, b"678"), lambda: arrives(c, s, b"9AB"), lambda: arrives(c, s), lambda: len(s.recv(6)),
                 lambda: arrives(c, s), lambda: mark(6), lambda: mark(30), lambda: control(e, MOD, s.fileno(), events), lambda: arrives(c, s), lambda: mark(1 - there), lambda: mark(30),
                 lambda: (c.shutdown(socket.SHUT_WR), until(lambda: "RDHUP" in polled(s))), lambda: (s.shutdown(socket.SHUT_WR), until(lambda: "HUP" in polled(s, 0)))):
        out.append((step(), [v for v, _ in wait(e, ms=0)], wait(e, ms=0), polled(s), polled(s, select.POLLIN), select.select([s], [], [], 0)[0] != []))
    return out + [len(recv_all(s))]

@scenario
def a_mark_for_bytes(): return [marks(*pair(), events) for events in MARKED]

@scenario
def a_mark_for_bytes_while_some_are_unread_that_came_over_tcp(): return [marks(*between(), events) for events in MARKED]

@scenario
def a_thread_sleeps_until_a_mark_is_reached():
    """The last byte that it waits for comes by either road; a byte below the mark wakes nobody for good."""
    out = []
    for made_so, there in ((pair, 0), (between, 1049)):
        for events in (IN, IN | EDGE):
            for way in ("poll", "set", "set in a set"):
                c, s = made_so(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, there + 3); e = made(); control(e, ADD, s.fileno(), events); threads = []
                def told():
                    threads.append(threading.current_thread())
                    if way == "poll": return polled(s, select.POLLIN, 20_000)
                    if way == "set": return wait(e, ms=20_000)
                    outer = made(); control(outer, ADD, e, IN, 1)
                    # A byte below the mark may have the outer set report the inner one.
                    while wait(outer, ms=20_000) and not (found := wait(e, ms=0)): pass
                    return found
                answer = in_thread(told); until(lambda: threads and sleeps(threads[0]))
                arrives(c, s); arrives(c, s); until(lambda: sleeps(threads[0])); c.sendall(b"z"); out.append((way, answer()))
    return out

@scenario
def a_reset_is_told_that_nobody_asks_for():
    """ERR and HUP, to entries without RDHUP, while bytes are unread that came over TCP; to those that were reported once, behind a new entry."""
    out = []
    for made_so in (pair, between):
        for events in (IN, 0, OUT | EDGE, IN | EDGE, IN | ONESHOT):
            c, s = made_so(); e = made(); control(e, ADD, s.fileno(), events, 7); out.append([d for _, d in wait(e, ms=0)])
            s.sendall(b"unread"); until(lambda: unread(c) == 6); c.close(); out.append(until(lambda: "ERR|HUP" in polled(s, 0)))
            out += [wait(e, ms=300), wait(e, ms=0), control(e, MOD, s.fileno(), events, 8), wait(e)]
    return out

def between_processes():
    """As between(), with c in a child."""
    l = listener(); r, w = os.pipe()
    def run():
        c = socket.create_connection(l.getsockname())
        for _ in range(32): c.sendall(b"w"); c.recv(1)
        c.sendall(b"z" * 1000); c.recv(1)
        for _ in range(50): c.sendall(b"y")
        os.write(w, b"g"); signal.pause()
    peer = child(run); s, _ = l.accept(); l.close()
    for _ in range(32): s.recv(1); s.sendall(b"w")
    s.recv(1); s.sendall(b"w"); os.read(r, 1); until(lambda: unread(s) == 1049); os.close(r); os.close(w)
    return peer, s

@scenario
def a_peer_is_killed_while_bytes_are_unread_that_came_over_tcp():
    """What has been sent to it, and was not read, makes that a reset; a doorbell does not. Each entry is told once in a call."""
    out = []
    for lost in (True, False):
        for events in (IN, 0, OUT | EDGE, IN | ONESHOT, IN | RDHUP | EDGE):
            peer, s = between_processes(); e = made(); control(e, ADD, s.fileno(), events, 7); out.append([d for _, d in wait(e, ms=0)])
            if lost: s.sendall(b"unread"); until(lambda: struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, b"    "))[0] == 0)
            os.kill(peer, signal.SIGKILL); reap(peer); until(lambda: "RDHUP" in polled(s))
            out += [polled(s, 0), [v for v in wait(e, ms=300) if events != OUT | EDGE], wait(e, ms=0), control(e, MOD, s.fileno(), events, 8), wait(e, ms=0), len(recv_exactly(s, 1049)), attempt(s.recv, 9)]
    return out

@scenario
def events_at_a_wrong_address():
    out = []
    for edge in (0, EDGE):
        c, s = pair(); e = made(); control(e, ADD, s.fileno(), IN | edge); c.sendall(b"x"); polled(s, select.POLLIN, 5000)
        n = libc.epoll_wait(e, ctypes.c_void_p(8), 3, 5000)
        out += [n, errno.errorcode[ctypes.get_errno()], wait(e), wait(e, ms=0)]
    return out

@scenario
def a_set_is_closed_while_a_thread_waits_for_it():
    """The call goes on with what the set has, until there is an event or its time is over, and leaves nothing open."""
    out = []
    def told(e, ms, threads):
        room = (Event * 4)(); threads.append(threading.get_native_id()); n = libc.epoll_wait(e, room, 4, ms)
        return [(v.events, hex(v.data)) for v in room[:n]] if n >= 0 else errno.errorcode[ctypes.get_errno()]
    def waits(thread): return open(f"/proc/self/task/{thread}/syscall").read().split()[0] in ("232", "281", "441")
    for behind, ms in ((lambda c, s: c.sendall(b"x"), 20_000), (lambda c, s: c.close(), 20_000), (lambda c, s: None, 300), (lambda c, s: s.close(), 300)):
        for again in (False, True):
            before = len(os.listdir("/proc/self/fd")); c, s = pair(); e = made(); control(e, ADD, s.fileno()); threads = []
            for _ in range(20): wait(e, ms=1)
            answer = in_thread(told, e, ms, threads); until(lambda: threads and waits(threads[0])); os.close(e)
            if again:
                # The number is that of another set.
                other = made()
                if other != e: os.dup2(other, e); os.close(other)
            behind(c, s); out.append(answer()); c.close(); s.close()
            if again: out.append(wait(e, ms=0)); os.close(e)
            out.append(len(os.listdir("/proc/self/fd")) - before)
    return out

if __name__ == "__main__": main(__file__)
