//! Batches into files, which may fail at any time: what is in a file is always whole blocks, and what
//! is in none is counted.

use std::io;

use crate::blocks::whole_within;
use crate::recorder::Batch;

/// A ring of files, of which one is written.
pub trait Files {
    /// Begin the next file.
    ///
    /// # Errors
    /// The system's; nothing is written before a later one begins.
    fn begin(&mut self) -> io::Result<()>;

    /// Append bytes to the file; how many it took.
    ///
    /// # Errors
    /// The system's: no byte was taken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Cut the file to so many bytes.
    ///
    /// # Errors
    /// The system's: nothing more is written before the next file.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

/// Writes batches.
#[derive(Debug)]
pub struct Writer<F> {
    files: F,
    /// Bytes of the file, all of them whole blocks.
    length: u64,
    /// The file takes nothing more.
    closed: bool,
    /// Packets that are in no file, and the system's first reason.
    lost: u64,
    reason: Option<io::Error>,
}

impl<F: Files> Writer<F> {
    /// A writer of files, the first of which has begun.
    #[must_use]
    pub fn new(files: F) -> Writer<F> {
        Writer { files, length: 0, closed: false, lost: 0, reason: None }
    }

    /// Write a batch, as far as the system lets it; how many packets of it are lost.
    pub fn write(&mut self, batch: &Batch) -> u64 {
        let before = self.lost;
        let mut from = 0;
        for cut in batch.cuts.iter().copied() {
            self.append(batch.bytes.get(from..cut).unwrap_or_default());
            self.length = 0;
            self.closed =
                self.files.begin().map_err(|e| self.reason.get_or_insert(e).kind()).is_err();
            from = cut;
        }
        self.append(batch.bytes.get(from..).unwrap_or_default());
        self.lost - before
    }

    /// Packets that are in no file.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Why the first of them is in none.
    #[must_use]
    pub fn reason(&self) -> Option<&io::Error> {
        self.reason.as_ref()
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &F {
        &self.files
    }

    fn append(&mut self, bytes: &[u8]) {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty() && !self.closed) {
            match self.files.write(rest) {
                Ok(0) => {
                    self.reason.get_or_insert_with(|| io::ErrorKind::WriteZero.into());
                    break;
                }
                Ok(count) => taken += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.reason.get_or_insert(e);
                    break;
                }
            }
        }
        let (whole, lost) = whole_within(bytes, taken);
        self.lost += lost;
        if whole < taken {
            let length = self.length + whole as u64;
            self.closed |= self.files.cut(length).is_err();
        }
        self.length += whole as u64;
        // A file without its first block is none.
        self.closed |= self.length == 0 && !bytes.is_empty();
    }
}
