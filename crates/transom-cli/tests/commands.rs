//! Arguments, exit codes and sentences of every command, and the shapes of their output.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use common::{ran, run, transom};

#[test]
fn help_documents_the_exit_codes() {
    let ran = run(&["--help"]);
    assert_eq!(ran.code, 0);
    for code in 0..=5 {
        assert!(ran.out.contains(&format!("\n  {code}  ")), "{code} is not in:\n{}", ran.out);
    }
    for hidden in ["quickstart-owner", "bench-peer"] {
        assert!(!ran.out.contains(hidden), "{hidden} is nobody's business");
    }
}

#[test]
fn completions_know_what_people_type_and_nothing_else() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        for word in ["quickstart", "write-latency", "timeout"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
        for hidden in ["quickstart-owner", "bench-peer"] {
            assert!(!ran.out.contains(hidden), "{shell}: {hidden}");
        }
    }
    assert_eq!(run(&["completions", "command.com"]).code, 2);
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("transom-man-{}", std::process::id()));
    // The folder is made.
    let folder = folder.join("pages");
    let ran = run(&["man", "--out", folder.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for page in ["transom.1", "transom-rping.1", "transom-bench-check.1"] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(std::fs::read_to_string(folder.join("transom.1")).unwrap().contains("Exit status"));
    assert!(!folder.join("transom-bench-peer.1").exists(), "nobody starts it by hand");
    // Once more, where someone has put links in their places.
    let other = folder.parent().unwrap().join("other");
    std::fs::write(&other, "stays").unwrap();
    for page in ["transom.1", "transom-rping.1"] {
        std::fs::remove_file(folder.join(page)).unwrap();
        std::os::unix::fs::symlink(&other, folder.join(page)).unwrap();
    }
    let before = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(run(&["man", "--out", folder.to_str().unwrap()]).code, 0);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "stays");
    let page = folder.join("transom-rping.1");
    assert!(page.symlink_metadata().unwrap().is_file(), "the link was replaced");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), before, "nothing else is left there");
    let file = folder.join("transom.1").join("x");
    let nowhere = run(&["man", "--out", file.to_str().unwrap()]);
    std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    assert_eq!(nowhere.code, 5, "{nowhere:?}");
    assert!(nowhere.err.contains(folder.to_str().unwrap()), "{nowhere:?}");
}

/// A name that an argument brings along, from an archive or a web page, is shown and not obeyed.
#[test]
fn arguments_are_no_commands_to_a_terminal() {
    let evil = "x\u{1b}]0;mine\u{7}\u{202e}";
    for args in [
        &["explain", evil][..],
        &["captures", "verify", evil],
        &["man", "--out", &format!("/dev/null/{evil}")],
        &["run", "--", evil],
        &["rping", "-c", evil],
        &["quickstart", evil],
        &[evil],
        &["show", evil],
    ] {
        let ran = run(args);
        assert_ne!(ran.code, 0, "{args:?}");
        assert!(ran.err.contains("\\u{202e}"), "{args:?}: {ran:?}");
        let obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!ran.err.contains(obeyed) && !ran.out.contains(obeyed), "{args:?}: {ran:?}");
    }
}

/// A limit of the first thread's stack leaves every command as it is.
#[test]
fn a_small_stack_ends_no_command() {
    for args in [
        &["--version"][..],
        &["ps"],
        &["explain"],
        &["run", "--", "true"],
        &["quickstart", "--json"],
    ] {
        let mut limited = std::process::Command::new("prlimit");
        let ran =
            ran(limited.arg("--stack=65536:65536").arg(env!("CARGO_BIN_EXE_transom")).args(args));
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    }
}

#[test]
fn rules_are_explained_by_the_names_that_refusals_carry() {
    let page = run(&["explain", "live_token"]);
    assert_eq!((page.code, page.err.as_str()), (0, ""));
    for words in [
        "The token must be live.",
        "-window.revoke()",
        "Others report:",
        "Source: the NetworkDirect SPI",
    ] {
        assert!(page.out.contains(words), "{words:?} is not in {}", page.out);
    }
    assert!(!page.out.contains("must grant"), "another rule's");
    let list = run(&["explain", "--list"]).out;
    let all = run(&["explain", "--all"]).out;
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        assert!(all.contains(&format!("\n## {name}\n")), "{name}");
        assert_eq!(run(&["explain", name]).code, 0, "{name}");
    }
    assert!(list.lines().count() > 20, "{list}");
    run(&["explain", "tokens"]).failed(2, &["tokens", "transom explain live_token"]);
    run(&["explain", "gravity"]).failed(2, &["gravity", "transom explain, which lists"]);
    assert_eq!(run(&["explain"]).out, list, "the names, without any");
}

/// A status that a program printed, by its name or its number, leads to rules and to calls.
#[test]
fn statuses_of_every_interface_are_explained() {
    for (status, words) in [
        ("IBV_WC_REM_ACCESS_ERR", &["RemoteAccess", "\n  live_token ", "\n  range "][..]),
        (
            "c0000005",
            &[
                "ND_ACCESS_VIOLATION",
                "IND2QueuePair::Bind: ",
                "STATUS_ACCESS_VIOLATION",
                "\n  right ",
            ],
        ),
        ("-1073741819", &["ND_ACCESS_VIOLATION"]),
        ("WSAEFAULT", &["10014", "LocalAccess", "a buffer outside"]),
        ("ENOMEM", &["NoMoreEntries", "ibv_post_send", "a full queue"]),
        ("ND_INVALID_PARAMETER_6", &["IND2QueuePair::Read: ", "flags"]),
    ] {
        let ran = run(&["explain", status]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{status}");
        for word in words {
            assert!(ran.out.contains(word), "{word:?} is not in {}", ran.out);
        }
    }
    run(&["explain", "REM_ACCES"]).failed(2, &["transom explain IBV_WC_REM_ACCESS_ERR"]);
}

#[test]
fn adapters_are_listed_for_people_and_programs() {
    let ran = run(&["adapters"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("127.0.0.1"), "{ran:?}");
    let json = run(&["adapters", "--json"]).json();
    let all = json["adapters"].as_array().expect("a list");
    let here = all.iter().find(|one| one["address"] == "127.0.0.1").expect("loopback");
    assert_eq!(here["reach"], "this machine");
}

/// Which path an adapter would take, and why: with its options, and with the environment.
#[test]
fn adapters_say_which_path_they_would_take_and_why() {
    let told = |args: &[&str], variable: Option<&str>| {
        let mut command = transom();
        command.args(["adapters"]).args(args);
        match variable {
            Some(value) => command.env("TRANSOM_PATH", value),
            None => command.env_remove("TRANSOM_PATH"),
        };
        let people = ran(&mut command).out;
        let json = ran(command.arg("--json")).json();
        let one = &json["adapters"][0];
        let why = one["why"].as_str().expect("a reason").to_owned();
        assert!(people.contains(&why), "{why}: {people}");
        (one["paths"].to_string(), why)
    };
    let (both, tcp) = (r#"["process","tcp"]"#, r#"["tcp"]"#);
    for (args, variable, paths, word) in [
        (&[][..], None, both, "default"),
        (&[], Some("process"), both, "TRANSOM_PATH=process"),
        (&[], Some("tcp"), tcp, "TRANSOM_PATH=tcp"),
        (&[], Some("tpc"), tcp, "TRANSOM_PATH=tpc is neither"),
        (&["--path", "auto"], Some("tcp"), both, "asked for"),
        (&["--path", "tcp"], None, tcp, "asked for"),
    ] {
        let (found, why) = told(args, variable);
        assert_eq!(found, paths, "{args:?} {variable:?}");
        assert!(why.contains(word), "{word:?}: {why}");
    }
}

#[cfg(not(windows))]
#[test]
fn only_windows_has_a_catalogue_of_providers() {
    for command in ["install", "remove", "status"] {
        run(&["provider", command]).failed(2, &["only Windows", "libtransom_nd.so"]);
    }
}

#[test]
fn what_cannot_be_is_usage() {
    run(&["rping", "-c", "127.0.0.1", "-S", "10"]).failed(2, &["-S 10", "-S 24"]);
    run(&["rping", "-c", "no address"]).failed(2, &["no address"]);
    run(&["bench", "write-latency", "--size", "0"]).failed(2, &["--size 0"]);
    run(&["bench", "write-latency", "--seconds", "0"]).failed(2, &["--seconds"]);
    run(&["bench", "atomic-latency", "--size", "7"]).failed(2, &["--size 8"]);
    run(&["bench", "check", "--tokens", "0"]).failed(2, &["--tokens 0"]);
    assert_eq!(run(&["rping"]).code, 2, "one role is needed");
    assert_eq!(run(&["rping", "-s", "-c", "127.0.0.1"]).code, 2, "and only one");
}

#[test]
fn no_listener_answers() {
    let held = transom_testing::ports::Held::new().unwrap();
    let port = held.address().port();
    let ran = run(&["rping", "-c", &format!("127.0.0.1:{port}"), "-C", "1"]);
    ran.failed(3, &["127.0.0.1", &port.to_string()]);
}

#[test]
fn a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&["rping", "-s", "-a", "127.0.0.1", "-p", &port]).failed(5, &[&port]);
}
