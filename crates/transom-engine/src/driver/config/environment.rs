//! The environment variables of an adapter. No other file of the engine or of a front reads them.
//!
//! | variable | value | without it |
//! |---|---|---|
//! | `TRANSOM_PATH` | `auto`, `process` or `tcp`: see [`Path`]; another word is taken as `tcp` | `auto` |
//! | `TRANSOM_GUESSES` | `off`, or how many tokens that are not its own a peer may name before it is slowed down: see [`GuessLimit`] | 64 |
//! | `TRANSOM_FIRST_WORD` | milliseconds, or `never`: see [`Options::first_word`] | 100 |
//! | `TRANSOM_SPIN` | `off`, `auto`, or microseconds: see [`Spin`] | `auto` |
//! | `TRANSOM_NAME` | the name of every adapter that its program does not name | none |
//! | `TRANSOM_INSPECT` | anything but `0`: the process answers `transom ps` and `transom show` | it does not |
//! | `TRANSOM_LEDGER` | anything but `0`: a ledger of grants is printed at exit; with `strict` or `backtrace` among its words, see [`GrantLedger`] | none |
//! | `TRANSOM_CAPTURE` | a file: see [`CaptureOptions`] | nothing is captured |
//! | `TRANSOM_CAPTURE_PAYLOAD` | bytes of the program's to keep of each frame, or `all` | 64 |
//! | `TRANSOM_CAPTURE_SIZE` | bytes of a file (`64M`), of which there are several then | one file |
//! | `TRANSOM_CAPTURE_FILES` | how many files are kept | 4, if their size is limited |
//! | `TRANSOM_EXPLAIN` | anything but `0`: fronts in C and C++ print each refusal on standard error | quiet |
//! | `TRANSOM_ND1_ONE_WINDOW` | anything but `0`: a version 1 endpoint has one bound window at a time | as many as are bound |
//! | `TRANSOM_ND1_SPEAK_FIRST` | anything but `0`: the passive side of a version 1 connection is refused requests until it has received | it may speak first |

use std::ffi::OsString;
use std::time::Duration;

use super::capture::{CaptureOptions, CaptureRing};
use super::options::{GrantLedger, Options};
use super::path::Path;
use crate::driver::limits::guess_limiter::GuessLimit;
use crate::driver::schedule::spin::Spin;

/// The environment's wishes, read when [`Environment::read`] is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The way that bytes take.
    pub path: Path,
    /// Where `path` comes from, in words: the variable and its value, or that it is the default.
    pub path_source: String,
    /// How peers are slowed down that name tokens which are not theirs; `None`: not at all.
    pub guesses: Option<GuessLimit>,
    /// How long a side that has accepted leaves the first word to a peer that has not promised it.
    pub first_word: Duration,
    /// How long the adapter's thread keeps looking before it sleeps.
    pub spin: Spin,
    /// The name of an adapter that its program does not name.
    pub name: Option<String>,
    /// Answer who asks what is registered.
    pub inspect: bool,
    /// Print what of the grants to peers was not as it should be when the process exits.
    pub ledger: Option<GrantLedger>,
    /// Capture what goes over the connections.
    pub capture: Option<CaptureOptions>,
    /// Print each refusal on standard error.
    pub explain: bool,
    /// A NetworkDirect 1 endpoint has one bound window at a time (ND1 15.1).
    pub nd1_one_window: bool,
    /// The passive side of a NetworkDirect 1 connection may not speak first (ND1 C-7).
    pub nd1_speak_first: bool,
}

impl Environment {
    /// Reads this process's environment; of a process with rights that its caller lacks, nothing.
    #[must_use]
    pub fn read() -> Environment {
        Environment::of(transom_os::environment::variable)
    }

    fn of(value: impl Fn(&str) -> Option<OsString>) -> Environment {
        let (path, path_source) = path(value("TRANSOM_PATH"));
        Environment {
            path,
            path_source,
            guesses: guesses(value("TRANSOM_GUESSES")),
            first_word: first_word(value("TRANSOM_FIRST_WORD")),
            spin: spin(value("TRANSOM_SPIN")),
            name: value("TRANSOM_NAME").map(|name| name.to_string_lossy().into_owned()),
            inspect: is_on(value("TRANSOM_INSPECT")),
            ledger: ledger(value("TRANSOM_LEDGER")),
            capture: capture(&value),
            explain: is_on(value("TRANSOM_EXPLAIN")),
            nd1_one_window: is_on(value("TRANSOM_ND1_ONE_WINDOW")),
            nd1_speak_first: is_on(value("TRANSOM_ND1_SPEAK_FIRST")),
        }
    }
}

impl Options {
    /// The defaults, except where the environment asks for something else.
    #[must_use]
    pub fn from_env() -> Options {
        let Environment { path, guesses, first_word, spin, name, inspect, ledger, capture, .. } =
            Environment::read();
        let defaults = Options::default();
        Options { path, guesses, first_word, spin, name, inspect, ledger, capture, ..defaults }
    }
}

fn is_on(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value != "0")
}

/// Words, separated by commas.
fn ledger(value: Option<OsString>) -> Option<GrantLedger> {
    let value = value.filter(|value| value != "0")?;
    let value = value.to_string_lossy();
    let has = |word| value.split(',').any(|one| one.trim() == word);
    Some(GrantLedger { strict: has("strict"), backtrace: has("backtrace") })
}

/// An unknown word is TCP: a variable that is set asks for something other than the default.
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

/// Neither a number nor `never` counts as not given.
fn first_word(value: Option<OsString>) -> Duration {
    match value.as_ref().and_then(|value| value.to_str()) {
        Some("never") => Duration::MAX,
        Some(number) => number.parse().map_or(transom_iwarp::FIRST_WORD, Duration::from_millis),
        None => transom_iwarp::FIRST_WORD,
    }
}

fn spin(value: Option<OsString>) -> Spin {
    match value.as_ref().and_then(|value| value.to_str()) {
        Some("off") => Spin::Off,
        Some(number) => {
            number.parse().map_or(Spin::Auto, |count| Spin::For(Duration::from_micros(count)))
        }
        None => Spin::Auto,
    }
}

/// A number that is none counts as not given, and so does no file at all.
fn capture(value: &impl Fn(&str) -> Option<OsString>) -> Option<CaptureOptions> {
    let file = value("TRANSOM_CAPTURE")?;
    let payload = match value("TRANSOM_CAPTURE_PAYLOAD") {
        Some(all) if all == "all" => None,
        asked => Some(number(asked).map_or(CaptureOptions::PAYLOAD, |bytes| bytes as usize)),
    };
    let files = number(value("TRANSOM_CAPTURE_FILES")).and_then(|files| u32::try_from(files).ok());
    let size = number(value("TRANSOM_CAPTURE_SIZE"));
    let ring = (files.is_some() || size.is_some()).then(|| CaptureRing {
        files: files.unwrap_or(CaptureRing::USUAL.files).max(1),
        size: size.unwrap_or(CaptureRing::USUAL.size),
    });
    Some(CaptureOptions { file: file.into(), payload, ring })
}

fn number(value: Option<OsString>) -> Option<u64> {
    value.as_ref().and_then(|value| value.to_str()).and_then(CaptureOptions::size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variable: &str, value: &str) -> Environment {
        Environment::of(|asked| (asked == variable).then(|| OsString::from(value)))
    }

    #[test]
    fn an_empty_environment_asks_for_the_defaults() {
        let environment = Environment::of(|_| None);
        assert_eq!(environment.path, Path::Auto);
        assert_eq!(environment.path_source, "the default");
        assert_eq!(environment.guesses, Some(GuessLimit::USUAL));
        assert!(!environment.explain && !environment.inspect);
        assert_eq!((environment.ledger, environment.name), (None, None));
        assert_eq!(environment.capture, None);
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
    fn a_name_is_taken_as_it_is() {
        assert_eq!(of("TRANSOM_NAME", "worker 3").name.as_deref(), Some("worker 3"));
    }

    #[test]
    fn guesses_are_off_or_a_number() {
        assert_eq!(of("TRANSOM_GUESSES", "off").guesses, None);
        let free = |value| of("TRANSOM_GUESSES", value).guesses.map(|limit| limit.free);
        assert_eq!(free("3"), Some(3));
        assert_eq!(free("many"), Some(GuessLimit::USUAL.free));
    }

    #[test]
    fn the_first_word_is_left_to_a_peer_for_so_many_milliseconds_or_for_ever() {
        let first_word = |value| of("TRANSOM_FIRST_WORD", value).first_word;
        assert_eq!(first_word("never"), Duration::MAX);
        assert_eq!(first_word("0"), Duration::ZERO);
        assert_eq!(first_word("250"), Duration::from_millis(250));
        assert_eq!(first_word("soon"), Duration::from_millis(100));
        assert_eq!(Environment::of(|_| None).first_word, Duration::from_millis(100));
    }

    #[test]
    fn the_thread_keeps_looking_not_at_all_as_it_pays_or_for_so_many_microseconds() {
        let spin = |value| of("TRANSOM_SPIN", value).spin;
        assert_eq!(spin("off"), Spin::Off);
        assert_eq!(spin("auto"), Spin::Auto);
        assert_eq!(spin("200"), Spin::For(Duration::from_micros(200)));
        assert_eq!(spin("long"), Spin::Auto);
        assert_eq!(Environment::of(|_| None).spin, Spin::Auto);
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
            assert_eq!(ledger, Some(GrantLedger { strict, backtrace }), "{value}");
        }
        assert_eq!(of("TRANSOM_LEDGER", "0").ledger, None);
    }

    #[test]
    fn a_capture_keeps_64_bytes_and_one_file_by_default() {
        let of = |wishes: &[(&str, &str)]| {
            let value = |asked: &str| wishes.iter().find(|(variable, _)| *variable == asked);
            Environment::of(|asked| value(asked).map(|(_, value)| OsString::from(value))).capture
        };
        let plain = CaptureOptions::to("/c");
        assert_eq!(plain.payload, Some(64));
        assert_eq!(of(&[("TRANSOM_CAPTURE", "/c")]), Some(plain.clone()));
        assert_eq!(of(&[("TRANSOM_CAPTURE_PAYLOAD", "1")]), None);
        for (asked, payload) in [("0", Some(0)), ("2K", Some(2048)), ("all", None), ("x", Some(64))]
        {
            let capture = of(&[("TRANSOM_CAPTURE", "/c"), ("TRANSOM_CAPTURE_PAYLOAD", asked)]);
            assert_eq!(capture.map(|capture| capture.payload), Some(payload), "{asked}");
        }
        let CaptureRing { files, size } = CaptureRing::USUAL;
        let ring = |ring| Some(CaptureOptions { ring: Some(ring), ..plain.clone() });
        let sized = of(&[("TRANSOM_CAPTURE", "/c"), ("TRANSOM_CAPTURE_SIZE", "1M")]);
        assert_eq!(sized, ring(CaptureRing { files, size: 1 << 20 }));
        let counted = of(&[("TRANSOM_CAPTURE", "/c"), ("TRANSOM_CAPTURE_FILES", "9")]);
        assert_eq!(counted, ring(CaptureRing { files: 9, size }));
    }

    #[test]
    fn what_is_asked_for_by_any_word_is_on_unless_that_is_0() {
        for (value, on) in [("1", true), ("yes", true), ("0", false)] {
            assert_eq!(of("TRANSOM_EXPLAIN", value).explain, on, "{value}");
            assert_eq!(of("TRANSOM_INSPECT", value).inspect, on, "{value}");
            let one_window = of("TRANSOM_ND1_ONE_WINDOW", value);
            let speak_first = of("TRANSOM_ND1_SPEAK_FIRST", value);
            assert_eq!((one_window.nd1_one_window, one_window.nd1_speak_first), (on, false));
            assert_eq!((speak_first.nd1_one_window, speak_first.nd1_speak_first), (false, on));
        }
    }
}
