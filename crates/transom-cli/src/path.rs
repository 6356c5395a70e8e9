//! `--path`, where a command opens adapters.

use crate::command::Way;
use clap::Args as ClapArgs;
use transom::Options;

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
            Some(way) => options.path(way.path()),
        }
    }

    /// This argument, as words for another process.
    pub(crate) fn words(self) -> Vec<String> {
        let words = self.path.map(|way| vec!["--path".to_owned(), way.name().to_owned()]);
        words.unwrap_or_default()
    }
}
