//! Connections between processes that this command starts. Every user of the host may connect to their ports, so the
//! right process names a key that it was told by a pipe; otherwise the first one to come would be taken for it.

use transom::{Incoming, Listener};

use super::exit::{Outcome, system};

/// The private data of such a connection.
pub(crate) type Key = [u8; 16];

/// A key that nobody knows yet.
pub(crate) fn key() -> Outcome<Key> {
    let seed = transom_engine::raw::random_seed().map_err(system("random bytes"))?;
    let mut key = Key::default();
    key.iter_mut().zip(seed).for_each(|(to, from)| *to = from);
    Ok(key)
}

/// The next connection of a process that has the key. Others are rejected.
pub(crate) fn next(listener: &mut Listener, key: &Key) -> transom::Result<Incoming> {
    loop {
        let incoming = listener.next().wait()?;
        if incoming.private_data() == key {
            return Ok(incoming);
        }
        let _ = incoming.reject(&[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom::{Adapter, ErrorKind};

    #[test]
    fn who_comes_first_is_rejected_without_the_key() {
        let adapter = Adapter::options().open([127, 0, 0, 1].into()).unwrap();
        let mut listener = adapter.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let (at, ours) = (listener.address(), key().unwrap());
        let wrong = [vec![], key().unwrap().to_vec(), [&ours[..], &[0]].concat()];
        std::thread::scope(|scope| {
            let others = wrong.map(|said| {
                let connect = adapter.connect(at).private_data(&said);
                scope.spawn(move || connect.wait().map(drop).unwrap_err().kind())
            });
            let own = scope.spawn(|| adapter.connect(at).private_data(&ours).wait().map(drop));
            next(&mut listener, &ours).unwrap().accept().wait().unwrap();
            own.join().unwrap().unwrap();
            // Another process that came later waits for the next look.
            let last = scope.spawn(|| adapter.connect(at).private_data(&ours).wait().map(drop));
            next(&mut listener, &ours).unwrap().accept().wait().unwrap();
            last.join().unwrap().unwrap();
            drop(listener);
            for other in others {
                assert_eq!(other.join().unwrap(), ErrorKind::Rejected);
            }
        });
    }
}
