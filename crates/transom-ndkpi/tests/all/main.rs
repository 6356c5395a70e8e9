//! The front's tests, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod addresses;
mod common;
mod connections;
mod endpoints;
mod fast;
#[cfg(not(windows))]
mod floods;
mod fronts;
mod header;
mod lam;
mod lifetime;
mod limits;
mod mdl;
mod moderation;
mod nd2;
mod programs;
mod queues;
mod refusals;
mod registration;
mod scattered;
mod sequences;
mod shared;
mod smb_direct;
mod windows;
#[path = "../../../transom-winsock-direct/tests/common/mod.rs"]
mod wsd;

transom_testing::over_both_paths!(
    common::path_holds(),
    "connections::",
    "endpoints::",
    "fast::",
    "lam::",
    "lifetime::",
    "moderation::",
    "queues::",
    "smb_direct::clients",
    "windows::"
);
