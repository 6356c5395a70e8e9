//! Messages of reader and owner, in JSON: a few small messages, each in one Send.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transom::{Grant, QueuePair, Rights};

use crate::command::exit::{Exit, Failure, Outcome};
use crate::command::pairing::Key;

/// The reader's requests.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Open the file for reading, to this connection.
    Lend,
    /// Close that window.
    Revoke,
    /// Open an empty buffer of the file's size for writing.
    Offer,
    /// Close that window, and say what is in the buffer.
    Digest,
}

/// The owner's answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// A window is open.
    Open(Lent),
    /// The window is closed; the time it took.
    Closed {
        /// Nanoseconds.
        nanoseconds: u64,
    },
    /// SHA-256 of what was written.
    Digest(String),
}

/// A grant in JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Lent {
    token: u32,
    address: u64,
    len: u64,
    write: bool,
}

impl Lent {
    pub(super) fn of(grant: Grant) -> Lent {
        Lent {
            token: grant.token(),
            address: grant.address(),
            len: grant.len(),
            write: grant.rights().contains(Rights::WRITE),
        }
    }

    pub(super) fn grant(self) -> Grant {
        let rights = if self.write { Rights::WRITE } else { Rights::READ };
        Grant::from_parts(self.token, self.address, self.len, rights)
    }
}

/// First line of the owner's standard output.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) address: std::net::SocketAddr,
    pub(super) key: Key,
    pub(super) digest: String,
    pub(super) bytes: u64,
}

/// The owner's record of one refusal: a line of its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) rule: String,
    pub(super) likely: String,
    pub(super) text: String,
}

pub(super) fn say(to: &QueuePair, what: &impl Serialize) -> Outcome {
    Ok(to.send(json(what)?)?.wait()?)
}

pub(super) fn hear<T: DeserializeOwned>(from: &QueuePair) -> Outcome<T> {
    parse(&from.recv().wait()?)
}

pub(super) fn json(what: &impl Serialize) -> Outcome<Vec<u8>> {
    serde_json::to_vec(what).map_err(|error| Failure::new(Exit::System, format!("JSON: {error}")))
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Outcome<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::new(Exit::Peer, format!("the other process says something odd: {error}"))
    })
}
