//! Where in the program grants are made: one number for all that come from the same line.

use std::backtrace::Backtrace;
use std::collections::HashMap;

/// Places that are kept apart; later ones are unknown.
const MOST: usize = 4096;

/// The places of a process, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Sites {
    numbers: HashMap<Vec<usize>, u32>,
    traces: Vec<Backtrace>,
}

impl Sites {
    /// The number of the place with these frames, which the calling thread is at; 0 if there are too
    /// many.
    pub(super) fn number(&mut self, frames: Vec<usize>) -> u32 {
        if let Some(number) = self.numbers.get(&frames) {
            return *number;
        }
        if self.traces.len() >= MOST {
            return 0;
        }
        // Names and lines are looked up when it is printed.
        self.traces.push(Backtrace::force_capture());
        let number = self.traces.len() as u32;
        self.numbers.insert(frames, number);
        number
    }

    /// The functions of the program that led to a place, the nearest first.
    pub(super) fn trace(&self, number: u32) -> Option<Vec<Frame>> {
        let trace = self.traces.get((number as usize).checked_sub(1)?)?;
        Some(of_the_program(frames(&trace.to_string())))
    }
}

/// A frame of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The function.
    pub(super) name: String,
    /// File and line, if they are known.
    pub(super) line: Option<String>,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.line {
            Some(line) => write!(f, "{} ({line})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The frames of a printed backtrace: `  3: NAME`, and on the next line `at FILE:LINE:COLUMN` if that is
/// known.
fn frames(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                // The column says nothing that a reader needs.
                let column = place.rsplit_once(':').filter(|(file, _)| file.contains(':'));
                let line = column.map_or(place, |(line, _)| line);
                frame.line = Some(line.trim_start_matches("./").to_owned());
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            frames.push(Frame { name: name.to_owned(), line: None });
        }
    }
    frames
}

/// The frames of the program: those behind Transom's own, without the standard library's.
fn of_the_program(frames: Vec<Frame>) -> Vec<Frame> {
    let behind = frames.into_iter().skip_while(|frame| frame.is_transom() || frame.is_standard());
    behind.filter(|frame| !frame.is_standard()).collect()
}

/// The crates whose functions lie between a program and its grant.
const CRATES: [&str; 9] = [
    "transom",
    "transom_core",
    "transom_engine",
    "transom_memory",
    "transom_ndkpi",
    "transom_networkdirect",
    "transom_rdmacm",
    "transom_verbs",
    "transom_winsock_direct",
];

impl Frame {
    /// Whether the frame belongs to Transom: by its name or, for an inlined function with a short
    /// name, by its file.
    fn is_transom(&self) -> bool {
        /// Functions of C interfaces.
        const ENTRIES: [&str; 4] = ["ibv_", "rdma_", "__ibv_", "__rdma_"];
        let bare = self.name.trim_start_matches(['<', '&', '(']);
        let of_crate = bare.split_once("::").is_some_and(|(first, _)| CRATES.contains(&first));
        let of_entry = ENTRIES.iter().any(|entry| bare.starts_with(entry));
        of_crate || of_entry || self.line.as_deref().is_some_and(is_source_of_transom)
    }

    fn is_standard(&self) -> bool {
        let bare = self.name.trim_start_matches(['<', '&', '(']);
        let named = ["core::", "std::", "alloc::", "__rust"].iter().any(|it| bare.starts_with(it));
        named || self.line.as_deref().is_some_and(|line| line.starts_with("/rustc/"))
    }
}

/// Whether a file lies in the folder `src` of one of [`CRATES`], which may have its version behind its
/// name.
fn is_source_of_transom(line: &str) -> bool {
    let path = std::env::current_dir().unwrap_or_default().join(line);
    let mut folders = path.iter().filter_map(|part| part.to_str()).collect::<Vec<_>>();
    folders.pop();
    folders.windows(2).any(|pair| {
        let of_crate = |folder: &str| {
            let name = folder.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let name = if name == folder { name } else { name.trim_end_matches('-') };
            CRATES.iter().any(|known| known.replace('_', "-") == name)
        };
        pair[1] == "src" && of_crate(pair[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "   0: std::backtrace::Backtrace::force_capture\n             at /rustc/x/library/std/src/backtrace.rs:331:13\n   \
        1: transom_engine::driver::grants::sites::Sites::number\n   \
        2: <transom::region::Region<B> as core::ops::Drop>::drop\n   \
        3: do_call<i32>\n             at /rustc/x/library/std/src/panicking.rs:581:4\n   \
        4: register\n             at /home/me/.cargo/registry/transom-verbs-0.1.0/src/memory.rs:3:4\n   \
        5: ibv_reg_mr\n   6: program::lend\n             at /home/me/src/main.rs:12:9\n   \
        7: core::ops::function::FnOnce::call_once\n   8: main\n";

    #[test]
    fn a_place_is_the_first_frame_of_the_program() {
        let all = frames(TRACE);
        assert_eq!(all.len(), 9);
        assert_eq!(all[0].line.as_deref(), Some("/rustc/x/library/std/src/backtrace.rs:331"));
        let own: Vec<String> = of_the_program(all).iter().map(Frame::to_string).collect();
        assert_eq!(own, ["program::lend (/home/me/src/main.rs:12)", "main"]);
    }

    #[test]
    fn files_of_transom_are_known_by_their_crate() {
        for (line, ours) in [
            ("/a/crates/transom/src/region.rs:1", true),
            ("/a/transom-engine-0.1.0/src/raw/memory.rs:1", true),
            ("/a/crates/transom/tests/ledger.rs:1", false),
            ("/a/crates/transom-cli/src/main.rs:1", false),
            ("/a/mine/src/main.rs:1", false),
        ] {
            assert_eq!(is_source_of_transom(line), ours, "{line}");
        }
    }

    #[test]
    fn places_are_numbered_by_their_frames_and_bounded() {
        let mut sites = Sites::default();
        assert_eq!(
            [sites.number(vec![1]), sites.number(vec![2]), sites.number(vec![1])],
            [1, 2, 1]
        );
        for frame in 3..=MOST {
            assert_eq!(sites.number(vec![frame]), frame as u32);
        }
        assert_eq!((sites.number(vec![MOST + 1]), sites.number(vec![2])), (0, 2));
        assert_eq!(sites.trace(0), None);
    }
}
