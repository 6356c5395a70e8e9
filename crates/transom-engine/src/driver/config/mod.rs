//! An adapter's options, and the path that bytes take.

pub(crate) mod capture;
pub(crate) mod environment;
pub(crate) mod options;
pub(crate) mod path;
