//! Questions of every library of Transom's to the operating system, because it runs inside of another's program:
//! the [`environment`], where the caller may steer the program by it; the kernel's [`answers`] about sockets and
//! users, and whose the other end of one is (`peers`, `users`); [`signals`] that the program must not see; copies to
//! memory that it shares with another process (`share`); and [`threads`] of its own.

pub mod answers;
pub mod environment;
#[cfg(not(windows))]
pub mod peers;
#[cfg(all(target_arch = "x86_64", not(windows)))]
pub mod share;
pub mod signals;
pub mod threads;
#[cfg(not(windows))]
pub mod users;
