//! Writes to files and pipes of the user's: a limit of file sizes (`RLIMIT_FSIZE`) and a pipe without a reader are
//! answered with a signal as well as with an error, and the signal ends a program that does not expect it.

use std::ptr::null_mut;

const OURS: [i32; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

/// Call `write`. A signal SIGXFSZ or SIGPIPE that the kernel raises for it, which is this thread's alone, is taken
/// back: the call's error is all that is left of it. One that was pending before stays.
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    // SAFETY: zeros are a value of this type.
    let [mut ours, mut before, mut waited] = unsafe { std::mem::zeroed::<[libc::sigset_t; 3]>() };
    // SAFETY: the kernel reads and writes these sets.
    unsafe {
        for signal in OURS {
            libc::sigaddset(&raw mut ours, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, &raw mut before);
        libc::sigpending(&raw mut waited);
    }
    let done = write();
    // SAFETY: as above; without a wait, a signal that is pending is taken out.
    unsafe {
        let mut pending = std::mem::zeroed::<libc::sigset_t>();
        libc::sigpending(&raw mut pending);
        for signal in OURS {
            if libc::sigismember(&raw const pending, signal) == 1
                && libc::sigismember(&raw const waited, signal) != 1
            {
                let mut one = std::mem::zeroed::<libc::sigset_t>();
                libc::sigaddset(&raw mut one, signal);
                let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::sigtimedwait(&raw const one, null_mut(), &raw const now);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
    }
    done
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    /// Signals that are pending for this thread, and blocked by it.
    fn state(signal: i32) -> (bool, bool) {
        // SAFETY: the kernel writes two sets.
        unsafe {
            let [mut pending, mut mask] = std::mem::zeroed::<[libc::sigset_t; 2]>();
            libc::sigpending(&raw mut pending);
            libc::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut mask);
            let has = |set: &libc::sigset_t| libc::sigismember(set, signal) == 1;
            (has(&pending), has(&mask))
        }
    }

    #[test]
    fn a_refused_write_leaves_its_error_and_no_signal() {
        let mut ends = [0; 2];
        // SAFETY: plain calls; the default action of SIGPIPE ends the process.
        let written = unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            without_signals(|| libc::write(ends[1], b"x".as_ptr().cast(), 1))
        };
        assert_eq!(written, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPIPE));
        assert_eq!(state(libc::SIGPIPE), (false, false));
    }

    #[test]
    fn a_signal_that_the_program_holds_back_stays() {
        // SAFETY: plain calls on a set of this function.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigaddset(&raw mut set, libc::SIGXFSZ);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ);
        }
        without_signals(|| ());
        assert_eq!(state(libc::SIGXFSZ), (true, true));
    }
}
