//! `transom run`: start an unmodified verbs program with Transom's libraries, or an unmodified program of
//! sockets with the switch.

mod capture;
mod environment;
mod image;
mod library;
mod program;
mod sockets;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::{Args as ClapArgs, ValueEnum};
use transom::Adapter;

use crate::command::exit::{Exit, Failure, Outcome, plain_lines};
use program::{Program, Unrunnable};

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Take TCP, also between processes of one host
    #[arg(long, conflicts_with = "process")]
    tcp: bool,
    /// Share memory with processes of this host, whatever their addresses look like
    #[arg(long)]
    process: bool,
    /// Do not load both libraries before those of the program: one that brings a libibverbs of its own uses
    /// that
    #[arg(long)]
    no_preload: bool,
    /// As without it: both libraries come before those of the program
    #[arg(long = "preload", hide = true, overrides_with = "no_preload")]
    _preload: bool,
    /// Leave path names alone: programs that look for the device in /sys do not find it then
    #[arg(long)]
    no_paths: bool,
    /// The kind of the device; an adapter of iWARP has no datagrams, immediate data or
    /// atomics, and its queue pairs are connected by rdma_cm [default: roce]
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<DeviceKind>,
    /// The devices: names, separated by commas, each with addresses of its own or those that no other has,
    /// as in mlx5_0,mlx5_1:192.0.2.3+2001:db8::1 [default: transom0]
    #[arg(long, value_name = "NAME[:ADDRESS...],...", value_parser = devices)]
    device: Option<String>,
    /// The addresses that the device shows, separated by commas [default: all of this host]
    #[arg(long, value_name = "ADDRESSES")]
    address: Option<String>,
    /// The layout of the GID table: each address twice, for RoCE v1 and v2, behind a link-local GID, as
    /// adapters have it; or each address once [default: mlx5]
    #[arg(long, value_name = "LAYOUT")]
    gids: Option<Gids>,
    /// Print nothing on standard error: no explanations, and not what the program has used at its end
    #[arg(long)]
    quiet: bool,
    /// Exit with 96 if the program would exit with 0, and has made no queue pair
    #[arg(long, conflicts_with = "no_paths")]
    require: bool,
    /// Have the program answer `transom ps` and `transom show`
    #[arg(long)]
    inspect: bool,
    /// Have the program print, when it exits, what of its grants was not as it should be: never used,
    /// never revoked, broader than their use, ...; strict: with exit status 97 then; backtrace: with
    /// all functions that led to each grant
    #[arg(
        long,
        value_name = "WORDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        value_delimiter = ','
    )]
    ledger: Vec<LedgerWord>,
    #[command(flatten)]
    capture: capture::CaptureArgs,
    /// Move the program's connections to other programs of this user on this host, if these run so, too,
    /// through shared memory; all others stay with TCP. RULES say which, as in :6379 or !:22
    #[arg(
        long,
        value_name = "RULES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        conflicts_with_all = [
            "tcp", "process", "no_preload", "no_paths", "kind", "device", "address",
            "gids", "require"
        ]
    )]
    sockets: Option<String>,
    /// Have each program print, when it ends, how many of its connections were switched, and why others were
    /// not
    #[arg(long, requires = "sockets", conflicts_with = "quiet")]
    explain: bool,
    /// Print the variables instead of starting a program: for a shell, a Dockerfile, or a unit of systemd
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "shell"
    )]
    env: Option<environment::Form>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The kind of the device that a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
enum DeviceKind {
    Roce,
    Iwarp,
}

impl DeviceKind {
    fn text(self) -> &'static str {
        match self {
            DeviceKind::Roce => "roce",
            DeviceKind::Iwarp => "iwarp",
        }
    }
}

/// The layout of the device's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
enum Gids {
    Mlx5,
    Plain,
}

impl Gids {
    fn text(self) -> &'static str {
        match self {
            Gids::Mlx5 => "mlx5",
            Gids::Plain => "plain",
        }
    }
}

fn devices(text: &str) -> Result<String, String> {
    transom_os::environment::devices(text).map(|_| text.to_owned())
}

/// A word of `--ledger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LedgerWord {
    #[value(hide = true)]
    On,
    /// Exit with 97 if there are findings, and the program itself would exit with 0
    Strict,
    /// Print all functions that led to each grant
    Backtrace,
}

impl LedgerWord {
    fn text(self) -> &'static str {
        match self {
            LedgerWord::On => "1",
            LedgerWord::Strict => "strict",
            LedgerWord::Backtrace => "backtrace",
        }
    }
}

impl Args {
    /// The directory that stands for `/sys`, if there is to be one.
    fn sysfs(&self) -> Option<std::path::PathBuf> {
        if self.no_paths {
            return None;
        }
        match library::sysfs((self.kind, &self.device, &self.address, self.gids)) {
            Ok(directory) => Some(directory),
            Err(error) => {
                if !self.quiet {
                    transom_os::say!(
                        "transom: programs that look for the device in /sys do not find it: {error}"
                    );
                }
                None
            }
        }
    }

    /// The likely meaning of a word that is no program: the value of an option stands behind a `=`.
    fn meant_as_a_value(&self, word: &OsStr) -> Option<String> {
        let word = word.to_str()?;
        if self.sockets.as_deref() == Some("on") && sockets::check(word).is_ok() {
            return Some(format!("--sockets={word}, with a `=`"));
        }
        if self.ledger == [LedgerWord::On] && LedgerWord::from_str(word, true).is_ok() {
            return Some(format!("--ledger={word}, with a `=`"));
        }
        let form = self.env.is_some() && environment::Form::from_str(word, true).is_ok();
        form.then(|| format!("--env={word}, with a `=`"))
    }

    /// `TRANSOM_RUN`: this process, which the program becomes, what is wanted at its end, and the file in
    /// which its libraries say how far they were used.
    fn run_file(&self) -> Option<(&'static str, OsString)> {
        let wishes = match (self.quiet, self.require) {
            (true, false) => return None,
            (true, true) => "r",
            (false, true) => "nr",
            (false, false) => "n",
        };
        match library::run_file() {
            Ok(file) => {
                let mut text = OsString::from(format!("{}:{wishes}:", std::process::id()));
                text.push(file);
                Some(("TRANSOM_RUN", text))
            }
            Err(error) => {
                transom_os::say!("transom: what the program uses will not be known: {error}");
                None
            }
        }
    }

    /// Additions to the program's environment.
    fn variables(&self, libraries: &std::path::Path) -> Vec<(&'static str, OsString)> {
        if let Some(rules) = &self.sockets {
            return sockets::variables(rules, libraries, self.explain);
        }
        let behind = |name: &'static str, separator: &str| {
            transom_os::environment::variable(name).map_or_else(OsString::new, |value| {
                let mut text = OsString::from(separator);
                text.push(value);
                text
            })
        };
        let mut path = libraries.as_os_str().to_owned();
        path.push(behind("LD_LIBRARY_PATH", ":"));
        let mut all = vec![("LD_LIBRARY_PATH", path)];
        let mut preloaded = Vec::new();
        if !self.no_preload {
            preloaded.extend(["libibverbs.so.1", "librdmacm.so.1"]);
        }
        if let Some(sysfs) = self.sysfs() {
            all.push(("TRANSOM_SYSFS", sysfs.into()));
            preloaded.push(library::PATHS);
        }
        if !preloaded.is_empty() {
            let mut list = OsString::new();
            for name in preloaded {
                list.push(if list.is_empty() { "" } else { ":" });
                list.push(library::for_this_loader(libraries, name));
            }
            list.push(behind("LD_PRELOAD", ":"));
            all.push(("LD_PRELOAD", list));
            all.push(library::any_link_order());
        }
        if self.tcp {
            all.push(("TRANSOM_PATH", "tcp".into()));
        }
        if self.process {
            all.push(("TRANSOM_PATH", "process".into()));
        }
        if let Some(kind) = self.kind {
            all.push(("TRANSOM_AS", kind.text().into()));
        }
        if let Some(name) = &self.device {
            all.push(("TRANSOM_DEVICE", name.into()));
        }
        if let Some(addresses) = &self.address {
            all.push(("TRANSOM_ADDRESSES", addresses.into()));
        }
        if let Some(layout) = self.gids {
            all.push(("TRANSOM_GIDS", layout.text().into()));
        }
        if self.inspect {
            all.push(("TRANSOM_INSPECT", "1".into()));
        }
        if !self.ledger.is_empty() {
            let words: Vec<&str> = self.ledger.iter().map(|word| word.text()).collect();
            all.push(("TRANSOM_LEDGER", words.join(",").into()));
        }
        all.extend(self.capture.variables());
        all.push(("TRANSOM_EXPLAIN", if self.quiet { "0" } else { "1" }.into()));
        all
    }
}

/// Replaces this process, so signals and the exit status are the program's own. Returns if there is
/// nothing to start, or if that fails: then as a shell, with 126 or 127.
pub(crate) fn run(args: &Args) -> ExitCode {
    let done = || -> Outcome<Option<ExitCode>> {
        let libraries = library::directory()?;
        if let Some(rules) = &args.sockets {
            sockets::check(rules)?;
            let asks = [
                (args.inspect, "--inspect"),
                (!args.ledger.is_empty(), "--ledger"),
                (args.capture.is_wanted(), "--capture"),
            ];
            if let Some((_, option)) = asks.into_iter().find(|(wanted, _)| *wanted) {
                let why = format!(
                    "{option} asks an adapter, and a program of sockets opens none: there are no \
                     registrations, grants or frames to show"
                );
                return Err(Failure::new(Exit::Usage, why).try_this("--sockets without it"));
            }
        }
        let variables = args.variables(&libraries);
        if let Some(form) = args.env {
            print!("{}", form.text(&variables));
            return Ok(None);
        }
        let Some((name, arguments)) = args.program.split_first() else {
            outlook(args, &libraries)?;
            return Ok(None);
        };
        let program = match Program::find(name) {
            Ok(program) => program,
            Err(unrunnable) => {
                let code = refused(&unrunnable);
                if let Some(hint) = args.meant_as_a_value(name) {
                    transom_os::say!("    try: {}", plain_lines(&hint));
                }
                return Ok(Some(code));
            }
        };
        if args.sockets.is_some() {
            if !args.quiet {
                sockets::note(&program, &libraries);
            }
        } else if let Err(unrunnable) = program.check(&libraries) {
            return Ok(Some(refused(&unrunnable)));
        }
        args.capture.remove_old()?;
        if !args.quiet && args.sockets.is_none() {
            let device = args.device.as_deref().unwrap_or("transom0");
            transom_os::say!("transom: device {device}, libraries of {}", libraries.display());
        }
        let mut command = Command::new(&program.path);
        command.arg0(name).args(arguments).envs(variables);
        if args.sockets.is_none() {
            command.envs(args.run_file());
        }
        let error = command.exec();
        let path = plain_lines(&program.path.to_string_lossy());
        transom_os::say!("transom: start {path}: {error}");
        Ok(Some(ExitCode::from(126)))
    };
    match done() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(code)) => code,
        Err(failure) => failure.report(),
    }
}

fn refused(unrunnable: &Unrunnable) -> ExitCode {
    transom_os::say!("transom: {}", plain_lines(&unrunnable.to_string()));
    ExitCode::from(unrunnable.status())
}

/// The devices that a program would see.
fn outlook(args: &Args, libraries: &std::path::Path) -> Outcome {
    println!("libraries  {}", libraries.display());
    if let Some(rules) = &args.sockets {
        println!("sockets    {rules}");
        return Ok(());
    }
    println!("device     {}", args.device.as_deref().unwrap_or("transom0"));
    match &args.address {
        Some(addresses) => println!("addresses  {addresses}"),
        None => {
            let all = Adapter::list()?;
            if all.is_empty() {
                return Err(Failure::new(Exit::System, "no network interface has an address")
                    .try_this("ip link set lo up"));
            }
            for (at, one) in all.iter().enumerate() {
                let head = if at == 0 { "addresses" } else { "" };
                println!("{head:<9}  {} ({})", one.address, one.interface);
            }
        }
    }
    let options = Adapter::options();
    let options = match (args.tcp, args.process) {
        (true, _) => options.path(transom::Path::Tcp),
        (_, true) => options.path(transom::Path::Process),
        _ => options,
    };
    println!("path       {}", options.outlook().1);
    Ok(())
}
