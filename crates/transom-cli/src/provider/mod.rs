//! `transom provider`: NetworkDirect's entries in the Winsock catalogue, by which programs find the
//! provider.

mod catalogue;
#[cfg_attr(windows, path = "../windows/catalogue.rs", expect(unsafe_code, reason = "system calls"))]
mod system;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};

use crate::command::exit::{Exit, Failure, Outcome};

use catalogue::{
    CatalogueState, Cause, Failed, Held, Refused, VERSIONS, change, installed, look, nothing,
};

/// Commands about the provider of NetworkDirect.
#[derive(Debug, Subcommand)]
pub(crate) enum Provider {
    /// Let the NetworkDirect programs of this machine find transom_nd.dll (as an administrator)
    Install(InstallArgs),
    /// Take out again what `install` has written (as an administrator)
    Remove,
    /// Say which versions of NetworkDirect are installed; exit status 1 unless all are
    Status,
}

/// Arguments of `provider install`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InstallArgs {
    /// The provider's library [default: transom_nd.dll beside this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

/// Characters of a path that NetworkDirect's client library has room for.
const LONGEST_PATH: usize = 259;

const ELEVATED: &str = "the same in a terminal that was opened with \"Run as administrator\"";

pub(crate) fn run(command: &Provider) -> Outcome {
    let mut catalogue = system::open()?;
    match command {
        Provider::Install(args) => {
            let library = library(args.library.as_deref())?;
            let changed = change(&mut catalogue, &installed(&library)).map_err(failure)?;
            println!("{}: {library}", if changed { "installed" } else { "was installed already" });
            if changed {
                println!(
                    "Each 64-bit NetworkDirect program of this machine loads this file: let only \
                     administrators write it."
                );
            }
            Ok(())
        }
        Provider::Remove => {
            let changed = change(&mut catalogue, &nothing()).map_err(failure)?;
            println!("{}", if changed { "removed" } else { "was not installed" });
            Ok(())
        }
        Provider::Status => status(&look(&catalogue).map_err(unreadable)?, Path::is_file),
    }
}

/// The path of the library as the catalogue takes it, once it is sure that programs can load it.
fn library(asked: Option<&Path>) -> Outcome<String> {
    let file = match asked {
        Some(file) => file.to_owned(),
        None => std::env::current_exe()
            .map_err(crate::command::exit::system("this program's own folder"))?
            .with_file_name("transom_nd.dll"),
    };
    let shown = file.display();
    let file = std::path::absolute(&file)
        .map_err(|error| Failure::new(Exit::Usage, format!("{shown} is no path: {error}")))?;
    let path = catalogue_path(&file)?;
    if !file.is_file() {
        let sentence = format!("the provider's library is missing: {path}");
        return Err(Failure::new(Exit::Usage, sentence).try_this("--library FILE"));
    }
    system::check_library(&file).map_err(|why| {
        Failure::new(Exit::Usage, format!("{path} is no provider that programs can load: {why}"))
            .try_this("--library FILE, a transom_nd.dll for 64 bit")
    })?;
    Ok(path)
}

/// A path in the catalogue, where client libraries replace `%NAME%` by variables.
fn catalogue_path(file: &Path) -> Outcome<String> {
    let refused = |why| {
        Failure::new(Exit::Usage, format!("{}: {why}", file.display()))
            .try_this("a folder such as C:\\Program Files\\Transom")
    };
    let path = file.to_str().ok_or_else(|| refused("the path is not Unicode".to_owned()))?;
    if path.contains('%') {
        return Err(refused("client libraries take a % in the path for a variable".to_owned()));
    }
    let length = path.encode_utf16().count();
    if length > LONGEST_PATH {
        let why = format!("client libraries take {LONGEST_PATH} characters, these are {length}");
        return Err(refused(why));
    }
    Ok(path.to_owned())
}

/// Prints a line for each version.
fn status(state: &CatalogueState, is_there: impl Fn(&Path) -> bool) -> Outcome {
    let mut wrong = 0;
    for (version, held) in VERSIONS.into_iter().zip(state) {
        let (sound, standing) = standing(held, &version.entries(), &is_there);
        println!("{}: {standing}", version.name());
        wrong += usize::from(!sound);
    }
    if wrong == 0 {
        return Ok(());
    }
    let sentence = format!("{wrong} of {} versions cannot be used by programs", VERSIONS.len());
    Err(Failure::new(Exit::CheckFailed, sentence)
        .try_this("transom provider install, as an administrator"))
}

/// Whether programs can use a version, and in words.
fn standing(
    held: &Held,
    wanted: &[catalogue::Entry],
    is_there: impl Fn(&Path) -> bool,
) -> (bool, String) {
    let Some(library) = &held.library else { return (false, "not installed".to_owned()) };
    if held.entries != wanted {
        return (false, format!("installed with entries that are not this version's: {library}"));
    }
    if !is_there(Path::new(library)) {
        return (false, format!("installed, and its library is missing: {library}"));
    }
    (true, format!("installed: {library}"))
}

fn unreadable(refused: Refused) -> Failure {
    Failure::new(Exit::System, format!("the Winsock catalogue cannot be read: {refused}"))
        .try_this("netsh winsock show catalog, which reads it too")
}

/// A change that failed, for people.
fn failure(failed: Failed) -> Failure {
    let cause = match failed.cause {
        Cause::NoAdministrator => {
            let sentence = "only an administrator may change the Winsock catalogue of this machine; \
                            nothing was changed";
            return Failure::new(Exit::System, sentence).try_this(ELEVATED);
        }
        Cause::Refused(refused) => refused.to_string(),
        Cause::NotRecorded => {
            "the system accepted the change of the Winsock catalogue and did not record it"
                .to_owned()
        }
        Cause::OthersChanged => {
            "entries of other providers in the Winsock catalogue changed at the same time"
                .to_owned()
        }
    };
    match failed.restored {
        Ok(()) => {
            let sentence = format!("{cause}; Transom's entries are what they were before");
            Failure::new(Exit::System, sentence).try_this("the same once more")
        }
        Err(refused) => {
            let sentence = format!("{cause}; putting Transom's entries back failed too: {refused}");
            Failure::new(Exit::System, sentence).try_this("transom provider status")
        }
    }
}
