//! WSD A-18: a registration is not removed while a message of the peer's on it is being executed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use transom_memory::Rights;
use transom_wire::Operation as Kind;

use super::harness::*;
use crate::raw::{Options, Path, Trace};
use crate::trace::{TraceEvent, What};
use crate::{CompletionKind, Operation, Status};

/// More than sockets and rings hold: a transfer does not end without its reader.
const LENGTH: usize = 64 << 20;

/// Holds up a side inside its pass, once it has come as far as the test wants.
#[derive(Default)]
struct Gate {
    /// Whether a pass is held, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        let shut = |state: &mut (bool, bool)| !state.1;
        let late = self.changed.wait_timeout_while(state, PATIENCE, shut).unwrap().1;
        assert!(!late.timed_out(), "the test never went on");
    }

    fn until_held(&self) {
        let free = |state: &mut (bool, bool)| !state.0;
        let state = self.state.lock().unwrap();
        let late = self.changed.wait_timeout_while(state, PATIENCE, free).unwrap().1;
        assert!(!late.timed_out(), "the transfer never came this far");
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

fn traced(path: Path, f: impl Fn(What) + Send + Sync + 'static) -> Options {
    let trace = Trace(Arc::new(move |event: &TraceEvent| f(event.what)));
    Options { trace: Some(trace), path, ..Options::from_env() }
}

fn is_busy_while(kind: CompletionKind, path: Path) {
    let gate = Arc::new(Gate::default());
    // A reader stops with the first piece of the answer, a writer as soon as its first piece was placed.
    let arrived = Arc::new(AtomicBool::new(false));
    let (at_peer, held) = (arrived.clone(), gate.clone());
    let active = End::new(&traced(path, move |what| match what {
        What::Placed { operation: Kind::Read, .. } => held.hold(),
        What::FrameOut { payload, .. } if payload > 0 && at_peer.load(Ordering::Acquire) => {
            held.hold();
        }
        _ => {}
    }));
    let passive = End::new(&traced(path, move |what| {
        if let What::Placed { operation: Kind::Write, .. } = what {
            arrived.store(true, Ordering::Release);
        }
    }));
    join(&active, &passive);
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    let mine = active.buffer(LENGTH);
    let [theirs, other] = [LENGTH, 64].map(|length| Buffer::new(&passive, length, rights));
    let (token, address) = (theirs.token.0, theirs.address());
    let operation = match kind {
        CompletionKind::Read => Operation::Read { token, address },
        _ => Operation::Write { token, address },
    };
    // The posting thread may be the one that is held.
    std::thread::scope(|scope| {
        scope.spawn(|| active.post(operation, &[mine.all()]));
        gate.until_held();
        let refused = passive.qp.deregister_unused(theirs.token).unwrap_err();
        assert_eq!(refused.status, Status::DeviceBusy);
        assert_eq!(passive.qp.deregister_unused(other.token), Ok(()), "another is not in use");
        gate.open();
    });
    active.expect(kind);
    assert_eq!(passive.qp.deregister_unused(theirs.token), Ok(()));
    let gone = passive.qp.deregister_unused(theirs.token).unwrap_err();
    assert_eq!(gone.status, Status::InvalidParameter(0));
}

#[test]
fn a_region_that_the_peer_reads_is_busy() {
    for path in [Path::Auto, Path::Tcp] {
        is_busy_while(CompletionKind::Read, path);
    }
}

#[test]
fn a_region_that_the_peer_writes_is_busy() {
    for path in [Path::Auto, Path::Tcp] {
        is_busy_while(CompletionKind::Write, path);
    }
}
