//! Terminate (RFC 5040 4.8), in the RFC's bit order and in siw's (iW 7.3).

use crate::TerminateForm;
use crate::ddp::{TAGGED, UNTAGGED};
use crate::rdmap::READ_REQUEST;

/// Bytes of the control word.
const CONTROL: usize = 4;
/// The longest Terminate: control word, length, untagged header, Read Request.
pub const LONGEST: usize = CONTROL + 2 + UNTAGGED + READ_REQUEST;

/// The content of a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate<'b> {
    /// Layer, error type, error code.
    pub code: (u8, u8, u8),
    /// The length field and the header of the segment it complains about.
    pub about: Option<About<'b>>,
}

/// The segment a Terminate complains about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About<'b> {
    /// The length field, as it travels: the RFC's is the segment's ULPDU_Length, siw's leaves out
    /// the headers.
    pub length: u16,
    /// Whether the length is said to be valid.
    pub length_valid: bool,
    /// The DDP header, 14 or 18 bytes.
    pub header: &'b [u8],
    /// The Read Request header, if it was one: 28 bytes, or none.
    pub request: &'b [u8],
}

/// The bits of the third byte: length valid, DDP header, RDMAP header.
struct Flags {
    length: u8,
    ddp: u8,
    rdmap: u8,
}

const fn flags(form: TerminateForm) -> Flags {
    match form {
        TerminateForm::Rfc => Flags { length: 0x80, ddp: 0x40, rdmap: 0x20 },
        TerminateForm::Siw => Flags { length: 0x01, ddp: 0x02, rdmap: 0x04 },
    }
}

/// Which bit order a Terminate uses. Nothing in it says so; without a header only the value can
/// tell (iW 7.3). `start_up`: it is the first frame of an active side, where the LLP codes 5 to 7
/// belong.
fn form_of(layer: u8, code: u8, flags: u8, start_up: bool) -> TerminateForm {
    use TerminateForm::{Rfc, Siw};
    match (layer, code) {
        _ if flags & 0xE0 != 0 => Rfc,
        _ if flags & 0x07 != 0 => Siw,
        (0x02, 0x01..=0x04) => Siw,
        (0x02, 0x05..=0x07) if start_up => Siw,
        (0x20, 0x05 | 0x06) if !start_up => Siw,
        (0x20, 0x08..) => Siw,
        (0x21, _) => Siw,
        _ => Rfc,
    }
}

impl<'b> Terminate<'b> {
    /// Reads the payload of a Terminate. `None`: too short for what it claims to hold.
    #[must_use]
    pub fn parse(payload: &'b [u8], start_up: bool) -> Option<(Terminate<'b>, TerminateForm)> {
        let (&[layer, code, bits, _], rest) = payload.split_first_chunk::<CONTROL>()?;
        let form = form_of(layer, code, bits, start_up);
        let flags = flags(form);
        let (high, low) = (layer >> 4, layer & 0x0F);
        let code = match form {
            TerminateForm::Rfc => (high, low, code),
            TerminateForm::Siw => (low, high, code),
        };
        if bits & flags.ddp == 0 {
            return Some((Terminate { code, about: None }, form));
        }
        let (&length, rest) = rest.split_first_chunk::<2>()?;
        let size = if rest.first()? & 0x80 != 0 { TAGGED } else { UNTAGGED };
        let (header, rest) = rest.split_at_checked(size)?;
        let request = if bits & flags.rdmap != 0 { rest.get(..READ_REQUEST)? } else { &[] };
        let length_valid = bits & flags.length != 0;
        let length = u16::from_be_bytes(length);
        let about = Some(About { length, length_valid, header, request });
        Some((Terminate { code, about }, form))
    }

    /// The payload as it travels, and its length.
    #[must_use]
    pub fn to_bytes(&self, form: TerminateForm) -> ([u8; LONGEST], usize) {
        let (layer, kind, code) = self.code;
        let flags = flags(form);
        let first = match form {
            TerminateForm::Rfc => layer << 4 | kind & 0x0F,
            TerminateForm::Siw => kind << 4 | layer & 0x0F,
        };
        let mut bits = 0;
        let mut bytes = [0; LONGEST];
        let mut used = CONTROL;
        if let Some(about) = self.about {
            bits |= flags.ddp;
            bits |= if about.length_valid { flags.length } else { 0 };
            bits |= if about.request.is_empty() { 0 } else { flags.rdmap };
            for part in [&about.length.to_be_bytes()[..], about.header, about.request] {
                if let Some(room) = bytes.get_mut(used..used + part.len()) {
                    room.copy_from_slice(part);
                    used += part.len();
                }
            }
        }
        bytes[..3].copy_from_slice(&[first, code, bits]);
        (bytes, used)
    }
}
