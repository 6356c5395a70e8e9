//! IPv4 and TCP, as far as a recording without loss needs them: retransmitted bytes are dropped, a
//! gap is an error.

use super::{End, Session, Turn};

/// Source and destination of a direction.
type Ends = ([u8; 6], [u8; 6]);

struct Connection {
    client: Ends,
    /// Next sequence number of client and server, once their SYN was seen.
    next: [Option<u32>; 2],
    session: Session,
}

pub(crate) fn sessions(packets: &[&[u8]]) -> Result<Vec<Session>, String> {
    let mut connections: Vec<Connection> = Vec::new();
    for packet in packets {
        let Some(segment) = segment(packet) else { continue };
        let reversed = (segment.ends.1, segment.ends.0);
        if segment.syn && !segment.ack {
            connections.push(Connection {
                client: segment.ends,
                next: [None, None],
                session: Session { segment: segment.maximum, ..Session::default() },
            });
        }
        let mine = |it: &&mut Connection| it.client == segment.ends || it.client == reversed;
        let Some(connection) = connections.iter_mut().rev().find(mine) else { continue };
        connection.take(&segment)?;
    }
    Ok(connections.into_iter().map(|connection| connection.session).collect())
}

impl Connection {
    fn take(&mut self, segment: &Segment<'_>) -> Result<(), String> {
        let from_client = segment.ends == self.client;
        let next = &mut self.next[usize::from(from_client)];
        if segment.syn {
            *next = Some(segment.sequence.wrapping_add(1));
            return Ok(());
        }
        if !segment.payload.is_empty() {
            let expected = next.ok_or("data before a SYN")?;
            let seen = expected.wrapping_sub(segment.sequence);
            if seen > u32::MAX / 2 {
                return Err("bytes are missing from a connection".into());
            }
            let fresh = segment.payload.get(usize::try_from(seen).unwrap_or(usize::MAX)..);
            if let Some(fresh) = fresh.filter(|fresh| !fresh.is_empty()) {
                *next = Some(expected.wrapping_add(u32::try_from(fresh.len()).unwrap_or(0)));
                self.session.turns.push(Turn { from_client, bytes: fresh.to_vec() });
            }
        }
        if segment.fin || segment.reset {
            self.session.ends.push(End { from_client, reset: segment.reset });
        }
        Ok(())
    }
}

struct Segment<'b> {
    ends: Ends,
    sequence: u32,
    syn: bool,
    ack: bool,
    fin: bool,
    reset: bool,
    /// Bytes a full segment carries: the option of a SYN, less 12 if timestamps were asked for.
    maximum: u32,
    payload: &'b [u8],
}

fn segment(packet: &[u8]) -> Option<Segment<'_>> {
    if packet.get(12..14)? != [8, 0] {
        return None;
    }
    let ip = packet.get(14..)?;
    let header = usize::from(ip.first()? & 0x0F) * 4;
    let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
    if *ip.get(9)? != 6 {
        return None;
    }
    let tcp = ip.get(header..total)?;
    let end = |address: usize, port: usize| -> Option<[u8; 6]> {
        let mut end = [0; 6];
        end[..4].copy_from_slice(ip.get(address..address + 4)?);
        end[4..].copy_from_slice(tcp.get(port..port + 2)?);
        Some(end)
    };
    let data = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = *tcp.get(13)?;
    Some(Segment {
        ends: (end(12, 0)?, end(16, 2)?),
        sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
        syn: flags & 2 != 0,
        ack: flags & 16 != 0,
        fin: flags & 1 != 0,
        reset: flags & 4 != 0,
        maximum: maximum(tcp.get(20..data)?),
        payload: tcp.get(data..)?,
    })
}

fn maximum(mut options: &[u8]) -> u32 {
    let (mut maximum, mut taken) = (536, 0);
    while let [kind, rest @ ..] = options {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(rest.first().copied().unwrap_or(0)).max(2),
        };
        match (kind, rest) {
            (2, [_, high, low, ..]) => maximum = u32::from(u16::from_be_bytes([*high, *low])),
            (8, _) => taken = 12,
            _ => {}
        }
        options = options.get(length..).unwrap_or(&[]);
    }
    maximum - taken
}
