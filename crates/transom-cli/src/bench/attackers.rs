//! Attackers for `bench fairness`: peers that say what they like over a plain socket, as fast as one
//! thread can.

use std::io::{BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;

/// The acts of an attacker until it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    /// Connect, say half of a start-up, and hold on to hundreds of such connections
    ConnectionFlood,
    /// Connect and say what is no start-up
    GarbageFlood,
    /// Ask for as much as is allowed, and take it a little at a time
    SlowReader,
    /// Ask for as much as is allowed, and take nothing
    NeverReader,
    /// Begin frames and stop, on many connections
    MidFrameStall,
    /// Ask for as much as is allowed, and take it as fast as it comes
    ReadHog,
    /// Write frames of one byte, as many as fit
    TinyWrites,
    /// Guess a token, be thrown out, come back
    TokenGuesser,
}

/// Attack until `stop` says so. What the other side makes of it is not the attacker's worry.
pub(crate) fn attack(kind: Attack, owner: SocketAddr, stop: &AtomicBool) {
    let on = || !stop.load(Ordering::Relaxed);
    let mut held = Vec::new();
    while on() {
        let done = match kind {
            Attack::ConnectionFlood => flood(owner, &mut held),
            Attack::GarbageFlood => garbage(owner),
            Attack::SlowReader => reads(owner, on, Some(Duration::from_millis(20))),
            Attack::NeverReader => reads(owner, on, None),
            Attack::MidFrameStall => stall(owner, &mut held),
            Attack::ReadHog => reads(owner, on, Some(Duration::ZERO)),
            Attack::TinyWrites => tiny(owner, on),
            Attack::TokenGuesser => guess(owner),
        };
        if done.is_err() {
            // Refused or thrown out, as it should be.
            std::thread::yield_now();
        }
    }
}

/// Bytes that each connection may touch.
pub(crate) const LENT: usize = 1 << 20;

const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x10\x00\x10";
/// Reads that may be under way at a time, as in the request.
const READS: usize = 16;

fn flood(owner: SocketAddr, held: &mut Vec<TcpStream>) -> Result<()> {
    let mut stream = TcpStream::connect(owner)?;
    stream.write_all(REQUEST.get(..19).unwrap_or_default())?;
    held.push(stream);
    if held.len() > 400 {
        held.clear();
    }
    Ok(())
}

fn garbage(owner: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(owner)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(&[0xc1; 16384])?;
    stream.read(&mut [0; 64]).map(drop)
}

fn guess(owner: SocketAddr) -> Result<()> {
    let mut forger = Forger::connect(owner)?;
    forger.write(forger.token ^ 0x55_5555, &[1; 8])?;
    std::io::copy(&mut forger.stream, &mut std::io::sink()).map(drop)
}

/// Half a frame on each of 64 connections, which are then given up together.
fn stall(owner: SocketAddr, held: &mut Vec<TcpStream>) -> Result<()> {
    let mut forger = Forger::connect(owner)?;
    forger.stream.write_all(&[0xff; 2])?;
    forger.stream.write_all(&forger.header(0xc1, 0x40))?;
    forger.stream.write_all(&[1; 30_000])?;
    held.push(forger.stream);
    if held.len() > 64 {
        held.clear();
    }
    Ok(())
}

fn tiny(owner: SocketAddr, on: impl Fn() -> bool) -> Result<()> {
    let mut forger = Forger::connect(owner)?;
    let one = frame(&[&forger.header(0xc1, 0x40)[..], &[1]].concat());
    let many = one.repeat(1000);
    while on() {
        forger.stream.write_all(&many)?;
    }
    Ok(())
}

/// All reads that are allowed, always, of all that is lent. `pause`: so long between two frames of the
/// answers; `None`: for ever.
fn reads(owner: SocketAddr, on: impl Fn() -> bool, pause: Option<Duration>) -> Result<()> {
    let mut forger = Forger::connect(owner)?;
    for _ in 0..READS {
        forger.read()?;
    }
    let Some(pause) = pause else {
        while on() {
            std::thread::sleep(Duration::from_millis(1));
        }
        return Ok(());
    };
    let mut answers = BufReader::with_capacity(1 << 20, forger.stream.try_clone()?);
    while on() {
        let ulpdu = ulpdu(&mut answers)?;
        // The last frame of an answer.
        if matches!(ulpdu.get(..2), Some([0xc1, 0x42])) {
            forger.read()?;
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// The next frame's, without its length and checksum.
fn ulpdu(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let size = usize::from(u16::from_be_bytes(length));
    let mut rest = vec![0; (2 + size).next_multiple_of(4) + 2];
    from.read_exact(&mut rest)?;
    rest.truncate(size);
    Ok(rest)
}

/// An end of an iWARP stream without checksums, with a grant from its owner.
struct Forger {
    stream: TcpStream,
    token: u32,
    address: u64,
    reads: u32,
}

/// An FPDU around a ULPDU.
fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

/// The bytes from `at` on, as many as fit.
fn piece<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let piece = bytes.get(at..at + N).and_then(|piece| piece.try_into().ok());
    piece.ok_or_else(|| Error::from(ErrorKind::InvalidData))
}

impl Forger {
    fn connect(owner: SocketAddr) -> Result<Forger> {
        let mut stream = TcpStream::connect(owner)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(REQUEST)?;
        stream.read_exact(&mut [0; 24])?;
        // A Send of no bytes: ready.
        let ready = [&[0x41, 0x43][..], &[0; 8], &[0, 0, 0, 1], &[0; 4]].concat();
        stream.write_all(&frame(&ready))?;
        // The grant comes in the first frame that has one.
        loop {
            let ulpdu = ulpdu(&mut stream)?;
            if ulpdu.len() < 18 + transom::Grant::ENCODED_LEN {
                continue;
            }
            let grant = piece::<{ transom::Grant::ENCODED_LEN }>(&ulpdu, 18)?;
            let grant = transom::Grant::from_bytes(&grant)
                .map_err(|_| Error::from(ErrorKind::InvalidData))?;
            return Ok(Forger { stream, token: grant.token(), address: grant.address(), reads: 0 });
        }
    }

    /// A tagged header for what was granted.
    fn header(&self, control: u8, opcode: u8) -> Vec<u8> {
        let (token, address) = (self.token.to_be_bytes(), self.address.to_be_bytes());
        [&[control, opcode][..], &token, &address].concat()
    }

    fn write(&mut self, token: u32, payload: &[u8]) -> Result<()> {
        let address = self.address.to_be_bytes();
        let ulpdu = [&[0xc1, 0x40][..], &token.to_be_bytes(), &address, payload].concat();
        self.stream.write_all(&frame(&ulpdu))
    }

    /// Ask for all that is lent.
    fn read(&mut self) -> Result<()> {
        self.reads += 1;
        let length = (LENT as u32).to_be_bytes();
        let ulpdu = [
            &[0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1][..],
            &self.reads.to_be_bytes(),
            &[0; 4],
            &[0x51; 12],
            &length,
            &self.token.to_be_bytes(),
            &self.address.to_be_bytes(),
        ];
        self.stream.write_all(&frame(&ulpdu.concat()))
    }
}
