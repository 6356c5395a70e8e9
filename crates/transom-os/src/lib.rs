//! What every library of Transom's asks the operating system, because it runs inside of another's program: the
//! [`environment`], where the caller may steer the program by it, and [`signals`] that the program must not see.

pub mod environment;
pub mod signals;
