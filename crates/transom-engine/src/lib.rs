//! See Cargo.toml; under construction.
