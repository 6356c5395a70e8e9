//! The connections of a process, and what waits to be written of them.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use transom_wire::Framing;

use crate::blocks::{self, Packet};
use crate::conversation::{Conversation, Held};
use crate::{fpdu, records};

/// The most bytes that wait to be written. What comes on top is left out, and counted.
pub const MEMORY: usize = 4 * 1024 * 1024;
/// Comments that wait for a packet; further ones are dropped.
const NOTES: usize = 16;

/// Settings of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the program's that are kept of each frame; `None`: all.
    pub payload: Option<usize>,
    /// Bytes after which a file is full; `None`: never.
    pub file: Option<u64>,
}

/// The process.
#[derive(Clone, Debug)]
pub struct About {
    /// The program's name.
    pub program: String,
    /// The process's number.
    pub process: u32,
    /// The machine's name.
    pub host: String,
    /// The version of what records.
    pub version: &'static str,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndId(u64);

/// Blocks that wait to be written.
#[derive(Debug, Default)]
pub struct Batch {
    /// Whole blocks, one behind the other.
    pub bytes: Vec<u8>,
    /// Where new files begin in it.
    pub cuts: Vec<usize>,
}

/// Sums since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets there were.
    pub packets: u64,
    /// Packets among these that were left out because too much waited to be written.
    pub missing: u64,
}

type Key = [SocketAddr; 2];

#[derive(Debug)]
struct End {
    key: Key,
    side: usize,
    /// Frames that this end has seen, by the side that sent them.
    seen: [u64; 2],
    /// The beginning of a frame that comes in pieces, by the side that sends it.
    pieces: [Vec<u8>; 2],
    /// The last frame that was taken, until it is known what became of it.
    held: Option<Held>,
}

/// The packets of a process.
#[derive(Debug)]
pub struct Recorder {
    conversations: HashMap<Key, Conversation>,
    ends: HashMap<u64, End>,
    next: u64,
    log: Log,
}

impl Recorder {
    /// A recorder that has seen nothing. The first file's beginning waits to be written.
    #[must_use]
    pub fn new(settings: Settings, about: About) -> Recorder {
        Recorder {
            conversations: HashMap::new(),
            ends: HashMap::new(),
            next: 0,
            log: Log::new(settings, about),
        }
    }

    /// Record what this end of a connection sends and takes, from now on.
    pub fn open(&mut self, local: SocketAddr, peer: SocketAddr) -> EndId {
        let (key, side) = if local <= peer { ([local, peer], 0) } else { ([peer, local], 1) };
        let conversation = self.conversations.entry(key).or_insert_with(|| Conversation::new(key));
        conversation.present[side] = true;
        let id = self.next;
        self.next += 1;
        self.ends
            .insert(id, End { key, side, seen: [0; 2], pieces: Default::default(), held: None });
        EndId(id)
    }

    /// A frame, or a piece of one that this end sends, as it travels. One that was taken is held until
    /// the next, or until [`Recorder::release`]: what is noted meanwhile is about it.
    pub fn frame(
        &mut self,
        EndId(id): EndId,
        outbound: bool,
        framing: Framing,
        at: u64,
        bytes: &[u8],
    ) {
        self.release(EndId(id));
        let Recorder { conversations, ends, log, .. } = self;
        let Some(end) = ends.get_mut(&id) else { return };
        let Some(conversation) = conversations.get_mut(&end.key) else { return };
        let from = if outbound { end.side } else { 1 - end.side };
        let pieces = &mut end.pieces[from];
        pieces.extend_from_slice(bytes);
        let begun = match framing {
            Framing::Records => !records::is_whole(pieces),
            Framing::Fpdus if fpdu::is_start_up_begun(pieces) => true,
            Framing::Fpdus if end.seen[from] == 0 || fpdu::start_up(pieces).is_some() => false,
            // A frame that is sent is whole, with its markers.
            Framing::Fpdus => !outbound && fpdu::is_begun(pieces),
        };
        if begun {
            return;
        }
        let bytes = std::mem::take(pieces);
        if framing == Framing::Records && !records::is_message(&bytes) {
            return;
        }
        let number = end.seen[from];
        end.seen[from] += 1;
        let elsewhere = outbound && conversation.present[1 - end.side];
        if elsewhere || number < conversation.flows[from].frames {
            return; // recorded by the other end
        }
        conversation.flows[from].frames = number + 1;
        if conversation.about.is_empty() {
            conversation.about = log.about(framing);
        }
        let mut frames = match framing {
            Framing::Fpdus => vec![bytes],
            Framing::Records => conversation.flows[from].sender.frames(&bytes),
        };
        let last = frames.pop();
        let held = |frame| Held { at, from, outbound, frame, comments: Vec::new() };
        for frame in frames {
            conversation.write(log, held(frame));
        }
        end.held = last.map(held);
        if outbound {
            self.release(EndId(id));
        }
    }

    /// A comment: on the frame that was taken last if it is still held, else on the next packet of this
    /// end's.
    pub fn note(&mut self, EndId(id): EndId, text: String) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        let Some(conversation) = self.conversations.get_mut(&end.key) else { return };
        let notes = match &mut end.held {
            Some(held) => &mut held.comments,
            None => &mut conversation.flows[end.side].notes,
        };
        if notes.len() < NOTES {
            notes.push(text);
        }
    }

    /// All is known of the frame that was taken last.
    pub fn release(&mut self, EndId(id): EndId) {
        let Recorder { conversations, ends, log, .. } = self;
        let Some(end) = ends.get_mut(&id) else { return };
        let Some(held) = end.held.take() else { return };
        if let Some(conversation) = conversations.get_mut(&end.key) {
            conversation.write(log, held);
        }
    }

    /// The peer has closed its direction.
    pub fn peer_finished(&mut self, EndId(id): EndId, at: u64) {
        self.release(EndId(id));
        let Recorder { conversations, ends, log, .. } = self;
        let Some(end) = ends.get(&id) else { return };
        if let Some(conversation) = conversations.get_mut(&end.key) {
            conversation.finish(log, at, 1 - end.side, false);
        }
    }

    /// The end has gone.
    pub fn close(&mut self, EndId(id): EndId, at: u64) {
        self.release(EndId(id));
        let Recorder { conversations, ends, log, .. } = self;
        let Some(end) = ends.remove(&id) else { return };
        let Some(conversation) = conversations.get_mut(&end.key) else { return };
        conversation.finish(log, at, end.side, true);
        conversation.present[end.side] = false;
        if conversation.present == [false; 2] {
            conversations.remove(&end.key);
        }
    }

    /// The recording ends: how many packets there were and are missing; `lost` more were never written.
    pub fn finish(&mut self, at: u64, lost: u64) {
        let ids: Vec<u64> = self.ends.keys().copied().collect();
        for id in ids {
            self.release(EndId(id));
        }
        let Totals { packets, missing } = self.log.totals;
        blocks::statistics(&mut self.log.batch.bytes, at, packets, missing + lost);
    }

    /// Counts packets that could not be written; the next one says so.
    pub fn lost(&mut self, packets: u64) {
        self.log.unsaid += packets;
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.log.batch.bytes.is_empty()
    }

    /// Exchange what waits for an empty batch.
    pub fn take(&mut self, batch: &mut Batch) {
        batch.bytes.clear();
        batch.cuts.clear();
        std::mem::swap(batch, &mut self.log.batch);
    }

    /// Sums so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.log.totals
    }
}

/// Packets of all conversations, in the order of their recording.
#[derive(Debug)]
pub(crate) struct Log {
    settings: Settings,
    about: About,
    batch: Batch,
    /// Number of the file, its bytes so far, and the addresses that it names.
    file: u64,
    length: u64,
    named: BTreeSet<IpAddr>,
    totals: Totals,
    /// Packets missing since the last one that is there.
    unsaid: u64,
}

impl Log {
    fn new(settings: Settings, about: About) -> Log {
        let batch = Batch::default();
        let (named, totals) = (BTreeSet::new(), Totals::default());
        let mut log = Log { settings, about, batch, file: 0, length: 0, named, totals, unsaid: 0 };
        log.begin_file();
        log
    }

    pub(crate) fn file(&self) -> u64 {
        self.file
    }

    pub(crate) fn limit(&self) -> usize {
        self.settings.payload.unwrap_or(usize::MAX)
    }

    /// Said of each connection.
    fn about(&self, framing: Framing) -> String {
        let About { program, process, .. } = &self.about;
        let how = match framing {
            Framing::Fpdus => "over TCP, whose handshake and segments are made up here",
            Framing::Records => {
                "over shared memory: its records, as the frames that TCP would have carried"
            }
        };
        format!("a connection of process {process} ({program}), {how}")
    }

    fn begin_file(&mut self) {
        let About { program, process, host, version } = &self.about;
        let before = self.batch.bytes.len();
        let application = format!("Transom {version}");
        let kept = self.settings.payload.map_or_else(String::new, |limit| {
            format!(
                "; frames with more than {limit} bytes of payload are made shorter, with a length and a \
                 checksum of their own: the packet's length on the wire tells what they were"
            )
        });
        let comment = format!("process {process} ({program}) on {host}{kept}");
        blocks::section(&mut self.batch.bytes, &application, &comment);
        let description = "frames of RDMA connections, as their process made or took them";
        blocks::interface(&mut self.batch.bytes, "transom", description);
        self.length = (self.batch.bytes.len() - before) as u64;
        self.named.clear();
    }

    /// A packet of about so many bytes is to come: where files have an end, maybe into the next.
    pub(crate) fn make_room(&mut self, at: u64, payload: usize) {
        let Some(limit) = self.settings.file else { return };
        let length = payload.min(self.limit()) as u64;
        if self.length + length < limit || self.named.is_empty() {
            return;
        }
        let Totals { packets, missing } = self.totals;
        blocks::statistics(&mut self.batch.bytes, at, packets, missing);
        self.batch.cuts.push(self.batch.bytes.len());
        self.file += 1;
        self.begin_file();
    }

    /// Name an address of this process, or, if the peer has the same one, of this host.
    pub(crate) fn name(&mut self, address: IpAddr, shared: bool) {
        let first = self.named.insert(address);
        let About { program, process, host, .. } = &self.about;
        let name = if shared { host.clone() } else { format!("{program}-{process}") };
        if first && !name.is_empty() {
            let before = self.batch.bytes.len();
            blocks::names(&mut self.batch.bytes, std::iter::once((address, &*name)));
            self.length += (self.batch.bytes.len() - before) as u64;
        }
    }

    pub(crate) fn packet(&mut self, packet: &Packet<'_>) {
        self.totals.packets += 1;
        let before = self.batch.bytes.len();
        if before + packet.kept.len() > MEMORY {
            self.totals.missing += 1;
            self.unsaid += 1;
            return;
        }
        if self.unsaid > 0 {
            let missing = std::mem::take(&mut self.unsaid);
            let said = format!("{missing} packets before this one are missing");
            let comments = [packet.comments, &[said]].concat();
            Packet { comments: &comments, ..*packet }.write(&mut self.batch.bytes);
        } else {
            packet.write(&mut self.batch.bytes);
        }
        self.length += (self.batch.bytes.len() - before) as u64;
    }
}
