//! Start-up: Request, Reply or Reject, Ready. The same three steps, limits and times as over TCP.

use transom_wire::{Blame, Event, ReadLimits, Role, SetupError, Time, Violation};

use super::{Channel, Phase};
use crate::record::{Header, Kind};

impl Channel {
    fn capped(&self, limits: ReadLimits) -> ReadLimits {
        let caps = self.config.read_caps;
        ReadLimits {
            inbound: limits.inbound.min(caps.inbound),
            outbound: limits.outbound.min(caps.outbound),
        }
    }

    fn check_private(&self, private: &[u8]) -> Result<(), SetupError> {
        let limit = self.config.private_limit;
        if private.len() > limit { Err(SetupError::PrivateData { limit }) } else { Ok(()) }
    }

    fn send_limits(&mut self, kind: Kind, limits: ReadLimits, private: &[u8]) {
        let header = Header {
            address: u64::from(limits.inbound),
            token: limits.outbound,
            ..Header::new(kind)
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
        if self.phase != Phase::Idle {
            return Err(SetupError::Order);
        }
        self.check_private(private)?;
        self.limits = self.capped(limits);
        self.send_limits(Kind::Request, self.limits, private);
        self.timeout = Some(now.after(self.config.reply_timeout));
        self.phase = Phase::WaitReply;
        Ok(())
    }

    pub(super) fn on_reply<'b>(&mut self, header: &Header, private: &'b [u8]) -> Event<'b> {
        self.timeout = None;
        if header.kind == Kind::Reject {
            self.end();
            return Event::Rejected { private };
        }
        let theirs = limits_of(header);
        self.limits = ReadLimits {
            inbound: self.limits.inbound.min(theirs.outbound),
            outbound: self.limits.outbound.min(theirs.inbound),
        };
        self.phase = Phase::Accepted;
        self.known = true;
        Event::Accepted { limits: self.limits, private }
    }

    pub(super) fn send_ready(&mut self) -> Result<(), SetupError> {
        if self.phase != Phase::Accepted {
            return Err(SetupError::Order);
        }
        self.outbound.queue_control(Header::new(Kind::Ready), &[]);
        self.open();
        Ok(())
    }

    fn open(&mut self) {
        self.phase = Phase::Open;
        self.timeout = None;
        self.ledger.pacer().start();
        self.pending.resume = true;
    }

    // ---- passive side ---------------------------------------------------------------------------

    pub(super) fn on_request<'b>(&mut self, header: &Header, private: &'b [u8]) -> Event<'b> {
        let theirs = limits_of(header);
        self.offered =
            self.capped(ReadLimits { inbound: theirs.outbound, outbound: theirs.inbound });
        self.timeout = None;
        self.phase = Phase::Pending;
        Event::ConnectRequest { limits: self.offered, private }
    }

    pub(super) fn send_reply(
        &mut self,
        now: Time,
        limits: ReadLimits,
        private: &[u8],
    ) -> Result<(), SetupError> {
        if self.phase != Phase::Pending {
            return Err(SetupError::Order);
        }
        self.check_private(private)?;
        let limits = self.capped(limits);
        self.limits = ReadLimits {
            inbound: limits.inbound.min(self.offered.inbound),
            outbound: limits.outbound.min(self.offered.outbound),
        };
        self.send_limits(Kind::Reply, self.limits, private);
        self.known = true;
        self.timeout = self.config.confirm_timeout.map(|wait| now.after(wait));
        self.phase = Phase::WaitReady;
        Ok(())
    }

    pub(super) fn send_reject(&mut self, private: &[u8]) -> Result<(), SetupError> {
        if self.phase != Phase::Pending {
            return Err(SetupError::Order);
        }
        self.check_private(private)?;
        self.end();
        self.outbound.queue_control(Header::new(Kind::Reject), private);
        Ok(())
    }

    pub(super) fn on_ready<'b>(&mut self) -> Event<'b> {
        self.open();
        Event::Established
    }

    // ---- what can go wrong ----------------------------------------------------------------------

    /// The stream is dead and there is no word for it (any more).
    pub(super) fn silent(&mut self, detail: String) -> Violation {
        self.end();
        self.outbound.forget_words();
        Violation { blame: Blame::Peer, rule: "start-up", detail }
    }

    pub(super) fn timed_out(&mut self) -> Violation {
        let detail = match (self.phase, self.config.role) {
            (Phase::WaitReady, _) => "the peer did not complete the connection in time",
            (_, Role::Active | Role::Itself) => {
                "the peer did not answer the connection request in time"
            }
            (_, Role::Passive) => "the peer did not send a connection request in time",
        };
        self.silent(detail.into())
    }

    /// The link is gone.
    pub(super) fn end_of_link(&mut self) -> Result<(), Violation> {
        let detail = match self.phase {
            Phase::Closing => return Ok(()),
            Phase::Open if self.cut => "the link ended in the middle of a record",
            Phase::Open if self.inbound.is_unfinished() => {
                "the link ended in the middle of a message"
            }
            Phase::Open => {
                self.end();
                return Ok(());
            }
            Phase::WaitReady => "the peer went away instead of completing the connection",
            _ => "the link ended during start-up",
        };
        Err(self.silent(detail.into()))
    }

    /// A record that belongs to start-up. `None`: it does not belong here.
    pub(super) fn start_up<'b>(&mut self, header: &Header, private: &'b [u8]) -> Option<Event<'b>> {
        match (self.phase, header.kind) {
            (Phase::WaitReply, Kind::Reply | Kind::Reject) => Some(self.on_reply(header, private)),
            (Phase::WaitRequest, Kind::Request) => Some(self.on_request(header, private)),
            (Phase::WaitReady, Kind::Ready) => Some(self.on_ready()),
            _ => None,
        }
    }
}

fn limits_of(header: &Header) -> ReadLimits {
    let inbound = u32::try_from(header.address).unwrap_or(u32::MAX);
    ReadLimits { inbound, outbound: header.token }
}
