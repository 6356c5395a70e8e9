//! A model, apart from the decoder, of what a peer may send over rings: the target of the rings
//! holds each record against it.

use std::collections::VecDeque;

use transom_process::record::{self, Header, RecordKind};

/// The message that the peer is in the middle of.
#[derive(Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Write {
        token: u32,
        next: u64,
        left: u32,
    },
    Send {
        flags: u8,
        address: u64,
        bytes: u64,
    },
    Answer,
}

/// The answer that is missing.
#[derive(Debug)]
enum Asked {
    Bytes(u32),
    Word,
}

/// A connection, as far as the rules need it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    inside: Inside,
    /// Receives granted to the peer, and how many of them its messages that have begun use.
    granted: u32,
    sends: u32,
    /// Reads and atomics of the peer without the last byte of their answer.
    unanswered: u32,
    /// Bytes that are missing of the answers to our reads, and atomics of ours without one.
    asked: VecDeque<Asked>,
}

impl Model {
    /// This side has said this word.
    pub(crate) fn say(&mut self, word: u64) {
        self.granted = (word >> 32) as u32 & ((1 << 29) - 1);
    }

    /// A record of this side has left.
    pub(crate) fn leave(&mut self, header: &Header) {
        match header.kind {
            RecordKind::Read => self.asked.push_back(Asked::Bytes(header.length)),
            RecordKind::Atomic => self.asked.push_back(Asked::Word),
            RecordKind::Answer => self.unanswered -= u32::from(header.has(record::LAST)),
            RecordKind::AtomicAnswer => self.unanswered -= 1,
            _ => {}
        }
        if matches!(
            header.kind,
            RecordKind::Request | RecordKind::Reply | RecordKind::Reject | RecordKind::Ready
        ) {
            return; // there is nothing to acknowledge yet
        }
        self.say(header.ack);
    }

    /// Whether this record of the peer may come now, with so many reads agreed. If so, it has come.
    /// `word`: what stands behind its header.
    pub(crate) fn allows(&mut self, header: &Header, word: u64, reads: u32) -> bool {
        let &Header { kind, address, token, length, .. } = header;
        let brings = header.has(record::IMMEDIATE);
        let is_value = |word| u32::try_from(word).is_ok();
        let last = header.has(record::LAST);
        let free = self.inside == Inside::Nothing;
        match kind {
            RecordKind::Refuse => true,
            RecordKind::Target => free,
            RecordKind::Announce => {
                self.inside = Inside::Write { token, next: address, left: length };
                self.sends += u32::from(brings);
                free && length > 0 && (!brings || is_value(word) && self.sends <= self.granted)
            }
            RecordKind::Write => {
                let Inside::Write { token: announced, next, left } = &mut self.inside else {
                    self.sends += u32::from(brings);
                    let granted = is_value(word) && self.sends <= self.granted;
                    return free && last && (!brings || granted);
                };
                let fits = !brings && *announced == token && *next == address && length <= *left;
                if !fits || length == 0 || last != (length == *left) {
                    return false;
                }
                *next = next.wrapping_add(length.into());
                *left -= length;
                if last {
                    self.inside = Inside::Nothing;
                }
                true
            }
            RecordKind::Send => {
                let either = record::INVALIDATE | record::IMMEDIATE;
                let flags = header.flags & (record::SOLICITED | either);
                if flags & either == either || flags & either != 0 && !is_value(address) {
                    return false;
                }
                let before = match self.inside {
                    Inside::Nothing => {
                        self.sends += 1;
                        0
                    }
                    Inside::Send { flags: f, address: a, bytes } if (f, a) == (flags, address) => {
                        bytes
                    }
                    _ => return false,
                };
                let bytes = before + u64::from(length);
                self.inside =
                    if last { Inside::Nothing } else { Inside::Send { flags, address, bytes } };
                self.sends <= self.granted && bytes <= u32::MAX.into() && (last || length > 0)
            }
            RecordKind::Read => {
                self.unanswered += 1;
                free && self.unanswered <= reads
            }
            RecordKind::Answer => {
                let Some(Asked::Bytes(missing)) = self.asked.front_mut() else { return false };
                if length > *missing || last != (length == *missing) || !last && length == 0 {
                    return false;
                }
                *missing -= length;
                let fits = free || self.inside == Inside::Answer;
                self.inside = Inside::Answer;
                if last {
                    self.asked.pop_front();
                    self.inside = Inside::Nothing;
                }
                fits
            }
            RecordKind::Atomic => {
                if !(1..=2).contains(&header.detail) || length != 16 {
                    return false;
                }
                self.unanswered += 1;
                free && self.unanswered <= reads
            }
            RecordKind::AtomicAnswer => {
                let next = matches!(self.asked.front(), Some(Asked::Word));
                if free && next {
                    self.asked.pop_front();
                }
                free && next
            }
            RecordKind::Ack
            | RecordKind::Request
            | RecordKind::Reply
            | RecordKind::Reject
            | RecordKind::Ready => false,
        }
    }
}
