//! The client's side of rping.

use std::net::SocketAddr;

use transom::{QueuePair, Rights, Window};

use super::Args;
use super::peer::Peer;
use super::protocol::{self, Descriptor, MESSAGE};
use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::progress::Progress;

pub(super) fn run(args: &Args, to: SocketAddr) -> Outcome {
    let adapter = args.options().route_to(to)?;
    let peer = args.peer("server", to);
    let asking = adapter.connect(to).reads(1).receives(2, MESSAGE as u32);
    let server = peer.wait("an answer to the connection request", asking)??;
    args.print_path(server.info());
    let size = args.size as u64;
    // The source is opened for reading only, the sink for writing only, and to this peer alone.
    let source = adapter.register(vec![0; args.size])?;
    let sink = adapter.register(vec![0; args.size])?;
    let lend_source = server.bind(&source, .., Rights::READ)?;
    let lend_sink = server.bind(&sink, .., Rights::WRITE)?;

    // A bar among the lines of --verbose would be no help, and an endless session has no end to show.
    let bar = (args.count > 0 && !args.verbose).then(|| Progress::of_steps(args.count, "rounds"));
    let mut round = 0;
    while args.count == 0 || round < args.count {
        let ping = protocol::payload(round, args.size);
        source.copy_in(0, &ping)?;
        sink.copy_in(0, &vec![0; args.size])?;
        announce(&peer, &server, &lend_source, size)?;
        go_ahead(&peer, &server, "a go-ahead after its Read", round)?;
        announce(&peer, &server, &lend_sink, size)?;
        go_ahead(&peer, &server, "a go-ahead after its Write", round)?;
        let mut pong = vec![0; args.size];
        sink.copy_out(0, &mut pong)?;
        if args.validate && pong != ping {
            let at = ping.iter().zip(&pong).position(|(a, b)| a != b).unwrap_or(0);
            return Err(Failure::new(
                Exit::CheckFailed,
                format!("round {round}: what came back differs from byte {at} on"),
            ));
        }
        if args.verbose {
            println!("ping data: {}", protocol::printable(&pong));
        }
        bar.iter().for_each(|bar| bar.advance(1));
        round += 1;
    }
    server.disconnect()?;
    Ok(())
}

fn announce(peer: &Peer, server: &QueuePair, window: &Window, size: u64) -> Outcome {
    let grant = window.grant();
    let descriptor = Descriptor {
        address: grant.address(),
        key: grant.token(),
        size: u32::try_from(size).unwrap_or(u32::MAX),
    };
    let sent = server.send(descriptor.to_bytes())?;
    Ok(peer.wait("an acknowledgement of a buffer descriptor", sent)??)
}

fn go_ahead(peer: &Peer, server: &QueuePair, owed: &str, round: u64) -> Outcome {
    let owed = format!("{owed} in round {round}");
    match peer.wait(&owed, server.recv())??.len() {
        MESSAGE => Ok(()),
        got => Err(protocol::bogus("a go-ahead", got)),
    }
}
