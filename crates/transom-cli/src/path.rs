//! `--path`, where a command opens adapters.

use clap::{Args as ClapArgs, ValueEnum};
use transom::Options;

/// Which way bytes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Shared memory between processes of one user on one host, else TCP
    Auto,
    /// As auto, whatever the peer's address looks like
    Process,
    /// TCP
    Tcp,
}

/// The argument.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct PathArg {
    /// The way bytes take [default: what TRANSOM_PATH says, or auto]
    #[arg(long, value_enum)]
    path: Option<Way>,
}

impl PathArg {
    /// Options that follow it.
    pub(crate) fn apply(self, options: Options) -> Options {
        match self.path {
            None => options,
            Some(Way::Auto) => options.path(transom::Path::Auto),
            Some(Way::Process) => options.path(transom::Path::Process),
            Some(Way::Tcp) => options.path(transom::Path::Tcp),
        }
    }

    /// The same argument for another process.
    pub(crate) fn words(self) -> Vec<String> {
        let name = self.path.and_then(|way| way.to_possible_value());
        let words = name.map(|name| vec!["--path".to_owned(), name.get_name().to_owned()]);
        words.unwrap_or_default()
    }
}
