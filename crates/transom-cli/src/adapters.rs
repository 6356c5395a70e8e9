//! `transom adapters`.

use clap::Args as ClapArgs;
use serde::Serialize;
use transom::{Adapter, Path};

use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::print_json;

use crate::path::PathArg;

/// Arguments of `adapters`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    path: PathArg,
}

#[derive(Serialize)]
struct Listed {
    adapters: Vec<One>,
}

#[derive(Serialize)]
struct One {
    address: String,
    interface: String,
    reach: &'static str,
    /// The paths that its connections may take.
    paths: Vec<&'static str>,
    /// Which of them when, and why.
    why: String,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (path, why) = args.path.apply(Adapter::options()).outlook();
    let paths = match path {
        Path::Tcp => vec!["tcp"],
        Path::Auto | Path::Process => vec!["process", "tcp"],
    };
    let adapters: Vec<One> = Adapter::list()?
        .into_iter()
        .map(|info| One {
            address: info.address.to_string(),
            interface: info.interface,
            reach: if info.loopback { "this machine" } else { "network" },
            paths: paths.clone(),
            why: why.clone(),
        })
        .collect();
    if adapters.is_empty() {
        return Err(Failure::new(Exit::System, "no network interface has an address")
            .try_this("ip link set lo up"));
    }
    if args.json {
        print_json(&Listed { adapters });
        return Ok(());
    }
    let width = adapters.iter().map(|one| one.address.len()).max().unwrap_or(0).max(7);
    let names = adapters.iter().map(|one| one.interface.len()).max().unwrap_or(0).max(9);
    println!("{:width$}  {:names$}  {:12}  path", "address", "interface", "reaches");
    for one in &adapters {
        println!(
            "{:width$}  {:names$}  {:12}  {}",
            one.address,
            one.interface,
            one.reach,
            one.paths.join(", ")
        );
    }
    println!("\npath: {why}");
    Ok(())
}
