//! What the environment asks for. No other file of the engine or of a front reads these variables.
//!
//! | variable | value | without it |
//! |---|---|---|
//! | `TRANSOM_PATH` | `auto`, `process` or `tcp`: see [`Path`]; another word is taken as `tcp` | `auto` |
//! | `TRANSOM_GUESSES` | `off`, or how many tokens that are not its own a peer may name before it is slowed down: see [`GuessLimit`] | 64 |
//! | `TRANSOM_INSPECT` | anything but `0`: the process answers `transom ps` and `transom show` | it does not |
//! | `TRANSOM_LEDGER` | anything but `0`: a ledger of grants is printed at exit; with `strict` or `backtrace` among its words, see [`Ledger`] | none |
//! | `TRANSOM_EXPLAIN` | anything but `0`: fronts in C and C++ print each refusal on standard error | quiet |

use std::ffi::OsString;

use super::options::{Ledger, Options};
use super::path::Path;
use crate::driver::limits::guess_limiter::GuessLimit;

/// The environment's wishes, read when [`Environment::read`] is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The way that bytes take.
    pub path: Path,
    /// Where `path` comes from, in words: the variable and its value, or that it is the default.
    pub path_source: String,
    /// How peers are slowed down that name tokens which are not theirs; `None`: not at all.
    pub guesses: Option<GuessLimit>,
    /// Answer who asks what is registered.
    pub inspect: bool,
    /// Print what of the grants to peers was not as it should be when the process exits.
    pub ledger: Option<Ledger>,
    /// Print each refusal on standard error.
    pub explain: bool,
}

impl Environment {
    /// Reads this process's environment.
    #[must_use]
    pub fn read() -> Environment {
        Environment::of(|variable| std::env::var_os(variable))
    }

    fn of(value: impl Fn(&str) -> Option<OsString>) -> Environment {
        // An empty variable is one that is not set: shells make no difference between the two.
        let value = |variable| value(variable).filter(|value| !value.is_empty());
        let (path, path_source) = path(value("TRANSOM_PATH"));
        Environment {
            path,
            path_source,
            guesses: guesses(value("TRANSOM_GUESSES")),
            inspect: is_on(value("TRANSOM_INSPECT")),
            ledger: ledger(value("TRANSOM_LEDGER")),
            explain: is_on(value("TRANSOM_EXPLAIN")),
        }
    }
}

impl Options {
    /// The defaults, except where the environment asks for something else.
    #[must_use]
    pub fn from_env() -> Options {
        let Environment { path, guesses, inspect, ledger, .. } = Environment::read();
        Options { path, guesses, inspect, ledger, ..Options::default() }
    }
}

fn is_on(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value != "0")
}

/// Words, separated by commas.
fn ledger(value: Option<OsString>) -> Option<Ledger> {
    let value = value.filter(|value| value != "0")?;
    let value = value.to_string_lossy();
    let has = |word| value.split(',').any(|one| one.trim() == word);
    Some(Ledger { strict: has("strict"), backtrace: has("backtrace") })
}

/// An unknown word is TCP: whoever sets the variable wants something other than the default.
fn path(value: Option<OsString>) -> (Path, String) {
    let Some(value) = value else {
        return (Path::default(), "the default".to_owned());
    };
    match value.to_str().and_then(Path::of_name) {
        Some(path) => (path, format!("TRANSOM_PATH={}", path.name())),
        None => {
            let value = value.to_string_lossy();
            (Path::Tcp, format!("TRANSOM_PATH={value} is neither auto, process nor tcp"))
        }
    }
}

fn guesses(value: Option<OsString>) -> Option<GuessLimit> {
    match value.as_ref().and_then(|value| value.to_str()) {
        Some("off") => None,
        Some(free) => match free.parse() {
            Ok(free) => Some(GuessLimit { free, ..GuessLimit::USUAL }),
            Err(_) => Some(GuessLimit::USUAL),
        },
        None => Some(GuessLimit::USUAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variable: &str, value: &str) -> Environment {
        Environment::of(|asked| (asked == variable).then(|| OsString::from(value)))
    }

    #[test]
    fn an_empty_environment_asks_for_the_defaults() {
        for environment in [Environment::of(|_| None), Environment::of(|_| Some(OsString::new()))] {
            assert_eq!(environment.path, Path::Auto);
            assert_eq!(environment.path_source, "the default");
            assert_eq!(environment.guesses, Some(GuessLimit::USUAL));
            assert!(!environment.explain && !environment.inspect);
            assert_eq!(environment.ledger, None);
        }
    }

    #[test]
    fn the_path_is_the_one_named_and_tcp_if_no_path_has_the_name() {
        for path in [Path::Tcp, Path::Auto, Path::Process] {
            let environment = of("TRANSOM_PATH", path.name());
            assert_eq!(environment.path, path);
            assert_eq!(environment.path_source, format!("TRANSOM_PATH={}", path.name()));
        }
        for unknown in ["TCP ", "shm"] {
            let environment = of("TRANSOM_PATH", unknown);
            assert_eq!(environment.path, Path::Tcp);
            assert!(environment.path_source.contains(unknown), "{}", environment.path_source);
        }
    }

    #[test]
    fn guesses_are_off_or_a_number() {
        assert_eq!(of("TRANSOM_GUESSES", "off").guesses, None);
        let free = |value| of("TRANSOM_GUESSES", value).guesses.map(|limit| limit.free);
        assert_eq!(free("3"), Some(3));
        assert_eq!(free("many"), Some(GuessLimit::USUAL.free));
    }

    #[test]
    fn a_ledger_has_words() {
        for (value, strict, backtrace) in [
            ("1", false, false),
            ("strict", true, false),
            ("backtrace", false, true),
            ("strict,backtrace", true, true),
            ("stricter", false, false),
        ] {
            let ledger = of("TRANSOM_LEDGER", value).ledger;
            assert_eq!(ledger, Some(Ledger { strict, backtrace }), "{value}");
        }
        assert_eq!(of("TRANSOM_LEDGER", "0").ledger, None);
    }

    #[test]
    fn explanations_and_inspection_are_on_unless_the_value_is_0() {
        for (value, on) in [("1", true), ("yes", true), ("0", false)] {
            assert_eq!(of("TRANSOM_EXPLAIN", value).explain, on, "{value}");
            assert_eq!(of("TRANSOM_INSPECT", value).inspect, on, "{value}");
        }
    }
}
