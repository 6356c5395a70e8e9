//! Configuration of one side of a connection. Everything a peer may see differently is a value
//! here, so that a test can imitate another implementation ([`Config::siw`]).

use std::time::Duration;

use transom_wire::Role;

/// The largest FPDU sent by default, in bytes: the largest that is a multiple of four and fits one
/// segment of Linux's loopback (65,483 bytes). A few bytes more would add a runt segment per frame.
pub const DEFAULT_FRAME: u32 = 65_480;

/// How long a passive side leaves the first word to a peer that has not promised it, by default: a
/// client's first request takes less, and a program hardly notices.
pub const FIRST_WORD: Duration = Duration::from_millis(100);

/// MPA revision of the first start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// RFC 5044: no read limits, no ready-to-receive frame.
    One,
    /// RFC 6581: enhanced set-up.
    Two,
}

/// The frame with which an active side says that it is ready (RFC 6581 9.2). The third, a Send,
/// would use up a receive of the peer's program: it is neither offered nor chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ready {
    /// A zero-length Write (C).
    Write,
    /// A zero-length Read (D).
    Read,
}

/// Bit order of the Terminate control word (iW 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerminateForm {
    /// RFC 5040 4.8.
    Rfc,
    /// The order of Linux's siw on little-endian machines: nibbles swapped, flags in the low bits,
    /// lengths without the header.
    Siw,
}

/// The wishes of one side of a connection. [`Config::new`] gives the profile of iW 13.
#[derive(Clone, Debug)]
pub struct Config {
    /// The wishes that are the same over every wire. Private data: at most 512 bytes (508 with the
    /// enhanced word).
    pub common: transom_wire::Config,
    /// Active side: revision of the Request. The passive side mirrors the peer's.
    pub revision: Revision,
    /// Ask for CRC32c. Checksums are on when either side asks (RFC 5044 7.1.1).
    pub checksum: bool,
    /// Offer, or accept, Transom's extension.
    pub extension: bool,
    /// Passive side: ask a Transom that has a word of its front to tell for it, before its Request is
    /// shown.
    pub asks_front_word: bool,
    /// Active side, revision 2: ask for a ready-to-receive frame (A).
    pub peer_to_peer: bool,
    /// Passive side: the ready-to-receive frame to choose when the peer offers it.
    pub preferred_ready: Ready,
    /// Passive side, where the peer has asked for no ready-to-receive frame: how long the first frame
    /// waits for one of the peer's (iW 1.2 rule 4). siw asks for none and does not keep the rule, so a
    /// peer that is silent for so long waits itself, perhaps. `Duration::MAX`: for ever.
    pub fence: Duration,
    /// Towards a peer without the extension: learn the outcome of a signalled Write from a
    /// zero-length Read: in a slot above the program's limit where the peer serves so many, and
    /// otherwise in whichever of the program's is free.
    pub verdict_reads: bool,
    /// The largest FPDU to send, in bytes, header and checksum included.
    pub largest_frame: u32,
    /// The least read limit that is put on the wire: siw gives a peer that says 0 none at all,
    /// in either direction (iW L2).
    pub least_reads: u32,
    /// Active side, peer without the extension: how long the first frame waits behind the Reply,
    /// and the second behind a ready-to-receive frame, unless the peer speaks first (iW L1).
    pub hold: Duration,
    /// Active side, peer without the extension: a Write of no bytes goes out when the first frame has
    /// been followed by silence for so long, and four more do, each after twice the time of the one
    /// before. siw's acceptor may have overlooked all frames so far; further bytes wake it up (iW
    /// L1). Zero: never.
    pub nudge: Duration,
    /// Bit order of our Terminates.
    pub terminate: TerminateForm,
}

impl Config {
    /// The profile for peers of any kind.
    #[must_use]
    pub fn new(role: Role) -> Config {
        Config {
            common: transom_wire::Config::new(role),
            revision: Revision::Two,
            checksum: true,
            extension: true,
            asks_front_word: false,
            peer_to_peer: true,
            preferred_ready: Ready::Read,
            fence: FIRST_WORD,
            verdict_reads: true,
            largest_frame: DEFAULT_FRAME,
            least_reads: 1,
            hold: Duration::from_millis(20),
            nudge: Duration::from_millis(100),
            terminate: TerminateForm::Rfc,
        }
    }

    /// Behave as Linux's siw does (iW 9), for replays and for tests of the other side.
    #[must_use]
    pub fn siw(role: Role) -> Config {
        let common = transom_wire::Config {
            private_limit: 252,
            reply_timeout: Duration::from_secs(10),
            ..transom_wire::Config::new(role)
        };
        Config {
            common,
            checksum: false,
            extension: false,
            peer_to_peer: false,
            preferred_ready: Ready::Write,
            fence: Duration::ZERO,
            verdict_reads: false,
            least_reads: 0,
            hold: Duration::ZERO,
            nudge: Duration::ZERO,
            terminate: TerminateForm::Siw,
            ..Config::new(role)
        }
    }
}
