//! Shell completions and manual pages, made from the command's own definition.

use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

use crate::command::exit::{Exit, Failure, Outcome};

/// The arguments of `completions`.
#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell that will read them
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// The folder for the pages, made if there is none: transom.1, transom-rping.1, ... [default: transom.1 on the output]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Prints the completions of one shell.
pub(crate) fn completions(args: &CompletionsArgs, command: &Command) -> Outcome {
    let mut command = public(command);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "transom", &mut script);
    print(&script)
}

/// Prints the command's manual page, or writes it and one for each subcommand into a folder.
pub(crate) fn man(args: &ManArgs, command: Command) -> Outcome {
    match &args.out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map_err(|error| not_written(&error))?;
            print(&page)
        }
        Some(folder) => {
            let made = fs::create_dir_all(folder);
            made.and_then(|()| write_pages(command, folder)).map_err(|error| {
                let folder = folder.display();
                let sentence = format!("the pages cannot be written to {folder}: {error}");
                Failure::new(Exit::System, sentence)
            })
        }
    }
}

/// The page of the command, and one for each subcommand that people start, in a folder that exists.
fn write_pages(command: Command, folder: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    pages_of(command, folder)
}

fn pages_of(command: Command, folder: &Path) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        pages_of(subcommand.clone(), folder)?;
    }
    let man = clap_mangen::Man::new(command);
    let mut page = Vec::new();
    man.render(&mut page)?;
    replace(folder, &man.get_filename(), &page)
}

/// Put a file where perhaps there is one. A link of that name is replaced; what it leads to stays as it is.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    let written = File::create_new(&new)?.write_all(bytes);
    let placed = written.and_then(|()| fs::rename(&new, folder.join(name)));
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed
}

/// The command without those subcommands that only its own processes start.
fn public(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    Command::new("transom")
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown.cloned())
}

fn print(bytes: &[u8]) -> Outcome {
    std::io::stdout().write_all(bytes).map_err(|error| not_written(&error))
}

fn not_written(error: &std::io::Error) -> Failure {
    Failure::new(Exit::System, format!("the output cannot be written: {error}"))
}
