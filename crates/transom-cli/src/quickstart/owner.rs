//! The owner: lends a file, takes it back, keeps the record.

use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use transom::{Adapter, Denial, ErrorKind, MappedFile, QueuePair, Region, Rights, Window};

use super::talk::{Answer, Lent, Ready, Request, json, say};
use super::{LARGEST, OwnerArgs, digest};
use crate::command::exit::{Outcome, system};
use crate::command::{pairing, watchdog};

/// The file, registered once, and how much of it is lent.
struct Lender {
    adapter: Adapter,
    file: Region<MappedFile>,
    bytes: u64,
    /// A line at a time.
    record: Mutex<()>,
}

pub(crate) fn run(args: &OwnerArgs) -> Outcome {
    watchdog::end_with_parent();
    let adapter = args.path.apply(Adapter::options()).open(Ipv4Addr::LOCALHOST.into())?;
    let file = adapter.register(MappedFile::open(&args.file)?)?;
    let bytes = file.len().min(LARGEST);
    let mut copy = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.copy_out(0, &mut copy)?;
    let digest = digest(&copy);
    drop(copy);

    let mut listener = adapter.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let key = pairing::key()?;
    print_line(&Ready { address: listener.address(), key, digest, bytes })?;
    let lender = Arc::new(Lender { adapter, file, bytes, record: Mutex::new(()) });
    loop {
        let incoming = pairing::next(&mut listener, &key)?;
        let lender = Arc::clone(&lender);
        // A thread per connection: the reader holds two of them once.
        let serve = move || {
            let ended = incoming
                .reads(16)
                .receives(4, 1024)
                .accept()
                .wait()
                .map_err(Into::into)
                .and_then(|reader| lender.serve(&reader));
            if let Err(failure) = ended {
                let _ = failure.report();
            }
        };
        std::thread::Builder::new().spawn(serve).map_err(system("a thread for a reader"))?;
    }
}

impl Lender {
    /// Answer one connection until it ends.
    fn serve(&self, reader: &QueuePair) -> Outcome {
        let mut lent: Option<Window> = None;
        let mut offered: Option<(Region<Vec<u8>>, Window)> = None;
        loop {
            let request = match reader.recv().wait() {
                Ok(message) => super::talk::parse(&message)?,
                Err(error) => {
                    // The end of the connection. If a refusal ended it, here is the record.
                    return match error.denial() {
                        Some(denial) => self.keep(denial),
                        None if ended(error.kind()) => Ok(()),
                        None => Err(error.into()),
                    };
                }
            };
            let answer = match request {
                Request::Lend => {
                    let window = reader.bind(&self.file, ..self.bytes, Rights::READ)?;
                    let grant = window.grant();
                    lent = Some(window);
                    Answer::Open(Lent::of(grant))
                }
                Request::Revoke => {
                    let begin = Instant::now();
                    if let Some(window) = lent.take() {
                        window.revoke().wait()?;
                    }
                    let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    Answer::Closed { nanoseconds }
                }
                Request::Offer => {
                    let empty = vec![0; usize::try_from(self.bytes).unwrap_or(0)];
                    let buffer = self.adapter.register(empty)?;
                    let window = reader.bind(&buffer, .., Rights::WRITE)?;
                    let grant = window.grant();
                    offered = Some((buffer, window));
                    Answer::Open(Lent::of(grant))
                }
                Request::Digest => {
                    let mut found = String::from("nothing was offered");
                    if let Some((buffer, window)) = offered.take() {
                        window.revoke().wait()?;
                        found = digest(&buffer.deregister().wait()?);
                    }
                    Answer::Digest(found)
                }
            };
            say(reader, &answer)?;
        }
    }

    /// Print the owner's whole record of a refusal for the process that has started this one.
    fn keep(&self, denial: &Denial) -> Outcome {
        let _one = self.record.lock();
        print_line(&super::mistakes::record(denial))
    }
}

fn ended(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotConnected | ErrorKind::Canceled)
}

fn print_line(what: &impl serde::Serialize) -> Outcome {
    let mut line = json(what)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(system("telling the reader"))
}
