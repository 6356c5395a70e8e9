//! Every way in which a peer can be wrong, and what a Terminate says about it: the decision table
//! of iW 7.4 as data. Nothing else in this crate knows a layer, type or code.

use transom_wire::{Operation, RefusalClass};

/// A violation or a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the table says what each is
pub enum Fault {
    Crc,
    ShortFrame,
    DdpVersionTagged,
    DdpVersionUntagged,
    RdmapVersion,
    Opcode,
    TagBit,
    Queue,
    Number,
    NoReceive,
    Offset,
    TooLong,
    WriteToken,
    WriteBounds,
    WriteScope,
    WriteRight,
    WriteWrap,
    ReadToken,
    ReadBounds,
    ReadScope,
    ReadRight,
    ReadWrap,
    ReadLimit,
    ReadRequestLength,
    UnaskedResponse,
    ResponseToken,
    ResponseRange,
    InvalidateToken,
    InvalidateScope,
    Interleaved,
    EmptySegment,
    Extension,
    Local,
    StartOther,
    StartReads,
    StartReady,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Layer, error type, error code (iW 7.2).
    pub code: (u8, u8, u8),
    /// The rule that was broken.
    pub rule: &'static str,
    /// The fault's name.
    pub name: &'static str,
    /// The engine's term for it: the refusal that a Terminate reports, and the reading of a
    /// Terminate received.
    pub refusal: Option<(Operation, RefusalClass)>,
}

const fn row(
    fault: Fault,
    code: (u8, u8, u8),
    rule: &'static str,
    name: &'static str,
    refusal: Option<(Operation, RefusalClass)>,
) -> Row {
    Row { fault, code, rule, name, refusal }
}

use Operation::{Invalidate, Read, Send, Write};
use RefusalClass as C;

/// The table. Of rows with one code, the first is what a received Terminate is taken for.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    row(Fault::Crc,                (2, 0, 0x02), "RFC 5044 8",      "checksum", None),
    row(Fault::ShortFrame,         (2, 0, 0x03), "RFC 5044 4.1",    "frame shorter than its header", None),
    row(Fault::StartOther,         (2, 0, 0x05), "RFC 6581 9.3",    "local failure in start-up", None),
    row(Fault::StartReads,         (2, 0, 0x06), "RFC 6581 9.1",    "read limit too small", None),
    row(Fault::StartReady,         (2, 0, 0x07), "RFC 6581 9.2",    "no common ready-to-receive frame", None),
    row(Fault::DdpVersionTagged,   (1, 1, 0x04), "RFC 5041 7.1",    "DDP version of a tagged segment", None),
    row(Fault::DdpVersionUntagged, (1, 2, 0x06), "RFC 5041 7.1",    "DDP version of an untagged segment", None),
    row(Fault::RdmapVersion,       (0, 2, 0x05), "RFC 5040 4.3",    "RDMAP version", None),
    row(Fault::Opcode,             (0, 2, 0x06), "RFC 5040 4.3",    "unexpected opcode", None),
    row(Fault::TagBit,             (0, 2, 0x06), "RFC 5040 4.3",    "tagged bit contradicts opcode", None),
    row(Fault::UnaskedResponse,    (0, 2, 0x06), "RFC 5040 5.2",    "answer to no read", None),
    row(Fault::Interleaved,        (0, 2, 0x06), "RFC 5041 5.3",    "another message inside an unfinished one", None),
    row(Fault::Queue,              (1, 2, 0x01), "RFC 5041 7.1",    "queue number", None),
    row(Fault::NoReceive,          (1, 2, 0x02), "RFC 5041 7.1",    "no buffer", Some((Send, C::NoReceive))),
    row(Fault::ReadLimit,          (1, 2, 0x02), "RFC 5042 6.4.3.3", "more reads than agreed", None),
    row(Fault::Number,             (1, 2, 0x03), "RFC 5041 7.1",    "message number", None),
    row(Fault::Offset,             (1, 2, 0x04), "RFC 5041 7.1",    "message offset", None),
    row(Fault::TooLong,            (1, 2, 0x05), "RFC 5040 5.3",    "message longer than its buffer", Some((Send, C::TooLong))),
    row(Fault::WriteToken,         (1, 1, 0x00), "RFC 5041 7.1",    "token", Some((Write, C::Token))),
    row(Fault::WriteBounds,        (1, 1, 0x01), "RFC 5041 7.1",    "base or bounds", Some((Write, C::Bounds))),
    row(Fault::WriteScope,         (1, 1, 0x02), "RFC 5041 7.1",    "token of another stream", Some((Write, C::Scope))),
    row(Fault::WriteWrap,          (1, 1, 0x03), "RFC 5041 7.1",    "range wraps around", Some((Write, C::Wrap))),
    row(Fault::ResponseToken,      (1, 1, 0x00), "RFC 5040 5.2",    "token of a read's sink", None),
    row(Fault::ResponseRange,      (1, 1, 0x01), "RFC 5040 5.2",    "range of a read's answer", None),
    row(Fault::ReadToken,          (0, 1, 0x00), "RFC 5040 7.2",    "token", Some((Read, C::Token))),
    row(Fault::ReadBounds,         (0, 1, 0x01), "RFC 5040 7.2",    "base or bounds", Some((Read, C::Bounds))),
    row(Fault::ReadRight,          (0, 1, 0x02), "RFC 5040 7.2",    "access right", Some((Read, C::Right))),
    row(Fault::WriteRight,         (0, 1, 0x02), "RFC 5040 7.2",    "access right", Some((Write, C::Right))),
    row(Fault::ReadScope,          (0, 1, 0x03), "RFC 5040 7.2",    "token of another stream", Some((Read, C::Scope))),
    row(Fault::ReadWrap,           (0, 1, 0x04), "RFC 5040 7.2",    "range wraps around", Some((Read, C::Wrap))),
    row(Fault::InvalidateToken,    (0, 2, 0x09), "RFC 5040 7.2",    "token cannot be invalidated", Some((Invalidate, C::NotInvalidatable))),
    row(Fault::InvalidateScope,    (0, 1, 0x09), "RFC 5040 7.2",    "token of another stream cannot be invalidated", Some((Invalidate, C::Scope))),
    row(Fault::ReadRequestLength,  (0, 2, 0xFF), "RFC 5040 5.2",    "read request with bytes behind its header", None),
    row(Fault::EmptySegment,       (0, 2, 0xFF), "RFC 5041 5.2",    "empty segment that is not its message's last", None),
    row(Fault::Extension,          (0, 2, 0xFF), "Transom extension", "extension frame out of order", None),
    row(Fault::Local,              (0, 0, 0x00), "RFC 5040 7.2",    "local failure", None),
];

impl Fault {
    /// The fault's row.
    #[must_use]
    pub fn row(self) -> &'static Row {
        const LAST: &Row = &TABLE[TABLE.len() - 1];
        TABLE.iter().find(|row| row.fault == self).unwrap_or(LAST)
    }

    /// The fault to answer with when the engine refuses.
    #[must_use]
    pub fn of(operation: Operation, class: RefusalClass) -> Fault {
        if class == RefusalClass::Internal {
            return Fault::Local;
        }
        // RFC 7306 has no codes of its own for what a token does not let an atomic do, nor RFC 5040 one for
        // what a queue pair does not let any token do.
        let as_what = match operation {
            Operation::Read | Operation::Atomic => Operation::Read,
            Operation::Send | Operation::Write | Operation::Invalidate => operation,
        };
        let unsupported = class == RefusalClass::Unsupported && operation != Operation::Send;
        let class = if unsupported { RefusalClass::Right } else { class };
        TABLE.iter().find(|row| row.refusal == Some((as_what, class))).map_or(
            match operation {
                // RFC 5040 has two codes for all ways in which an invalidation fails.
                Operation::Invalidate => Fault::InvalidateToken,
                _ => Fault::Local,
            },
            |row| row.fault,
        )
    }
}

/// The row that a received layer, type and code stand for, if they are in the table. LLP errors of
/// type 3 are what cxgb4 and irdma send for type 0 (iW 7.3).
#[must_use]
pub fn received(code: (u8, u8, u8)) -> Option<&'static Row> {
    let code = if (code.0, code.1) == (2, 3) { (2, 0, code.2) } else { code };
    TABLE.iter().find(|row| row.code == code)
}
