//! The server of the page. The path is the key: 128 random bits, which nobody can guess. A page of
//! another site cannot read an answer (no CORS), nor get one by making its own name an address of this
//! host (the Host header).

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::history::History;
use super::{page, random};

/// Requests that are answered at the same time. Others have to wait.
const MOST_REQUESTS: usize = 32;
/// Bytes of a request's head.
const LONGEST_HEAD: usize = 8192;
/// A request that is not complete by then gets no answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pages of one server.
#[derive(Debug)]
pub(super) struct Site {
    /// The digest of the path's first part: the time of a comparison says nothing about the path.
    secret: [u8; 32],
    history: Arc<Mutex<History>>,
}

/// An answer.
#[derive(Debug)]
struct Response {
    status: &'static str,
    kind: &'static str,
    policy: String,
    /// The name under which a browser keeps it as a file.
    file: Option<String>,
    body: String,
}

impl Response {
    fn new(status: &'static str, body: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            policy: "default-src 'none'".to_owned(),
            file: None,
            body: body.to_owned(),
        }
    }

    fn html(body: String, policy: String) -> Response {
        let kind = "text/html; charset=utf-8";
        Response { kind, policy, body, ..Response::new("200 OK", "") }
    }

    fn bytes(&self) -> Vec<u8> {
        let Response { status, kind, policy, file, body } = self;
        let length = body.len();
        let file = file.as_ref().map_or_else(String::new, |name| {
            format!("Content-Disposition: attachment; filename=\"{name}\"\r\n")
        });
        format!(
            "HTTP/1.1 {status}\r\n\
             Content-Type: {kind}\r\n\
             Content-Length: {length}\r\n\
             Content-Security-Policy: {policy}; frame-ancestors 'none'\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\n\
             Cache-Control: no-store\r\n\
             {file}Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// The history, also if a thread has panicked with it: each sample is complete in itself.
pub(super) fn locked(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answer requests, each in a thread of its own.
pub(super) fn serve(listener: &TcpListener, site: &Site) {
    let busy = AtomicUsize::new(0);
    thread::scope(|scope| {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, or the connection has gone by now.
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            if busy.load(Ordering::Acquire) >= MOST_REQUESTS {
                continue;
            }
            busy.fetch_add(1, Ordering::AcqRel);
            let work = || {
                // A client that leaves early needs no answer.
                let _ = answer(stream, site);
                busy.fetch_sub(1, Ordering::AcqRel);
            };
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                // Out of threads: the connection ends with `work`, and the client may ask again.
                busy.fetch_sub(1, Ordering::AcqRel);
            }
        }
    });
}

fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let response = loop {
        if let Some(response) = site.respond(&head) {
            break response;
        }
        let left = until.saturating_duration_since(Instant::now());
        // A time of 0 would mean for ever.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut more = [0; 1024];
        let read = stream.read(&mut more)?;
        if read == 0 || left.is_zero() {
            return Ok(());
        }
        head.extend(more.iter().take(read));
    };
    stream.write_all(&response.bytes())?;
    stream.shutdown(Shutdown::Write)
}

impl Site {
    pub(super) fn new(secret: &str, history: Arc<Mutex<History>>) -> Site {
        Site { secret: Sha256::digest(secret).into(), history }
    }

    /// The answer to a request with this head; `None` if the head is not complete.
    fn respond(&self, head: &[u8]) -> Option<Response> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if head.len() <= LONGEST_HEAD => return None,
            _ => return Some(Response::new("400 Bad Request", "no request\n")),
        }
        if request.method != Some("GET") {
            return Some(Response::new("405 Method Not Allowed", "GET alone is served\n"));
        }
        let mut hosts = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case("host"));
        let host = hosts.next().filter(|_| hosts.next().is_none());
        if !host.is_some_and(|host| is_loopback(host.value)) {
            let body = "this address is served under the names 127.0.0.1 and localhost alone\n";
            return Some(Response::new("421 Misdirected Request", body));
        }
        let nothing = || Response::new("404 Not Found", "nothing is here\n");
        Some(request.path.and_then(|path| self.at(path)).unwrap_or_else(nothing))
    }

    /// The answer for a path, if there is something.
    fn at(&self, path: &str) -> Option<Response> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (secret, name) = path.strip_prefix('/')?.split_once('/')?;
        if Sha256::digest(secret)[..] != self.secret {
            return None;
        }
        let nonce = random().ok()?;
        match name {
            "" => Some(Response::html(page::served(&nonce), page::policy(&nonce, "'self'"))),
            "history" => {
                let sample = query.strip_prefix("since=").map_or(Some(0), |it| it.parse().ok())?;
                let body = locked(&self.history).since(sample);
                let kind = "application/json";
                Some(Response { kind, body, ..Response::new("200 OK", "") })
            }
            "export" => {
                let history = locked(&self.history);
                let body = page::exported(&history, &nonce);
                let file = Some(history.file_name());
                Some(Response { file, ..Response::html(body, page::policy(&nonce, "'none'")) })
            }
            _ => None,
        }
    }
}

/// Whether a Host header names this host by an address of the loopback device, with any port: a tunnel
/// has another one. A name that its owner has pointed here is none of these.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port),
        None => (host, ""),
    };
    let numeric = port.bytes().all(|digit| digit.is_ascii_digit());
    numeric && (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn site() -> Site {
        Site::new(SECRET, Arc::new(Mutex::new(History::new(0))))
    }

    fn ask(method: &str, path: &str, host: &str) -> (String, String) {
        let head = format!("{method} {path} HTTP/1.1\r\n{host}\r\n\r\n");
        let bytes = site().respond(head.as_bytes()).expect("the head is complete").bytes();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn the_page_is_behind_the_path() {
        let page = format!("/{SECRET}/");
        let (head, body) = ask("GET", &page, "Host: 127.0.0.1:4000");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body.starts_with("<!doctype html>"), "{body}");
        for path in [
            "/",
            "*",
            "//",
            "/history",
            "/history?since=0",
            &page[..page.len() - 1],
            &page[1..],
            &format!("/{}/", SECRET.to_uppercase()),
            &format!("/{}/", &SECRET[1..]),
            &format!("/{SECRET}0/"),
            &format!("//{SECRET}/"),
            &format!("http://127.0.0.1/{SECRET}/"),
            &format!("{page}page"),
            &format!("{page}history?since=x"),
            &format!("{page}../{SECRET}/"),
        ] {
            let (head, body) = ask("GET", path, "Host: 127.0.0.1");
            assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
            assert_eq!(body, "nothing is here\n", "every wrong path has the same answer");
        }
        for (path, kind) in [("history", "json"), ("history?since=0", "json"), ("export", "html")] {
            let (head, _) = ask("GET", &format!("{page}{path}"), "Host: localhost:1");
            assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(kind), "{path}: {head}");
        }
    }

    #[test]
    fn a_name_that_was_pointed_here_is_refused() {
        let page = format!("/{SECRET}/");
        for host in ["127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost:65535"] {
            assert!(ask("GET", &page, &format!("Host: {host}")).0.contains(" 200 "), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:4000",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "127.0.0.1:80:80",
            "127.0.0.1:80@evil.example",
            "127.0.0.2",
            "user@127.0.0.1",
            "",
            ":80",
        ] {
            let (head, body) = ask("GET", &page, &format!("Host: {host}"));
            assert!(head.starts_with("HTTP/1.1 421 "), "{host}: {head}");
            assert!(!body.contains("html"), "{body}");
        }
        assert!(ask("GET", &page, "Accept: */*").0.contains(" 421 "), "no Host at all");
        let two = "Host: 127.0.0.1\r\nHost: evil.example";
        assert!(ask("GET", &page, two).0.contains(" 421 "), "two of them");
    }

    #[test]
    fn get_alone_is_served_and_heads_are_bounded() {
        let page = format!("/{SECRET}/");
        for method in ["HEAD", "POST", "PUT", "OPTIONS", "DELETE", "get", "CONNECT"] {
            let (head, body) = ask(method, &page, "Host: 127.0.0.1");
            assert!(head.starts_with("HTTP/1.1 405 "), "{method}: {head}");
            assert!(!body.contains("html"), "{body}");
        }
        let site = site();
        assert!(site.respond(b"GET / HT").is_none(), "the rest may come");
        let endless = |length| {
            let mut head = b"GET / HTTP/1.1\r\nCookie: ".to_vec();
            head.resize(length, b'x');
            head
        };
        assert!(site.respond(&endless(LONGEST_HEAD)).is_none());
        let response = site.respond(&endless(LONGEST_HEAD + 1)).expect("it is too long");
        assert!(response.status.starts_with("400 "));
        for noise in [&b"\x16\x03\x01\x02\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET /\r\n\r\n"] {
            let response = site.respond(noise);
            assert!(response.is_none_or(|one| one.status.starts_with("400 ")));
        }
    }

    /// Whatever the answer, a browser runs nothing of another place, shows it in no frame, keeps no
    /// copy, and lets no other site read it.
    #[test]
    fn every_answer_has_its_policy() {
        let page = format!("/{SECRET}/");
        let export = format!("{page}export");
        for (method, path) in [("GET", &*page), ("GET", "/x"), ("POST", "/"), ("GET", &*export)] {
            let (head, _) = ask(method, path, "Host: 127.0.0.1\r\nOrigin: http://evil.example");
            for words in [
                "Content-Security-Policy: default-src 'none'",
                "frame-ancestors 'none'",
                "Referrer-Policy: no-referrer",
                "X-Content-Type-Options: nosniff",
                "Cross-Origin-Resource-Policy: same-origin",
                "Cache-Control: no-store",
            ] {
                assert!(head.contains(words), "{words} is missing: {head}");
            }
            assert!(!head.to_lowercase().contains("access-control-"), "{head}");
        }
        let (head, body) = ask("GET", &page, "Host: 127.0.0.1");
        let nonce = head.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
        assert_eq!(nonce.len(), 32);
        assert!(body.contains(&format!("<script nonce=\"{nonce}\">")), "{nonce}");
        let (other, _) = ask("GET", &page, "Host: 127.0.0.1");
        assert!(!other.contains(nonce), "each answer has a nonce of its own");
        assert!(!head.contains("unsafe-"), "{head}");
    }
}
