//! How a run ends.

use std::process::ExitCode;

use transom::{Blame, ErrorKind};

/// Exit statuses; documented in `transom --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command ran, and something was not as it must be.
    CheckFailed = 1,
    /// The arguments cannot be served (clap uses 2 for what it cannot parse).
    Usage = 2,
    /// No listener answers there, or the answer is no.
    NoConnection = 3,
    /// The peer refused an access, or broke the protocol.
    Peer = 4,
    /// This machine said no.
    System = 5,
}

/// The table of exit statuses for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit status:
  0  done, and everything was as it must be
  1  it ran, but something was not as it must be (the output says what)
  2  the command line asks for something that cannot be
  3  no connection: nobody answers, the peer says no, or it fell silent
  4  the peer refused an access or broke the protocol
  5  this machine said no: a file, a port, memory";

/// Why a command failed: a sentence, and what to try.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) exit: Exit,
    /// A sentence about what went wrong.
    pub(crate) sentence: String,
    /// Advice on what to try instead.
    pub(crate) remedy: Option<String>,
}

/// The result of a command, or of a part of one.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure without a remedy.
    pub(crate) fn new(exit: Exit, sentence: impl Into<String>) -> Failure {
        Failure { exit, sentence: sentence.into(), remedy: None }
    }

    /// Adds what to try instead.
    #[must_use]
    pub(crate) fn try_this(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }

    /// Prints the failure on standard error; its exit status. Arguments and names in it are no commands to a terminal.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("transom: {}", plain_lines(self.sentence.trim_end_matches('.')));
        if let Some(remedy) = &self.remedy {
            eprintln!("    try: {}", plain_lines(remedy));
        }
        ExitCode::from(self.exit as u8)
    }
}

/// A text of several lines, with escapes for what a terminal would obey.
pub(crate) fn plain_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(transom_inspect::printable).collect();
    lines.join("\n")
}

impl From<transom::Error> for Failure {
    fn from(error: transom::Error) -> Failure {
        let exit = match (error.kind(), error.blame()) {
            (
                ErrorKind::Unreachable
                | ErrorKind::Rejected
                | ErrorKind::NotConnected
                | ErrorKind::Canceled
                | ErrorKind::TimedOut,
                _,
            ) => Exit::NoConnection,
            (ErrorKind::AddressInUse, _) | (_, Blame::System) => Exit::System,
            (_, Blame::Caller) => Exit::Usage,
            (_, Blame::Peer | Blame::Wire) => Exit::Peer,
        };
        let remedy = error.would_accept().map(str::to_owned);
        let mut sentence = format!("{}: {}", error.asked(), error.why());
        if let Some(explanation) = error.explanation() {
            sentence = format!("{sentence}; the peer says: {explanation}");
        }
        Failure { exit, sentence, remedy }
    }
}

/// An operating-system error, with what was being done.
pub(crate) fn system(doing: &str) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::new(Exit::System, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented_and_distinct() {
        for exit in [Exit::CheckFailed, Exit::Usage, Exit::NoConnection, Exit::Peer, Exit::System] {
            let line = format!("\n  {}  ", exit as u8);
            assert_eq!(EXIT_CODES.matches(&line).count(), 1, "{exit:?}");
        }
    }
}
