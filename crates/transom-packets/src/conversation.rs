//! A connection as a capture sees it. Both of its ends may lie in this process: then each frame
//! is recorded once, by the end that takes it, so that a refusal finds the packet it is about.

use std::net::SocketAddr;

use crate::blocks;
use crate::fpdu::{self, Kept};
use crate::recorder::Log;
use crate::records::Sender;
use crate::segment::{LARGEST, Segment};

/// A direction of a connection.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Sequence number of the next byte.
    next: u32,
    /// Frames recorded.
    pub(crate) frames: u64,
    /// The first of them, which a dissector must have seen to know the others.
    start_up: Vec<u8>,
    /// How long it was in the file.
    start_up_sent: usize,
    finished: bool,
    /// Comments for the next packet.
    pub(crate) notes: Vec<String>,
    /// For records: the frames' numbers.
    pub(crate) sender: Sender,
}

impl Default for Flow {
    fn default() -> Flow {
        let sender = Sender::default();
        let (frames, start_up, start_up_sent) = (0, Vec::new(), 0);
        let (finished, notes) = (false, Vec::new());
        Flow { next: 1, frames, start_up, start_up_sent, finished, notes, sender }
    }
}

/// A frame on its way into the file.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) at: u64,
    /// The sender's side.
    pub(crate) from: usize,
    pub(crate) outbound: bool,
    pub(crate) frame: Vec<u8>,
    pub(crate) comments: Vec<String>,
}

/// A connection, both directions.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// By side; the lower address is side 0.
    addresses: [SocketAddr; 2],
    pub(crate) flows: [Flow; 2],
    /// Which ends this process has.
    pub(crate) present: [bool; 2],
    /// The side that began.
    active: usize,
    /// The number of the file that has the beginning of the connection.
    file: Option<u64>,
    /// Said at the first packet.
    pub(crate) about: String,
}

impl Conversation {
    pub(crate) fn new(addresses: [SocketAddr; 2]) -> Conversation {
        Conversation {
            addresses,
            flows: Default::default(),
            present: [false; 2],
            active: 0,
            file: None,
            about: String::new(),
        }
    }

    /// How much of a frame to keep. The first one of start-up of each side says what the others look like.
    fn learn(&mut self, from: usize, frame: &[u8], limit: usize) -> Kept {
        let is_start_up = fpdu::start_up(frame).is_some();
        let is_first = self.flows[from].start_up.is_empty();
        if is_start_up && is_first {
            self.flows[from].start_up = frame.to_vec();
        }
        if is_start_up || is_first {
            return fpdu::keep_of_start_up(frame, limit);
        }
        if fpdu::wants_markers(&self.flows[1 - from].start_up) {
            return fpdu::keep_among_markers(frame, limit);
        }
        fpdu::keep(frame, limit)
    }

    /// Write a frame.
    pub(crate) fn write(&mut self, log: &mut Log, held: Held) {
        let Held { at, from, outbound, frame, mut comments } = held;
        if self.file.is_none() {
            self.active = from;
        }
        self.begin(log, at, from, outbound, frame.len());
        let kept = self.learn(from, &frame, log.limit());
        comments.append(&mut self.flows[from].notes);
        let (bytes, kept) = match &kept {
            Kept::Whole => (&frame, frame.len()),
            Kept::Cut(cut) => (cut, cut.len()),
            Kept::Truncated(kept) => (&frame, *kept),
        };
        let flow = &mut self.flows[from];
        if flow.start_up_sent == 0 && flow.start_up == frame {
            flow.start_up_sent = bytes.len();
        }
        let mut left_out = frame.len() - bytes.len();
        let mut before = 0;
        for bytes in bytes.chunks(LARGEST) {
            let packet = Packet { at, from, outbound, syn: false, fin: false, payload: bytes };
            let kept = kept.saturating_sub(before).min(bytes.len());
            let lengths = (kept, std::mem::take(&mut left_out));
            self.segment(log, &packet, lengths, std::mem::take(&mut comments));
            before += bytes.len();
        }
    }

    /// A side has closed its direction.
    pub(crate) fn finish(&mut self, log: &mut Log, at: u64, from: usize, outbound: bool) {
        if self.file.is_none() || std::mem::replace(&mut self.flows[from].finished, true) {
            return;
        }
        self.begin(log, at, from, outbound, 0);
        let comments = std::mem::take(&mut self.flows[from].notes);
        let packet = Packet { at, from, outbound, syn: false, fin: true, payload: &[] };
        self.segment(log, &packet, (0, 0), comments);
    }

    /// The connection's beginning, if the file does not have it: TCP's handshake, and in a file behind
    /// the first one the frames of start-up once more.
    fn begin(&mut self, log: &mut Log, at: u64, from: usize, outbound: bool, length: usize) {
        log.make_room(at, length);
        if self.file == Some(log.file()) {
            return;
        }
        let again = self.file.is_some();
        self.file = Some(log.file());
        let [low, high] = self.addresses.map(|address| address.ip());
        let local = if outbound { from } else { 1 - from };
        log.name(if local == 0 { low } else { high }, low == high);
        for flow in &mut self.flows {
            let gone = if again { flow.start_up_sent } else { 0 };
            flow.next = flow.next.wrapping_sub(gone as u32).wrapping_sub(1);
        }
        let (active, passive) = (self.active, 1 - self.active);
        let is_ours = |side: usize| if side == from { outbound } else { !outbound };
        let mut comments = vec![self.about.clone()];
        if again {
            comments.push("the beginning of the connection, repeated for this file".to_owned());
        }
        for (side, syn) in [(active, true), (passive, true), (active, false)] {
            let outbound = is_ours(side);
            let packet = Packet { at, from: side, outbound, syn, fin: false, payload: &[] };
            self.segment(log, &packet, (0, 0), std::mem::take(&mut comments));
        }
        for side in [active, passive].into_iter().filter(|_| again) {
            let frame = self.flows[side].start_up.clone();
            if !frame.is_empty() {
                let cut = fpdu::keep_of_start_up(&frame, log.limit());
                let payload = if let Kept::Cut(cut) = &cut { cut } else { &frame };
                let outbound = is_ours(side);
                let packet = Packet { at, from: side, outbound, syn: false, fin: false, payload };
                let lengths = (payload.len(), frame.len() - payload.len());
                self.segment(log, &packet, lengths, Vec::new());
            }
        }
    }

    /// Makes a packet, and counts what it does to the sequence numbers. `kept`: bytes of its payload
    /// that are kept; `left_out`: bytes that the frame had besides.
    fn segment(
        &mut self,
        log: &mut Log,
        packet: &Packet<'_>,
        (kept, left_out): (usize, usize),
        comments: Vec<String>,
    ) {
        let Packet { at, from, outbound, syn, fin, payload } = *packet;
        let to = 1 - from;
        let first = syn && from == self.active;
        let segment = Segment {
            from: self.addresses[from],
            to: self.addresses[to],
            sequence: self.flows[from].next,
            acknowledges: (!first).then_some(self.flows[to].next),
            syn,
            fin,
            payload,
        };
        let (bytes, headers) = segment.packet();
        let taken = payload.len() as u32 + u32::from(syn) + u32::from(fin);
        self.flows[from].next = segment.sequence.wrapping_add(taken);
        let kept = bytes.get(..headers + kept).unwrap_or(&bytes);
        log.packet(&blocks::Packet {
            at,
            kept,
            length: bytes.len() + left_out,
            outbound,
            comments: &comments,
        });
    }
}

#[derive(Clone, Copy)]
struct Packet<'a> {
    at: u64,
    from: usize,
    outbound: bool,
    syn: bool,
    fin: bool,
    payload: &'a [u8],
}
