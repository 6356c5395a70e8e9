//! Changes of the catalogue, against a stand-in of its calls that refuses any of them.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::catalogue::*;
use super::*;

const HERE: &str = r"C:\Program Files\Transom\transom_nd.dll";
const ELSEWHERE: &str = r"D:\older\transom_nd.dll";

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// The call of this number.
    Call(u32),
    /// The call of this number, and all that follow.
    From(u32),
    /// The call of this number, an install, has recorded its first entry already.
    Midway(u32),
    /// Installs succeed, and record nothing: Wine 8.
    Forgets,
    /// Another program takes an entry of its own out while an install runs.
    Meddled,
}

/// A stand-in of the catalogue, with providers of others.
#[derive(Clone, Debug)]
struct Book {
    entries: Vec<Entry>,
    libraries: Vec<(Id, String)>,
    administrator: bool,
    fault: Fault,
    next: u32,
    calls: Cell<u32>,
}

fn foreign(number: u32, name: &str) -> Entry {
    let mut entry = Version::Two.entries().remove(0);
    entry.provider = Id(number, 7, 7, [7; 8]);
    entry.number = number;
    entry.provider_flags = number % 5;
    for (place, unit) in entry.name.iter_mut().zip(name.encode_utf16().chain([0])) {
        *place = unit;
    }
    entry
}

impl Book {
    fn new() -> Book {
        let entries: Vec<Entry> =
            [(1001, "TCP/IP"), (1002, "UDP/IP"), (1017, "Another NetworkDirect provider")]
                .map(|(number, name)| foreign(number, name))
                .into();
        let libraries =
            entries.iter().map(|e| (e.provider, r"%SystemRoot%\a.dll".to_owned())).collect();
        let (administrator, fault) = (true, Fault::Nothing);
        Book { entries, libraries, administrator, fault, next: 1100, calls: Cell::new(0) }
    }

    /// Each state that a machine may be in before a command.
    fn each() -> Vec<(&'static str, Book)> {
        let empty = Book::new();
        let with = |state: &CatalogueState| {
            let mut book = Book::new();
            assert_eq!(change(&mut book, state), Ok(true));
            book.calls.set(0);
            book
        };
        let mut half = installed(HERE);
        half[1] = Held::default();
        let mut fewer = installed(HERE);
        fewer[0].entries.pop();
        let mut older = installed(ELSEWHERE);
        older[1].entries[1].message_size = 9;
        vec![
            ("empty", empty),
            ("installed", with(&installed(HERE))),
            ("installed elsewhere", with(&installed(ELSEWHERE))),
            ("one version only", with(&half)),
            ("one family only", with(&fewer)),
            ("other entries", with(&older)),
        ]
    }

    fn call(&self, call: &'static str) -> Result<(), Refused> {
        let number = self.calls.replace(self.calls.get() + 1);
        match self.fault {
            Fault::Call(n) if n == number => Err(Refused { call, code: 11003 }),
            Fault::From(n) if n <= number => Err(Refused { call, code: 11003 }),
            _ => Ok(()),
        }
    }

    /// All that is not ours, as it stands.
    fn theirs(&self) -> (Vec<Entry>, Vec<(Id, String)>) {
        let ours = VERSIONS.map(Version::id);
        let entries = self.entries.iter().filter(|e| !ours.contains(&e.provider)).cloned();
        let libraries = self.libraries.iter().filter(|(id, _)| !ours.contains(id)).cloned();
        (entries.collect(), libraries.collect())
    }

    fn of(&self, version: Version) -> Vec<Entry> {
        let ours = self.entries.iter().filter(|entry| entry.provider == version.id());
        ours.cloned().collect()
    }

    fn state(&self) -> CatalogueState {
        look(&Book { fault: Fault::Nothing, ..self.clone() }).unwrap()
    }
}

impl Catalogue for Book {
    fn is_administrator(&self) -> bool {
        self.administrator
    }

    fn entries(&self) -> Result<Vec<Entry>, Refused> {
        self.call("WSCEnumProtocols")?;
        Ok(self.entries.clone())
    }

    fn library(&self, provider: Id) -> Result<String, Refused> {
        let call = "WSCGetProviderPath";
        self.call(call)?;
        let found = self.libraries.iter().find(|(id, _)| *id == provider);
        found.map(|(_, path)| path.clone()).ok_or(Refused { call, code: 10022 })
    }

    fn install(&mut self, provider: Id, library: &str, entries: &[Entry]) -> Result<(), Refused> {
        assert!(self.administrator, "the system refuses it");
        let (call, number) = ("WSCInstallProvider", self.calls.get());
        self.call(call)?;
        if self.fault == Fault::Forgets {
            return Ok(());
        }
        if self.libraries.iter().any(|(id, _)| *id == provider) {
            return Err(Refused { call, code: 11003 });
        }
        assert!(!entries.is_empty(), "the system refuses it");
        self.libraries.push((provider, library.to_owned()));
        for entry in entries {
            self.entries.push(Entry { number: self.next, ..entry.clone() });
            self.next += 1;
            if self.fault == Fault::Midway(number) {
                return Err(Refused { call, code: 8 });
            }
        }
        if self.fault == Fault::Meddled && self.entries[0].number == 1001 {
            self.entries.remove(0);
        }
        Ok(())
    }

    fn remove(&mut self, provider: Id) -> Result<(), Refused> {
        assert!(self.administrator, "the system refuses it");
        let call = "WSCDeinstallProvider";
        self.call(call)?;
        if !self.libraries.iter().any(|(id, _)| *id == provider) {
            return Err(Refused { call, code: 10022 });
        }
        self.libraries.retain(|(id, _)| *id != provider);
        self.entries.retain(|entry| entry.provider != provider);
        Ok(())
    }
}

fn targets() -> [(&'static str, CatalogueState); 2] {
    [("install", installed(HERE)), ("remove", nothing())]
}

/// NetworkDirect's client library asks this of an entry, and finds the version there.
#[test]
fn entries_are_those_that_client_libraries_look_for() {
    let mut seen = Vec::new();
    for (version, number) in [(Version::Two, 0x20000), (Version::One, 1)] {
        for entry in version.entries() {
            assert_eq!(entry.service_flags, [0x8E, 0, 0, 0]);
            assert_eq!(entry.provider_flags, 0x14);
            assert_eq!((entry.version, entry.socket_type), (number, -1));
            assert_eq!((entry.protocol, entry.highest_protocol, entry.chain_length), (0, 0, 1));
            let lengths = (entry.shortest_address, entry.longest_address);
            assert_eq!(lengths, if entry.address_family == 2 { (16, 16) } else { (28, 28) });
            seen.push((entry.version, entry.address_family));
            assert!(entry.name().starts_with("Transom NetworkDirect"), "{entry:?}");
        }
    }
    assert_eq!(seen, [(0x20000, 2), (0x20000, 23), (1, 2), (1, 23)]);
    // Of two entries with one id the client library takes the first one's version for both.
    assert_ne!(Version::One.id(), Version::Two.id());
    assert_eq!((size_of::<Entry>(), std::mem::offset_of!(Entry, name)), (628, 116));
}

#[test]
fn what_others_have_in_the_catalogue_stays() {
    for (from, start) in Book::each() {
        for (command, wanted) in targets() {
            let mut book = start.clone();
            let changes = book.state() != wanted;
            assert_eq!(change(&mut book, &wanted), Ok(changes), "{command}: {from}");
            assert_eq!(book.theirs(), start.theirs(), "{command}: {from}");
            assert_eq!(book.state(), wanted, "{command}: {from}");
            // A version that was right already keeps its numbers.
            for (i, version) in VERSIONS.into_iter().enumerate() {
                let right = start.state()[i] == wanted[i];
                assert!(!right || book.of(version) == start.of(version), "{command}: {from}");
            }
            // And once more.
            let (entries, once) = (book.entries.clone(), change(&mut book, &wanted));
            assert_eq!((once, &book.entries), (Ok(false), &entries), "{command} twice: {from}");
        }
    }
}

/// Whichever call fails, or fails halfway: nothing is different afterwards, and the refusal is named.
#[test]
fn a_change_that_fails_is_taken_back() {
    for (from, start) in Book::each() {
        for (command, wanted) in targets() {
            let mut calls = start.clone();
            change(&mut calls, &wanted).unwrap();
            assert!(calls.calls.get() >= 2);
            for number in 0..calls.calls.get() {
                for fault in [Fault::Call(number), Fault::Midway(number)] {
                    let mut book = Book { fault, ..start.clone() };
                    let done = change(&mut book, &wanted);
                    if done.is_ok() {
                        assert!(matches!(fault, Fault::Midway(_)), "{command}, {fault:?}: {from}");
                        continue; // the call is no install
                    }
                    let failed = done.unwrap_err();
                    assert!(matches!(failed.cause, Cause::Refused(_)), "{failed:?}");
                    assert_eq!(failed.restored, Ok(()), "{command}, {fault:?}: {from}");
                    assert_eq!(book.state(), start.state(), "{command}, {fault:?}: {from}");
                    assert_eq!(book.theirs(), start.theirs(), "{command}, {fault:?}: {from}");
                }
            }
        }
    }
}

/// Where even that is refused, the failure says so, and what others have stays as it was.
#[test]
fn a_catalogue_that_refuses_everything_keeps_the_entries_of_others() {
    for (from, start) in Book::each() {
        for (command, wanted) in targets() {
            let mut calls = start.clone();
            change(&mut calls, &wanted).unwrap();
            for number in 0..calls.calls.get() {
                let mut book = Book { fault: Fault::From(number), ..start.clone() };
                let failed = change(&mut book, &wanted).unwrap_err();
                assert_eq!(book.theirs(), start.theirs(), "{command}, {number}: {from}");
                let same = book.state() == start.state();
                assert!(same || failed.restored.is_err(), "{command}, {number}: {from}");
                if failed.restored.is_err() {
                    let failure = failure(failed);
                    assert_eq!(failure.exit, Exit::System);
                    assert_eq!(failure.remedy.as_deref(), Some("transom provider status"));
                }
            }
        }
    }
}

#[test]
fn without_an_administrator_nothing_is_tried() {
    for (from, start) in Book::each() {
        for (command, wanted) in targets() {
            let mut book = Book { administrator: false, ..start.clone() };
            let done = change(&mut book, &wanted);
            assert_eq!(book.entries, start.entries, "{command}: {from}");
            if start.state() == wanted {
                assert_eq!(done, Ok(false), "{command}: {from}");
                continue;
            }
            let refused = failure(done.unwrap_err());
            assert_eq!(refused.exit, Exit::System);
            assert!(refused.sentence.contains("administrator"), "{}", refused.sentence);
            assert!(refused.remedy.unwrap().contains("Run as administrator"));
        }
    }
}

#[test]
fn a_system_that_records_nothing_is_found_out() {
    let start = Book::new();
    let mut book = Book { fault: Fault::Forgets, ..start.clone() };
    let failed = change(&mut book, &installed(HERE)).unwrap_err();
    assert_eq!(failed, Failed { cause: Cause::NotRecorded, restored: Ok(()) });
    assert_eq!(book.entries, start.entries);
    assert!(failure(failed).sentence.contains("did not record it"));
}

#[test]
fn a_change_of_others_at_the_same_time_is_reported() {
    let start = Book::new();
    let mut book = Book { fault: Fault::Meddled, ..start.clone() };
    let failed = change(&mut book, &installed(HERE)).unwrap_err();
    assert_eq!(failed, Failed { cause: Cause::OthersChanged, restored: Ok(()) });
    assert_eq!(book.entries, start.entries[1..]);
    assert_eq!(book.state(), nothing());
}

#[test]
fn status_says_what_programs_can_use() {
    let there = |_: &Path| true;
    assert!(status(&installed(HERE), there).is_ok());
    let mut half = installed(HERE);
    half[1] = Held::default();
    let mut older = installed(HERE);
    older[0].entries.pop();
    for (state, wrong) in [(nothing(), "2 of 2"), (half, "1 of 2"), (older, "1 of 2")] {
        let refused = status(&state, there).unwrap_err();
        assert_eq!(refused.exit, Exit::CheckFailed);
        assert!(refused.sentence.starts_with(wrong), "{}", refused.sentence);
    }
    assert!(status(&installed(HERE), |_| false).is_err(), "the file is missing");
}

#[test]
fn paths_are_those_that_client_libraries_can_load() {
    for length in [LONGEST_PATH, LONGEST_PATH + 1] {
        let path = PathBuf::from("/".repeat(length - 1) + "é");
        let taken = catalogue_path(&path);
        assert_eq!(taken.is_ok(), length == LONGEST_PATH);
    }
    let variable = catalogue_path(Path::new("/a/%TEMP%/transom_nd.dll")).unwrap_err();
    assert_eq!(variable.exit, Exit::Usage);
    let missing = library(Some(Path::new("/nowhere/transom_nd.dll"))).unwrap_err();
    assert!(missing.sentence.contains("missing"), "{}", missing.sentence);
}
