//! The program that is to be started, and whether it can be served.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::image::{self, Image};

/// A program that was found.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
}

/// Why a program cannot be started, or not be served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unrunnable {
    Missing(PathBuf),
    NotExecutable(PathBuf),
    SetUserId(PathBuf),
    Static(PathBuf),
    /// Another C library's loader starts it.
    Musl(PathBuf),
    /// A library wants a private version that ours does not have.
    Version {
        library: PathBuf,
        version: String,
    },
}

impl Unrunnable {
    /// As a shell.
    pub(super) fn status(&self) -> u8 {
        if matches!(self, Unrunnable::Missing(_)) { 127 } else { 126 }
    }
}

impl fmt::Display for Unrunnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unrunnable::Missing(name) => write!(f, "{}: there is no such program", name.display()),
            Unrunnable::NotExecutable(path) => {
                write!(f, "{}: this file cannot be executed", path.display())
            }
            Unrunnable::SetUserId(path) => write!(
                f,
                "{} runs with another user's rights (set-uid or set-gid), so the system ignores the \
                 path of libraries; run a copy without that bit",
                path.display()
            ),
            Unrunnable::Static(path) => write!(
                f,
                "{} is linked statically and has its libibverbs built in, so no other can take its \
                 place; build it with shared libraries",
                path.display()
            ),
            Unrunnable::Musl(path) => write!(
                f,
                "{} is linked with musl, and Transom's libraries need the GNU C library; build it for a \
                 system that has that",
                path.display()
            ),
            Unrunnable::Version { library, version } => write!(
                f,
                "{} needs {version} of libibverbs, a version for vendors' libraries that this Transom \
                 does not know, so the loader would end the program. Remove \
                 that library from the program's way, or take a Transom that knows the number",
                library.display()
            ),
        }
    }
}

impl Program {
    /// Look for a program as a shell does.
    pub(super) fn find(name: &OsStr) -> Result<Program, Unrunnable> {
        let named = Path::new(name);
        let candidates: Vec<PathBuf> = if named.components().count() > 1 {
            vec![named.to_owned()]
        } else {
            let path = transom_os::environment::variable("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|directory| directory.join(named)).collect()
        };
        let mut refused = Unrunnable::Missing(named.to_owned());
        for path in candidates {
            let Ok(about) = path.metadata() else { continue };
            if about.is_file() && about.permissions().mode() & 0o111 != 0 {
                return Ok(Program { path });
            }
            refused = Unrunnable::NotExecutable(path);
        }
        Err(refused)
    }

    /// Whether Transom's libraries would be loaded, and the loader would be content (Verbs V7, Verbs V8).
    pub(super) fn check(&self, libraries: &Path) -> Result<(), Unrunnable> {
        let Ok(about) = self.path.metadata() else { return Ok(()) };
        let user = rustix::process::geteuid().as_raw();
        let set = about.mode() & 0o4000 != 0 && about.uid() != user || about.mode() & 0o2000 != 0;
        if set {
            return Err(Unrunnable::SetUserId(self.path.clone()));
        }
        // A script is started by its interpreter, which is not looked at.
        let Ok(bytes) = std::fs::read(&self.path) else { return Ok(()) };
        let Some(image) = Image::of(&bytes) else { return Ok(()) };
        if image.loader.is_none() {
            return Err(Unrunnable::Static(self.path.clone()));
        }
        if image.has_other_loader() {
            return Err(Unrunnable::Musl(self.path.clone()));
        }
        self.check_versions(image, libraries)
    }

    fn check_versions(&self, image: Image, libraries: &Path) -> Result<(), Unrunnable> {
        let ours = std::fs::read(libraries.join("libibverbs.so.1")).unwrap_or_default();
        let known = Image::of(&ours).map(|image| image.defined).unwrap_or_default();
        let mut seen = Vec::new();
        let mut next = vec![(self.path.clone(), image)];
        while let Some((path, image)) = next.pop() {
            let wanted = image.wanted.iter().filter(|(file, _)| file == "libibverbs.so.1");
            for (_, version) in wanted {
                if !known.contains(version) {
                    let version = version.clone();
                    return Err(Unrunnable::Version { library: path, version });
                }
            }
            for needed in image.needed {
                if seen.contains(&needed) || needed.starts_with("libibverbs.so") {
                    continue;
                }
                let found = image::locate(&needed, &path, &image.run_path)
                    .and_then(|at| Some((at.clone(), Image::of(&std::fs::read(at).ok()?)?)));
                seen.push(needed);
                next.extend(found);
            }
        }
        Ok(())
    }
}
