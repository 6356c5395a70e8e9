//! How an adapter is opened.

use std::sync::Arc;
use std::time::Duration;

use transom_iwarp::{Config, Revision};
use transom_memory::QueuePairId;
use transom_wire::{ReadLimits, Role};

use super::capture::CaptureOptions;
use super::path::{Path, PathReason, shared_links};
use crate::driver::limits::admission::HalfOpen;
use crate::driver::limits::guess_limiter::GuessLimit;
use crate::driver::schedule::spin::Spin;
use crate::sys::{self, IoError};
use crate::trace::TraceEvent;
use crate::{Caps, Dialect, QueuePairEvent, Status, dialect};

/// The peers that may learn why an access was refused, beyond the class of rule (design rule 4).
/// The owner always keeps the whole record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Explain {
    /// No peer.
    Nobody,
    /// A peer of this user on this host.
    #[default]
    SameUser,
    /// Every peer. An attacker learns from refusals.
    Everyone,
}

/// Options of an adapter. All have defaults; [`Options::from_env`] takes the environment's wishes for
/// some of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// The adapter's name, as `transom ps` shows it.
    pub name: Option<String>,
    /// The generation of interface that its objects follow.
    pub dialect: &'static Dialect,
    /// Ask for a checksum over every frame. A peer that asks for it gets it either way.
    pub checksum: bool,
    /// Offer, or accept, Transom's extension.
    pub extension: bool,
    /// Ask a Transom that connects over TCP for the [word of its front](crate::raw::Connector::set_front_word)
    /// before its request is shown, which takes one more round trip. Over shared memory the word comes with the request.
    pub asks_front_word: bool,
    /// Reads served, and under way, at a time (ND2 4.8).
    pub reads: ReadLimits,
    /// Largest registration in bytes (ND2 R8).
    pub largest_region: u64,
    /// Largest transfer in bytes (ND2 3.3).
    pub largest_transfer: u64,
    /// The largest frame to send; the wire keeps to the link's segment size below that.
    pub largest_frame: u32,
    /// How long a thread that polls keeps the background thread away from its links.
    pub lease: Duration,
    /// See [`Spin`].
    pub spin: Spin,
    /// See [`Explain`].
    pub explain: Explain,
    /// Print each call on standard error that is refused at once for its memory: for fronts whose calls
    /// return a bare number.
    pub explain_calls: bool,
    /// How many peers may be half-way through start-up, at all listeners of an adapter.
    pub half_open: HalfOpen,
    /// How peers are slowed down that name tokens which are not theirs; `None`: not at all.
    pub guesses: Option<GuessLimit>,
    /// Give up on a peer host that acknowledges no byte for so long (TCP_USER_TIMEOUT).
    pub silence: Duration,
    /// How long a side that has accepted leaves the first word to a peer that is no Transom and has
    /// promised no ready-to-receive frame, as Linux's siw: then it may send. `Duration::MAX`: for ever
    /// (RFC 5044 7.1.2).
    pub first_word: Duration,
    /// Congestion control to pin, e.g. `cubic`; ignored if the system does not have it.
    pub congestion: Option<String>,
    /// See [`Path`].
    pub path: Path,
    /// Share memory with processes of other users, too, if they say the same.
    pub other_users: bool,
    /// Over how many connections memory is shared at a time; the next ones take TCP. By default 512,
    /// and at most an eighth of the descriptors, and of the address space, that the process may have (`ulimit -n`, `-v`).
    pub shared_links: usize,
    /// Share regions that were made to be shared
    /// ([`Adapter::shared_memory`](crate::raw::Adapter::shared_memory)) with peers' processes of the same
    /// user, and map theirs. Off, such memory is memory like any other.
    pub shared_regions: bool,
    /// Answer processes of this user that ask what is registered, which peers may touch it, and
    /// what was refused: on a socket in the user's runtime directory, with a thread of its own.
    /// Memory itself is never shown.
    pub inspect: bool,
    /// See [`GrantLedger`].
    pub ledger: Option<GrantLedger>,
    /// See [`CaptureOptions`].
    pub capture: Option<CaptureOptions>,
    /// See [`Trace`].
    pub trace: Option<Trace>,
    /// See [`EventSink`].
    pub events: Option<EventSink>,
}

/// Print, when the process exits, what of the grants to peers was not as it should be: never used, never
/// revoked, broader than any use, used after it was revoked, open to a whole domain, still open when
/// its connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantLedger {
    /// With findings, a process that would exit with 0 exits with
    /// [`LEDGER_STATUS`](super::super::grants::LEDGER_STATUS).
    pub strict: bool,
    /// Print all functions that led to each grant, rather than the nearest of the program.
    pub backtrace: bool,
}

/// Receives what happens to queue pairs behind their program's back, with no lock held, on the thread
/// that made it happen: it may call anything.
#[derive(Clone)]
pub struct EventSink(pub Arc<dyn Fn(QueuePairId, QueuePairEvent, Resets) + Send + Sync>);

/// How often a queue pair had begun anew when something happened to it. A sink may run behind the next reset
/// ([`QueuePair::unless_reset`](crate::raw::QueuePair::unless_reset)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resets(pub(crate) u64);

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventSink")
    }
}

/// Receives every event of the engine, on the thread that made it and under that link's lock: it
/// must be quick and call nothing of the adapter.
#[derive(Clone)]
pub struct Trace(pub Arc<dyn Fn(&TraceEvent) + Send + Sync>);

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trace")
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: None,
            dialect: &dialect::ND2,
            checksum: true,
            extension: true,
            asks_front_word: false,
            reads: ReadLimits { inbound: 16, outbound: 16 },
            largest_region: 1 << 46,
            largest_transfer: 1 << 30,
            largest_frame: transom_iwarp::DEFAULT_FRAME,
            lease: Duration::from_millis(1),
            spin: Spin::default(),
            explain: Explain::default(),
            explain_calls: false,
            half_open: HalfOpen::default(),
            guesses: Some(GuessLimit::USUAL),
            silence: Duration::from_secs(10),
            first_word: transom_iwarp::FIRST_WORD,
            congestion: None,
            path: Path::default(),
            other_users: false,
            shared_links: shared_links(),
            shared_regions: true,
            inspect: false,
            ledger: None,
            capture: None,
            trace: None,
            events: None,
        }
    }
}

impl Options {
    /// Why nothing but TCP is to be thought of, if so.
    pub(crate) fn tcp_only(&self) -> Option<PathReason> {
        match self.path {
            Path::Tcp => Some(PathReason::TcpOnly),
            _ if !self.extension => Some(PathReason::NoExtension),
            _ => None,
        }
    }

    /// The path that an adapter with these options would take, and why: what can be said before there
    /// is a peer. Memory is shared for a moment to see whether the system allows it.
    #[must_use]
    pub fn outlook(&self) -> (Path, String) {
        if let Some(reason) = self.tcp_only() {
            return (Path::Tcp, reason.to_string());
        }
        if let Err(error) = sys::try_to_share() {
            return (Path::Tcp, format!("{}: {error}", PathReason::System));
        }
        let whose = if self.other_users {
            "of any user that says the same".to_owned()
        } else {
            format!("of user {}", sys::user())
        };
        let where_to = match self.path {
            Path::Process => "whatever their addresses look like",
            _ => "at addresses of this host",
        };
        let text = format!(
            "shared memory with processes {whose}, {where_to}, over {} connections at a time; else TCP",
            self.shared_links
        );
        (self.path, text)
    }

    /// The limits and wishes with which a connection's wire is made.
    pub(crate) fn wire(&self, role: Role, revision: Revision) -> Config {
        Config {
            revision,
            checksum: self.checksum,
            extension: self.extension,
            asks_front_word: self.asks_front_word,
            largest_frame: self.largest_frame,
            fence: self.first_word,
            common: transom_wire::Config {
                read_caps: self.reads,
                ..transom_wire::Config::new(role)
            },
            ..Config::new(role)
        }
    }

    /// Limits of connectors.
    #[must_use]
    pub fn caps(&self) -> Caps {
        let private = transom_wire::Config::new(Role::Active).private_limit;
        Caps { reads: self.reads, caller_data: private, callee_data: private }
    }

    pub(crate) fn sockets(&self) -> crate::sys::Options {
        crate::sys::Options { silence: self.silence, congestion: self.congestion.clone() }
    }
}

/// The status that a front gets for a failure of the link (ND2 3.5).
pub(crate) fn status_of(e: IoError) -> Status {
    match e {
        IoError::Refused => Status::ConnectionRefused,
        IoError::Reset => Status::ConnectionAborted,
        IoError::TimedOut => Status::IoTimeout,
        IoError::Unreachable => Status::HostUnreachable,
        IoError::NoRoute => Status::NetworkUnreachable,
        IoError::InUse => Status::SharingViolation,
        IoError::NotLocal | IoError::Forbidden => Status::InvalidAddress,
        IoError::NoPort => Status::TooManyAddresses,
        IoError::Exhausted => Status::InsufficientResources,
        IoError::NotNow | IoError::Fault | IoError::Other(_) => Status::InternalError,
    }
}
