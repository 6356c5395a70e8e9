//! Errors: the fault, and the side that is to blame.

use std::any::Any;
use std::fmt;
use std::io;

use transom_memory::Denial;
use transom_wire::Blame;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of error that a program may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A peer refused an access to its memory, or an access of a peer to ours was refused. The
    /// connection is over.
    Refused,
    /// Something still hangs on it: windows on a region that was to be deregistered.
    Busy,
    /// An argument that no state of the world would make acceptable.
    Invalid,
    /// More than fits: a queue is full, a message too long, a limit reached.
    TooMuch,
    /// The request was given up because its connection ended.
    Canceled,
    /// There is no connection, or not any more.
    NotConnected,
    /// No host answers at that address.
    Unreachable,
    /// The peer's program said no to the connection.
    Rejected,
    /// The address is taken.
    AddressInUse,
    /// No answer in time.
    TimedOut,
    /// The peer does not keep to the protocol.
    Protocol,
    /// Memory of ours has gone: unmapped, protected, or the file behind it cut short.
    MemoryGone,
    /// The operating system said no.
    System,
    /// The adapter's address has gone from this machine, and its connections and listeners with it.
    /// An address that comes back needs another adapter.
    AddressGone,
    /// The process has forked: handles belong to the parent.
    Forked,
}

/// An error: whose fault, what was asked, why not, what would have been accepted.
///
/// `Display` is one sentence with a remedy where there is one. The parts are there for programs.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    blame: Blame,
    asked: String,
    why: String,
    accepted: Option<String>,
    denial: Option<Denial>,
    explanation: Option<String>,
    source: Option<io::Error>,
    given_back: Option<Box<dyn Any + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        blame: Blame,
        asked: impl Into<String>,
        why: impl Into<String>,
    ) -> Error {
        Error(Box::new(Inner {
            kind,
            blame,
            asked: asked.into(),
            why: why.into(),
            accepted: None,
            denial: None,
            explanation: None,
            source: None,
            given_back: None,
        }))
    }

    pub(crate) fn caller(
        kind: ErrorKind,
        asked: impl Into<String>,
        why: impl Into<String>,
    ) -> Error {
        Error::new(kind, Blame::Caller, asked, why)
    }

    pub(crate) fn peer(kind: ErrorKind, asked: impl Into<String>, why: impl Into<String>) -> Error {
        Error::new(kind, Blame::Peer, asked, why)
    }

    pub(crate) fn system(asked: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::new(ErrorKind::System, Blame::System, asked, why.to_string())
    }

    /// An error of the operating system, which stays the source.
    pub(crate) fn io(asked: impl Into<String>, error: io::Error) -> Error {
        let mut found = Error::system(asked, &error);
        found.0.source = Some(error);
        found
    }

    pub(crate) fn accepted(mut self, what: impl Into<String>) -> Error {
        self.0.accepted = Some(what.into());
        self
    }

    pub(crate) fn with_denial(mut self, denial: Option<Denial>) -> Error {
        self.0.denial = denial;
        self
    }

    pub(crate) fn with_explanation(mut self, explanation: Option<String>) -> Error {
        self.0.explanation = explanation;
        self
    }

    pub(crate) fn giving_back(mut self, what: impl Any + Send + Sync) -> Error {
        self.0.given_back = Some(Box::new(what));
        self
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The party at fault: this program, the peer, the bytes in between, or this machine.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// The request or call that failed.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.0.asked
    }

    /// Why it was not done.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.0.why
    }

    /// The arguments that would have been accepted, if that can be said.
    #[must_use]
    pub fn would_accept(&self) -> Option<&str> {
        self.0.accepted.as_deref()
    }

    /// The full record, if the refusal was this side's own: rule, ranges, rights, likeliest
    /// mistake. A refusal by the *peer* is in the peer's record; see
    /// [`explanation`](Error::explanation).
    #[must_use]
    pub fn denial(&self) -> Option<&Denial> {
        self.0.denial.as_ref()
    }

    /// The peer's words about its refusal, as far as it is willing to (by default only to the
    /// same user on the same host). Untrusted text: printable and bounded.
    #[must_use]
    pub fn explanation(&self) -> Option<&str> {
        self.0.explanation.as_deref()
    }

    /// The value that the failed call had consumed, if it hands it back: a
    /// [`Region`](crate::Region) whose deregistration found windows still bound.
    ///
    /// `Err` returns the error unchanged if there is no such thing in it.
    ///
    /// # Errors
    /// The error itself, unchanged, if there is no such value in it.
    pub fn recover<T: Any>(mut self) -> Result<T, Error> {
        if !self.0.given_back.as_ref().is_some_and(|it| (**it).is::<T>()) {
            return Err(self);
        }
        match self.0.given_back.take().map(|it| (it as Box<dyn Any>).downcast::<T>()) {
            Some(Ok(it)) => Ok(*it),
            _ => Err(self),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.asked, self.0.why)?;
        if let Some(explanation) = &self.0.explanation {
            write!(f, "; the peer says: {}", explanation.trim_end_matches('.'))?;
        }
        match &self.0.accepted {
            Some(accepted) => write!(f, "; would be accepted: {accepted}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("blame", &self.0.blame)
            .field("asked", &self.0.asked)
            .field("why", &self.0.why)
            .field("accepted", &self.0.accepted)
            .field("explanation", &self.0.explanation)
            .field("denial", &self.0.denial)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    /// The error of the operating system behind it, if there is one:
    /// [`NotFound`](io::ErrorKind::NotFound) or [`PermissionDenied`](io::ErrorKind::PermissionDenied) of a
    /// file.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|error| error as _)
    }
}

/// Of the kind of the operating system's error where there is one, otherwise of the nearest kind; the error
/// itself is inside.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match (&error.0.source, error.kind()) {
            (Some(source), _) => source.kind(),
            (None, ErrorKind::Refused) => io::ErrorKind::PermissionDenied,
            (None, ErrorKind::Busy) => io::ErrorKind::ResourceBusy,
            (None, ErrorKind::Invalid) => io::ErrorKind::InvalidInput,
            (None, ErrorKind::Canceled) => io::ErrorKind::ConnectionAborted,
            (None, ErrorKind::NotConnected) => io::ErrorKind::NotConnected,
            (None, ErrorKind::Unreachable) => io::ErrorKind::HostUnreachable,
            (None, ErrorKind::Rejected) => io::ErrorKind::ConnectionRefused,
            (None, ErrorKind::AddressInUse) => io::ErrorKind::AddrInUse,
            (None, ErrorKind::AddressGone) => io::ErrorKind::AddrNotAvailable,
            (None, ErrorKind::TimedOut) => io::ErrorKind::TimedOut,
            (None, ErrorKind::Protocol) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_sentence_with_a_remedy() {
        let error = Error::caller(ErrorKind::TooMuch, "send of 9000 bytes", "inline is up to 4096")
            .accepted("send_from a registered slice");
        assert_eq!(
            error.to_string(),
            "send of 9000 bytes: inline is up to 4096; would be accepted: send_from a registered slice"
        );
    }

    #[test]
    fn what_a_failed_call_consumed_comes_back_once_and_as_its_own_type() {
        let error = Error::caller(ErrorKind::Busy, "a", "b").giving_back(vec![1_u8]);
        let error = error.recover::<String>().unwrap_err();
        // A wrong guess must not lose the thing.
        assert_eq!(error.recover::<Vec<u8>>().unwrap(), vec![1]);
    }

    #[test]
    fn an_error_of_io_has_the_kind_of_its_source_and_the_error_inside() {
        let missing = Error::io("opening a file", io::ErrorKind::NotFound.into());
        assert!(std::error::Error::source(&missing).is_some());
        let text = missing.to_string();
        let io = io::Error::from(missing);
        assert_eq!((io.kind(), io.to_string()), (io::ErrorKind::NotFound, text));
        let refused = io::Error::from(Error::peer(ErrorKind::Rejected, "a", "b"));
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let inside = refused.into_inner().unwrap().downcast::<Error>().unwrap();
        assert_eq!(inside.kind(), ErrorKind::Rejected);
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Error>();
    }
}
