//! `transom run`: what it sets, whom it refuses, and how programs end under it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use transom_testing::programs::copied;

fn transom(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.arg("run").args(words);
    command
}

fn run(words: &[&str]) -> Output {
    transom(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    let here =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    here.join(name)
}

/// Compile C; `false`, said as SKIPPED, where the compiler cannot do that.
fn compiled(source: &str, name: &str, words: &[&str]) -> Option<PathBuf> {
    let (code, program) = (file(&format!("{name}.c")), file(name));
    std::fs::write(&code, source).unwrap();
    let done = Command::new("cc").arg("-o").arg(&program).arg(&code).args(words).output();
    if done.as_ref().is_ok_and(|done| done.status.success()) {
        return Some(program);
    }
    eprintln!("SKIPPED: cc {words:?}: {done:?}");
    None
}

#[test]
fn the_exit_status_is_the_program_s() {
    for status in [0, 7, 255] {
        let done = run(&["--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(done.status.code(), Some(status));
    }
}

#[test]
fn words_behind_the_program_are_its_own() {
    let done = run(&["--quiet", "--", "echo", "--tcp", "-x", "--"]);
    assert_eq!(text(&done.stdout), "--tcp -x --\n");
    assert_eq!(text(&done.stderr), "");
}

#[test]
fn signals_are_the_program_s() {
    let mut child = transom(&["--", "sh", "-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn children_find_the_libraries_and_the_path() {
    let shown = "echo $LD_LIBRARY_PATH; echo $TRANSOM_PATH; echo $TRANSOM_EXPLAIN";
    let done = run(&["--tcp", "--", "sh", "-c", shown]);
    let said = text(&done.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let libraries = PathBuf::from(lines[0].split(':').next().unwrap());
    for name in [
        "libibverbs.so.1",
        "libibverbs.so",
        "librdmacm.so.1",
        "librdmacm.so",
        "libtransom_paths.so",
        "libtransom_sockets.so",
    ] {
        assert!(libraries.join(name).exists(), "{name} in {}", libraries.display());
    }
    assert_eq!(lines[1..], ["tcp", "1"]);
    let quiet = run(&["--quiet", "--process", "--", "sh", "-c", shown]);
    assert!(text(&quiet.stdout).ends_with("process\n0\n"));
}

/// Verbs V2: a program that brings both libraries, and finds its own before `LD_LIBRARY_PATH`.
#[test]
fn v2_preloaded_libraries_come_before_those_that_a_program_brings() {
    let own = file("brought");
    std::fs::create_dir_all(&own).unwrap();
    let mut words = Vec::new();
    for (name, function) in
        [("libibverbs.so.1", "ibv_node_type_str"), ("librdmacm.so.1", "rdma_event_str")]
    {
        let source = format!("const char *{function}(int n) {{ return \"its own\"; }}");
        let soname = format!("-Wl,-soname,{name}");
        let place = format!("brought/{name}");
        let Some(library) = compiled(&source, &place, &["-shared", "-fPIC", &soname]) else {
            return;
        };
        words.push(library.to_str().unwrap().to_owned());
    }
    // DT_RPATH, which comes before the variable.
    words.extend(["-Wl,--disable-new-dtags".into(), format!("-Wl,-rpath,{}", own.display())]);
    let source = r#"
        #include <stdio.h>
        #include <string.h>
        const char *ibv_node_type_str(int);
        const char *rdma_event_str(int);
        int main(void) {
            char line[4096];
            FILE *maps = fopen("/proc/self/maps", "r");
            int brought = 0;
            while (fgets(line, sizeof line, maps)) brought |= strstr(line, "/brought/lib") != NULL;
            printf("%s, %s, %d\n", ibv_node_type_str(1), rdma_event_str(9), brought);
            return 0;
        }"#;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(program) = compiled(source, "brings-libraries", &words) else { return };
    let program = program.to_str().unwrap();
    let without = run(&["--quiet", "--no-preload", "--", program]);
    assert_eq!(text(&without.stdout), "its own, its own, 1\n", "{}", text(&without.stderr));
    // Verbs V156: said without being asked.
    let said = text(&run(&["--no-preload", "--", program]).stderr);
    assert!(said.contains("it has loaded a libibverbs of its own"), "{said}");
    let with = run(&["--quiet", "--", program]);
    let ours = "InfiniBand channel adapter, RDMA_CM_EVENT_ESTABLISHED, 0\n";
    assert_eq!(text(&with.stdout), ours, "{}", text(&with.stderr));
}

/// Verbs V157: a program that loads its own libibverbs by name finds Transom's, and finds other libraries by
/// its own run path.
#[test]
fn v157_a_library_that_a_program_loads_by_itself_is_transoms() {
    let source = "const char *ibv_node_type_str(int n) { return \"its own\"; }";
    let place = "loads/libibverbs-1de1263b.so.1.14";
    std::fs::create_dir_all(file("loads")).unwrap();
    let Some(own) = compiled(source, place, &["-shared", "-fPIC"]) else { return };
    let other = "const char *other(void) { return \"found\"; }";
    let Some(other) = compiled(other, "loads/libother.so", &["-shared", "-fPIC"]) else { return };
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int n, char **words) {
            void *verbs = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
            const char *(*name)(int) = (const char *(*)(int))dlsym(verbs, "ibv_node_type_str");
            void *library = dlopen("libother.so", RTLD_NOW);
            const char *(*other)(void) = (const char *(*)(void))dlsym(library, "other");
            void *all = dlopen(NULL, RTLD_NOW), *none = dlopen("libnone.so.1", RTLD_NOW);
            printf("%s, %s, %d, %s\n", name(1), other(), all != NULL, none ? "loaded" : dlerror());
            return 0;
        }"#;
    // DT_RUNPATH, which the C library takes from whoever calls dlopen.
    let run_path = format!("-Wl,--enable-new-dtags,-rpath,{}", other.parent().unwrap().display());
    let Some(program) = compiled(source, "loads-libraries", &[&run_path, "-ldl"]) else { return };
    let (program, own) = (program.to_str().unwrap(), own.to_str().unwrap());
    let ends = |done: &Output, begin: &str| {
        let said = text(&done.stdout);
        let rest = ", found, 1, libnone.so.1: cannot open shared object file";
        assert!(said.starts_with(&format!("{begin}{rest}")), "{said}{}", text(&done.stderr));
    };
    ends(&run(&["--quiet", "--", program, own]), "InfiniBand channel adapter");
    // The names below /sys are led by the library that leads this one.
    ends(&run(&["--quiet", "--no-paths", "--no-preload", "--", program, own]), "its own");
}

/// Verbs V156: what a program has used of Transom is said at its end, and `--require` makes nothing a status.
#[test]
fn v156_what_a_program_has_used_is_said_at_its_end() {
    let code = |done: &Output| done.status.code();
    let plain = run(&["--", "true"]);
    assert_eq!(code(&plain), Some(0));
    let wanted = "true[";
    let why = "made no queue pair: nothing asked Transom's libibverbs for a device";
    let said = text(&plain.stderr);
    assert!(said.contains(wanted) && said.contains(why), "{said}");
    let required = run(&["--require", "--", "true"]);
    assert_eq!(code(&required), Some(96), "{}", text(&required.stderr));
    let quiet = run(&["--require", "--quiet", "--", "true"]);
    assert_eq!((code(&quiet), &*text(&quiet.stderr)), (Some(96), ""));
    // The program's own status stays, and what it has printed.
    let other = run(&["--require", "--quiet", "--", "sh", "-c", "echo printed; exit 7"]);
    assert_eq!((code(&other), &*text(&other.stdout)), (Some(7), "printed\n"));
    assert_eq!(code(&run(&["--require", "--no-paths", "--", "true"])), Some(2));

    let source = r#"
        #include <infiniband/verbs.h>
        #include <stdlib.h>
        #include <string.h>
        int main(int count, char **words) {
            if (count < 2) return 0;
            struct ibv_device **list = ibv_get_device_list(NULL);
            if (!strcmp(words[1], "list")) return 0;
            struct ibv_context *context = ibv_open_device(list[0]);
            if (!strcmp(words[1], "open")) return 0;
            struct ibv_pd *pd = ibv_alloc_pd(context);
            struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
            struct ibv_qp_init_attr attr = {
                .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
            return ibv_create_qp(pd, &attr) == NULL;
        }"#;
    let Some(program) = compiled(source, "uses", &["-libverbs"]) else { return };
    let program = program.to_str().unwrap();
    for (word, wanted, status) in [
        ("list", "made no queue pair: it asked for the devices, and opened none", 96),
        ("open", "made no queue pair: it opened the device, and went no further", 96),
        ("make", "queue pairs: 1, connections: 0, bytes of its requests: 0, no request failed", 0),
    ] {
        let done = run(&["--require", "--", program, word]);
        assert!(text(&done.stderr).contains(wanted), "{word}: {}", text(&done.stderr));
        assert_eq!(code(&done), Some(status), "{word}");
        // A process that the program starts counts for it.
        let script = format!("'{program}' {word}");
        let done = run(&["--require", "--", "sh", "-c", &format!("{script}; true")]);
        assert!(text(&done.stderr).contains(wanted), "{word}: {}", text(&done.stderr));
        assert_eq!(code(&done), Some(status), "{word}, as a child");
    }
    let quiet = run(&["--quiet", "--", program, "make"]);
    assert_eq!((code(&quiet), &*text(&quiet.stderr)), (Some(0), ""));
}

/// A limit of file sizes, a standard error that nobody reads and a pipe in place of the note end no program and
/// change no status; nothing is said that is not known.
#[test]
fn v156_limits_and_pipes_of_the_user_end_no_program() {
    let limited = |script: &str, words: &[&str]| {
        let script = format!("ulimit -f 0; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_transom")]).args(words);
        command.output().unwrap()
    };
    let adapters = limited("\"$1\" adapters", &[]);
    assert!(adapters.status.success(), "{adapters:?}");
    let said = text(&adapters.stdout);
    assert!(said.contains("the limit of file sizes (ulimit -f, RLIMIT_FSIZE) is below"), "{said}");

    let source = r#"
        #include <infiniband/verbs.h>
        #include <signal.h>
        int main(void) {
            signal(SIGPIPE, SIG_DFL);
            struct ibv_device **list = ibv_get_device_list(NULL);
            struct ibv_context *context = ibv_open_device(list[0]);
            struct ibv_pd *pd = ibv_alloc_pd(context);
            struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
            struct ibv_qp_init_attr attr = {
                .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
            struct ibv_qp_attr wrong = {.qp_state = IBV_QPS_RTS};
            struct ibv_qp *qp = ibv_create_qp(pd, &attr);
            return !qp || !ibv_modify_qp(qp, &wrong, IBV_QP_STATE); /* which is explained */
        }"#;
    let Some(program) = compiled(source, "makes", &["-libverbs"]) else { return };
    let program = program.to_str().unwrap();
    let done = run(&["--require", "--", "sh", "-c", "ulimit -f 0; exec \"$0\"", program]);
    let said = text(&done.stderr);
    assert!(done.status.success() && said.contains("queue pairs: 1"), "{}: {said}", done.status);
    assert!(!said.contains("made no queue pair"), "{said}");

    for program in [program, "true"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = transom(&["--", program]).stderr(writer).status().unwrap();
        assert!(status.success(), "{program}: {status}");
    }
    let pipe = "f=${TRANSOM_RUN#*:}; f=${f#*:}; rm \"$f\" && mkfifo \"$f\" && exec \"$0\"";
    for program in [program, "true"] {
        let done = run(&["--", "sh", "-c", pipe, program]);
        assert!(done.status.success(), "{program}: {} {}", done.status, text(&done.stderr));
    }
}

/// Verbs V32: the kind reaches the program, and a kind that there is not starts none.
#[test]
fn v32_the_kind_of_the_device() {
    for (words, wanted) in [
        (&["--quiet", "--as", "iwarp"] as &[&str], "iwarp\n"),
        (&["--quiet", "--as", "roce"], "roce\n"),
        (&["--quiet"], "\n"),
    ] {
        let done = run(&[words, &["--", "sh", "-c", "echo $TRANSOM_AS"]].concat());
        assert_eq!(text(&done.stdout), wanted, "{}", text(&done.stderr));
    }
    let done = run(&["--as", "ib", "--", "echo", "started"]);
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(text(&done.stdout), "");
    assert!(text(&done.stderr).contains("iwarp"), "{}", text(&done.stderr));
}

/// Verbs V25: the layout of the GID table reaches the program, and one that there is not starts none.
#[test]
fn v25_the_layout_of_the_gid_table() {
    for (words, wanted) in
        [(&["--quiet", "--gids", "plain"] as &[&str], "plain\n"), (&["--quiet"], "\n")]
    {
        let done = run(&[words, &["--", "sh", "-c", "echo $TRANSOM_GIDS"]].concat());
        assert_eq!(text(&done.stdout), wanted, "{}", text(&done.stderr));
    }
    let done = run(&["--gids", "efa", "--", "echo", "started"]);
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(2), ""));
}

/// Verbs V105: a name becomes a step of a path.
#[test]
fn v105_a_name_that_is_none_of_a_device_starts_nothing() {
    for name in ["", "..", "a/b", "a'b", &"x".repeat(64)] {
        let done = run(&["--device", name, "--", "echo", "started"]);
        assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(2), ""), "{name:?}");
        assert!(text(&done.stderr).contains("letters, digits"), "{}", text(&done.stderr));
    }
}

/// Verbs V32, Verbs V105: an adapter of iWARP in the file system, beside one of RoCE.
#[test]
fn v32_a_device_of_iwarp_in_the_file_system() {
    if Command::new("ibv_devices").output().is_err() {
        return eprintln!("SKIPPED: ibv_devices is not installed");
    }
    let looked = "at=/sys/class/infiniband/transom0; cat $at/node_type $at/ports/1/gid_attrs/types/0; \
                  test -e $at/ports/1/gids/1 && echo another";
    let asked = format!("ibv_devices > /dev/null && {looked}");
    let done = run(&["--quiet", "--as", "iwarp", "--", "sh", "-c", &asked]);
    assert_eq!(text(&done.stdout), "4: RNIC\nIB/RoCE v1\n", "{}", text(&done.stderr));
    let addresses = ["--address", "127.0.0.1,127.0.0.2"];
    let done = run(&[&["--quiet"], &addresses as &[_], &["--", "sh", "-c", &asked]].concat());
    assert_eq!(text(&done.stdout), "1: CA\nIB/RoCE v1\nanother\n", "{}", text(&done.stderr));
}

/// Verbs V105: where a program looks for the device in the file system, once it has asked for the list.
#[test]
fn the_device_is_found_in_the_file_system() {
    let looked = "cat /sys/class/infiniband/transom0/ports/1/gid_attrs/types/3; \
                  test -c /dev/infiniband/uverbs0 && echo there; \
                  cat $(readlink -f /sys/class/infiniband/transom0/../..)/class";
    let asked = format!("ibv_devices > /dev/null && {looked}");
    if Command::new("ibv_devices").output().is_err() {
        return eprintln!("SKIPPED: ibv_devices is not installed");
    }
    let done = run(&["--quiet", "--", "sh", "-c", &asked]);
    assert_eq!(text(&done.stdout), "RoCE v2\nthere\n0x020000\n", "{}", text(&done.stderr));
    let without = run(&["--quiet", "--no-paths", "--", "sh", "-c", looked]);
    assert_eq!(text(&without.stdout), "", "the kernel has no such device here");
}

/// Verbs V105: a script that lists the devices finds one that no program has asked for before.
#[test]
fn v105_the_device_is_there_before_a_program_asks_a_library() {
    let name = format!("fresh{}", std::process::id());
    let looked = "echo /sys/class/infiniband/*; ls /sys/class/infiniband";
    let done = run(&["--quiet", "--device", &name, "--", "sh", "-c", looked]);
    assert!(text(&done.stdout).contains(&format!("{name}\n")), "{}", text(&done.stderr));
}

/// Verbs V105: namespaces have other interfaces and addresses, and one user may work in several at a time.
#[test]
fn v105_each_network_namespace_has_its_own_device() {
    let own = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let within = |words: &[&str]| {
        let mut command = Command::new(own[0]);
        command.args(&own[1..]).args(words).output()
    };
    if !within(&["true"]).is_ok_and(|done| done.status.success()) {
        return eprintln!("SKIPPED: a network namespace takes root, util-linux and iproute2");
    }
    let script = "echo begun; read go; cd /sys/class/infiniband/transom0/device/net; echo *";
    let words = [env!("CARGO_BIN_EXE_transom"), "run", "--quiet", "--", "sh", "-c", script];
    let mut command = Command::new(own[0]);
    command.args(&own[1..]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut there = command.spawn().unwrap();
    let mut said = BufReader::new(there.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "begun");
    // A program in this namespace, while that one runs.
    let here = run(&["--quiet", "--", "ls", "/sys/class/infiniband/transom0/device/net"]);
    assert!(text(&here.stdout).contains("lo\n"), "{}", text(&here.stderr));
    there.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "lo");
    assert!(there.wait().unwrap().success());
}

/// Verbs V105: a program that goes on as another user may not write there, and hears of that once it asks for the list.
#[test]
fn v105_a_program_of_another_user_is_told_nothing_before_it_asks() {
    let other = ["--", "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];
    let as_another = |word| run(&[&other[..], &[word]].concat());
    let done = as_another("true");
    if !done.status.success() {
        return eprintln!("SKIPPED: only root becomes another user: {}", text(&done.stderr));
    }
    let is_said = |done: Output| text(&done.stderr).matches("; not written").count();
    assert_eq!(is_said(done), 0);
    if Command::new("ibv_devices").output().is_ok() {
        assert_eq!(is_said(as_another("ibv_devices")), 1);
    }
}

/// Verbs V106: what a user does who looks around.
#[test]
fn v106_the_list_of_devices_is_listed_without_a_complaint() {
    let done = run(&["--quiet", "--", "ls", "-la", "/sys/class/infiniband/"]);
    assert!(text(&done.stdout).contains(" transom0 -> "), "{}", text(&done.stdout));
    assert_eq!(text(&done.stderr), "");
}

/// Verbs V22, Verbs V105: each device that a word names is there, with the addresses that are its own alone.
#[test]
fn v22_several_devices_in_the_file_system() {
    if Command::new("ibv_devices").output().is_err() {
        return eprintln!("SKIPPED: ibv_devices is not installed");
    }
    let names = ["rail", "other"].map(|name| format!("{name}{}", std::process::id()));
    let list = format!("{}:127.0.0.2,{}:127.0.0.3+127.0.0.4", names[0], names[1]);
    let looked = "ibv_devices | grep -c -e $0 -e $1; cd /sys/class/infiniband; \
                  grep -h -o ffff:7f00:.* $0/ports/1/gids/*; echo and; \
                  grep -h -o ffff:7f00:.* $1/ports/1/gids/*; \
                  test $(readlink -f $0/device) != $(readlink -f $1/device) && echo apart";
    let words = ["--quiet", "--gids", "plain", "--device", &list, "--", "sh", "-c", looked];
    let done = run(&[&words[..], &[&*names[0], &*names[1]]].concat());
    let wanted = "2\nffff:7f00:0002\nand\nffff:7f00:0003\nffff:7f00:0004\napart\n";
    assert_eq!(text(&done.stdout), wanted, "{}", text(&done.stderr));
}

#[test]
fn a_program_answers_inspections_if_that_was_asked_for() {
    for (words, expected) in [(&["--inspect"][..], "1\n"), (&[], "\n")] {
        let words = [words, &["--", "sh", "-c", "echo $TRANSOM_INSPECT"]].concat();
        let said = transom(&words).env_remove("TRANSOM_INSPECT").output().unwrap();
        assert_eq!(text(&said.stdout), expected);
    }
}

#[test]
fn a_program_keeps_a_ledger_if_that_was_asked_for() {
    for (words, expected) in [
        (&["--ledger"][..], "1\n"),
        (&["--ledger=strict"], "strict\n"),
        (&["--ledger=strict,backtrace"], "strict,backtrace\n"),
        (&[], "\n"),
    ] {
        let words = [words, &["--", "sh", "-c", "echo $TRANSOM_LEDGER"]].concat();
        let said = transom(&words).env_remove("TRANSOM_LEDGER").output().unwrap();
        assert_eq!(text(&said.stdout), expected, "{words:?}");
    }
    assert_eq!(run(&["--ledger=loud", "--", "true"]).status.code(), Some(2));
}

/// The command and its libraries, as cargo builds them, in this directory.
fn built_at(directory: PathBuf) -> PathBuf {
    std::fs::create_dir(&directory).unwrap();
    let command = PathBuf::from(env!("CARGO_BIN_EXE_transom"));
    std::fs::hard_link(&command, directory.join("transom")).unwrap();
    for name in ["verbs", "rdmacm", "paths", "sockets"].map(|of| format!("libtransom_{of}.so")) {
        let library = command.parent().unwrap().join("deps").join(&name);
        std::fs::hard_link(library, directory.join(name)).unwrap();
    }
    directory
}

/// ld.so(8): paths of libraries are parted by white space, `:` and `;`, and `$` begins a token; nothing quotes them.
#[test]
fn a_directory_whose_path_no_loader_reads_is_reached_by_a_link() {
    for name in ["a b", "a:b", "a;b", "$LIB"] {
        let built = built_at(file(name));
        for (words, variable) in [(&[][..], "LD_LIBRARY_PATH"), (&["--sockets"], "LD_PRELOAD")] {
            let shown = format!("printenv {variable}; ls / > /dev/null");
            let words = [&["run"], words, &["--quiet", "--", "sh", "-c", &shown]].concat();
            let done = Command::new(built.join("transom")).args(words).output().unwrap();
            assert_eq!(text(&done.stderr), "", "{name}");
            let said = text(&done.stdout);
            let library = Path::new(said.split([':', '\n']).next().unwrap());
            let directory = library.ancestors().find(|path| path.is_symlink()).unwrap();
            assert_eq!(std::fs::read_link(directory).unwrap(), built.join("transom-run"), "{said}");
        }
        // Nor is there a place for a link.
        let mut command = Command::new(built.join("transom"));
        command.args(["run", "--", "true"]).env("TMPDIR", &built).env_remove("XDG_RUNTIME_DIR");
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("loaders read no path with"), "{name}");
    }
}

/// Where nothing can be put beside what cargo has built, in a folder of the user's alone. A variable that
/// names a directory of somebody else, or none, is passed over; a folder open to others is refused.
#[test]
fn links_to_the_libraries_lie_in_a_folder_of_the_user_s() {
    let built = built_at(file("built"));
    std::fs::write(built.join("transom-run"), "in the way").unwrap();
    let temporary = file("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let shown = ["run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"];
    let show = |runtime: &str| {
        let mut command = Command::new(built.join("transom"));
        command.args(shown).env_remove("LD_LIBRARY_PATH").env("TMPDIR", &temporary);
        command.env("XDG_RUNTIME_DIR", runtime).output().unwrap()
    };
    let user = rustix::process::geteuid().as_raw();
    let own = temporary.join(format!("transom-{user}"));
    for runtime in ["relative", "/nonexistent", "/dev/null"] {
        let done = show(runtime);
        let libraries = PathBuf::from(text(&done.stdout).trim_end());
        assert_eq!(libraries, own.join("run"), "{}", text(&done.stderr));
        assert!(libraries.join("libibverbs.so.1").exists());
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
    }
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755)).unwrap();
    let refused = show("/nonexistent");
    assert_ne!(refused.status.code(), Some(0));
    assert_eq!(text(&refused.stdout), "");
    assert!(text(&refused.stderr).contains("is open to others"), "{}", text(&refused.stderr));
}

#[test]
fn the_caller_s_path_of_libraries_stays_behind_ours() {
    let mut command = transom(&["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    let said = command.env("LD_LIBRARY_PATH", "/nonexistent/lib").output().unwrap();
    assert!(text(&said.stdout).trim_end().ends_with(":/nonexistent/lib"));
}

#[test]
fn env_prints_what_a_shell_can_read() {
    for form in ["--env", "--env=shell"] {
        let said = text(&run(&[form, "--address", "a'b"]).stdout);
        let script = format!("{said}echo $TRANSOM_ADDRESSES");
        let evaluated = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(text(&evaluated.stdout), "a'b\n");
    }
}

#[test]
fn env_prints_what_a_dockerfile_and_a_unit_take() {
    let lines = |form: &str| text(&run(&[form, "--sockets=:6379"]).stdout);
    let docker = lines("--env=docker");
    assert!(docker.contains("\nENV TRANSOM_SOCKETS=\":6379\"\n"), "{docker}");
    assert!(docker.lines().all(|line| line.starts_with("ENV ")), "{docker}");
    let unit = lines("--env=systemd");
    assert!(unit.contains("\nEnvironment=\"TRANSOM_SOCKETS=:6379\"\n"), "{unit}");
    let refused = run(&["--env=fish"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A value that stands behind a blank instead of a `=` is taken for the program.
#[test]
fn a_value_without_its_sign_is_recognized() {
    for (words, hint) in [
        (&["--sockets", ":6399", "--", "redis-cli"][..], "--sockets=:6399"),
        (&["--ledger", "strict", "--", "true"], "--ledger=strict"),
    ] {
        let done = run(words);
        assert_eq!(done.status.code(), Some(127), "{words:?}");
        assert!(text(&done.stderr).contains(hint), "{}", text(&done.stderr));
    }
    for option in ["--inspect", "--ledger", "--capture=x.pcapng"] {
        let done = run(&["--sockets", option, "--", "true"]);
        assert_eq!(done.status.code(), Some(2), "{option}");
        assert!(text(&done.stderr).contains("opens none"), "{}", text(&done.stderr));
    }
}

/// `cargo install` brings the command alone.
#[test]
fn a_command_without_its_libraries_says_how_to_get_them() {
    let folder = file("installed/bin");
    std::fs::create_dir_all(&folder).unwrap();
    let alone = folder.join("transom");
    copied(env!("CARGO_BIN_EXE_transom").as_ref(), &alone);
    let done = Command::new(&alone).args(["run", "--", "true"]).output().unwrap();
    assert_eq!(done.status.code(), Some(5));
    let said = text(&done.stderr);
    assert!(said.contains("packaging/install PREFIX") && !said.contains("cargo build"), "{said}");
    // Which works: the same command with what cargo has built for these tests.
    let built = Path::new(env!("CARGO_BIN_EXE_transom")).parent().unwrap();
    let staged = file("installed/built");
    std::fs::create_dir_all(&staged).unwrap();
    copied(env!("CARGO_BIN_EXE_transom").as_ref(), &staged.join("transom"));
    for name in ["verbs", "rdmacm", "paths", "sockets"] {
        let library = format!("libtransom_{name}.so");
        std::os::unix::fs::symlink(built.join("deps").join(&library), staged.join(&library))
            .unwrap();
    }
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/install");
    let prefix = file("installed/prefix");
    let done = Command::new(install).arg(&prefix).env("TRANSOM_BUILT", &staged).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done =
        Command::new(prefix.join("bin/transom")).args(["run", "--", "true"]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(prefix.join("share/man/man1/transom-run.1").is_file());
}

#[test]
fn without_a_program_it_says_what_one_would_see() {
    let said = text(&run(&[]).stdout);
    for word in ["libraries ", "device     transom0", "addresses ", "path "] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn what_cannot_be_started_ends_as_in_a_shell() {
    let done = run(&["--", "no-such-program-anywhere"]);
    assert_eq!(done.status.code(), Some(127));
    assert!(text(&done.stderr).contains("there is no such program"));
    let plain = file("plain");
    std::fs::write(&plain, "not a program").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let done = run(&["--", plain.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(126));
    assert!(text(&done.stderr).contains("cannot be executed"));
}

/// Verbs V7.
#[test]
fn v7_a_static_program_is_reported_as_not_servable() {
    let source = "void _start(void) { for (;;) { } }";
    let Some(program) = compiled(source, "static", &["-static", "-nostdlib"]) else { return };
    let done = run(&["--", program.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(126));
    assert!(text(&done.stderr).contains("linked statically"), "{}", text(&done.stderr));
}

/// Verbs V7: only a set-uid program of another user is one.
#[test]
fn v7_a_set_uid_program_is_reported_as_not_servable() {
    let program = file("set-uid");
    copied("/bin/true".as_ref(), &program);
    if std::os::unix::fs::chown(&program, Some(65534), None).is_err() {
        return eprintln!("SKIPPED: only root can give a file away");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let done = run(&["--", program.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(126));
    assert!(text(&done.stderr).contains("set-uid"), "{}", text(&done.stderr));
}

/// Verbs V8: also where a library of the program's wants the version, and no other.
#[test]
fn v8_a_private_version_that_is_missing_is_named() {
    for (version, known) in [("IBVERBS_PRIVATE_34", true), ("IBVERBS_PRIVATE_99", false)] {
        let map = file(&format!("{version}.map"));
        std::fs::write(&map, format!("{version} {{ global: verbs_set_ops; }};\n")).unwrap();
        let script = format!("-Wl,--version-script={}", map.display());
        let name = format!("libibverbs-{version}.so");
        let words = ["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", &script];
        let stub = "void verbs_set_ops(void) { }";
        let Some(verbs) = compiled(stub, &name, &words) else { return };
        let user = "void verbs_set_ops(void); void vendor(void) { verbs_set_ops(); }";
        let name = format!("libvendor-{version}.so");
        let soname = format!("-Wl,-soname,{name}");
        let words = ["-shared", "-fPIC", "-Wl,--no-as-needed", &soname, verbs.to_str().unwrap()];
        let Some(vendor) = compiled(user, &name, &words) else { return };
        let run_path = format!("-Wl,-rpath,{}", vendor.parent().unwrap().display());
        let source = "void vendor(void); int main(void) { vendor(); return 0; }";
        let words = [vendor.to_str().unwrap(), &run_path, "-Wl,--allow-shlib-undefined"];
        let Some(program) = compiled(source, &format!("user-{version}"), &words) else { return };
        let done = run(&["--", program.to_str().unwrap()]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(if known { 0 } else { 126 }), "{said}");
        assert_eq!(said.contains(version) && said.contains("libvendor"), !known, "{said}");
    }
}

/// Programs whose loader or run-time library would not have the preloaded one start, by themselves and as
/// children; and what is known of them is said.
#[test]
fn programs_that_cannot_have_preloaded_libraries_start() {
    let source = r#"
        #include <stdio.h>
        #include <unistd.h>
        int main(int n, char **words) {
            printf("started %d\n", n);
            fflush(stdout);
            return n > 1 ? execv(words[1], words + 1) : 0;
        }"#;
    let Some(ordinary) = compiled(source, "ordinary", &[]) else { return };
    let ordinary = ordinary.to_str().unwrap();
    let musl = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";
    for (name, how, why) in [
        ("musl", musl, "is linked with musl"),
        ("sanitized", "-fsanitize=address", ""),
        ("static", "-static", "is linked statically"),
    ] {
        let Some(program) = compiled(source, name, &[how]) else { continue };
        let program = program.to_str().unwrap();
        for words in [&[ordinary, program][..], &[program]] {
            // Of a verbs program that is started by itself the command says that it cannot be served.
            if words.len() > 1 || why.is_empty() {
                let done = run(&[&["--quiet", "--"], words].concat());
                let (said, complained) = (text(&done.stdout), text(&done.stderr));
                assert!(
                    said.ends_with("started 1\n") && done.status.success(),
                    "{said}{complained}"
                );
                assert_eq!(complained, "", "{words:?}");
            }
            let done = run(&[&["--sockets", "--explain", "--"], words].concat());
            let (said, complained) = (text(&done.stdout), text(&done.stderr));
            assert!(said.ends_with("started 1\n") && done.status.success(), "{said}{complained}");
            assert!(complained.contains(why), "{words:?}: {complained}");
            assert_eq!(complained.is_empty(), why.is_empty(), "{words:?}: {complained}");
        }
    }
    let maps = text(&run(&["--sockets", "--", "cat", "/proc/self/maps"]).stdout);
    assert!(maps.contains("libtransom_sockets.so"), "{maps}");
}

/// A connection is listed as switched once the other side has taken it.
#[test]
fn ps_lists_processes_with_switched_connections() {
    let code = "import socket,sys\n\
        l=socket.create_server(('127.0.0.1',0)); c=socket.create_connection(l.getsockname()); s,_=l.accept()\n\
        for _ in range(40): c.send(b'x'); s.recv(1); s.send(b'y'); c.recv(1)\n\
        print('ready', flush=True); sys.stdin.read()";
    let mut command = transom(&["--sockets", "--explain", "--", "python3", "-c", code]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line != "ready\n" {
        child.wait().unwrap();
        return eprintln!("SKIPPED: python3 is not installed");
    }
    let listed = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        text(&command.arg("ps").args(words).output().unwrap().stdout)
    };
    let (table, json) = (listed(&[]), listed(&["--json"]));
    let pid = child.id();
    drop(child.stdin.take());
    let said = text(&child.wait_with_output().unwrap().stderr);
    let row: Vec<&str> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&pid.to_string().as_str()))
        .unwrap_or_default();
    assert_eq!(row.get(1..3), Some(&["2", "0"][..]), "{table}");
    assert!(json.contains(&format!("\"pid\":{pid},\"switched\":2,\"offered\":0")), "{json}");
    assert!(said.contains("2 connections switched, 0 stayed with TCP"), "{said}");
    assert!(!listed(&[]).contains(&format!("{pid}  ")), "the process has ended");
}
