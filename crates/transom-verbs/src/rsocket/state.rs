//! The state of a socket, and what changes it.

use std::collections::VecDeque;
use std::sync::Arc;

use transom_engine::raw;

use super::link::Link;
use super::options::Options;
use super::socket::Socket;
use super::wire::{Introduction, Word};
use crate::abi::{cm_event, qps};
use crate::cm::{Event, Id};
use crate::context::Context;
use crate::errno::{Errno, Result};

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) stage: Stage,
    pub(super) id: Arc<Id>,
    pub(super) link: Option<Link>,
    pub(super) options: Options,
    pub(super) nonblocking: bool,
    /// The program has not ended its directions.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// The connection is over.
    pub(super) gone: bool,
    /// For SO_ERROR.
    pub(super) error: Option<Errno>,
    /// Of a listening socket: connections that the program has not accepted, and how many there may be.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) room: usize,
    /// Peers that are not known hold no more descriptors than their share.
    pub(super) share: raw::DescriptorShare,
}

/// A connection that waits for the program to accept it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) socket: Arc<Socket>,
    #[expect(dead_code, reason = "held, not read: one for its channel, one for its connection")]
    held: [raw::HeldDescriptor; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Unconnected,
    Listening,
    Connecting,
    Connected,
    Failed(Errno),
    Closed,
}

impl Inner {
    pub(super) fn new(id: Arc<Id>, options: Options) -> Inner {
        Inner {
            stage: Stage::Unconnected,
            id,
            link: None,
            options,
            nonblocking: false,
            reads: true,
            writes: true,
            gone: false,
            error: None,
            waiting: VecDeque::new(),
            room: 0,
            share: raw::DescriptorShare::default(),
        }
    }

    /// Whether no further connection may be made before the program accepts one.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.room || !self.share.has_room(2 * self.room)
    }

    pub(super) fn add_waiting(&mut self, socket: Arc<Socket>) {
        let held = [self.share.take(), self.share.take()];
        self.waiting.push_back(Waiting { socket, held });
    }

    pub(super) fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().ok_or(Errno::ENOTCONN)
    }

    /// Make the queue pair and memory of a connection.
    pub(super) fn make_link(&mut self, context: &Arc<Context>) -> Result<&mut Link> {
        let link = Link::new(context, self.options.sizes)?;
        self.id.move_to(&link.pair, qps::INIT)?;
        link.prepare()?;
        Ok(self.link.insert(link))
    }

    pub(super) fn fail(&mut self, error: Errno) {
        self.stage = Stage::Failed(error);
        self.error = Some(error);
    }

    /// An event of rdma_cm.
    pub(super) fn happened(&mut self, event: &Event) {
        let connecting = self.stage == Stage::Connecting;
        match event.kind {
            cm_event::ADDR_ERROR | cm_event::UNREACHABLE | cm_event::CONNECT_ERROR => {
                self.fail(Errno(event.status.abs().max(1)));
            }
            cm_event::REJECTED => self.fail(Errno::ECONNREFUSED),
            cm_event::ESTABLISHED if connecting => match self.establish(&event.private) {
                Ok(()) => self.stage = Stage::Connected,
                Err(error) => self.fail(error),
            },
            cm_event::DISCONNECTED => self.gone = true,
            _ => {}
        }
    }

    pub(super) fn establish(&mut self, private: &[u8]) -> Result {
        let peer = Introduction::from_bytes(private).ok_or(Errno::EPROTO)?;
        self.id.take_up()?;
        self.link()?.begin(peer);
        Ok(())
    }

    /// The peer sends nothing more, or nothing more can come.
    pub(super) fn at_end(&self) -> bool {
        !self.reads || self.link.as_ref().is_some_and(|link| !link.peer_sends)
    }

    /// Why nothing can be sent.
    pub(super) fn broken(&self) -> Option<Errno> {
        match self.stage {
            Stage::Failed(error) => return Some(error),
            Stage::Unconnected | Stage::Listening => return Some(Errno::ENOTCONN),
            Stage::Closed => return Some(Errno::EBADF),
            Stage::Connecting | Stage::Connected => {}
        }
        let link = self.link.as_ref()?;
        if !self.writes || !link.peer_takes {
            return Some(Errno::EPIPE);
        }
        link.failed.or(self.gone.then_some(Errno::ECONNRESET))
    }

    /// Why nothing comes any more although the peer has not ended its direction.
    pub(super) fn cut(&self) -> Option<Errno> {
        match self.stage {
            Stage::Failed(error) => Some(error),
            Stage::Unconnected | Stage::Listening => Some(Errno::ENOTCONN),
            Stage::Closed => Some(Errno::EBADF),
            Stage::Connecting => None,
            Stage::Connected => {
                let failed = self.link.as_ref().and_then(|link| link.failed);
                failed.or(self.gone.then_some(Errno::ECONNRESET))
            }
        }
    }

    /// Tell the peer which directions the program has ended.
    pub(super) fn say_end(&mut self) {
        let reads = self.reads;
        let Some(link) = &mut self.link else { return };
        let word = if reads && link.peer_sends { Word::Shutdown } else { Word::Disconnect };
        if link.peer_takes && link.failed.is_none() {
            // A queue that is full has requests that fail, and the peer's end is one of them.
            let _ = link.say(word);
        }
    }
}
