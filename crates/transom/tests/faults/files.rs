//! Files that change while they are served, and disks that are full.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use super::common::{PATHS, Place, Process, is_root, share, skipped};

const LENGTH: usize = 3 << 20;

fn through(path: &str) -> Command {
    let mut command = share();
    command.env("TRANSOM_PATH", path);
    command
}

/// Design rule 8: pages of a file that was cut short are an error of one connection, with the file
/// and the range in it; not a signal. The server lives, and serves the file again when it is whole
/// again.
#[test]
fn a_file_cut_short_while_it_is_served_costs_the_connection_and_names_the_range() {
    for path in PATHS {
        let place = Place::new(&format!("cut-{path}"));
        let (file, bytes) = place.filled("file", LENGTH);
        let out = place.file("copy");
        let (mut server, at) = Process::serve(&mut through(path), &file, "127.0.0.1:0");
        let cut = 2 << 20;
        OpenOptions::new().write(true).open(&file).unwrap().set_len(cut).unwrap();
        let why = Process::fetch(&mut through(path), at, &out).fails();
        assert!(why.contains("the peer ended the connection"), "{path}: {why}");
        assert!(!out.exists());
        let line = server.line(|line| line.contains("are gone"));
        let range = line
            .split_once(&format!(" of {}", file.display()))
            .and_then(|(before, _)| before.rsplit_once("bytes ")?.1.split_once(".."))
            .map(|(from, to)| (from.parse::<u64>().unwrap(), to.parse::<u64>().unwrap()));
        let (from, to) = range.unwrap_or_else(|| panic!("{path}: which file, which bytes? {line}"));
        assert!(from <= cut && cut < to && to <= LENGTH as u64, "{path}: {line}");

        fs::write(&file, &bytes).unwrap(); // the same file, as the mapping sees it
        Process::fetch(&mut through(path), at, &out).succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes, "{path}");
    }
}

/// The file that was offered is the one that is served: a new file under the old name is another
/// file.
#[test]
fn a_file_replaced_while_it_is_served_is_served_as_it_was_offered() {
    for path in PATHS {
        let place = Place::new(&format!("replaced-{path}"));
        let (file, bytes) = place.filled("file", LENGTH);
        let out = place.file("copy");
        let (_server, at) = Process::serve(&mut through(path), &file, "127.0.0.1:0");
        fs::write(place.file("new"), vec![7; LENGTH / 2]).unwrap();
        fs::rename(place.file("new"), &file).unwrap();
        Process::fetch(&mut through(path), at, &out).succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes, "{path}");
    }
}

/// A file that was written to arrives as it is, and the receiver finds that it is not what was
/// offered.
#[test]
fn a_file_changed_in_place_while_it_is_served_is_not_taken_for_what_was_offered() {
    for path in PATHS {
        let place = Place::new(&format!("changed-{path}"));
        let (file, _) = place.filled("file", LENGTH);
        let out = place.file("copy");
        fs::write(&out, "what was there before").unwrap();
        let (_server, at) = Process::serve(&mut through(path), &file, "127.0.0.1:0");
        OpenOptions::new().write(true).open(&file).unwrap().write_all(b"!").unwrap();
        let why = Process::fetch(&mut through(path), at, &out).fails();
        assert!(why.contains("not what was offered"), "{path}: {why}");
        assert_eq!(fs::read(&out).unwrap(), b"what was there before", "{path}");
    }
}

/// The transfer fails to fit: whose fault, and nothing of it is left; what was there before is.
fn does_not_fit(fetch: &mut Command, at: std::net::SocketAddr, directory: &Path, words: &str) {
    let out = directory.join("copy");
    fs::write(&out, "before").unwrap();
    let why = Process::fetch(fetch, at, &out).fails();
    assert!(why.contains(words) && why.contains("as it was before"), "{why}");
    let names: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["copy"]);
    assert_eq!(fs::read(&out).unwrap(), b"before");
}

/// A real full disk: a tmpfs of 1 MiB.
#[test]
fn a_full_disk_is_reported_and_leaves_what_was_there() {
    if !is_root() {
        return skipped("a full disk needs root, to mount a small one");
    }
    let place = Place::new("full-disk");
    let (file, bytes) = place.filled("file", LENGTH);
    let disk = place.file("disk");
    fs::create_dir(&disk).unwrap();
    let mount = |options: &str| {
        let all = ["-t", "tmpfs", "-o", options, "transom-test"];
        Command::new("mount").args(all).arg(&disk).status().is_ok_and(|status| status.success())
    };
    if !mount("size=1m") {
        return skipped("no right to mount a small disk");
    }
    let (_server, at) = Process::serve(&mut through("tcp"), &file, "127.0.0.1:0");
    let result = std::panic::catch_unwind(|| {
        does_not_fit(&mut through("tcp"), at, &disk, "No space left");
        assert!(mount("remount,size=8m"));
        let out = disk.join("copy");
        Process::fetch(&mut through("tcp"), at, &out).succeeds();
        assert_eq!(fs::read(&out).unwrap(), bytes);
    });
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    result.unwrap();
}

/// The limit of a file's size, as an error, and as the signal that it is by default: then a part is
/// left behind, under no name that is in use, until the next run.
#[test]
fn a_limit_of_file_size_leaves_what_was_there() {
    let place = Place::new("file-size");
    let (file, bytes) = place.filled("file", LENGTH);
    let (_server, at) = Process::serve(&mut through("tcp"), &file, "127.0.0.1:0");
    let directory = place.file("directory");
    fs::create_dir(&directory).unwrap();
    let limited = |disposition: libc::sighandler_t| {
        let mut command = through("tcp");
        let prepare = move || {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            // SAFETY: both calls are allowed in a forked child, and change nothing but its own
            // limits.
            unsafe {
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                libc::signal(libc::SIGXFSZ, disposition);
            }
            Ok(())
        };
        // SAFETY: what runs in the child allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        command
    };
    does_not_fit(&mut limited(libc::SIG_IGN), at, &directory, "File too large");

    let out = directory.join("copy");
    let victim = Process::fetch(&mut limited(libc::SIG_DFL), at, &out);
    let part = directory.join(format!(".copy.{}.part", victim.pid()));
    let (status, ..) = victim.end();
    assert_eq!(status.signal(), Some(libc::SIGXFSZ));
    assert_eq!(fs::read(&out).unwrap(), b"before");
    assert!(part.exists(), "killed in the middle of it");
    Process::fetch(&mut through("tcp"), at, &out).succeeds();
    assert_eq!(fs::read(&out).unwrap(), bytes);
    assert!(!part.exists(), "the next run tidies up");
}

/// A device is written to, not replaced.
#[test]
fn a_full_device_is_reported_and_stays_a_device() {
    let place = Place::new("device");
    let (file, _) = place.filled("file", 4096);
    let (_server, at) = Process::serve(&mut through("tcp"), &file, "127.0.0.1:0");
    let full = Path::new("/dev/full");
    let why = Process::fetch(&mut through("tcp"), at, full).fails();
    assert!(why.contains("No space left"), "{why}");
    assert!(fs::metadata(full).unwrap().file_type().is_char_device());
}
