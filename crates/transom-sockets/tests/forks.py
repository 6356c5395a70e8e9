#!/usr/bin/env python3
"""Scenarios of processes that start others, as those of semantics.py: by every way, with handlers of pthread_atfork
that use descriptors, and from handlers of signals."""
import ctypes, mmap
import semantics
from semantics import *

S.clear()
libc = ctypes.CDLL(None, use_errno=True)
HANDLER = ctypes.CFUNCTYPE(None)

def talk(c, s, n=3):
    """Bytes both ways between two ends in this process."""
    for _ in range(n): exchange(c, s)
    return n

def ends(pid):
    """How the child ends; False: it hangs."""
    end = time.monotonic() + LIMIT / 2
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9); os.waitpid(pid, 0); return False

def forked(f):
    # The lock of the interpreter stays this thread's, so that handlers in the child can run.
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        code = 9
        try: f(); code = 0
        finally: os._exit(code)
    return pid

KEPT = []
def handlers(**of):
    """Handlers of a fork, registered now: behind those of libraries that are loaded."""
    made = [f if isinstance(f := of.get(at, lambda: None), HANDLER) else HANDLER(f) for at in ("before", "parent", "child")]
    KEPT.extend(made); assert libc.__register_atfork(*made, None) == 0

def without_the_interpreter(call, fd):
    """A handler that makes this call with this descriptor: in a child the interpreter may wait for threads of the parent."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); KEPT.append(page)
    at = ctypes.cast(call, ctypes.c_void_p).value
    page.write(b"\xbf" + struct.pack("i", fd) + b"\x48\xb8" + struct.pack("Q", at) + b"\xff\xe0")  # mov edi; mov rax; jmp rax
    return HANDLER(ctypes.addressof(ctypes.c_char.from_buffer(page)))

def uses(*fds):
    """What handlers of others do: close, duplicate, wait, look at options, make sets and sockets."""
    def act():
        for fd in fds: os.close(os.dup(fd))
        r, w = os.pipe(); os.write(w, b"x"); select.select([r], [], [], 5); os.read(r, 1); os.close(r); os.close(w)
        e = select.epoll(); a = socket.socket(); e.register(a); e.poll(0); e.close(); a.close()
        a, b = socket.socketpair(); a.sendall(b"x"); b.recv(1); a.close(); b.close()
    return act

@scenario
def handlers_of_others_use_descriptors():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); out = []
    use = uses(c.fileno(), s.fileno()); handlers(before=use, parent=use, child=use)
    for turn in range(5):
        c.sendall(b"x"); pid = forked(lambda: talk(c, s, 0)); out += [ends(pid), len(e.poll(5)), s.recv(1).decode(), talk(c, s)]
    return out

@scenario
def a_handler_in_the_child_closes_what_the_parent_uses():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); out = []
    handlers(child=lambda: os.closerange(3, 300))
    for turn in range(3):
        out += [ends(forked(lambda: None))]; c.sendall(b"x"); out += [len(e.poll(5)), s.recv(1).decode(), talk(c, s)]
    return out

@scenario
def handlers_of_others_use_the_connection():
    c, s = pair(); out = []
    handlers(before=lambda: c.sendall(b"before."), child=lambda: (c.sendall(b"child."), os._exit(7)))
    for turn in range(3):
        pid = forked(lambda: None); status = ends(pid); out += [status, recv_exactly(s, 13).decode()]
    return out

def busy(f):
    """While other threads use sockets, sets and the table all the time, with locks of their own."""
    over = threading.Event()
    def work():
        e = select.epoll()
        while not over.is_set():
            c, s = cold(); e.register(s, select.EPOLLIN)
            for _ in range(40): c.send(b"x"); e.poll(1); s.recv(1); s.send(b"y"); c.recv(1)
            e.unregister(s); c.close(); s.close()
    ts = [threading.Thread(target=work) for _ in range(3)]
    for t in ts: t.start()
    try: return f()
    finally:
        over.set()
        for t in ts: t.join()

def cold():
    # Without a look at names, for which the C library has a lock.
    l = listener(); c = socket.socket(); c.connect(l.getsockname()); s, _ = l.accept(); l.close(); return c, s

@scenario
def a_thread_forks_while_others_use_connections():
    c, s = pair(); handlers(child=without_the_interpreter(libc.close, os.dup(c.fileno())))
    def act():
        a, b = cold(); talk(a, b, 40); e = select.epoll(); e.register(b, select.EPOLLIN); a.send(b"x"); assert len(e.poll(5)) == 1; talk(c, s); a.close(); b.close()
    return busy(lambda: [ends(child(act)) for _ in range(25)])

SYS_clone, SIGCHLD = 56, 17
@scenario
def a_child_of_a_system_call():
    c, s = pair(); out = []
    for turn in range(3):
        pid = libc.syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            code = 9
            try:
                a, b = cold(); talk(a, b, 40); e = select.epoll(); e.register(b, select.EPOLLIN); a.send(b"x"); assert len(e.poll(5)) == 1
                c.sendall(b"of the child"); os.close(s.fileno()); code = 0
            finally: os._exit(code)
        out += [recv_exactly(s, 12).decode(), ends(pid), talk(c, s)]
    return out

@scenario
def a_close_leaves_what_wakes_another_process():
    """A child that waits for bytes gets them, though its parent closes the connection before the child has run."""
    c, s = pair(); r, w = os.pipe()
    pid = child(lambda: os.write(w, s.recv(9)))
    until(lambda: open(f"/proc/{pid}/syscall").read().split()[0] == "45"); os.kill(pid, signal.SIGSTOP); os.waitpid(pid, os.WUNTRACED)
    c.sendall(b"x"); s.close(); os.kill(pid, signal.SIGCONT)
    return [os.read(r, 9).decode(), reap(pid)]

@scenario
def a_child_becomes_a_daemon():
    c, s = pair(); r, w = os.pipe()
    def serve():
        libc.daemon(1, 1); os.write(w, b"up"); d = s.recv(9); s.sendall(d[::-1]); os._exit(0)
    pid = forked(serve); status = ends(pid); out = [status, os.read(r, 9).decode()]; c.sendall(b"abc")
    return out + [recv_exactly(c, 3).decode()]

@scenario
def children_by_every_way_of_the_language():
    c, s = pair(); e = select.epoll(); e.register(s, select.EPOLLIN); out = []
    def run(**how): return subprocess.run(["/bin/echo", "x"], capture_output=True, timeout=LIMIT / 2, **how).stdout.decode()
    for how in ({}, {"close_fds": False}, {"preexec_fn": lambda: None}, {"start_new_session": True}, {"pass_fds": [0]}):
        out += [run(**how), talk(c, s)]; c.sendall(b"x"); out += [len(e.poll(5)), s.recv(1).decode()]
    out += [os.popen("echo y").read(), os.system("exit 3") >> 8, talk(c, s), ends(os.posix_spawn("/bin/true", ["true"], os.environ)), talk(c, s)]
    return out

@scenario
def a_handler_of_a_signal_forks():
    c, s = pair(); done = []
    def act(*_):
        pid = os.fork()
        if pid == 0: uses(c.fileno())(); os._exit(0)
        done.append(ends(pid))
    signal.signal(signal.SIGUSR1, act); e = select.epoll(); e.register(s, select.EPOLLIN)
    for turn in range(10):
        os.kill(os.getpid(), signal.SIGUSR1); c.sendall(b"x"); assert len(e.poll(5)) == 1; s.recv(1)
    return done, talk(c, s)

if __name__ == "__main__": main(__file__)
