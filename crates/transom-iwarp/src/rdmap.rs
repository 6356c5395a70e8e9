//! RDMAP (RFC 5040): the control byte in every segment, and the Read Request's header.

use crate::ddp::{self, Segment, Target, VERSION as DDP_VERSION};

/// The only version there is.
pub const VERSION: u8 = 1;
/// Bytes of a Read Request's header.
pub const READ_REQUEST: usize = 28;

/// Queue of the Send family.
pub const SEND_QUEUE: u32 = 0;
/// Queue of Read and Atomic Requests.
pub const READ_QUEUE: u32 = 1;
/// Queue of the Terminate.
pub const TERMINATE_QUEUE: u32 = 2;
/// Queue of Atomic Responses (RFC 7306).
pub const ATOMIC_QUEUE: u32 = 3;

/// Kind of a message. The values 8 to 11 are RFC 7306's, 15 is for experiments (RFC 6580):
/// Transom's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // RFC 5040 4.3 names them
pub enum Opcode {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
    Immediate = 8,
    ImmediateSolicited = 9,
    AtomicRequest = 10,
    AtomicResponse = 11,
    Experimental = 15,
}

impl Opcode {
    /// Decode the four bits on the wire.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send,
            4 => Opcode::SendInvalidate,
            5 => Opcode::SendSolicited,
            6 => Opcode::SendSolicitedInvalidate,
            7 => Opcode::Terminate,
            8 => Opcode::Immediate,
            9 => Opcode::ImmediateSolicited,
            10 => Opcode::AtomicRequest,
            11 => Opcode::AtomicResponse,
            15 => Opcode::Experimental,
            _ => return None,
        })
    }

    /// Whether its messages are tagged.
    #[must_use]
    pub const fn tagged(self) -> bool {
        matches!(self, Opcode::Write | Opcode::ReadResponse)
    }

    /// The Send with these properties.
    #[must_use]
    pub fn send(solicited: bool, invalidate: bool) -> Opcode {
        match (solicited, invalidate) {
            (false, false) => Opcode::Send,
            (false, true) => Opcode::SendInvalidate,
            (true, false) => Opcode::SendSolicited,
            (true, true) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// A Send raises a solicited event.
    #[must_use]
    pub fn solicited(self) -> bool {
        matches!(self, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate)
    }

    /// A Send invalidates a token.
    #[must_use]
    pub fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }

    /// The control byte of its segments.
    #[must_use]
    pub const fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }
}

/// The first two bytes of a message that is one segment.
#[must_use]
pub const fn whole(opcode: Opcode) -> [u8; 2] {
    [ddp::first(DDP_VERSION, true, opcode.tagged()), opcode.control()]
}

/// The version in a control byte.
#[must_use]
pub fn version(control: u8) -> u8 {
    control >> 6
}

/// The operation in a control byte.
#[must_use]
pub fn opcode(control: u8) -> Option<Opcode> {
    Opcode::from_bits(control & 0x0F)
}

/// A segment of `opcode` with an empty payload: what its header needs.
#[must_use]
pub fn segment(opcode: Opcode, last: bool, target: Target) -> Segment<'static> {
    Segment { bits: DDP_VERSION, last, control: opcode.control(), target, payload: &[] }
}

/// The header of a Read Request (RFC 5040 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where the requester wants the bytes: token.
    pub sink_stag: u32,
    /// And offset.
    pub sink_offset: u64,
    /// How many.
    pub size: u32,
    /// Where they are: token.
    pub source_stag: u32,
    /// And offset.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Reads the header; `None` unless `payload` is exactly as long as one.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<ReadRequest> {
        let (&sink_stag, rest) = payload.split_first_chunk::<4>()?;
        let (&sink_offset, rest) = rest.split_first_chunk::<8>()?;
        let (&size, rest) = rest.split_first_chunk::<4>()?;
        let (&source_stag, rest) = rest.split_first_chunk::<4>()?;
        let source_offset = <[u8; 8]>::try_from(rest).ok()?;
        Some(ReadRequest {
            sink_stag: u32::from_be_bytes(sink_stag),
            sink_offset: u64::from_be_bytes(sink_offset),
            size: u32::from_be_bytes(size),
            source_stag: u32::from_be_bytes(source_stag),
            source_offset: u64::from_be_bytes(source_offset),
        })
    }

    /// The header as it travels.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; READ_REQUEST] {
        let mut bytes = [0; READ_REQUEST];
        bytes[0..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }
}
