//! `transom rping`.

mod client;
mod peer;
mod protocol;
mod server;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args as ClapArgs;
use transom::{Adapter, ConnectionInfo, Options};

use crate::command::OnOff;
use crate::command::exit::{Exit, Failure, Outcome};
use crate::path::PathArg;
use peer::Peer;

/// Arguments of `rping`: the letters are rping's.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The other side is any rping program on an iWARP adapter. With the Linux kernel's own (siw):
  peer$ modprobe siw && rdma link add siw0 type siw netdev eth0
  peer$ rping -c -a THIS_HOST -v -C 10        # against: transom rping -s
  peer$ rping -s -v -C 10                     # against: transom rping -c PEER -v -C 10
A session that fails ends with a sentence and the exit status of `transom --help`: 1 if -V finds
other bytes, 3 if the other side is not there, leaves before a round is over, or is silent for the
time of --timeout, 4 if it refuses an access or does not speak rping.")]
#[command(group = clap::ArgGroup::new("role").required(true).args(["server", "client"]))]
pub(crate) struct Args {
    /// Serve: wait for a client, and end with it (-P: go on)
    #[arg(short = 's')]
    server: bool,
    /// Connect to a server
    #[arg(short = 'c', value_name = "ADDR[:PORT]")]
    client: Option<String>,
    /// Local address to serve at [default: 0.0.0.0]
    #[arg(short = 'a', value_name = "ADDR", conflicts_with = "client")]
    address: Option<IpAddr>,
    /// Port (0, with -s: any free one)
    #[arg(short = 'p', value_name = "PORT", default_value_t = protocol::PORT)]
    port: u16,
    /// Rounds; 0 = until the other side ends
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 0)]
    count: u64,
    /// Bytes per round
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 64)]
    size: usize,
    /// Print each round's text
    #[arg(short = 'v')]
    verbose: bool,
    /// Compare each round's bytes (client)
    #[arg(short = 'V')]
    validate: bool,
    /// Serve one client after the other
    #[arg(short = 'P', requires = "server")]
    persistent: bool,
    /// Seconds for which the other side may be silent when it is its turn: then the session ends with
    /// a sentence that says what it owes, and exit status 3. A server waits for clients without limit
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Ask for checksums
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    crc: OnOff,
    /// Behave as a plain iWARP peer, without Transom's extension
    #[arg(long)]
    no_extension: bool,
    #[command(flatten)]
    path: PathArg,
}

impl Args {
    fn options(&self) -> Options {
        let options = Adapter::options().crc(self.crc.is_on()).extension(!self.no_extension);
        self.path.apply(options)
    }

    fn peer(&self, role: &'static str, address: SocketAddr) -> Peer {
        Peer { role, address, limit: Duration::from_secs(self.timeout) }
    }

    /// Beside the rounds, not among them: their lines are those of other rping programs.
    fn print_path(&self, info: &ConnectionInfo) {
        if self.verbose {
            eprintln!("path {}: {}", info.path, info.path_reason);
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !(protocol::SMALLEST..=protocol::LARGEST).contains(&args.size) {
        return Err(Failure::new(
            Exit::Usage,
            format!("-S {}: rping programs cannot do that", args.size),
        )
        .try_this(format!("-S {} to -S {}", protocol::SMALLEST, protocol::LARGEST)));
    }
    match &args.client {
        Some(to) => client::run(args, parse(to, args.port)?),
        None => {
            let address = args.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            server::run(args, SocketAddr::new(address, args.port))
        }
    }
}

/// `ADDR` or `ADDR:PORT`, numbers or a name.
fn parse(to: &str, port: u16) -> Outcome<SocketAddr> {
    use std::net::ToSocketAddrs;
    if let Ok(address) = to.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(address) = to.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = match to.rsplit_once(':') {
        Some((name, port)) => port.parse().ok().map(|port: u16| (name, port).to_socket_addrs()),
        None => Some((to, port).to_socket_addrs()),
    };
    found.and_then(Result::ok).and_then(|mut all| all.next()).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("-c {to}: not an address, nor a name of one"))
            .try_this("-c 192.168.0.10, -c 192.168.0.10:7174, -c [fe80::1]:7174")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_port() {
        let of = |text: &str| parse(text, 7174).map(|a| a.to_string()).map_err(|e| e.exit);
        assert_eq!(of("127.0.0.1").unwrap(), "127.0.0.1:7174");
        assert_eq!(of("127.0.0.1:80").unwrap(), "127.0.0.1:80");
        assert_eq!(of("::1").unwrap(), "[::1]:7174");
        assert_eq!(of("[::1]:80").unwrap(), "[::1]:80");
        assert_eq!(of("127.0.0.1:notaport").unwrap_err(), Exit::Usage);
    }
}
