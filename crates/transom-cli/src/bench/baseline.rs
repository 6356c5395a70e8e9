//! The baseline: what the same bytes cost over a bare TCP socket (or a Unix socket, where what counts
//! is how a sleeper is woken). All of it is on this page, but for many small messages
//! ([`message_rate`](super::message_rate)).
//!
//! A connection, Nagle off, congestion control pinned. Either side spins on non-blocking calls or
//! blocks. Small messages go back and forth; bulk goes one way in calls of 64 KiB or 1 MiB, and a
//! byte comes back when the last of it has arrived.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::bench::os::Channel;
use crate::bench::os::pin_congestion;

/// Call sizes of the stream; the faster one counts.
pub(crate) const CALLS: [usize; 2] = [64 << 10, 1 << 20];
/// In the first byte of a message: another one follows, or this was the last.
const MORE: u8 = 0;
const LAST: u8 = 1;

/// Both sides: no delay, this congestion control.
pub(crate) fn prepare(stream: &TcpStream, congestion: &str) -> Result<()> {
    stream.set_nodelay(true)?;
    pin_congestion(stream, congestion)
}

/// A plain stream.
pub(crate) trait Plain: Read + Write {
    fn set_nonblocking(&self, on: bool) -> Result<()>;
}

impl Plain for TcpStream {
    fn set_nonblocking(&self, on: bool) -> Result<()> {
        TcpStream::set_nonblocking(self, on)
    }
}

#[cfg(unix)]
impl Plain for Channel {
    fn set_nonblocking(&self, on: bool) -> Result<()> {
        Channel::set_nonblocking(self, on)
    }
}

/// All of `bytes`, in as few calls as the socket allows; spinning if it is non-blocking.
pub(crate) fn send(stream: &mut impl Plain, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(stream: &mut impl Plain, bytes: &mut [u8]) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match stream.read(bytes.get_mut(at..).unwrap_or_default()) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Half round trips of messages of `size` bytes in nanoseconds, one for each batch of up to `most`.
pub(crate) fn ping(
    s: &mut impl Plain,
    size: usize,
    spin: bool,
    most: usize,
    time: Duration,
) -> Result<Vec<f64>> {
    s.set_nonblocking(spin)?;
    let (mut message, mut samples, begin) = (vec![MORE; size], Vec::new(), Instant::now());
    let mut batch = 1;
    while begin.elapsed() < time || samples.is_empty() {
        let sent = Instant::now();
        for _ in 0..batch {
            send(s, &message)?;
            receive(s, &mut message)?;
        }
        samples.push(sent.elapsed().as_nanos() as f64 / (2 * batch) as f64);
        batch = most.min(2 * batch);
    }
    message.fill(LAST);
    send(s, &message)?;
    receive(s, &mut message)?;
    s.set_nonblocking(false)?;
    Ok(samples)
}

/// The other side of [`ping`].
pub(crate) fn pong(s: &mut impl Plain, size: usize, spin: bool) -> Result<()> {
    s.set_nonblocking(spin)?;
    let mut message = vec![MORE; size];
    loop {
        receive(s, &mut message)?;
        send(s, &message)?;
        if message.first() == Some(&LAST) {
            return s.set_nonblocking(false);
        }
    }
}

/// Bytes per second, in calls of `call` bytes. The clock stops when the last byte has arrived.
pub(crate) fn source(s: &mut TcpStream, call: usize, spin: bool, time: Duration) -> Result<f64> {
    s.set_nonblocking(spin)?;
    let (mut block, mut sent, begin) = (vec![MORE; call], 0.0, Instant::now());
    while block.first() == Some(&MORE) {
        if begin.elapsed() >= time {
            block.fill(LAST);
        }
        send(s, &block)?;
        sent += call as f64;
    }
    receive(s, &mut [0])?;
    s.set_nonblocking(false)?;
    Ok(sent / begin.elapsed().as_secs_f64())
}

/// The other side of [`source`].
pub(crate) fn sink(s: &mut TcpStream, call: usize, spin: bool) -> Result<()> {
    s.set_nonblocking(spin)?;
    let mut block = vec![MORE; call];
    while block.first() == Some(&MORE) {
        receive(s, &mut block)?;
    }
    send(s, &[0])?;
    s.set_nonblocking(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_when_it_is_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut s, _) = listener.accept().unwrap();
            pong(&mut s, 8, false).unwrap();
            sink(&mut s, CALLS[0], false).unwrap();
            source(&mut s, CALLS[1], false, Duration::ZERO).unwrap()
        });
        let mut s = TcpStream::connect(to).unwrap();
        prepare(&s, "reno").unwrap();
        assert!(!ping(&mut s, 8, false, 3, Duration::from_millis(1)).unwrap().is_empty());
        assert!(source(&mut s, CALLS[0], true, Duration::ZERO).unwrap() > 0.0);
        sink(&mut s, CALLS[1], true).unwrap();
        assert!(other.join().unwrap() > 0.0);
    }
}
