//! The server's side of rping.

use std::io::Write;
use std::net::SocketAddr;

use transom::{ErrorKind, Grant, Incoming, QueuePair, Region, Rights};

use super::Args;
use super::peer::Peer;
use super::protocol::{self, Descriptor, MESSAGE};
use crate::command::exit::{Exit, Failure, Outcome};

pub(super) fn run(args: &Args, at: SocketAddr) -> Outcome {
    let adapter = args.options().open(at.ip())?;
    let mut listener = adapter.listen(at)?;
    // The parent process may wait for the port, or for this side to be ready.
    println!("rping server at {}", listener.address());
    let _ = std::io::stdout().flush();
    loop {
        let incoming = listener.next().wait()?;
        let served = serve(args, &adapter, incoming);
        if !args.persistent {
            return served;
        }
        if let Err(failure) = served {
            // A client's fault is not the next one's.
            let _ = failure.report();
        }
    }
}

fn serve(args: &Args, adapter: &transom::Adapter, incoming: Incoming) -> Outcome {
    let buffer = adapter.register(vec![0; protocol::LARGEST])?;
    let peer = args.peer("client", incoming.peer());
    let accepting = incoming.reads(1).receives(2, MESSAGE as u32).accept();
    let client = peer.wait("the end of start-up", accepting)??;
    args.print_path(client.info());
    let mut rounds = 0;
    while args.count == 0 || rounds < args.count {
        match round(args, &peer, &client, &buffer, rounds) {
            Ok(true) => rounds += 1,
            Ok(false) if rounds > 0 => return Ok(()),
            Ok(false) => {
                return Err(Failure::new(Exit::NoConnection, "the client left before any round")
                    .try_this("on the client: rping -c -a THIS_HOST -v -C 10"));
            }
            Err(failure) => return Err(failure),
        }
    }
    // The client disconnects; it may still have to read our last go-ahead.
    loop {
        match peer.wait("its disconnect after the last round", client.recv())? {
            Ok(_) => {}
            Err(error) if ended(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A round; `false` if the client has left instead.
fn round(
    args: &Args,
    peer: &Peer,
    client: &QueuePair,
    buffer: &Region<Vec<u8>>,
    round: u64,
) -> Outcome<bool> {
    let owed = |what: &str| format!("{what} in round {round}");
    let source = match peer.wait(&owed("the descriptor of its source"), client.recv())? {
        Ok(message) => Descriptor::from_bytes(&message)?,
        Err(error) if ended(&error) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let size = bounded(source)?;
    let read = client.read(grant(source, Rights::READ), buffer.slice(..size))?;
    peer.wait(&owed("the answer to a Read of its source"), read)??;
    if args.verbose {
        let mut ping = vec![0; source.size as usize];
        buffer.copy_out(0, &mut ping)?;
        println!("server ping data: {}", protocol::printable(&ping));
    }
    peer.wait(&owed("an acknowledgement of a go-ahead"), client.send([0; MESSAGE])?)??;

    let sink = match peer.wait(&owed("the descriptor of its sink"), client.recv())? {
        Ok(message) => Descriptor::from_bytes(&message)?,
        Err(error) if ended(&error) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if sink.size < source.size {
        return Err(Failure::new(
            Exit::Peer,
            format!("the client lends {} bytes and wants {} back", sink.size, source.size),
        ));
    }
    // Posted together: the go-ahead is executed behind the Write whose bytes it announces.
    let written = client.write(grant(sink, Rights::WRITE), buffer.slice(..size))?;
    let announced = client.send([0; MESSAGE]);
    peer.wait(&owed("the outcome of a Write to its sink"), written)??;
    let announced = match announced {
        Ok(posted) => peer.wait(&owed("an acknowledgement of a go-ahead"), posted)?,
        Err(error) => Err(error),
    };
    match announced {
        Err(error) if !ended(&error) => Err(error.into()),
        _ => Ok(true),
    }
}

fn ended(error: &transom::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::Canceled)
}

/// The size a client asks for, if this side has room for it.
fn bounded(descriptor: Descriptor) -> Outcome<u64> {
    let size = descriptor.size as usize;
    if size > protocol::LARGEST {
        return Err(Failure::new(
            Exit::Peer,
            format!("the client asks for {size} bytes per round"),
        )
        .try_this(format!("at most {} on its side (-S)", protocol::LARGEST)));
    }
    Ok(size as u64)
}

fn grant(descriptor: Descriptor, rights: Rights) -> Grant {
    Grant::from_parts(descriptor.key, descriptor.address, descriptor.size.into(), rights)
}
