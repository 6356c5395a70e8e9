//! The path that is measured must be the one that protects: before anything is timed, over a
//! connection of the same kind, the peer opens a window, is written to, revokes the window, and is
//! written to again. The second Write must be refused, and must not have moved a byte.

use std::io::{Read, Write};

use transom::{Adapter, ErrorKind, Grant, QueuePair, Rights};

use crate::bench::os::Channel;
use crate::command::exit::{Exit, Failure, Outcome, system};

const BEFORE: u8 = 1;
const AFTER: u8 = 2;
const SIZE: usize = 8;

/// The measuring side. How the second Write was refused.
pub(crate) fn see(adapter: &Adapter, queue: &QueuePair, channel: &mut Channel) -> Outcome<String> {
    let grant = Grant::from_bytes(&queue.recv().wait()?)?;
    let before = adapter.register(vec![BEFORE; SIZE])?;
    let after = adapter.register(vec![AFTER; SIZE])?;
    queue.write(grant, before.slice(..))?.wait()?;
    queue.send([])?.wait()?;
    queue.recv().wait()?;
    let outcome = queue.write(grant, after.slice(..)).and_then(|posted| posted.wait());
    let mut found = [0; SIZE];
    channel
        .write_all(&[0])
        .and_then(|()| channel.read_exact(&mut found))
        .map_err(system("asking the peer what it found"))?;
    judge(outcome, found)
}

/// Whether this is how it must be.
fn judge(outcome: transom::Result<()>, found: [u8; SIZE]) -> Outcome<String> {
    let wrong = |what: String| Err(Failure::new(Exit::CheckFailed, what));
    if found != [BEFORE; SIZE] {
        return wrong(format!("a revoked window was written to: its memory holds {found:?}"));
    }
    match outcome {
        Ok(()) => wrong("a Write through a revoked window was not refused".to_owned()),
        Err(error) if error.kind() == ErrorKind::Refused => Ok(error.to_string()),
        Err(error) => wrong(format!("a Write through a revoked window failed otherwise: {error}")),
    }
}

/// The peer. `forget`: leave the window open, for the test that wants to see it noticed.
pub(crate) fn show(
    adapter: &Adapter,
    queue: &QueuePair,
    channel: &mut Channel,
    forget: bool,
) -> Outcome {
    let memory = adapter.register(vec![0; SIZE])?;
    let window = queue.bind(&memory, .., Rights::WRITE)?;
    queue.send(window.grant().to_bytes())?.wait()?;
    queue.recv().wait()?;
    if forget {
        std::mem::forget(window);
    } else {
        window.revoke().wait()?;
    }
    queue.send([])?.wait()?;
    let mut found = [0; SIZE];
    channel.read_exact(&mut [0]).map_err(system("reading from the measuring side"))?;
    memory.copy_out(0, &mut found)?;
    channel.write_all(&found).map_err(system("telling the measuring side"))
}
