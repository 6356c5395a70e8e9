//! Start-up: Request, Reply or Reject, Ready. The same three steps, limits and times as over TCP.

use transom_wire::{Blame, Event, HandshakePhase, ReadLimits, SetupError, Time, Violation};

use super::Channel;
use crate::record::{self, Header, LARGEST_TEXT, RecordKind};

impl Channel {
    fn send_limits(&mut self, kind: RecordKind, limits: ReadLimits, private: &[u8]) {
        let header = Header {
            flags: record::EXTENDED,
            token: limits.outbound,
            ..Header::new(kind).with_front_word(limits.inbound, self.front_word)
        };
        self.outbound.queue_control(header, private);
    }

    // ---- active side ----------------------------------------------------------------------------

    pub(super) fn send_request(
        &mut self,
        now: Time,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), SetupError> {
        self.handshake.request(now, private, LARGEST_TEXT)?;
        self.limits = self.handshake.capped(limits);
        self.send_limits(RecordKind::Request, self.limits, private);
        Ok(())
    }

    pub(super) fn on_reply<'b>(&mut self, header: &Header, private: &'b [u8]) -> Event<'b> {
        if header.kind == RecordKind::Reject {
            self.handshake.end();
            return Event::Rejected { private };
        }
        self.extended = header.has(record::EXTENDED);
        self.peer_front_word = header.front_word();
        self.limits = self.limits.within(limits_of(header).mirrored());
        self.handshake.on_reply();
        Event::Accepted { limits: self.limits, private }
    }

    pub(super) fn send_ready(&mut self) -> Result<(), SetupError> {
        self.handshake.confirm()?;
        self.outbound.queue_control(Header::new(RecordKind::Ready), &[]);
        self.begin_messages();
        Ok(())
    }

    fn begin_messages(&mut self) {
        self.flow_control.pacer().start();
        self.pending.resume = true;
    }

    // ---- passive side ---------------------------------------------------------------------------

    pub(super) fn on_request<'b>(&mut self, header: &Header, private: &'b [u8]) -> Event<'b> {
        self.extended = header.has(record::EXTENDED);
        self.peer_front_word = header.front_word();
        self.limits = self.handshake.capped(limits_of(header).mirrored());
        self.handshake.on_request();
        Event::ConnectRequest { limits: self.limits, private }
    }

    pub(super) fn send_reply(
        &mut self,
        now: Time,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), SetupError> {
        self.handshake.reply(now, private, LARGEST_TEXT)?;
        // The offer lies within the caps of this side already.
        self.limits = limits.within(self.limits);
        self.send_limits(RecordKind::Reply, self.limits, private);
        Ok(())
    }

    pub(super) fn send_reject(&mut self, private: &[u8]) -> Result<(), SetupError> {
        self.handshake.reject(private, LARGEST_TEXT)?;
        self.outbound.queue_control(Header::new(RecordKind::Reject), private);
        Ok(())
    }

    pub(super) fn on_ready<'b>(&mut self) -> Event<'b> {
        self.handshake.open();
        self.begin_messages();
        Event::Established
    }

    // ---- what can go wrong ----------------------------------------------------------------------

    /// The stream is dead and there is no word for it (any more).
    pub(super) fn silent(&mut self, detail: String) -> Violation {
        self.handshake.end();
        self.outbound.forget_words();
        Violation { blame: Blame::Peer, rule: "start-up", detail }
    }

    /// The link is gone.
    pub(super) fn end_of_link(&mut self) -> Result<(), Violation> {
        let detail = match self.handshake.cut_short() {
            Some(start_up) => start_up,
            None if !self.handshake.is_open() => return Ok(()),
            None if self.cut => "the link ended in the middle of a record",
            None if self.inbound.is_unfinished() => "the link ended in the middle of a message",
            None => {
                self.handshake.end();
                return Ok(());
            }
        };
        Err(self.silent(detail.into()))
    }

    /// A record that belongs to start-up. `None`: it does not belong here.
    pub(super) fn start_up<'b>(&mut self, header: &Header, private: &'b [u8]) -> Option<Event<'b>> {
        match (self.handshake.phase(), header.kind) {
            (HandshakePhase::WaitReply, RecordKind::Reply | RecordKind::Reject) => {
                Some(self.on_reply(header, private))
            }
            (HandshakePhase::WaitRequest, RecordKind::Request) => {
                Some(self.on_request(header, private))
            }
            (HandshakePhase::WaitReady, RecordKind::Ready) => Some(self.on_ready()),
            _ => None,
        }
    }
}

fn limits_of(header: &Header) -> ReadLimits {
    ReadLimits { inbound: header.inbound(), outbound: header.token }
}
