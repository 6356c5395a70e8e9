//! Parts that the tools of the command `transom` share: how a run [ends](exit), output for
//! [programs](print_json) and for [people](show), [progress], and a [time limit](watchdog).
//!
//! Part of `transom-cli`; this interface follows its needs.

use clap::ValueEnum;

pub(crate) mod exit;
pub(crate) mod pairing;
pub(crate) mod progress;
pub(crate) mod show;
pub(crate) mod watchdog;

/// Prints an object on a line of its own, as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("transom: JSON: {error}"),
    }
}

/// The value of an argument that turns something on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}

impl OnOff {
    /// Whether the value is `on`.
    #[must_use]
    pub(crate) fn is_on(self) -> bool {
        self == OnOff::On
    }

    /// The word of the command line.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// The value of `--path`: the way that bytes may take, as [`transom::Path`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Shared memory between processes of one user on one host, else TCP
    Auto,
    /// As auto, whatever the peer's address looks like
    Process,
    /// TCP
    Tcp,
}

impl Way {
    /// The option of an adapter.
    #[must_use]
    pub(crate) fn path(self) -> transom::Path {
        match self {
            Way::Auto => transom::Path::Auto,
            Way::Process => transom::Path::Process,
            Way::Tcp => transom::Path::Tcp,
        }
    }

    /// The word of the command line.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Auto => "auto",
            Way::Process => "process",
            Way::Tcp => "tcp",
        }
    }
}
