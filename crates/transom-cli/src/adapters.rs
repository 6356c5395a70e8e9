//! `transom adapters`.

use clap::Args as ClapArgs;
use serde::Serialize;
use transom::Adapter;

use crate::exit::{Exit, Failure, Outcome};

/// Arguments of `adapters`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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
    paths: [&'static str; 2],
}

pub(crate) fn run(args: &Args) -> Outcome {
    let adapters: Vec<One> = Adapter::list()?
        .into_iter()
        .map(|info| One {
            address: info.address.to_string(),
            interface: info.interface,
            reach: if info.loopback { "this machine" } else { "network" },
            paths: ["tcp", "process"],
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
    Ok(())
}

/// One object on one line.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("transom: JSON: {error}"),
    }
}
