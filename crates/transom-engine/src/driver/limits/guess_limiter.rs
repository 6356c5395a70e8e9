//! Limits how fast peers may name tokens that are not theirs. A guess costs the connection on which
//! it was made, and a peer that goes on guessing waits longer and longer for the next one.
//!
//! Counted are refusals for the token or its scope, unless the token is or was the asker's own: wrong
//! bounds, missing rights and windows that were closed a moment ago are mistakes of honest programs.
//! An address may make so many guesses ([`GuessLimit::free`]); each one more costs it a
//! [pause](GuessLimit::pause), during which no new connection from there is let in. Connections that
//! exist are left alone. All of it is forgotten as time passes.
//!
//! An address is that of a host, or the /64 network of IPv6. Those behind one NAT share an address,
//! so they share its pauses, which is why these are short and never grow beyond a limit. Peers on
//! this host are distinguished by their users, as the kernel names them: one user cannot keep the
//! others out. Processes of our own user are not slowed down: they could read our memory anyway.
//! The kernel cannot name the user of a socket that is closed: all of those count as one. Once
//! there are guessers, the peer of a link is [identified](TokenGuessLimiter::who) as the link comes
//! in, so that leaving later does not hide it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_wire::Time;

use super::admission::network_of;
use crate::sys::{self, PeerPlace};

/// How peers are slowed down that name tokens which are not theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuessLimit {
    /// Guesses that are free. They are free again once as many pauses have passed.
    pub free: u32,
    /// Each guess beyond costs so long without a new connection.
    pub pause: Duration,
    /// No wait is longer.
    pub longest: Duration,
    /// Processes of our own user on this host are slowed down, too.
    pub own_user: bool,
}

impl GuessLimit {
    /// 64 guesses, then a second for each, at most ten minutes.
    pub const USUAL: GuessLimit = GuessLimit {
        free: 64,
        pause: Duration::from_secs(1),
        longest: Duration::from_secs(600),
        own_user: false,
    };

    /// The pauses of those guesses that are free.
    fn grace(&self) -> Duration {
        self.pause.saturating_mul(self.free)
    }
}

/// The peer that a guess is counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerIdentity {
    /// A host, or a network of IPv6.
    Network(IpAddr),
    /// A user of this host.
    User(u32),
    /// Any peer on this host that has closed its socket by the time the kernel is asked about it.
    Gone,
}

/// Records that are kept. When there are more, the one that is forgiven first makes room.
const RECORDS: usize = 4096;

#[derive(Debug, Default)]
struct Records {
    /// When all guesses of each will be forgiven. One pause lies between two guesses.
    forgiven: HashMap<PeerIdentity, Time>,
    guesses: u64,
    slowed: u64,
}

/// Limits the guesses of one adapter's peers.
#[derive(Debug)]
pub(crate) struct TokenGuessLimiter {
    limit: Option<GuessLimit>,
    /// There is a record: the usual answer, that there is none, takes no lock.
    any: AtomicBool,
    records: Mutex<Records>,
}

impl TokenGuessLimiter {
    pub(crate) fn new(limit: Option<GuessLimit>) -> TokenGuessLimiter {
        TokenGuessLimiter { limit, any: AtomicBool::new(false), records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer at the other end of a link; `None`: a peer that is never slowed down. `user`: the
    /// peer's user, if the kernel has named it already.
    pub(crate) fn who(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        user: Option<u32>,
    ) -> Option<PeerIdentity> {
        let limit = self.limit?;
        match user.map_or_else(|| sys::place_of_peer(local, peer), PeerPlace::HereOf) {
            PeerPlace::Elsewhere => Some(PeerIdentity::Network(network_of(peer.ip()))),
            // A peer that asks and leaves at once must not escape the limit.
            PeerPlace::Here => sys::is_answered(local, peer).then_some(PeerIdentity::Gone),
            PeerPlace::HereOf(user) => {
                (limit.own_user || !sys::is_our_user(user)).then_some(PeerIdentity::User(user))
            }
        }
    }

    /// A guess was made, and has cost its connection.
    pub(crate) fn guessed(&self, who: impl FnOnce() -> Option<PeerIdentity>, now: Time) {
        let who = self.limit.and_then(|limit| Some((limit, who()?)));
        let mut records = self.records();
        records.guesses += 1;
        let Some((limit, who)) = who else { return };
        if records.forgiven.len() >= RECORDS && !records.forgiven.contains_key(&who) {
            records.make_room(now);
        }
        let until = records.forgiven.entry(who).or_insert(now);
        let most = now.after(limit.longest.saturating_add(limit.grace()));
        *until = (*until).max(now).after(limit.pause).min(most);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether a new connection is let in.
    pub(crate) fn admits(&self, who: impl FnOnce() -> Option<PeerIdentity>, now: Time) -> bool {
        let Some(limit) = self.limit.filter(|_| self.any.load(Ordering::Relaxed)) else {
            return true;
        };
        let Some(who) = who() else { return true };
        let mut records = self.records();
        let Some(until) = records.forgiven.get(&who).copied() else { return true };
        if until <= now {
            records.forgiven.remove(&who);
            self.any.store(!records.forgiven.is_empty(), Ordering::Relaxed);
            return true;
        }
        let welcome = until.since(now) <= limit.grace();
        records.slowed += u64::from(!welcome);
        welcome
    }

    /// Guesses so far, and connections that were not let in because of them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let records = self.records();
        (records.guesses, records.slowed)
    }
}

impl Records {
    fn make_room(&mut self, now: Time) {
        self.forgiven.retain(|_, until| *until > now);
        if self.forgiven.len() >= RECORDS
            && let Some(first) = self.forgiven.iter().min_by_key(|(_, until)| **until)
        {
            let first = *first.0;
            self.forgiven.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: GuessLimit = GuessLimit {
        free: 3,
        pause: Duration::from_secs(10),
        longest: Duration::from_secs(100),
        own_user: false,
    };

    fn host(last: u8) -> PeerIdentity {
        PeerIdentity::Network(IpAddr::from([192, 0, 2, last]))
    }

    fn at(seconds: u64) -> Time {
        Time(0).after(Duration::from_secs(1000 + seconds))
    }

    fn guess(guess_limiter: &TokenGuessLimiter, who: PeerIdentity, now: Time, times: usize) {
        (0..times).for_each(|_| guess_limiter.guessed(|| Some(who), now));
    }

    #[test]
    fn only_a_peer_that_goes_on_guessing_waits() {
        let guess_limiter = TokenGuessLimiter::new(Some(LIMIT));
        let welcome = |who, now| guess_limiter.admits(|| Some(who), now);
        guess(&guess_limiter, host(1), at(0), 3);
        assert!(welcome(host(1), at(0)), "three are free");
        guess(&guess_limiter, host(1), at(0), 1);
        assert!(!welcome(host(1), at(0)) && !welcome(host(1), at(9)));
        assert!(welcome(host(1), at(10)), "a pause for the fourth");
        assert!(welcome(host(2), at(0)) && welcome(PeerIdentity::User(7), at(0)));
        guess(&guess_limiter, host(1), at(10), 1);
        assert!(!welcome(host(1), at(19)) && welcome(host(1), at(20)), "and so on");
        assert_eq!(guess_limiter.counts(), (5, 3));
    }

    /// However many connections are guessed on at a time: from then on the rate is the same.
    #[test]
    fn a_guesser_with_many_connections_gets_no_more_guesses() {
        let guess_limiter = TokenGuessLimiter::new(Some(LIMIT));
        let mut guesses = 0;
        for second in 0..10_000 {
            // Whenever connections are admitted, ten come in, and all of them guess at once.
            if guess_limiter.admits(|| Some(host(1)), at(second)) {
                guess(&guess_limiter, host(1), at(second), 10);
                guesses += 10;
            }
        }
        assert!(guesses <= 3 + 10 + 10_000 / 10, "{guesses}: one in ten seconds");
    }

    #[test]
    fn guesses_are_forgiven_and_no_wait_is_longer_than_the_longest() {
        let guess_limiter = TokenGuessLimiter::new(Some(LIMIT));
        guess(&guess_limiter, host(1), at(0), 100_000);
        let welcome = |now| guess_limiter.admits(|| Some(host(1)), now);
        assert!(!welcome(at(99)) && welcome(at(100)));
        assert!(welcome(at(130)), "all of it is forgotten");
        guess(&guess_limiter, host(1), at(130), 3);
        assert!(welcome(at(130)), "as if it had been the first");
        assert!(
            !guess_limiter.any.load(Ordering::Relaxed)
                || !guess_limiter.records().forgiven.is_empty()
        );
    }

    #[test]
    fn guessers_from_everywhere_take_no_more_memory_than_some() {
        let guess_limiter = TokenGuessLimiter::new(Some(LIMIT));
        guess(&guess_limiter, host(1), at(0), 50);
        for n in 0..3 * RECORDS as u32 {
            guess(
                &guess_limiter,
                PeerIdentity::Network(IpAddr::from((n + (1 << 24)).to_be_bytes())),
                at(1),
                1,
            );
        }
        assert_eq!(guess_limiter.records().forgiven.len(), RECORDS);
        assert!(!guess_limiter.admits(|| Some(host(1)), at(2)), "the worst are remembered");
    }

    /// Whatever an owner thinks up, counting it is no mistake.
    #[test]
    fn limits_beyond_all_time_are_limits() {
        for free in [0, 1, u32::MAX] {
            let most = Duration::MAX;
            let guess_limiter = TokenGuessLimiter::new(Some(GuessLimit {
                free,
                pause: most,
                longest: most,
                ..LIMIT
            }));
            guess(&guess_limiter, host(1), at(0), 1);
            assert_eq!(guess_limiter.admits(|| Some(host(1)), at(0)), free > 0);
        }
    }

    #[test]
    fn off_means_off_and_still_counts() {
        let guess_limiter = TokenGuessLimiter::new(None);
        guess(&guess_limiter, host(1), at(0), 1000);
        assert!(guess_limiter.admits(|| Some(host(1)), at(0)));
        assert_eq!(guess_limiter.counts(), (1000, 0));
    }

    #[test]
    fn a_peer_is_its_host_or_its_network_and_on_this_host_its_user() {
        let guess_limiter = TokenGuessLimiter::new(Some(LIMIT));
        let here: SocketAddr = "192.0.2.9:1".parse().unwrap();
        let who = |peer: &str, user| guess_limiter.who(here, peer.parse().unwrap(), user);
        assert_eq!(who("192.0.2.1:5", None), Some(host(1)));
        assert_eq!(who("[::ffff:192.0.2.1]:5", None), Some(host(1)));
        assert_eq!(who("[2001:db8::1]:5", None), who("[2001:db8::2]:9", None));
        assert_ne!(who("[2001:db8::1]:5", None), who("[2001:db8:0:1::1]:5", None));
        let other = sys::user() + 1;
        assert_eq!(who("192.0.2.9:5", Some(other)), Some(PeerIdentity::User(other)));
        assert_eq!(who("127.0.0.1:5", Some(sys::user())), None, "our own user");
        let unknown = who("127.0.0.1:5", None);
        assert!(
            unknown == Some(PeerIdentity::Gone) || unknown.is_none(),
            "no such socket: {unknown:?}"
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let active = std::net::TcpStream::connect(at).unwrap();
        let (_passive, from) = listener.accept().unwrap();
        drop(active);
        if sys::is_answered(at, from) {
            assert_eq!(guess_limiter.who(at, from, None), Some(PeerIdentity::Gone));
        }
        let strict = TokenGuessLimiter::new(Some(GuessLimit { own_user: true, ..LIMIT }));
        let me = strict.who(here, "127.0.0.1:5".parse().unwrap(), Some(sys::user()));
        assert_eq!(me, Some(PeerIdentity::User(sys::user())));
    }
}
