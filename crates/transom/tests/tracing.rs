//! Spans and events of the feature `tracing`, as a subscriber gets them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use transom::{Adapter, Grant, Path, Rights};

/// The records of a subscriber: target, level, and the fields as text; of a span with its number.
#[derive(Clone, Debug)]
struct Got {
    target: String,
    level: Level,
    fields: String,
    /// The span, or the parent of an event.
    span: Option<u64>,
    is_span: bool,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Got>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?};", field.name());
    }
}

impl Collector {
    fn add(&self, metadata: &Metadata<'_>, fields: Fields, span: Option<u64>, is_span: bool) {
        let (target, level) = (metadata.target().to_owned(), *metadata.level());
        self.0.lock().unwrap().push(Got { target, level, fields: fields.0, span, is_span });
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("transom::")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        let number = self.0.lock().unwrap().len() as u64 + 1;
        self.add(attributes.metadata(), fields, Some(number), true);
        Id::from_u64(number)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.add(event.metadata(), fields, event.parent().map(Id::into_u64), false);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Both sides of a connection are in one process: each has its span. A refusal is an event in it, and so
/// is the end that follows.
#[test]
fn connections_are_spans_and_refusals_and_ends_are_events() {
    let collector = Collector::default();
    tracing::subscriber::set_global_default(collector.clone()).unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let adapters = [(); 2].map(|()| Adapter::options().path(Path::Tcp).open(here.ip()).unwrap());
    let mut listener = adapters[0].listen(here).unwrap();
    let connecting = adapters[1].connect(listener.address()).receives(4, 64);
    let (owner, peer) = std::thread::scope(|both| {
        let peer = both.spawn(|| connecting.wait().unwrap());
        let owner = listener.next().wait().unwrap().receives(4, 64).accept().wait().unwrap();
        (owner, peer.join().unwrap())
    });
    let log = adapters[0].register(vec![0; 4096]).unwrap();
    let window = owner.bind(&log, .., Rights::READ).unwrap().named("part");
    owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
    let grant = Grant::from_bytes(&peer.recv().wait().unwrap()).unwrap();
    let own = adapters[1].register(vec![7; 8]).unwrap();
    peer.write(grant, own.slice(..)).unwrap().wait().expect_err("it grants no write");
    owner.recv().wait().expect_err("the connection is over");
    drop((owner, peer, window, listener, log, own));
    drop(adapters);

    // The last events of an adapter's thread are emitted when its link goes.
    let begin = std::time::Instant::now();
    let all = loop {
        let all = collector.0.lock().unwrap().clone();
        let ends = all.iter().filter(|one| one.fields.contains("message=ended")).count();
        if ends >= 2 {
            break all;
        }
        assert!(begin.elapsed().as_secs() < 120, "two ends were not seen: {all:#?}");
        std::thread::yield_now();
    };
    let spans: Vec<&Got> = all.iter().filter(|one| one.is_span).collect();
    assert_eq!(spans.len(), 2, "{all:#?}");
    for span in &spans {
        assert_eq!((&*span.target, span.level), ("transom::connection", Level::INFO));
        assert!(span.fields.contains("peer=127.0.0.1:"), "{span:?}");
        let inside: Vec<&Got> =
            all.iter().filter(|one| !one.is_span && one.span == span.span).collect();
        let says = |words: &str| inside.iter().any(|one| one.fields.contains(words));
        assert!(says("message=established") && says("path=\"tcp\""), "{inside:#?}");
        assert!(says("message=ended"), "{inside:#?}");
    }
    let refusals: Vec<&Got> = all
        .iter()
        .filter(|one| one.target == "transom::refusal" && one.fields.contains("rule=\"right\""))
        .collect();
    let [refusal] = refusals[..] else { panic!("one refusal by the owner: {all:#?}") };
    assert_eq!(refusal.level, Level::WARN);
    assert!(refusal.fields.contains("window \"part\""), "{refusal:?}");
}
