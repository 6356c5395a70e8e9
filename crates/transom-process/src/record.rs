//! A record: a header of 32 bytes, and its payload behind it.
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0-31 | the ring's lap (0 outside a ring) |
//! |   | 32-39 | kind |
//! |   | 40-47 | flags |
//! |   | 48-63 | detail: what a refusal refuses; or what an atomic does; or whether there is a word of a front |
//! | 1 | all | the acknowledgement that rides along |
//! | 2 | all | address; or the token to invalidate; or the immediate data of a Send; or a position; or a limit, and above it the word of a front; or a word |
//! | 3 | 0-31 | token; or a limit; or the number of a shared receive queue |
//! |   | 32-63 | length |
//!
//! A Write with immediate data has that as a fifth word, in its first record.
//!
//! Words are in the machine's byte order: both sides run on the same one.

use transom_wire::{Atomic, Operation, RefusalClass};

/// Bytes of a header.
pub const HEADER: usize = 32;
/// Bytes of the immediate data behind one.
pub const WORD: usize = 8;
/// The most payload of one record. A longer message is several records.
pub const LARGEST_PAYLOAD: usize = 64 * 1024;
/// The most payload of a record that is read as a whole: private data, an explanation.
pub const LARGEST_TEXT: usize = 512;

/// The message ends with this record.
pub const LAST: u8 = 1;
/// A Send, or immediate data of a Write, asks for a solicited event.
pub const SOLICITED: u8 = 1 << 1;
/// A Send names a token to invalidate.
pub const INVALIDATE: u8 = 1 << 2;
/// A Send has immediate data in place of an address, in each of its records; or a Write has some behind the header
/// of its first record.
pub const IMMEDIATE: u8 = 1 << 4;
/// Of a Request or Reply: its sender takes immediate data and atomics. One that does not is of an earlier
/// version, and is sent neither.
pub const EXTENDED: u8 = 1 << 3;
/// The payload of a Write or Send lies in a region that its sender has lent, or the sink of a Read does: the
/// words behind the header are a [`Lent`](crate::lending::Lent). Of an answer: its payload is in such a sink
/// already.
pub const LENT: u8 = 1 << 6;
/// The payload is not here: 8 bytes say where (see [`transom_wire::Bytes::Shared`]). Set by the ring
/// of the side that reads; one that comes from the other side means nothing.
pub const ELSEWHERE: u8 = 1 << 7;

transom_wire::listed_enum! {
    /// The kind of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RecordKind {
        /// Connect: read limits, private data.
        Request = 1,
        /// Accept: agreed read limits, private data.
        Reply = 2,
        /// Reject: private data.
        Reject = 3,
        /// The active side has completed the connection.
        Ready = 4,
        /// The Write that follows has more than one record: its token, address and length.
        Announce = 5,
        /// A part of a Write.
        Write = 6,
        /// A part of a Send.
        Send = 7,
        /// A read request.
        Read = 8,
        /// A part of the answer to the oldest read.
        Answer = 9,
        /// The stream ends: which record was refused, as what, an explanation.
        Refuse = 10,
        /// An acknowledgement that had nothing to ride on. Never in a slot, and not counted.
        Ack = 11,
        /// An atomic: its operands are its payload ([`operands`]), its detail is 1 for a swap, 2 for an add.
        Atomic = 12,
        /// The answer to the oldest atomic, which is older than all reads: what the word held before.
        AtomicAnswer = 13,
        /// The messages that follow are for the shared receive queue whose number stands in place of a token,
        /// until another is named.
        Target = 14,
    }
}

impl RecordKind {
    /// From its number.
    #[must_use]
    #[inline]
    pub fn from_number(number: u8) -> Option<RecordKind> {
        usize::from(number).checked_sub(1).and_then(|at| RecordKind::ALL.get(at)).copied()
    }

    /// Whether payload of such a record goes to the program's memory, from wherever it lies.
    #[must_use]
    #[inline]
    pub fn carries_data(self) -> bool {
        matches!(self, RecordKind::Write | RecordKind::Send | RecordKind::Answer)
    }

    /// Whether the message of such a record ends when it has been executed and counted; any other is executed as
    /// soon as it has been read, or ends with its answer.
    #[must_use]
    #[inline]
    pub fn is_counted(self) -> bool {
        match self {
            RecordKind::Write | RecordKind::Send => true,
            RecordKind::Request
            | RecordKind::Reply
            | RecordKind::Reject
            | RecordKind::Ready
            | RecordKind::Announce
            | RecordKind::Read
            | RecordKind::Answer
            | RecordKind::Refuse
            | RecordKind::Ack
            | RecordKind::Atomic
            | RecordKind::AtomicAnswer
            | RecordKind::Target => false,
        }
    }

    /// The most payload behind such a record.
    #[must_use]
    #[inline]
    pub fn largest_payload(self) -> usize {
        match self {
            RecordKind::Write | RecordKind::Send | RecordKind::Answer => LARGEST_PAYLOAD,
            RecordKind::Request | RecordKind::Reply | RecordKind::Reject | RecordKind::Refuse => {
                LARGEST_TEXT
            }
            RecordKind::Atomic => OPERANDS,
            RecordKind::Ready
            | RecordKind::Announce
            | RecordKind::Read
            | RecordKind::Ack
            | RecordKind::AtomicAnswer
            | RecordKind::Target => 0,
        }
    }
}

/// The kind, flags and detail of a Write that is one record, as [`kind_of`] has them.
pub(crate) const WHOLE_WRITE: u64 = RecordKind::Write as u64 | (LAST as u64) << 8;

/// As [`WHOLE_WRITE`], with a payload that is [`ELSEWHERE`].
pub(crate) const WHOLE_WRITE_ELSEWHERE: u64 = WHOLE_WRITE | (ELSEWHERE as u64) << 8;

/// As [`WHOLE_WRITE`], of a Send.
pub(crate) const WHOLE_SEND: u64 = RecordKind::Send as u64 | (LAST as u64) << 8;

/// As [`WHOLE_SEND`], with a payload that is [`ELSEWHERE`].
pub(crate) const WHOLE_SEND_ELSEWHERE: u64 = WHOLE_SEND | (ELSEWHERE as u64) << 8;

/// The flags of such Sends that ask for an event at the receiver or bring immediate data, as [`kind_of`] has them.
pub(crate) const WITH_SEND: u64 = ((SOLICITED | IMMEDIATE) as u64) << 8;

/// Make a record whose payload is not here of one that lies in a slot: [`ELSEWHERE`].
#[inline(never)]
pub(crate) fn set_elsewhere(record: &mut [u8; crate::ring::SMALL], address: u64) {
    let Some(first) = record.first_chunk_mut() else { return };
    let word = u64::from_ne_bytes(*first);
    *first = (word | u64::from(ELSEWHERE) << 40).to_ne_bytes();
    let has_immediate = word & u64::from(IMMEDIATE) << 40 != 0;
    let is_write = kind_of(word) as u8 == RecordKind::Write as u8;
    let front = if has_immediate && is_write { HEADER + WORD } else { HEADER };
    if let Some(place) = record.get_mut(front..).and_then(<[u8]>::first_chunk_mut) {
        *place = address.to_ne_bytes();
    }
}

/// Whether a header with this first word is a Read or an answer to one.
#[inline(always)]
pub(crate) fn is_of_reads(first: u64) -> bool {
    let kind = (kind_of(first) & 0xFF) as u8;
    kind == RecordKind::Read as u8 || kind == RecordKind::Answer as u8
}

/// Whether the first word of a header in a ring is that of a plain Write, or of a Send that invalidates
/// nothing, which is one record.
#[inline(always)]
pub(crate) fn is_whole(first: u64) -> bool {
    let kind = kind_of(first);
    kind == WHOLE_WRITE || kind & !WITH_SEND == WHOLE_SEND
}

/// A header's first word without the ring's lap.
#[inline(always)]
pub(crate) fn kind_of(first: u64) -> u64 {
    first >> 32
}

/// Of a Request or Reply: above the limit in its address is a word of its sender's front.
const FRONT: u16 = 1;

/// A header, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The record's kind.
    pub kind: RecordKind,
    /// [`LAST`], [`SOLICITED`] and the constants behind them.
    pub flags: u8,
    /// By kind: the reason of a refusal ([`detail`]), the change of an atomic ([`operands`]), or whether there is a word
    /// of a front ([`Header::with_front_word`]).
    pub detail: u16,
    /// The acknowledgement that rides along.
    pub ack: u64,
    /// Word 2, as the table at the top has it.
    pub address: u64,
    /// The lower half of word 3.
    pub token: u32,
    /// Bytes of payload, or asked for, or announced.
    pub length: u32,
}

/// Words of a header.
pub type Words = [u64; 4];

impl Header {
    /// Nothing but a kind.
    #[must_use]
    pub fn new(kind: RecordKind) -> Header {
        Header { kind, flags: 0, detail: 0, ack: 0, address: 0, token: 0, length: 0 }
    }

    /// As it travels.
    #[must_use]
    #[inline(always)]
    pub fn words(&self) -> Words {
        let first = u64::from(self.kind as u8) << 32
            | u64::from(self.flags) << 40
            | u64::from(self.detail) << 48;
        let last = u64::from(self.token) | u64::from(self.length) << 32;
        [first, self.ack, self.address, last]
    }

    /// From what travelled. `None`: no such kind.
    #[must_use]
    #[inline(always)]
    pub fn from_words(words: Words) -> Option<Header> {
        let [first, ack, address, last] = words;
        let part = |word: u64, at: u32| (word >> at) as u32;
        Some(Header {
            kind: RecordKind::from_number((part(first, 32) & 0xFF) as u8)?,
            flags: (part(first, 40) & 0xFF) as u8,
            detail: (part(first, 48) & 0xFFFF) as u16,
            ack,
            address,
            token: part(last, 0),
            length: part(last, 32),
        })
    }

    /// Of a Request or Reply: with the inbound read limit, and the word of its sender's front if it has one.
    #[must_use]
    pub fn with_front_word(self, inbound: u32, word: Option<u32>) -> Header {
        let address = u64::from(inbound) | u64::from(word.unwrap_or(0)) << 32;
        Header { detail: if word.is_some() { FRONT } else { 0 }, address, ..self }
    }

    /// Of a Request or Reply: the word of its sender's front, if there is one.
    #[must_use]
    pub fn front_word(&self) -> Option<u32> {
        (self.detail & FRONT != 0).then_some((self.address >> 32) as u32)
    }

    /// Of a Request or Reply: the inbound read limit.
    #[must_use]
    pub fn inbound(&self) -> u32 {
        self.address as u32
    }

    /// Bytes of payload behind it.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> usize {
        match self.kind {
            RecordKind::Announce
            | RecordKind::Read
            | RecordKind::Ready
            | RecordKind::Ack
            | RecordKind::AtomicAnswer
            | RecordKind::Target => 0,
            RecordKind::Request
            | RecordKind::Reply
            | RecordKind::Reject
            | RecordKind::Write
            | RecordKind::Send
            | RecordKind::Answer
            | RecordKind::Refuse
            | RecordKind::Atomic => self.length as usize,
        }
    }

    /// Bytes in front of its payload: the header, and the immediate data of a Write.
    #[must_use]
    #[inline]
    pub fn front(&self) -> usize {
        let word =
            self.has(IMMEDIATE) && matches!(self.kind, RecordKind::Write | RecordKind::Announce);
        if word { HEADER + WORD } else { HEADER }
    }

    /// Whether its payload fits its slot.
    #[must_use]
    #[inline]
    pub fn fits_slot(&self) -> bool {
        self.front() + self.payload() <= crate::ring::SMALL
    }

    /// Whether such a record is one of a ring.
    #[must_use]
    #[inline]
    pub fn belongs_into_a_slot(&self) -> bool {
        self.kind != RecordKind::Ack && self.payload() <= self.kind.largest_payload()
    }

    /// Whether all of such a record is in its slot, or its payload goes to the program's memory out of the
    /// ring.
    #[must_use]
    #[inline]
    pub(crate) fn is_small(&self) -> bool {
        let payload = self.kind.carries_data() || self.fits_slot();
        payload && !self.has(LENT) && self.belongs_into_a_slot()
    }

    /// Whether it has one of the flags.
    #[must_use]
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Words as bytes.
#[must_use]
#[inline(always)]
pub fn to_bytes(words: Words) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The first [`HEADER`] bytes as words; `None` if they are fewer.
#[must_use]
#[inline(always)]
pub fn to_words(bytes: &[u8]) -> Option<Words> {
    bytes.first_chunk().map(words_of)
}

/// A header's bytes as words.
#[must_use]
#[inline(always)]
pub fn words_of(bytes: &[u8; HEADER]) -> Words {
    let mut words = [0; 4];
    for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut room = [0; 8];
        room.copy_from_slice(eight);
        *word = u64::from_ne_bytes(room);
    }
    words
}

/// The most that the payload of an atomic holds.
pub const OPERANDS: usize = 16;

/// The operation of an atomic: the detail of its header, and its payload.
#[must_use]
pub fn operands(operation: Atomic) -> (u16, [u8; OPERANDS]) {
    let (detail, words) = match operation {
        Atomic::CompareSwap { compare, swap } => (1, [compare, swap]),
        Atomic::FetchAdd { add } => (2, [add, 0]),
    };
    let mut bytes = [0; OPERANDS];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_ne_bytes());
    }
    (detail, bytes)
}

/// Read the operands of an atomic. `None`: no such atomic, or not its operands.
#[must_use]
pub fn read_operands(detail: u16, payload: &[u8]) -> Option<Atomic> {
    let (first, second) = payload.split_first_chunk()?;
    let (first, second) = (u64::from_ne_bytes(*first), u64::from_ne_bytes(second.try_into().ok()?));
    match detail {
        1 => Some(Atomic::CompareSwap { compare: first, swap: second }),
        2 => Some(Atomic::FetchAdd { add: first }),
        _ => None,
    }
}

/// The operation that was refused and why, in a header's detail; 0 = none.
#[must_use]
pub fn detail(operation: Option<Operation>, class: Option<RefusalClass>) -> u16 {
    let of = |at: Option<usize>| at.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0);
    let operation = operation.map(|operation| usize::from(operation.number()));
    let class = class.and_then(|c| RefusalClass::ALL.iter().position(|it| *it == c));
    of(operation) | of(class) << 8
}

/// Read the detail of a refusal.
#[must_use]
pub fn read_detail(detail: u16) -> (Option<Operation>, Option<RefusalClass>) {
    let operation = (detail as u8).checked_sub(1);
    let class = usize::from(detail >> 8).checked_sub(1);
    (
        operation.and_then(Operation::from_number),
        class.and_then(|at| RefusalClass::ALL.get(at)).copied(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_journey() {
        for kind in RecordKind::ALL {
            let header = Header {
                kind,
                flags: LAST | INVALIDATE,
                detail: detail(Some(Operation::Read), Some(RefusalClass::Wrap)),
                ack: 0x0123_4567_89AB_CDEF,
                address: u64::MAX - 7,
                token: 0xDEAD_BEEF,
                length: 0x8000_0001,
            };
            let words = to_words(&to_bytes(header.words())).unwrap();
            assert_eq!(Header::from_words(words), Some(header));
            assert_eq!(words[0] as u32, 0, "room for the lap");
        }
        assert_eq!(to_words(&[0; HEADER - 1]), None);
    }

    #[test]
    fn the_word_of_a_front_is_known_from_none_and_leaves_the_limit_alone() {
        for word in [None, Some(0), Some(1), Some(u32::MAX)] {
            for inbound in [0, 16, u32::MAX] {
                let header = Header::new(RecordKind::Request).with_front_word(inbound, word);
                let header = Header::from_words(header.words()).unwrap();
                assert_eq!((header.inbound(), header.front_word()), (inbound, word));
            }
        }
    }

    #[test]
    fn unknown_kinds_and_details_are_seen_as_such() {
        let last = *RecordKind::ALL.last().unwrap() as u8;
        for number in [0, last + 1, 255] {
            assert_eq!(RecordKind::from_number(number), None);
        }
        for kind in RecordKind::ALL {
            assert_eq!(RecordKind::from_number(kind as u8), Some(kind));
        }
        for operation in
            [Atomic::CompareSwap { compare: 1, swap: u64::MAX }, Atomic::FetchAdd { add: 7 }]
        {
            let (detail, bytes) = operands(operation);
            assert_eq!(read_operands(detail, &bytes), Some(operation));
            assert_eq!(read_operands(detail, &bytes[1..]), None);
            assert_eq!(read_operands(detail, &[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(read_operands(0, &[0; OPERANDS]), None);
        assert_eq!(read_operands(3, &[0; OPERANDS]), None);
        assert_eq!(read_detail(0), (None, None));
        assert_eq!(read_detail(0xFFFF), (None, None));
        for operation in [None].into_iter().chain(Operation::ALL.map(Some)) {
            for class in [None].into_iter().chain(RefusalClass::ALL.map(Some)) {
                assert_eq!(read_detail(detail(operation, class)), (operation, class));
            }
        }
    }
}
