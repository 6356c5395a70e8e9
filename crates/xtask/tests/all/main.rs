//! The documents of this workspace, and what is noticed about them, in one program.

#![allow(clippy::unwrap_used)]

mod book;
mod documents;
mod environment;
mod manifests;
mod protection;
mod rules;
mod statuses;
