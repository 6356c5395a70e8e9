//! Programs whose calls are interrupted: handlers of signals that call, jump, send and receive, and cancelled threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

mod common;

use common::{command, compiled, there};
use transom_sockets as _;

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

/// Threads that sleep in every kind of call, on switched connections and on others, and are cancelled.
#[test]
fn cancelled_threads_end_in_calls_that_sleep() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("cancels", include_str!("cancels.c"), &["-pthread"]);
    let said = |switched| {
        let output = command(program.to_str().unwrap(), switched).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (tcp, switched) = (said(false), said(true));
    assert_eq!(tcp.1.matches("cleaned, cancelled, the end\n").count(), 28, "{tcp:?}");
    assert_eq!(switched, tcp);
    let many = |switched| {
        let output = command(program.to_str().unwrap(), switched).arg("many").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(many(true), many(false));
}

/// A handler of a signal leaves a call by `siglongjmp`: the connection goes on, and ends when its descriptor is closed.
const JUMPS: &str = r#"
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
static sigjmp_buf back;
static void rings(int number) { siglongjmp(back, number); }
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char b[99];
    int l = socket(AF_INET, SOCK_STREAM, 0);
    bind(l, (void *)&at, size); listen(l, 5); getsockname(l, (void *)&at, &size);
    signal(SIGALRM, rings);
    /* In recv on a word, in recv in the kernel, in poll. */
    for (int turn = 0; turn < 3; turn++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&at, size);
        int s = accept(l, 0, 0);
        for (int i = 0; i < 45; i++) { send(c, "x", 1, 0); recv(s, b, 1, 0); send(s, "y", 1, 0); recv(c, b, 1, 0); }
        struct pollfd there = {s, POLLIN, 0};
        struct itimerval time = {{0, 0}, {0, turn == 0 ? 20000 : 200000}};
        if (!sigsetjmp(back, 1)) {
            setitimer(ITIMER_REAL, &time, 0);
            if (turn == 2) poll(&there, 1, -1); else recv(s, b, 1, 0);
        }
        send(c, "abc", 3, 0);
        long some = recv(s, b, 9, 0), more = send(s, "de", 2, 0), all = recv(c, b, 9, 0);
        close(s);
        printf("%ld %ld %ld, the end %ld\n", some, more, all, recv(c, b, 9, 0));
        close(c);
    }
}
"#;

#[test]
fn a_call_that_is_left_by_a_jump_keeps_no_connection() {
    if !there(&["cc"]) {
        return;
    }
    let program = compiled("jumps", JUMPS, &[]);
    for switched in [false, true] {
        let output = command(program.to_str().unwrap(), switched).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "3 2 2, the end 0\n".repeat(3), "{switched}");
    }
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
/* Of the handler alone: an addition may be interrupted by one. */
static volatile long taken, runs, fails;
static void handler(int n) {
    char b[50];
    (void)n;
    long r = recv(s, b, sizeof b, 0);
    if (r > 0) taken += r;
    else if (r < 0 && errno != EAGAIN) fails++;
    runs++;
}
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    static char b[65536];
    long n, sent = 0, got = 0, wrong = 0;
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
    while ((n = recv(s, b, sizeof b, 0)) != 0) if (n > 0) got += n; else if (errno != EINTR) wrong++;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    wait(0);
    printf("%ld failed, bytes %ld, %s\n", fails + wrong, got + taken - sent, runs > 0 ? "interrupted" : "never interrupted");
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
