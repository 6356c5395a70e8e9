//! Whether a socket is ready, and waiting for one of several.

use std::ffi::{c_int, c_short, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_switch::interest::{self, Ready};
use transom_switch::session::{Road, Session, State};

use super::cancel;
use super::epoll::{self, Set};
use super::stream;
use super::sys::{self, Errno};
use super::table::{self, Entry, Held, Socket};
use super::young::{self, Flight, Served, Use};

/// How long a thread sleeps at most that cannot rely on a doorbell: another thread of the same end
/// waits for the same ones in another way.
pub(crate) const SHORT: u64 = 2_000_000;

/// The state of a socket that receives by its ring.
pub(crate) fn state(socket: &Socket, session: &Session<'_>) -> Ready {
    use interest::{ERR, HUP, IN, OUT, PRI, RDHUP, RDNORM, WRNORM};
    let gone = socket.is_gone();
    let read_shut = session.end().read_shut.load(Ordering::Relaxed) != 0;
    let Ok(incoming) = session.arrived() else {
        socket.set_broken();
        let events = IN | RDNORM | OUT | WRNORM | ERR | HUP | RDHUP;
        return Ready { events, input: u64::MAX, ends: u64::MAX, output: u64::MAX };
    };
    let ended = incoming.finished || read_shut || gone;
    let mut events = 0;
    // The urgent byte counts for nothing where it is next, and not part of the stream.
    let there = incoming.all - u64::from(incoming.at_mark && !session.is_inline());
    if there >= low_water(socket, session) || ended {
        events |= IN | RDNORM;
    }
    if ended {
        events |= RDHUP;
    }
    if gone || session.is_writable() {
        events |= OUT | WRNORM;
    }
    if ended && session.has_finished() {
        events |= HUP;
    }
    if gone && (socket.was_refused() || stream::is_reset(socket, session)) {
        events |= if socket.was_reported() { HUP } else { HUP | ERR };
    }
    if session.urgent().is_some() {
        events |= PRI;
    }
    // A call of `shutdown` wakes whom any end wakes, and so does the answer of TCP's peer to it.
    let shutdowns = u64::from(session.end().shutdowns.load(Ordering::Relaxed));
    let answered = u64::from(gone) | u64::from(socket.was_refused()) << 1;
    let ends = u64::from(incoming.finished) | answered << 1 | shutdowns << 3;
    let output = session.times_full() << 1 | u64::from(gone);
    Ready { events, input: input(socket, session, 0), ends, output }
}

/// How many bytes make this end readable (`SO_RCVLOWAT`). As over TCP, a mark beyond what is received without being
/// read keeps nobody waiting.
fn low_water(socket: &Socket, session: &Session<'_>) -> u64 {
    u64::from(session.end().low_water.load(Ordering::Relaxed)).min(socket.ring() / 2).max(1)
}

/// Whether bytes are counted here that come over TCP still: the program has set a mark for them, of which the kernel is
/// not told, since it would hide doorbells.
pub(crate) fn counts_bytes(session: &Session<'_>) -> bool {
    session.end().low_water.load(Ordering::Relaxed) > 1
        && matches!(session.road_in(), Ok(Road::Tcp(_)))
}

/// Bytes that can be read, and those that have ever come. `in_tcp`: of them, those that lie in the TCP connection.
fn counts(session: &Session<'_>, in_tcp: u64) -> (u64, u64) {
    let came = session.taken_from_tcp().wrapping_add(in_tcp).wrapping_add(session.head_in());
    (session.arrived().map_or(0, |incoming| incoming.bytes).saturating_add(in_tcp), came)
}

/// The number of [`Ready::input`]: bytes that have ever come, by both roads, when as many as the program's mark were
/// there last. `in_tcp`: those that lie in the TCP connection, and are the program's.
pub(crate) fn input(socket: &Socket, session: &Session<'_>, in_tcp: u64) -> u64 {
    let (there, came) = counts(session, in_tcp);
    let low = low_water(socket, session);
    let below = low > 1 && there < low;
    let came = if below { session.end().reached.load(Ordering::Relaxed) } else { came };
    // Another mark wakes as bytes do, if it is reached.
    came ^ u64::from(session.end().low_waters.load(Ordering::Relaxed)) << 48
}

/// Bytes are about to be taken, or another mark is to be set: what has come by now was told if the mark is reached.
pub(crate) fn note_mark(socket: &Socket, session: &Session<'_>, fd: c_int) {
    let (there, came) = counts(session, in_tcp(session, fd));
    let low = low_water(socket, session);
    if low == 1 || there >= low {
        session.end().reached.store(came, Ordering::Relaxed);
    }
}

/// The program has set a mark: if it is reached, that is an edge.
pub(crate) fn mark_was_set(socket: &Socket, session: &Session<'_>, fd: c_int) {
    let (there, _) = counts(session, in_tcp(session, fd));
    if there >= low_water(socket, session) {
        session.end().low_waters.fetch_add(1, Ordering::SeqCst);
    }
    epoll::changed(socket);
}

/// Bytes of the program that lie in the TCP connection.
pub(crate) fn in_tcp(session: &Session<'_>, fd: c_int) -> u64 {
    match session.road_in() {
        Ok(Road::Tcp(left)) => sys::unread(fd).min(left.unwrap_or(u64::MAX)),
        _ => 0,
    }
}

/// A socket's readiness as far as its rings have it. `None`: the kernel says
/// what there is to read.
pub(crate) fn known(socket: &Socket, session: &Session<'_>, fd: c_int) -> Option<Ready> {
    stream::advance(socket, session, fd);
    match session.road_in() {
        Ok(Road::Tcp(_)) => None,
        _ => Some(state(socket, session)),
    }
}

/// Have a doorbell sent when something changes that `events` ask for. `sleep`: that of a set which looks at
/// this socket behind the doorbell of another one, or 0.
pub(crate) fn arm(session: &Session<'_>, events: u32, sleep: u64) {
    session.shares_sleep(sleep);
    session.for_bytes().arm();
    if events & (interest::OUT | interest::WRNORM) != 0 && !session.is_writable() {
        session.for_room().arm();
    }
}

/// Events that only the rings know while the kernel says what there is to read: room, an urgent byte, and that nothing
/// follows the bytes which came over TCP. Where bytes are counted here, the kernel's are among them.
pub(crate) fn besides(held: &Socket, session: &Session<'_>, fd: c_int) -> Ready {
    use interest::{ERR, HUP, IN, OUT, PRI, RDHUP, RDNORM, WRNORM};
    let mut events = 0;
    if session.sends_by_ring() && session.is_writable() {
        events |= OUT | WRNORM;
    }
    // An end is told behind the bytes before it: a read finds these.
    let are_here = |left: u64| sys::unread(fd) >= left;
    let finished = session.arrived().is_ok_and(|incoming| incoming.finished)
        && !matches!(session.road_in(), Ok(Road::Tcp(Some(left))) if !are_here(left));
    // The close of such a peer may have left bytes of the ring unread.
    let changed = both_have_changed(session);
    if changed && stream::is_look(held, session) {
        held.look_at_tcp(fd);
    }
    let gone = changed && held.is_gone();
    if finished || gone {
        events |= IN | RDNORM | RDHUP;
        events |= if session.has_finished() { HUP } else { 0 };
    }
    if gone && (held.was_refused() || stream::is_reset(held, session)) {
        events |= if held.was_reported() { HUP } else { HUP | ERR };
    }
    if session.urgent().is_some() {
        events |= PRI;
    }
    let shutdowns = u64::from(session.end().shutdowns.load(Ordering::Relaxed));
    let answered = u64::from(gone) | u64::from(gone && held.was_refused()) << 1;
    let mut ends = u64::from(finished) | answered << 1 | shutdowns << 3;
    if counts_bytes(session) {
        let asked = IN | RDNORM | PRI | RDHUP | OUT | WRNORM;
        let mut one = [libc::pollfd { fd, events: asked as c_short, revents: 0 }];
        // An error is an answer of the next look.
        let _ = sys::poll(&mut one, Some(0), std::ptr::null());
        let [libc::pollfd { revents, .. }] = one;
        let mut found = with_own_end(held, session, fd, u32::from(revents.cast_unsigned()));
        if session.sends_by_ring() {
            found &= !(OUT | WRNORM);
        }
        let ended = (found | events) & (RDHUP | HUP | ERR);
        let (there, _) = counts(session, in_tcp(session, fd));
        if ended == 0 && there < low_water(held, session) {
            found &= !(IN | RDNORM);
        }
        events |= found;
        ends |= u64::from(ended & (HUP | ERR) != 0) << 61 | u64::from(ended != 0) << 60;
    }
    Ready { events, input: 0, ends, output: session.times_full() << 1 }
}

/// Whether both sides send by their rings, while bytes lie unread that came over TCP: an end of TCP's is no end of a
/// direction, but the peer's close.
fn both_have_changed(session: &Session<'_>) -> bool {
    session.sends_by_ring() && matches!(session.road_in(), Ok(Road::Tcp(Some(_))))
}

/// The kernel's events for a socket whose bytes come over TCP: the end of the peer's direction is the end of both, if
/// this one has ended in the ring. Where both have changed, [`besides`] tells behind this what the close means: that of
/// a process which was killed is a reset of TCP's if a doorbell was unread.
pub(crate) fn with_own_end(held: &Socket, session: &Session<'_>, fd: c_int, events: u32) -> u32 {
    use interest::{ERR, HUP, RDHUP};
    if events & (RDHUP | HUP | ERR) == 0 {
        return events;
    }
    if both_have_changed(session) {
        held.look_at_tcp(fd);
        return events & !(HUP | ERR);
    }
    let ended = events & RDHUP != 0 && session.has_finished();
    events | if ended { HUP } else { 0 }
}

/// How long a thread may sleep without a look, where no doorbell of the peer's tells it what it waits for: while the
/// peer's bytes come over TCP, room for more, and an end or an urgent byte of which a thread that waits for no bytes
/// hears nothing; and where bytes are counted here.
pub(crate) fn without_doorbell(session: &Session<'_>, events: u32) -> Option<u64> {
    let Ok(Road::Tcp(left)) = session.road_in() else { return None };
    if counts_bytes(session) {
        return Some(SHORT);
    }
    let room = events & (interest::OUT | interest::WRNORM) != 0;
    if room && session.sends_by_ring() && !session.is_writable() {
        return Some(SHORT);
    }
    let waits_for_bytes = events & (interest::IN | interest::RDNORM) != 0;
    // Before the peer has changed to its ring, nothing of it is in the segment yet.
    let most = if left.is_some() { SHORT } else { stream::NAP.as_nanos() as u64 };
    (!waits_for_bytes && session.state() != State::Withdrawn).then_some(most)
}

/// Whether this thread may take doorbells: no other one sleeps in the kernel until there is one.
fn is_alone(socket: &Socket, session: &Session<'_>, waiting: u32) -> bool {
    let end = session.end();
    end.waiting.load(Ordering::SeqCst) <= waiting
        && end.members.load(Ordering::SeqCst) <= socket.sets.load(Ordering::SeqCst)
        && epoll::asleep() == 0
}

/// Whether the kernel says that the socket is readable whatever happens.
fn is_always_readable(session: &Session<'_>) -> bool {
    session.end().read_shut.load(Ordering::SeqCst) > 1
}

/// A thread that relies on doorbells of this socket.
struct Waiting<'a>(Session<'a>);

impl<'a> Waiting<'a> {
    fn new(session: Session<'a>) -> Waiting<'a> {
        session.end().waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(session)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.end().waiting;
        let less = |count: u32| Some(count.saturating_sub(1));
        let _ = waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// Sleep in the kernel until the peer rings or ends, as a `recv` would: with the socket's time limit,
/// and through signals whose handlers allow it. `some`: a signal ends the call, which has something to report.
pub(crate) fn sleep_in_kernel(
    socket: &Socket,
    session: &Session<'_>,
    fd: c_int,
    (deadline, some): (u64, bool),
) -> Result<(), Errno> {
    let _waiting = Waiting::new(*session);
    session.for_bytes().arm();
    let road = session.road_in();
    if road == Ok(Road::Ring) {
        if stream::has_input(socket, session) {
            return Ok(());
        }
        if session.doorbells() > 0 {
            if !is_alone(socket, session, 1) {
                let value = session.for_bytes().fall_asleep();
                if stream::has_input(socket, session) {
                    return Ok(());
                }
                let limit = Duration::from_nanos(SHORT);
                let asleep = socket.sleeps();
                let slept =
                    cancel::asleep(|| sys::sleep_on(session.for_bytes().word(), value, limit));
                drop(asleep);
                socket.look_at_tcp(fd);
                return if slept == Err(libc::EINTR) { slept } else { Ok(()) };
            }
            stream::drain_if(session, fd, || is_alone(socket, session, 1));
            if stream::has_input(socket, session) {
                return Ok(());
            }
        }
    }
    let asleep = socket.sleeps();
    if some {
        let mut bytes = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        let left = (deadline != u64::MAX).then(|| deadline.saturating_sub(sys::now()));
        if cancel::asleep(|| sys::poll(&mut bytes, left, std::ptr::null()))? == 0 {
            return Err(libc::EAGAIN);
        }
    }
    let seen = cancel::asleep(|| sys::receive(fd, &mut [0], libc::MSG_PEEK));
    drop(asleep);
    if socket.descriptor(fd) != fd {
        // Another thread has closed it meanwhile.
        return Ok(());
    }
    match seen {
        Ok(0) if road == Ok(Road::Ring) => {
            socket.look_at_tcp(fd);
            Ok(())
        }
        Ok(_) => {
            // No doorbell: bytes that went past the peer's library.
            if road == Ok(Road::Ring) && session.doorbells() == 0 {
                socket.look_at_bytes(fd);
            }
            Ok(())
        }
        Err(error @ (libc::EINTR | libc::EAGAIN)) => {
            if error == libc::EAGAIN && sys::now() < deadline && deadline != u64::MAX {
                return Ok(());
            }
            Err(error)
        }
        Err(error) => {
            socket.set_gone();
            // The kernel has told of it once, and so does this call. Of the end of a ring the next look tells.
            let tells = session.road_in() != Ok(Road::Ring) && socket.report_end();
            if tells { Err(error) } else { Ok(()) }
        }
    }
}

/// A descriptor of a call that waits for several.
enum Kind {
    Kernel,
    /// Not to be switched while this call waits.
    Young {
        _flight: Flight,
    },
    Socket(Held),
    Set(&'static Set),
}

fn kind(fd: c_int) -> Kind {
    if fd < 0 {
        return Kind::Kernel;
    }
    match young::enter(fd, Use::Wait) {
        Served::Ours(held) => return Kind::Socket(held),
        Served::Kernel(flight) if flight.is_young() => return Kind::Young { _flight: flight },
        Served::Kernel(_) => {}
    }
    match table::entry(fd) {
        Entry::Set(set) if set.is_used() => Kind::Set(set),
        _ => Kind::Kernel,
    }
}

/// `ppoll`. `limit`: nanoseconds, none for ever. `None`: no descriptor is one of ours, and nothing was
/// done.
pub(crate) fn poll(
    fds: &mut [libc::pollfd],
    limit: Option<u64>,
    mask: *const c_void,
) -> Option<Result<usize, Errno>> {
    let kinds: Arc<[Kind]> = fds.iter().map(|entry| kind(entry.fd)).collect();
    if kinds.iter().all(|kind| matches!(kind, Kind::Kernel)) {
        return None;
    }
    if kinds.iter().all(|kind| matches!(kind, Kind::Kernel | Kind::Young { .. })) {
        return Some(cancel::asleep(|| sys::poll(fds, limit, mask)));
    }
    Some(Poll { fds, kinds, kernel: Vec::new(), rings: 0 }.run(limit, mask))
}

struct Poll<'a> {
    fds: &'a mut [libc::pollfd],
    kinds: Arc<[Kind]>,
    /// The question for the kernel.
    kernel: Vec<libc::pollfd>,
    /// Sockets that receive by their ring.
    rings: usize,
}

impl Poll<'_> {
    fn run(&mut self, limit: Option<u64>, mask: *const c_void) -> Result<usize, Errno> {
        let deadline = limit.map(|limit| sys::now().saturating_add(limit));
        self.ask(interest::RDHUP as c_short, false);
        // The kernel says what else there is, and which peers are gone: of one that sends, from time to time.
        let mut asked = self.alone().is_none_or(|(held, session)| stream::is_look(held, &session));
        if asked {
            sys::poll(&mut self.kernel, Some(0), std::ptr::null())?;
        }
        let mut napped = !mask.is_null();
        loop {
            if self.is_stale() {
                self.kinds = self.fds.iter().map(|entry| kind(entry.fd)).collect();
                self.ask(interest::RDHUP as c_short, false);
                sys::poll(&mut self.kernel, Some(0), std::ptr::null())?;
            }
            let count = self.answer();
            let over = deadline.is_some_and(|deadline| sys::now() >= deadline);
            if count == 0 && over && !std::mem::replace(&mut asked, true) {
                sys::poll(&mut self.kernel, Some(0), std::ptr::null())?;
                continue;
            }
            if count > 0 || over {
                if count == 0 && limit == Some(0) && !mask.is_null() {
                    // Signals that the mask lets through are taken.
                    return sys::poll(&mut [], Some(0), mask).map(|_| 0);
                }
                return Ok(count);
            }
            if self.rings > 0 && self.look(deadline) {
                self.forget_kernel();
                continue;
            }
            if !std::mem::replace(&mut napped, true) {
                let found = self.nap(deadline)?;
                if found {
                    self.forget_kernel();
                }
                if found || self.is_stale() {
                    continue;
                }
            }
            let kinds = Arc::clone(&self.kinds);
            let waiting: Vec<_> = kinds
                .iter()
                .map(|kind| match kind {
                    Kind::Socket(held) => (held.session().map(Waiting::new), None),
                    Kind::Set(set) => (None, Some(set.waits_otherwise())),
                    Kind::Kernel | Kind::Young { .. } => (None, None),
                })
                .collect();
            let mut most = None;
            let mut found = false;
            for (kind, entry) in self.kinds.iter().zip(self.fds.iter()) {
                let wanted = u32::from(entry.events.cast_unsigned());
                match kind {
                    Kind::Kernel | Kind::Young { .. } => {}
                    Kind::Set(set) => found |= set.is_ready(),
                    Kind::Socket(held) => {
                        let Some(session) = held.session() else { continue };
                        arm(&session, wanted, 0);
                        most = shorter(most, without_doorbell(&session, wanted));
                        if is_always_readable(&session) {
                            most = Some(SHORT);
                        } else if session.doorbells() > 0 && session.road_in() == Ok(Road::Ring) {
                            if is_alone(held, &session, 1) {
                                let alone = || is_alone(held, &session, 1);
                                stream::drain_if(&session, entry.fd, alone);
                            } else {
                                most = Some(SHORT);
                            }
                        }
                        found |= is_there(held, &session, entry);
                    }
                }
            }
            if found {
                drop(waiting);
                self.forget_kernel();
                continue;
            }
            self.ask((interest::IN | interest::RDHUP) as c_short, most.is_some());
            let left = deadline.map(|deadline| deadline.saturating_sub(sys::now()));
            asked = true;
            let asleep: Vec<_> = kinds
                .iter()
                .filter_map(
                    |kind| if let Kind::Socket(held) = kind { Some(held.sleeps()) } else { None },
                )
                .collect();
            let done = cancel::asleep(|| sys::poll(&mut self.kernel, shorter(left, most), mask));
            drop((asleep, waiting));
            done?;
        }
    }

    /// Whether another thread has closed one of the descriptors: the kernel looks at their numbers anew behind each
    /// sleep, too.
    fn is_stale(&self) -> bool {
        self.kinds.iter().zip(self.fds.iter()).any(|(kind, entry)| match kind {
            Kind::Socket(held) => !table::is_named(held, entry.fd),
            _ => false,
        })
    }

    /// The connection, where the call waits for nothing but the bytes that come through its ring.
    fn alone(&self) -> Option<(&Held, Session<'_>)> {
        let ([Kind::Socket(held)], [entry]) = (&*self.kinds, &*self.fds) else { return None };
        let session = held.session()?;
        let bytes = (interest::IN | interest::RDNORM) as c_short;
        let only = entry.events & bytes != 0 && entry.events & !bytes == 0;
        let ring = session.road_in() == Ok(Road::Ring) && !is_always_readable(&session);
        (only && ring).then_some((held, session))
    }

    /// Sleep on the word of such a connection for a while, as `recv` does: neither side moves a byte over TCP
    /// for it. `false`: the call sleeps in the kernel from now on.
    fn nap(&self, deadline: Option<u64>) -> Result<bool, Errno> {
        let Some((held, session)) = self.alone() else { return Ok(false) };
        let value = session.for_bytes().fall_asleep();
        // A peer that closes its socket wakes behind that, so that the close is seen here.
        if stream::has_input(held, &session) || held.look_at_tcp(self.fds[0].fd) {
            return Ok(true);
        }
        let left = deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(sys::now()));
        let limit = Duration::from_nanos(left).min(stream::NAP);
        let _asleep = held.sleeps();
        match cancel::asleep(|| sys::sleep_until_signal(session.for_bytes().word(), value, limit)) {
            Err(libc::ETIMEDOUT) => Ok(limit < stream::NAP),
            done => done.map(|()| true),
        }
    }

    /// Prepare the question for the kernel: of a socket that receives by its ring, these events only.
    fn ask(&mut self, of_rings: c_short, without_doorbells: bool) {
        self.rings = 0;
        self.kernel.clear();
        for (kind, entry) in self.kinds.iter().zip(self.fds.iter()) {
            let mut asked = libc::pollfd { revents: 0, ..*entry };
            if let Kind::Socket(held) = kind
                && let Some(session) = held.session()
            {
                if session.sends_by_ring() {
                    asked.events &= !((interest::OUT | interest::WRNORM) as c_short);
                }
                if counts_bytes(&session) {
                    asked.fd = -1;
                }
                if session.road_in() == Ok(Road::Ring) {
                    self.rings += 1;
                    asked.events = of_rings;
                    if held.is_gone() || is_always_readable(&session) {
                        asked.fd = -1;
                    } else if without_doorbells && session.doorbells() > 0 {
                        asked.events = interest::RDHUP as c_short;
                    }
                }
            }
            self.kernel.push(asked);
        }
    }

    /// Forget the kernel's answers: the rings have some.
    fn forget_kernel(&mut self) {
        for asked in &mut self.kernel {
            asked.revents = 0;
        }
    }

    /// Look for a while, instead of sleeping.
    fn look(&self, deadline: Option<u64>) -> bool {
        let held = self.kinds.iter().find_map(|kind| match kind {
            Kind::Socket(held) => Some(held),
            _ => None,
        });
        let Some(held) = held else { return false };
        held.spin.look(deadline, || {
            self.kinds.iter().zip(self.fds.iter()).any(|(kind, entry)| match kind {
                Kind::Socket(held) => {
                    held.session().is_some_and(|session| is_there(held, &session, entry))
                }
                _ => false,
            })
        })
    }

    /// Fill in the answers; how many there are.
    fn answer(&mut self) -> usize {
        let mut count = 0;
        for ((kind, entry), asked) in self.kinds.iter().zip(self.fds.iter_mut()).zip(&self.kernel) {
            let always = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
            entry.revents = match kind {
                Kind::Kernel | Kind::Young { .. } => asked.revents,
                Kind::Set(set) if set.is_ready() => {
                    asked.revents | entry.events & (libc::POLLIN | libc::POLLRDNORM)
                }
                Kind::Set(_) => asked.revents,
                Kind::Socket(held) => {
                    let Some(session) = held.session() else { continue };
                    let ended = asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR);
                    let ring = session.road_in() == Ok(Road::Ring);
                    let past = asked.revents & libc::POLLIN != 0 && session.doorbells() == 0;
                    // The kernel is not asked, for it says the same whatever happens.
                    let unasked = is_always_readable(&session) && stream::is_look(held, &session);
                    if ring && past {
                        held.look_at_bytes(entry.fd);
                    } else if ring && (ended != 0 || unasked) {
                        held.look_at_tcp(entry.fd);
                    }
                    match known(held, &session, entry.fd) {
                        Some(ready) => ready.events as c_short & (entry.events | always),
                        None => {
                            let of_kernel = u32::from(asked.revents.cast_unsigned());
                            let found = with_own_end(held, &session, entry.fd, of_kernel)
                                | besides(held, &session, entry.fd).events;
                            found as c_short & (entry.events | always)
                        }
                    }
                }
            };
            count += usize::from(entry.revents != 0);
        }
        count
    }
}

/// Whether one of the events that a socket is asked for holds, as far as its ring says.
fn is_there(held: &Held, session: &Session<'_>, entry: &libc::pollfd) -> bool {
    let always = libc::POLLERR | libc::POLLHUP;
    let ready = known(held, session, entry.fd).unwrap_or_else(|| besides(held, session, entry.fd));
    ready.events as c_short & (entry.events | always) != 0
}

/// The shorter one of two limits.
pub(crate) fn shorter(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
