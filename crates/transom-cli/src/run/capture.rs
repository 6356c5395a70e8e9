//! `transom run --capture`: what the program is asked to record, and room for it.

use std::ffi::OsString;
use std::fs::{self, TryLockError};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use transom::CaptureOptions;

use crate::command::exit::{Exit, Failure, Outcome};

use crate::files::{open_regular, read_regular};

/// A pcapng file's first bytes.
const MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Arguments of a capture.
#[derive(Debug, Default, ClapArgs)]
pub(super) struct CaptureArgs {
    /// Record what goes over its connections, for Wireshark: a new file, which replaces an older capture;
    /// while a process still captures there, the new one has its number in its name
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    capture: Option<PathBuf>,
    /// Bytes of payload to keep of each frame, or `all` [default: 64]
    #[arg(long, value_name = "BYTES", requires = "capture", value_parser = payload)]
    capture_payload: Option<String>,
    /// Begin a new file after so many bytes (64M), and keep the newest
    #[arg(long, value_name = "BYTES", requires = "capture", value_parser = size)]
    capture_size: Option<String>,
    /// How many files to keep [default: 4, if their size is limited]
    #[arg(long, value_name = "N", requires = "capture", value_parser = clap::value_parser!(u32).range(1..))]
    capture_files: Option<u32>,
}

/// The program may have another working directory.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<String, String> {
    match CaptureOptions::size(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("a number, and maybe K, M or G behind it".to_owned()),
    }
}

fn payload(text: &str) -> Result<String, String> {
    if text == "all" { Ok(text.to_owned()) } else { size(text) }
}

impl CaptureArgs {
    /// Whether a capture was asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.capture.is_some()
    }

    /// Additions to the program's environment.
    pub(super) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let files = self.capture_files.map(|files| files.to_string());
        let words = [
            ("TRANSOM_CAPTURE", self.capture.as_ref().map(OsString::from)),
            ("TRANSOM_CAPTURE_PAYLOAD", self.capture_payload.as_ref().map(OsString::from)),
            ("TRANSOM_CAPTURE_SIZE", self.capture_size.as_ref().map(OsString::from)),
            ("TRANSOM_CAPTURE_FILES", files.map(OsString::from)),
        ];
        words.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Remove the captures of earlier runs. No process writes over a file that exists. While one still
    /// captures there, its files stay, and the new process puts its number into the name of its own.
    pub(super) fn remove_old(&self) -> Outcome {
        let Some(path) = &self.capture else { return Ok(()) };
        if !path.exists() && self.capture_size.is_none() && self.capture_files.is_none() {
            return Ok(());
        }
        let all = of_ring(path).into_iter().chain([path.clone()]).filter(|old| old.exists());
        let all: Vec<PathBuf> = all.collect();
        if let Some(other) = all.iter().find(|old| !is_capture(old)) {
            let why = format!("{} exists, and is no capture", other.display());
            return Err(Failure::new(Exit::Usage, why).try_this("another name"));
        }
        // Of a ring, a process has the newest file open.
        if all.iter().any(|old| is_live(old)) {
            return Ok(());
        }
        for old in all {
            fs::remove_file(&old)
                .map_err(|e| Failure::new(Exit::System, format!("{}: {e}", old.display())))?;
        }
        Ok(())
    }
}

/// A regular file that begins as captures do.
fn is_capture(path: &Path) -> bool {
    let begin = read_regular(path, MAGIC.len() as u64);
    begin.is_ok_and(|begin| begin == MAGIC)
}

/// Whether a process is writing a capture: a lock lies on the file as long as it does.
fn is_live(path: &Path) -> bool {
    let locked = open_regular(path).map(|file| file.try_lock());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

/// The files of a ring: with a number before the extension.
fn of_ring(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let end = path.extension().map_or_else(String::new, |it| format!(".{}", it.to_string_lossy()));
    let is_one = |name: &str| {
        let rest = name.strip_prefix(&*stem).and_then(|rest| rest.strip_suffix(&*end));
        let number = rest.and_then(|rest| rest.strip_prefix('.'));
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let folder = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let files = folder.into_iter().flatten().flatten().map(|file| file.path());
    files
        .filter(|file| file.file_name().is_some_and(|name| is_one(&name.to_string_lossy())))
        .filter(|file| is_capture(file))
        .collect()
}
