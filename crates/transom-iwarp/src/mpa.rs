//! MPA start-up frames (RFC 5044 7.1, RFC 6581): a meaning, a parser that takes a prefix of a
//! stream, a writer.

/// Key of a Request.
pub const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// Key of a Reply.
pub const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";
/// Bytes in front of the private data.
pub const HEADER: usize = 20;
/// The most private data, enhanced word included (RFC 5044 7.1.1).
pub const MAX_PRIVATE: usize = 512;
/// Read limit that stands for "do not negotiate" (RFC 6581 9.1).
pub const UNLIMITED: u16 = 0x3FFF;

/// M: the sender wants markers in what it receives.
pub const MARKERS: u8 = 0x80;
/// C: the sender wants checksums.
pub const CHECKSUM: u8 = 0x40;
/// R: rejected (Reply only).
pub const REJECT: u8 = 0x20;
/// S: the private data begins with the enhanced word.
pub const ENHANCED: u8 = 0x10;
/// Reserved by the RFC: a Request of ours that offers the extension.
pub const OFFER: u8 = 0x04;
/// Reserved by the RFC: a Request of ours that offers the extension, and whose program serves no
/// reads at all. The word cannot say so: siw takes a 0 there for "none, either way" (iW L2).
pub const NO_READS: u8 = 0x01;
/// Reserved by the RFC: a Reply of ours that accepts it. A different bit from [`OFFER`], because
/// siw mirrors the Request's (iW 9.3).
pub const ACCEPT: u8 = 0x02;
/// Of a Request that offers the extension: its sender answers a [`QUESTION`].
pub const ANSWERS: u8 = ACCEPT;
/// Of a Reply that accepts the extension, to a Request with [`ANSWERS`]: the private data begins with a word of
/// its sender's front.
pub const TELLS: u8 = NO_READS;
/// A passive side's question to a Transom, in front of its Reply: the answer is the Request once more, whose
/// private data begins with a word of its sender's front.
pub const QUESTION: [u8; 16] = *b"MPA ID Ask Frame";

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the active side.
    Request,
    /// From the passive side.
    Reply,
}

impl FrameKind {
    fn key(self) -> &'static [u8; 16] {
        match self {
            FrameKind::Request => &REQUEST_KEY,
            FrameKind::Reply => &REPLY_KEY,
        }
    }
}

/// The enhanced word (RFC 6581 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// A: the initiator speaks first, with a ready-to-receive frame.
    pub peer_to_peer: bool,
    /// B: which may be a zero-length Send,
    pub send: bool,
    /// C: a zero-length Write,
    pub write: bool,
    /// D: or a zero-length Read.
    pub read: bool,
    /// Reads the sender of the frame can serve at a time; 14 bits.
    pub ird: u16,
    /// Reads it will have under way at a time; 14 bits.
    pub ord: u16,
}

/// A start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartUp<'b> {
    /// Request or Reply.
    pub kind: FrameKind,
    /// The flag byte, reserved bits included.
    pub flags: u8,
    /// Revision byte.
    pub revision: u8,
    /// Present if S is set and the revision is at least 2.
    pub enhanced: Option<Enhanced>,
    /// The application's bytes.
    pub private: &'b [u8],
}

/// Why bytes are not the start-up frame that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The other kind's key: both sides do the same (iW 1.2 rule 6).
    OtherKey,
    /// No key of MPA.
    Key,
    /// A revision this side does not speak.
    Revision(u8),
    /// More private data than MPA allows.
    PrivateLength(u16),
    /// S is set, but the enhanced word does not fit.
    ShortEnhanced,
    /// The private data is to begin with a word of the sender's front, and is shorter.
    ShortWord,
}

impl StartUp<'_> {
    /// Reads a frame from the front of a stream, which may be cut anywhere. `Ok(None)`: more bytes
    /// are needed. A frame that cannot become right is refused at its first wrong byte.
    ///
    /// # Errors
    /// [`Malformed`]: a wrong key, the other kind's key, a revision that is not spoken, too much
    /// private data, or an enhanced frame without its word.
    pub fn parse(bytes: &[u8], kind: FrameKind) -> Result<Option<(StartUp<'_>, usize)>, Malformed> {
        let seen = &bytes[..bytes.len().min(16)];
        if !kind.key().starts_with(seen) {
            let other = if kind == FrameKind::Request { REPLY_KEY } else { REQUEST_KEY };
            return Err(if seen == other { Malformed::OtherKey } else { Malformed::Key });
        }
        let Some((_, rest)) = bytes.split_first_chunk::<16>() else { return Ok(None) };
        let Some((&[flags, revision, high, low], rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        if !(1..=2).contains(&revision) {
            return Err(Malformed::Revision(revision));
        }
        let length = u16::from_be_bytes([high, low]);
        if usize::from(length) > MAX_PRIVATE {
            return Err(Malformed::PrivateLength(length));
        }
        let enhanced = flags & ENHANCED != 0 && revision >= 2;
        if enhanced && length < 4 {
            return Err(Malformed::ShortEnhanced);
        }
        let Some(private) = rest.get(..usize::from(length)) else { return Ok(None) };
        let (enhanced, private) = match private.split_first_chunk::<4>() {
            Some((word, private)) if enhanced => (Some(Enhanced::from_bytes(*word)), private),
            _ => (None, private),
        };
        let frame = StartUp { kind, flags, revision, enhanced, private };
        Ok(Some((frame, HEADER + usize::from(length))))
    }

    /// Appends the frame. Private data beyond what the length field may say is cut off.
    pub fn write(&self, out: &mut Vec<u8>) {
        let word = self.enhanced.map(Enhanced::to_bytes);
        let word = word.as_ref().map_or(&[][..], |word| &word[..]);
        let private = &self.private[..self.private.len().min(MAX_PRIVATE - word.len())];
        let length = u16::try_from(word.len() + private.len()).unwrap_or(0);
        out.extend_from_slice(self.kind.key());
        out.extend_from_slice(&[self.flags, self.revision]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(private);
    }

    /// The frame's bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + 4 + self.private.len());
        self.write(&mut bytes);
        bytes
    }

    /// Whether `flag` is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Enhanced {
    /// From the wire.
    #[must_use]
    pub fn from_bytes([a, b, c, d]: [u8; 4]) -> Enhanced {
        let (inbound, outbound) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Enhanced {
            peer_to_peer: inbound & 0x8000 != 0,
            send: inbound & 0x4000 != 0,
            write: outbound & 0x8000 != 0,
            read: outbound & 0x4000 != 0,
            ird: inbound & UNLIMITED,
            ord: outbound & UNLIMITED,
        }
    }

    /// To the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 4] {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let inbound =
            flag(self.peer_to_peer, 0x8000) | flag(self.send, 0x4000) | self.ird & UNLIMITED;
        let outbound = flag(self.write, 0x8000) | flag(self.read, 0x4000) | self.ord & UNLIMITED;
        let ([a, b], [c, d]) = (inbound.to_be_bytes(), outbound.to_be_bytes());
        [a, b, c, d]
    }
}
