//! A peer that says anything in start-up, to either side of either wire, while the program calls what
//! it may and what it may not.
//!
//! Input: one byte of options as for the stream, one more, the length of our private data, the size of
//! the pieces, the peer's bytes.

use std::time::Duration;

use transom_iwarp::{Config, Ready, Revision, Stream, TerminateForm};
use transom_process::Channel;
use transom_wire::{ReadLimits, Role, SetupError, Time, Wire};

use crate::rings::RECORDS;
use crate::stream::{ACTIVE, CHECKSUM, EXTENSION, Engine, PEER_TO_PEER, REFUSE, STREAM, WORD};

/// Second byte: revision 1.
pub const OLDER: u8 = 1;
/// The other ready-to-receive frame.
pub const READY: u8 = 2;
/// No fence.
pub const OPEN: u8 = 4;
/// siw's form of a Terminate.
pub const SIW: u8 = 8;
/// The program calls what is not its turn.
pub const DISORDER: u8 = 16;
/// Records instead of a stream.
pub const PROCESS: u8 = 32;
/// The link ends before time is up.
pub const LATE: u8 = 64;
/// No reads are offered.
pub const NO_READS: u8 = 128;

/// Plays one input.
pub fn start_up(input: &[u8]) {
    let [options, more, private, piece, bytes @ ..] = input else { return };
    let role = if options & ACTIVE != 0 { Role::Active } else { Role::Passive };
    if more & PROCESS != 0 {
        let config = transom_wire::Config::new(role);
        let engine = Engine::new(Channel::new(config, Time(0)), RECORDS, *options);
        return run(engine, role, (*options, *more), (*private, *piece), bytes);
    }
    let config = Config {
        extension: options & EXTENSION != 0,
        asks_front_word: options & WORD != 0,
        checksum: options & CHECKSUM != 0,
        peer_to_peer: options & PEER_TO_PEER != 0,
        revision: if more & OLDER != 0 { Revision::One } else { Revision::Two },
        preferred_ready: if more & READY != 0 { Ready::Write } else { Ready::Read },
        fence: if more & OPEN == 0 { Duration::MAX } else { Duration::ZERO },
        terminate: if more & SIW != 0 { TerminateForm::Siw } else { TerminateForm::Rfc },
        ..Config::new(role)
    };
    let engine = Engine::new(Stream::new(config, Time(0)), STREAM, *options);
    run(engine, role, (*options, *more), (*private, *piece), bytes);
}

fn run<W: Wire>(
    mut engine: Engine<W>,
    role: Role,
    (options, more): (u8, u8),
    (private, piece): (u8, u8),
    bytes: &[u8],
) {
    let reads = if more & NO_READS != 0 { 0 } else { 4 };
    let limits = ReadLimits { inbound: reads, outbound: reads };
    let private = vec![0xC3; usize::from(private) * 2];
    engine.private.clone_from(&private);
    if options & WORD != 0 {
        engine.wire.set_front_word(0x0102_0304);
    }
    disorder(&mut engine, role, more);
    if role == Role::Active {
        if let Err(error) = engine.wire.connect(engine.now, limits, &private) {
            let known = [508, 504].map(|limit| SetupError::PrivateData { limit });
            assert!(known.contains(&error), "{error:?}");
            engine.wire.connect(engine.now, limits, &[]).unwrap();
        }
        assert_eq!(engine.wire.connect(engine.now, limits, &[]), Err(SetupError::Order));
    }
    engine.wire.receives_posted(engine.now, 4, options & REFUSE != 0);
    engine.speak();
    disorder(&mut engine, role, more);
    engine.play(bytes, usize::from(piece).max(1));
    // A Request that lies here and was not answered, and what waits for time.
    for wait in [Duration::from_millis(25), Duration::from_secs(70)] {
        if more & LATE != 0 {
            engine.pass(wait);
            engine.speak();
        }
    }
    disorder(&mut engine, role, more);
    engine.end();
    let _ = (engine.wire.facts(), engine.wire.retry_older());
}

/// A call out of turn is refused, and changes nothing.
fn disorder<W: Wire>(engine: &mut Engine<W>, role: Role, more: u8) {
    if more & DISORDER == 0 {
        return;
    }
    let limits = ReadLimits { inbound: 9, outbound: 9 };
    let (now, wire) = (engine.now, &mut engine.wire);
    // The engine answers a Request at once, so that it is never time for these.
    assert_eq!(wire.accept(now, limits, &[]), Err(SetupError::Order));
    assert_eq!(wire.reject(now, &[]), Err(SetupError::Order));
    assert_eq!(wire.confirm(now), Err(SetupError::Order));
    if role == Role::Passive {
        assert_eq!(wire.connect(now, limits, &[]), Err(SetupError::Order));
    }
}
