//! `transom watch --web`: the memory map, in a browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

#[path = "../../transom/examples/mistakes.rs"]
mod mistakes;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Ran, Runtime, Server, ran, transom};
use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, prlimit};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};

/// The likeliest mistake of each refusal of `examples/mistakes.rs`, in order, and words of its story:
/// what was asked, what the token names, to whom it was granted, what would have been right.
const STORIES: [(&str, [&str; 4]); 6] = [
    (
        "token_bytes_swapped",
        [
            "Read by the peer: 256 bytes",
            "With its bytes in the other order, the token names window \"lookup\"",
            "the one that asked",
            "The token's bytes are in the wrong order",
        ],
    ),
    (
        "stale",
        [
            "Read by the peer: 512 bytes",
            "There until then: invalidated by its owner",
            "the one that asked",
            "The token was used after it was closed",
        ],
    ),
    (
        "past_the_end",
        [
            "Write by the peer: 553 bytes",
            "window \"appender\"",
            "the one that asked",
            "41 bytes past the end. The token covers 8192 bytes",
        ],
    ),
    (
        "missing_right",
        [
            "Write by the peer: 512 bytes",
            "granting REMOTE_READ",
            "the one that asked",
            "The window was bound without REMOTE_WRITE",
        ],
    ),
    (
        "offset_instead_of_address",
        [
            "64 bytes at [0x200, 0x240)",
            "window \"indexer\"",
            "the one that asked",
            "An offset was given where an address belongs",
        ],
    ),
    (
        "another_queue_pair",
        [
            "Read by the peer: 256 bytes",
            "window \"cache\"",
            "not the one that asked",
            "A window that is bound to another queue pair",
        ],
    ),
];

/// Six mistakes in this process, which is watched by one test at a time.
struct Work {
    _work: mistakes::Work,
    _alone: MutexGuard<'static, ()>,
}

impl Work {
    fn begin() -> Work {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let work = mistakes::begin([127, 0, 0, 1].into()).expect("the workers are served");
        Work { _work: work, _alone: alone }
    }
}

/// `transom watch --web` of this process, and the address that it prints.
fn watch() -> (Server, String) {
    let server = Server::start(&["watch", "--web", &std::process::id().to_string()]);
    let address = server.address();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    (server, address)
}

/// A request as it is, and everything that comes back.
fn raw(port: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The port and the path of the page's address.
fn split(address: &str) -> (&str, &str) {
    let rest = address.strip_prefix("http://127.0.0.1:").unwrap();
    let (port, _) = rest.split_once('/').unwrap();
    (port, &rest[port.len()..])
}

/// A user who has no thread left gets no answer, and the page again with the next thread.
#[test]
fn without_a_thread_a_request_ends_and_the_page_does_not() {
    const USER: u32 = 54_321;
    let as_user =
        |command: &mut Command| command.uid(USER).gid(USER).stdout(Stdio::piped()).spawn();
    let started = as_user(transom().arg("--version")).map(|mut child| child.wait());
    if !rustix::process::geteuid().is_root() || started.is_err() {
        return eprintln!("SKIPPED: only root can limit another user's threads");
    }
    let runtime = Runtime::new("threads");
    std::os::unix::fs::chown(&runtime.0, Some(USER), Some(USER)).unwrap();
    let mut server = Server::of(runtime.command().uid(USER).gid(USER).args(["watch", "--web"]));
    let address = server.address();
    let (port, path) = split(&address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let child = rustix::process::Pid::from_child(&server.child);
    // As that user: root may lack the right to do it for others.
    let limit = |most| {
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
                set_thread_res_gid(group, group, group).unwrap();
                set_thread_res_uid(user, user, user).unwrap();
                let limit = Rlimit { current: most, ..getrlimit(Resource::Nproc) };
                prlimit(Some(child), Resource::Nproc, limit).unwrap().current
            });
            changes.join().unwrap()
        })
    };
    let before = limit(Some(0));
    for _ in 0..3 {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        // The connection is closed, or reset with the request in it.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert_eq!(answer, "");
    }
    limit(before);
    assert!(raw(port, &request).starts_with("HTTP/1.1 200 "));
    assert!(server.child.try_wait().unwrap().is_none());
}

#[test]
fn a_wrong_path_gets_nothing() {
    let _work = Work::begin();
    let (_server, address) = watch();
    let (port, path) = split(&address);
    assert_eq!(path.len(), "/".len() + 32 + "/".len(), "128 bits in hexadecimal digits: {path}");
    let get =
        |path: &str, host: &str| raw(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let here = format!("127.0.0.1:{port}");
    let history = format!("{path}history");
    assert!(get(path, &here).starts_with("HTTP/1.1 200 "));
    assert!(get(&history, &here).contains("appender"), "whoever knows it is told");
    let other = format!("/{}/history", "0".repeat(32));
    for path in ["/", "/history", "/index.html", &other, &history.to_uppercase()] {
        let answer = get(path, &here);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert!(!answer.contains("appender") && !answer.contains("0x"), "{answer}");
    }
    // DNS rebinding: the name is another site's, and its address is this host's.
    let answer = get(&history, &format!("evil.example:{port}"));
    assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("appender"), "{answer}");
    let answer = raw(port, &format!("POST {history} HTTP/1.1\r\nHost: {here}\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 405 ") && !answer.contains("appender"), "{answer}");
    // A page of another site may ask, and its browser keeps the answer from it.
    let origin =
        format!("GET {history} HTTP/1.1\r\nHost: {here}\r\nOrigin: http://evil.example\r\n\r\n");
    assert!(!raw(port, &origin).to_lowercase().contains("access-control-allow"));
    // Another run has another path.
    let (_other, another) = watch();
    assert_ne!(split(&another).1, path);
}

#[test]
fn an_export_is_a_file_of_its_user_and_replaces_none() {
    let folder = Runtime::new("web-export");
    let _work = Work::begin();
    let file = folder.0.join("map.html");
    let pid = std::process::id().to_string();
    let export = || -> Ran { ran(transom().args(["watch", "--web", &pid, "--export"]).arg(&file)) };
    let done = export();
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    let (_, rest) = text.split_once(r#"<script type="application/json" id="history">"#).unwrap();
    let history: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let likely: Vec<&str> = history["refusals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["likely"].as_str().unwrap())
        .collect();
    assert_eq!(likely, STORIES.map(|(likely, _)| likely));
    assert!(!text.contains("{history}") && !text.contains("{nonce}"));
    export().failed(5, &["exists"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    ran(transom().args(["watch", "--web", "1", "--export"]).arg(folder.0.join("other")))
        .failed(3, &["process 1"]);
}

/// Chromium, driven by its WebDriver.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// `None` if there is none on this machine.
    fn start(profile: &std::path::Path) -> Option<Browser> {
        let chromium = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok())?;
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ready = lines.find(|line| line.contains("started successfully on port "));
        let ready = ready.expect("the driver says that it is ready");
        // Whatever else it says must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let port = ready.rsplit_once(' ').unwrap().1.trim_end_matches('.').parse().unwrap();
        let mut browser = Browser { driver, port, session: String::new() };
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join(chromium))
            .find(|path| path.exists())?;
        let profile = format!("--user-data-dir={}", profile.display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &profile,
        ];
        let session = browser.call(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"binary": path, "args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
                "timeouts": {"script": 300_000, "pageLoad": 300_000},
            }}}),
        );
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let path = format!("{}{path}", self.session);
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut text = vec![0; length];
        answer.read_exact(&mut text).unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer["value"]["error"], Value::Null, "{path}: {answer}");
        answer["value"].clone()
    }

    fn open(&self, address: &str) {
        self.call("POST", "/url", &json!({"url": address}));
    }

    /// The value of an expression in the page.
    fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        self.call("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Wait until an expression is true. The page changes by itself.
    fn until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0]; (function look() {{ if ({expression}) done(true); else \
             setTimeout(look, 50); }})();"
        );
        self.call("POST", "/execute/async", &json!({"script": script, "args": []}));
    }

    fn click(&self, selector: &str) {
        let using = json!({"using": "css selector", "value": selector});
        let found = self.call("POST", "/element", &using);
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
    }

    fn text(&self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({selector:?}).textContent"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// The keys of the red marks on the strips, in order.
    fn marks(&self) -> Vec<String> {
        let all = self.value(
            "[...document.querySelectorAll('#strips .pin')].map(one => one.dataset.refusal)",
        );
        let mut all: Vec<String> = serde_json::from_value(all).unwrap();
        all.sort();
        all
    }

    /// Read the story that is open.
    fn reads(&self, (likely, [asked, window, granted, right]): (&str, [&str; 4])) {
        assert_eq!(self.value("document.querySelector('#story').dataset.likely"), likely);
        for (part, words) in
            [("asked", asked), ("window", window), ("granted", granted), ("right", right)]
        {
            let text = self.text(&format!("#story-{part}"));
            assert!(text.contains(words), "{likely}: {words:?} is not in {text:?}");
        }
    }

    /// Errors that the page has caused, those of its policy included.
    fn errors(&self) -> Vec<Value> {
        let log = self.call("POST", "/se/log", &json!({"type": "browser"}));
        let severe = |one: &&Value| one["level"] == "SEVERE";
        log.as_array().unwrap().iter().filter(severe).cloned().collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Also of a test that has failed: the driver ends the browser, which would outlive it.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let head = format!("DELETE {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.session);
            let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.read(&mut [0; 1024]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The six classic mistakes stand in red on the page, each tells its story, and an export does the same
/// without the server.
#[test]
fn a_browser_finds_six_mistakes_and_reads_their_stories() {
    let folder = Runtime::new("web-browser");
    let Some(browser) = Browser::start(&folder.0.join("profile")) else {
        eprintln!("the browser is SKIPPED: chromium or chromedriver is not installed");
        return;
    };
    let work = Work::begin();
    let (server, address) = watch();
    browser.open(&address);
    let six = "document.querySelectorAll('#strips .pin').length == 6";
    browser.until(six);
    let marks = browser.marks();
    let key = |id: usize| format!("0.1.{id}");
    assert_eq!(marks, [1, 2, 3, 4, 5, 6].map(key));
    for (i, story) in STORIES.into_iter().enumerate() {
        browser.click(&format!("#strips .pin[data-refusal='{}']", key(i + 1)));
        browser.reads(story);
    }
    // Honest work lights up on its windows, without end.
    browser.until("document.querySelector('#strips .flash')");
    for name in ["writer", "sorter", "reader"] {
        let shown = format!(
            "[...document.querySelectorAll('#strips .labels text')].some(one => one.textContent.includes('{name}'))"
        );
        assert_eq!(browser.value(&shown), true, "{name}");
    }
    // Back to before the first of them, and to now.
    browser.click("#back");
    let slide = "(() => { const it = document.querySelector('#slider'); it.value = 0; \
                 it.dispatchEvent(new Event('input')); return true; })()";
    browser.value(slide);
    assert!(browser.marks().is_empty());
    assert!(browser.text("#side").contains("Nothing was refused until this moment"));
    browser.click("#now");
    assert_eq!(browser.marks().len(), 6);
    assert!(browser.errors().is_empty(), "{:?}", browser.errors());

    let (port, path) = split(&address);
    let request = format!("GET {path}export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let answer = raw(port, &request);
    let (head, document) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("attachment; filename=\"transom-map-"), "{head}");
    drop((server, work));
    browser.until("document.querySelector('#state').textContent.includes('has ended')");
    let file = folder.0.join("map.html");
    std::fs::write(&file, document).unwrap();
    for (i, story) in STORIES.into_iter().enumerate() {
        // Another document each time, so that the story is opened as the page is.
        browser.open("about:blank");
        browser.open(&format!("file://{}#refusal={}", file.display(), i + 1));
        browser.until(six);
        browser.reads(story);
    }
    // Of a process that has ended, the last state is shown, not the emptiness behind it.
    let history = document.split_once("id=\"history\">").unwrap().1;
    let history: Value = serde_json::from_str(history.split_once("</script>").unwrap().0).unwrap();
    let at = &history["at_ms"];
    let ended = document
        .replace("\"ended_ms\":null", &format!("\"ended_ms\":{at}"))
        .replace("\"closed_ms\":null", &format!("\"closed_ms\":{at}"));
    assert_ne!(ended, document);
    std::fs::write(&file, ended).unwrap();
    browser.open("about:blank");
    browser.open(&format!("file://{}", file.display()));
    browser.until(six);
    let open = "[...document.querySelectorAll('#strips .window.live')].length";
    assert_eq!(browser.value(open), 4, "three that work, and the one of another connection");
    assert!(browser.text("#state").contains("the process has ended"));
    let errors: Vec<Value> = browser
        .errors()
        .into_iter()
        // The page above has asked a server that had gone.
        .filter(|one| one["source"] != "network")
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}
