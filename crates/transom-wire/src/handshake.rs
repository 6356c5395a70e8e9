//! Start-up of a connection: Request, Reply or Reject, ready. The steps, limits and times are the
//! same over every wire of our own, so that a program cannot tell which one it has.

use std::time::Duration;

use crate::{ReadLimits, Role, SetupError, Time};

/// The wishes of one side of a connection, whatever its wire.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The role at start-up: the active side speaks first.
    pub role: Role,
    /// The most private data to send, in bytes. At most what the wire carries.
    pub private_limit: usize,
    /// The most reads at a time, whatever is asked for.
    pub read_caps: ReadLimits,
    /// How long a start-up frame may take that waits for no program: the Request, from the
    /// constructor.
    pub handshake_timeout: Duration,
    /// Active side: how long the Reply may take. The time includes the other program, which may
    /// think (ND2 2.11, C32).
    pub reply_timeout: Duration,
    /// Passive side: how long the peer may take to complete the connection. The time includes the
    /// other program.
    pub confirm_timeout: Option<Duration>,
    /// How long a Send may wait for a plain receive queue at the peer.
    pub receive_wait: Duration,
    /// How long an owed acknowledgement waits for a frame to ride on.
    pub ack_delay: Duration,
    /// Owed acknowledgements that are not kept waiting.
    pub ack_limit: u32,
}

impl Config {
    /// The usual. Private data: what fits an MPA frame beside the enhanced word (RFC 6581).
    #[must_use]
    pub fn new(role: Role) -> Config {
        Config {
            role,
            private_limit: 508,
            read_caps: ReadLimits { inbound: 128, outbound: 128 },
            handshake_timeout: Duration::from_secs(5),
            reply_timeout: Duration::from_secs(60),
            confirm_timeout: Some(Duration::from_secs(60)),
            receive_wait: Duration::from_secs(1),
            ack_delay: Duration::from_micros(20),
            ack_limit: 16,
        }
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakePhase {
    /// Active: `connect` has not been called.
    Idle,
    /// Active: the Request is out.
    WaitReply,
    /// Active: accepted; `confirm` has not been called.
    Accepted,
    /// Passive: nothing has come.
    WaitRequest,
    /// Passive: the Request is here, the program thinks.
    Pending,
    /// Passive: accepted; the active side has not completed.
    WaitReady,
    /// Messages flow.
    Open,
    /// Ended: the rest is sent, what arrives is thrown away.
    Closing,
}

/// The start-up of a side: which step may come next, and until when.
#[derive(Debug)]
pub struct Handshake {
    config: Config,
    phase: HandshakePhase,
    /// When the step that is awaited has taken too long.
    timeout: Option<Time>,
    /// Request and Reply have both been seen or queued.
    agreed: bool,
}

impl Handshake {
    /// Before the first byte. A passive side's handshake timeout begins to run.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Handshake {
        let passive = config.role == Role::Passive;
        Handshake {
            phase: if passive { HandshakePhase::WaitRequest } else { HandshakePhase::Idle },
            timeout: passive.then(|| now.after(config.handshake_timeout)),
            agreed: false,
            config,
        }
    }

    /// The wishes of this side.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where the connection stands.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> HandshakePhase {
        self.phase
    }

    /// Messages flow.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase == HandshakePhase::Open
    }

    /// Request and Reply have both been seen or queued: the agreement stands.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// When the awaited step has taken too long.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timeout
    }

    /// `limits`, and no more than this side's caps.
    #[must_use]
    pub fn capped(&self, limits: ReadLimits) -> ReadLimits {
        limits.within(self.config.read_caps)
    }

    // ---- calls of the program -----------------------------------------------------------------

    /// A call that belongs to `phase`, with private data of which the wire carries `most` bytes.
    fn check(&self, phase: HandshakePhase, private: &[u8], most: usize) -> Result<(), SetupError> {
        if self.phase != phase {
            return Err(SetupError::Order);
        }
        let limit = most.min(self.config.private_limit);
        if private.len() > limit { Err(SetupError::PrivateData { limit }) } else { Ok(()) }
    }

    /// Active side: a Request leaves. The wire carries `most` bytes of private data.
    ///
    /// # Errors
    /// [`SetupError`]: nothing has changed.
    pub fn request(&mut self, now: Time, private: &[u8], most: usize) -> Result<(), SetupError> {
        self.check(HandshakePhase::Idle, private, most)?;
        self.timeout = Some(now.after(self.config.reply_timeout));
        self.phase = HandshakePhase::WaitReply;
        Ok(())
    }

    /// Active side: the program completes the connection.
    ///
    /// # Errors
    /// [`SetupError::Order`]: nothing has changed.
    pub fn confirm(&mut self) -> Result<(), SetupError> {
        self.check(HandshakePhase::Accepted, &[], 0)?;
        self.open();
        Ok(())
    }

    /// Passive side: a Reply leaves; the peer is to say that it is ready.
    ///
    /// # Errors
    /// As [`request`](Handshake::request).
    pub fn reply(&mut self, now: Time, private: &[u8], most: usize) -> Result<(), SetupError> {
        self.check(HandshakePhase::Pending, private, most)?;
        self.timeout = self.config.confirm_timeout.map(|wait| now.after(wait));
        self.phase = HandshakePhase::WaitReady;
        self.agreed = true;
        Ok(())
    }

    /// Passive side: a Reject leaves, and nothing behind it.
    ///
    /// # Errors
    /// As [`request`](Handshake::request).
    pub fn reject(&mut self, private: &[u8], most: usize) -> Result<(), SetupError> {
        self.check(HandshakePhase::Pending, private, most)?;
        self.end();
        Ok(())
    }

    // ---- steps of the peer --------------------------------------------------------------------

    /// The Request has come.
    pub fn on_request(&mut self) {
        self.timeout = None;
        self.phase = HandshakePhase::Pending;
    }

    /// An accepting Reply has come.
    pub fn on_reply(&mut self) {
        self.timeout = None;
        self.phase = HandshakePhase::Accepted;
        self.agreed = true;
    }

    /// Start-up is over: messages flow.
    pub fn open(&mut self) {
        self.timeout = None;
        self.phase = HandshakePhase::Open;
    }

    /// Nothing more is sent or received, but for what is queued.
    pub fn end(&mut self) {
        self.timeout = None;
        self.phase = HandshakePhase::Closing;
    }

    // ---- what can go wrong --------------------------------------------------------------------

    /// The step that the peer did not do in time, if its time is up.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<&'static str> {
        self.timeout.filter(|at| now >= *at)?;
        Some(match self.phase {
            HandshakePhase::WaitReady => "the peer did not complete the connection in time",
            HandshakePhase::WaitRequest => "the peer did not send a connection request in time",
            _ => "the peer did not answer the connection request in time",
        })
    }

    /// The meaning of an end of the link now; `None`: start-up was over.
    #[must_use]
    pub fn cut_short(&self) -> Option<&'static str> {
        match self.phase {
            HandshakePhase::Open | HandshakePhase::Closing => None,
            HandshakePhase::WaitReady => {
                Some("the peer went away instead of completing the connection")
            }
            _ => Some("the link ended during start-up"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);

    fn side(role: Role) -> Handshake {
        Handshake::new(Config::new(role), NOW)
    }

    fn pending() -> Handshake {
        let mut passive = side(Role::Passive);
        passive.on_request();
        passive
    }

    #[test]
    fn an_active_side_asks_is_accepted_and_completes() {
        let mut active = side(Role::Active);
        assert_eq!((active.phase(), active.deadline()), (HandshakePhase::Idle, None));
        active.request(NOW, b"hello", 5).unwrap();
        let config = *active.config();
        assert_eq!(active.phase(), HandshakePhase::WaitReply);
        assert_eq!(active.deadline(), Some(NOW.after(config.reply_timeout)));
        assert!(!active.is_agreed());
        active.on_reply();
        assert_eq!((active.phase(), active.deadline()), (HandshakePhase::Accepted, None));
        assert!(active.is_agreed() && !active.is_open());
        active.confirm().unwrap();
        assert!(active.is_open());
    }

    #[test]
    fn a_passive_side_waits_answers_and_waits_again() {
        let mut passive = side(Role::Passive);
        let config = *passive.config();
        assert_eq!(passive.phase(), HandshakePhase::WaitRequest);
        assert_eq!(passive.deadline(), Some(NOW.after(config.handshake_timeout)));
        passive.on_request();
        assert_eq!((passive.phase(), passive.deadline()), (HandshakePhase::Pending, None));
        passive.reply(NOW, b"", 0).unwrap();
        assert_eq!(passive.phase(), HandshakePhase::WaitReady);
        assert_eq!(passive.deadline(), config.confirm_timeout.map(|wait| NOW.after(wait)));
        assert!(passive.is_agreed());
        passive.open();
        assert_eq!((passive.is_open(), passive.deadline()), (true, None));
    }

    #[test]
    fn a_call_out_of_turn_changes_nothing() {
        let order = Err(SetupError::Order);
        for mut side in [side(Role::Active), side(Role::Passive), pending()] {
            let (phase, deadline) = (side.phase(), side.deadline());
            if phase != HandshakePhase::Idle {
                assert_eq!(side.request(NOW, b"", 0), order);
            }
            if phase != HandshakePhase::Pending {
                assert_eq!(side.reply(NOW, b"", 0), order);
                assert_eq!(side.reject(b"", 0), order);
            }
            assert_eq!(side.confirm(), order);
            assert_eq!((side.phase(), side.deadline()), (phase, deadline));
        }
    }

    /// The wire's limit and the side's own: the smaller holds, at n and n + 1.
    #[test]
    fn private_data_has_two_limits() {
        let data = [0; 510];
        for (most, limit) in [(4, 4), (508, 508), (512, 508)] {
            let too_long = Err(SetupError::PrivateData { limit });
            assert_eq!(side(Role::Active).request(NOW, &data[..limit + 1], most), too_long);
            assert_eq!(side(Role::Active).request(NOW, &data[..limit], most), Ok(()));
            let mut passive = pending();
            assert_eq!(passive.reply(NOW, &data[..limit + 1], most), too_long);
            assert_eq!(passive.reject(&data[..limit + 1], most), too_long);
            assert_eq!((passive.phase(), passive.is_agreed()), (HandshakePhase::Pending, false));
            assert_eq!(passive.reject(&data[..limit], most), Ok(()));
            assert_eq!(passive.phase(), HandshakePhase::Closing);
            assert_eq!(pending().reply(NOW, &data[..limit], most), Ok(()));
        }
    }

    #[test]
    fn every_wait_for_the_peer_ends() {
        let mut active = side(Role::Active);
        active.request(NOW, b"", 0).unwrap();
        let mut accepted = pending();
        accepted.reply(NOW, b"", 0).unwrap();
        for (side, step) in [
            (side(Role::Passive), "did not send a connection request"),
            (active, "did not answer the connection request"),
            (accepted, "did not complete the connection"),
        ] {
            let at = side.deadline().unwrap();
            assert_eq!(side.overdue(Time(at.0 - 1)), None);
            assert_eq!(side.overdue(at), Some(&format!("the peer {step} in time")[..]));
        }
        // The program of this side may think for as long as it likes.
        assert_eq!(pending().deadline(), None);
    }

    #[test]
    fn the_link_must_not_end_before_start_up_does() {
        assert!(side(Role::Active).cut_short().is_some());
        assert!(pending().cut_short().is_some());
        let mut open = pending();
        open.reply(NOW, b"", 0).unwrap();
        let words = "the peer went away instead of completing the connection";
        assert_eq!(open.cut_short(), Some(words));
        open.open();
        assert_eq!(open.cut_short(), None);
        open.end();
        assert_eq!((open.cut_short(), open.is_open()), (None, false));
    }
}
