//! The words of an ELF file about the libraries that it needs.

use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

/// An executable or a library.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// The loader that starts it; none: it is linked statically.
    pub(super) loader: Option<String>,
    /// Libraries by name.
    pub(super) needed: Vec<String>,
    /// Where to look for them first.
    pub(super) run_path: Vec<String>,
    /// Versions that it wants: library and version.
    pub(super) wanted: Vec<(String, String)>,
    /// Versions that it has.
    pub(super) defined: Vec<String>,
}

impl Image {
    /// `None`: no ELF file for this kind of processor.
    pub(super) fn of(bytes: &[u8]) -> Option<Image> {
        Image::read(bytes).ok()
    }

    fn read(bytes: &[u8]) -> object::Result<Image> {
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let programs = header.program_headers(endian, bytes)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut image = Image::default();
        for program in programs {
            if let Some(loader) = program.interpreter(endian, bytes)? {
                image.loader = Some(text(loader));
            }
        }
        let sections = header.sections(endian, bytes)?;
        if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            for entry in entries {
                let list = match entry.tag32(endian) {
                    Some(DT_NEEDED) => &mut image.needed,
                    Some(DT_RUNPATH | DT_RPATH) => &mut image.run_path,
                    _ => continue,
                };
                list.push(text(entry.string(endian, strings)?));
            }
        }
        if let Some((mut files, link)) = sections.gnu_verneed(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            while let Some((file, mut versions)) = files.next()? {
                let library = text(file.file(endian, strings)?);
                while let Some(version) = versions.next()? {
                    image.wanted.push((library.clone(), text(version.name(endian, strings)?)));
                }
            }
        }
        if let Some((mut definitions, link)) = sections.gnu_verdef(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            while let Some((_, mut names)) = definitions.next()? {
                if let Some(name) = names.next()? {
                    image.defined.push(text(name.name(endian, strings)?));
                }
            }
        }
        Ok(image)
    }
}

impl Image {
    /// Whether its C library is another one than that which Transom's libraries are linked with.
    pub(super) fn has_other_loader(&self) -> bool {
        self.loader.as_ref().is_some_and(|loader| loader.contains("ld-musl"))
    }
}

/// The file of a library that `user` needs, as the loader would find it.
pub(super) fn locate(library: &str, user: &Path, run_path: &[String]) -> Option<PathBuf> {
    let origin = user.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let own = run_path
        .iter()
        .flat_map(|path| path.split(':'))
        .map(|directory| directory.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin));
    let environment = transom_os::environment::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let environment: Vec<String> =
        environment.to_string_lossy().split(':').map(str::to_owned).collect();
    let machine = std::env::consts::ARCH;
    let system = ["/usr/local/lib", "/lib", "/usr/lib", "/lib64", "/usr/lib64"];
    let system = system
        .into_iter()
        .flat_map(|directory| [directory.to_owned(), format!("{directory}/{machine}-linux-gnu")]);
    own.chain(environment)
        .chain(system)
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(&directory).join(library))
        .find(|path| path.is_file())
}
