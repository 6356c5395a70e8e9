//! Options of a capture: what is recorded, and where to.

use std::path::PathBuf;

/// A capture of everything that an adapter's connections send and take, over TCP or over shared
/// memory, as a pcapng file that Wireshark reads. The file holds what programs say to each other: it is
/// made with mode 600, and never written over one that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The file. If it exists, the process's number is put before the extension.
    pub file: PathBuf,
    /// Bytes of the program's that are kept of each frame, besides its headers; `None`: all.
    pub payload: Option<usize>,
    /// Several files instead of one, of which the oldest is removed; `None`: one file, as long as it
    /// gets.
    pub ring: Option<CaptureRing>,
}

/// A ring of files. Their numbers, which only grow, stand before the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureRing {
    /// How many files are kept.
    pub files: u32,
    /// Bytes of each, or a packet more.
    pub size: u64,
}

impl CaptureRing {
    /// The usual ring.
    pub const USUAL: CaptureRing = CaptureRing { files: 4, size: 64 * 1024 * 1024 };
}

impl CaptureOptions {
    /// Bytes of the program's that are kept by default.
    pub const PAYLOAD: usize = 64;

    /// To this file, with 64 bytes of payload of each frame.
    #[must_use]
    pub fn to(file: impl Into<PathBuf>) -> CaptureOptions {
        CaptureOptions { file: file.into(), payload: Some(CaptureOptions::PAYLOAD), ring: None }
    }

    /// A size as people write it: a number, and maybe `K`, `M` or `G` (of 1024) behind it.
    #[must_use]
    pub fn size(text: &str) -> Option<u64> {
        let (digits, unit) = match text.char_indices().next_back()? {
            (at, 'k' | 'K') => (text.get(..at)?, 10),
            (at, 'm' | 'M') => (text.get(..at)?, 20),
            (at, 'g' | 'G') => (text.get(..at)?, 30),
            _ => (text, 0),
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_have_a_unit() {
        let size = CaptureOptions::size;
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("10K"), Some(10 * 1024));
        assert_eq!(size("3m"), Some(3 * 1024 * 1024));
        assert_eq!(size("2G"), Some(2 << 30));
        for wrong in ["", "K", "-1", "1.5M", "10 M", "99999999999G"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
