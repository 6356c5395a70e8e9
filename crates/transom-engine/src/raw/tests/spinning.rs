//! The thread of an adapter keeps looking for a while at a link that has kept it busy ([`Spin`]).

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use transom_memory::Rights;
use transom_wire::Time;

use super::harness::*;
use crate::driver::{Looked, Source, SpinWindow};
use crate::raw::{Options, Path, Sink, Spin};
use crate::{Completion, CompletionKind, NotifyKind, Operation, Status};

const FOR_EVER: Spin = Spin::For(Duration::from_secs(3600));

/// A connection to a side whose thread spins as `spin` says, and that thread's number.
fn pair_with(spin: Spin, path: Path) -> (End, End, i32) {
    let active = End::new(&Options { path, ..Options::from_env() });
    let passive = End::new(&Options { path, spin, ..Options::from_env() });
    join(&active, &passive);
    let (from, to) = (active.buffer(8), passive.buffer(8));
    passive.qp.post_receive(1, &[to.all()]).unwrap();
    let (tell, told) = mpsc::channel();
    let number = || std::fs::read_link("/proc/thread-self").unwrap();
    let sink = Sink::call(move |_| tell.send(number()).unwrap());
    passive.cq.notify(NotifyKind::Any, sink).unwrap();
    active.post(Operation::Send, &[from.all()]);
    let path = told.recv_timeout(PATIENCE).unwrap();
    let thread = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    passive.expect(CompletionKind::Receive);
    active.expect(CompletionKind::Send);
    (active, passive, thread)
}

/// A line of the thread's status.
fn status_of(thread: i32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

/// How often the thread has gone to sleep.
fn sleeps(thread: i32) -> u64 {
    status_of(thread, "voluntary_ctxt_switches").parse().unwrap()
}

/// Have `active` read from `passive`, so many times, one after the other.
fn read(active: &End, passive: &End, count: u32) {
    let from = Buffer::new(passive, 64, Rights::LOCAL_WRITE | Rights::REMOTE_READ);
    let to = active.buffer(64);
    let (token, address) = (from.token.0, from.address());
    for _ in 0..count {
        active.post(Operation::Read { token, address }, &[to.all()]);
        active.expect(CompletionKind::Read);
    }
}

#[test]
fn a_thread_that_keeps_looking_is_not_woken_for_each_request() {
    for path in [Path::Auto, Path::Tcp] {
        let (active, passive, thread) = pair_with(FOR_EVER, path);
        read(&active, &passive, 1);
        let before = sleeps(thread);
        read(&active, &passive, 100);
        let slept = sleeps(thread) - before;
        assert!(slept < 50, "{path:?}: the thread slept {slept} times for 100 Reads");
    }
}

/// Between two requests the thread has gone to sleep, by whatever way: the next one wakes it.
#[test]
fn a_thread_that_looks_no_more_is_woken() {
    for spin in [Spin::Off, Spin::Auto, Spin::For(Duration::from_micros(100))] {
        for path in [Path::Auto, Path::Tcp] {
            let (active, passive, thread) = pair_with(spin, path);
            for _ in 0..20 {
                until("the thread sleeps", || status_of(thread, "State").starts_with('S'));
                read(&active, &passive, 1);
            }
        }
    }
}

/// The program's own threads go before: one that blocks gets what has come, and so does one that polls.
#[test]
fn a_thread_of_the_program_takes_over() {
    for path in [Path::Auto, Path::Tcp] {
        let (active, passive, _) = pair_with(FOR_EVER, path);
        let (from, to) = (active.buffer(8), passive.buffer(8));
        for round in 0..50 {
            passive.qp.post_receive(round, &[to.all()]).unwrap();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| passive.cq.wait(Some(PATIENCE)));
                active.post(Operation::Send, &[from.all()]);
                assert_eq!(waits.join().unwrap(), Ok(true));
            });
            passive.expect(CompletionKind::Receive);
            active.expect(CompletionKind::Send);
            read(&active, &passive, 2);
        }
    }
}

#[test]
fn a_thread_that_looks_leaves_a_link_that_has_ended_and_ends_with_its_adapter() {
    for path in [Path::Auto, Path::Tcp] {
        let (active, passive, thread) = pair_with(FOR_EVER, path);
        let (sink, gone) = signal();
        passive.connector.notify_disconnect(sink).unwrap();
        read(&active, &passive, 1);
        active.connector.disconnect(Sink::call(|_| ())).unwrap();
        assert_eq!(gone.wait(), Status::Success);
        drop(active);
        drop(passive);
        let task = format!("/proc/self/task/{thread}");
        until("the thread has ended", || !std::path::Path::new(&task).exists());
    }
}

/// Requests of more links than the thread looks at by itself, and requests that come meanwhile.
#[test]
fn other_links_are_served_meanwhile() {
    for path in [Path::Auto, Path::Tcp] {
        let (active, passive, _) = pair_with(FOR_EVER, path);
        read(&active, &passive, 1);
        let more: Vec<(End, End)> = (0..10)
            .map(|_| {
                let (from, to) = (End::on(&active.adapter), End::on(&passive.adapter));
                join(&from, &to);
                read(&from, &to, 2);
                (from, to)
            })
            .collect();
        for (from, to) in &more {
            read(from, to, 2);
        }
        read(&active, &passive, 2);
    }
}

/// A thread that waits has said that it sleeps, and one that polls has taken the link over: nobody says for them
/// that the peer need not wake it.
#[test]
fn a_link_that_a_thread_waits_for_does_not_stay_awake_for_another_one() {
    for path in [Path::Auto, Path::Tcp] {
        let (_active, passive, _) = pair_with(Spin::Off, path);
        let link = passive.qp.0.qp.link().unwrap();
        let waiting = link.wait_here();
        assert!(!link.stay_awake());
        drop(waiting);
        until("the lease has lapsed", || link.stay_awake());
        until("a thread that polls holds it", || {
            assert_eq!(passive.cq.poll(&mut [Completion::default()]), 0);
            !link.stay_awake()
        });
    }
}

/// A source that answers each look as the test wants, and the last answer for ever.
#[derive(Debug)]
struct Scripted {
    awake: bool,
    answers: Mutex<Vec<Looked>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Scripted {
    fn new(awake: bool, mut answers: Vec<Looked>) -> Arc<Scripted> {
        answers.reverse();
        Arc::new(Scripted { awake, answers: Mutex::new(answers), calls: Mutex::default() })
    }

    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Source for Scripted {
    fn ready(self: Arc<Self>, _now: Time) {}
    fn due(self: Arc<Self>, _now: Time) {}
    fn serve(&self, _now: Time) -> bool {
        false
    }
    fn finish_served(&self) {}
    fn stay_awake(&self) -> bool {
        self.calls.lock().unwrap().push("stay awake");
        self.awake
    }
    fn look_on(&self, _now: Time) -> Looked {
        let mut answers = self.answers.lock().unwrap();
        let last = answers[0];
        let mut calls = self.calls.lock().unwrap();
        if answers.len() > 1 {
            calls.push("look");
            return answers.pop().unwrap();
        }
        if calls.last() != Some(&"the last look") {
            calls.push("the last look");
        }
        last
    }
    fn rest(&self) {
        self.calls.lock().unwrap().push("rest");
    }
    fn stop_accepting(self: Arc<Self>, _status: Status) {}
    fn end(&self, _status: Status) {}
}

/// Have the adapter's thread look on at `sources`, for a window of a microsecond.
fn look_on(sources: &[&Arc<Scripted>]) {
    let end = End::new(&Options::from_env());
    let shared = &end.adapter.0.shared;
    let keys: Vec<u64> = sources
        .iter()
        .map(|source| {
            let key = shared.new_key();
            shared.add_timer(key, Arc::clone(*source) as Arc<dyn Source>);
            key
        })
        .collect();
    shared.look_on(&mut SpinWindow::new(Spin::For(Duration::from_micros(1)), 2), &keys);
}

/// A link that stays awake relies on this thread, until it rests or another thread looks: a link that were
/// left out would sleep through its peer.
#[test]
fn each_link_that_stays_awake_rests_once_or_is_another_threads() {
    use Looked::{Found, InVain, NotHere, Passed};
    let whole = ["stay awake", "look", "look", "look", "the last look", "rest"];
    let found = Scripted::new(true, vec![Found, Passed, Found, InVain]);
    let taken = Scripted::new(true, vec![Found, NotHere]);
    let asleep = Scripted::new(false, vec![Found]);
    look_on(&[&found, &taken, &asleep]);
    assert_eq!(found.calls(), whole);
    assert_eq!(taken.calls(), ["stay awake", "look", "the last look"]);
    assert_eq!(asleep.calls(), ["stay awake"]);
}

#[test]
fn eight_links_are_looked_at_and_the_ninth_rests_as_it_did() {
    let all: Vec<_> = (0..9).map(|_| Scripted::new(true, vec![Looked::InVain])).collect();
    look_on(&all.iter().collect::<Vec<_>>());
    for (number, source) in all.iter().enumerate() {
        let calls = source.calls();
        let expected: &[&str] =
            if number < 8 { &["stay awake", "the last look", "rest"] } else { &[] };
        assert_eq!(calls, expected, "{number}");
    }
}
