//! Shared memory of a test: the rings are the shipped ones, the data areas are vectors.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::panic)] // as in any test

use std::sync::{Arc, Mutex};

use transom_process::Area;
use transom_process::ring::{DATA, Shared};

/// Where the data area of side 0 lies, as far as any address says.
pub const BASE: u64 = 0x7000_0000_0000;
/// From it to the data area of side 1.
pub const APART: u64 = 1 << 24;

/// Memory that two sides share.
#[derive(Clone)]
pub struct Plain(Arc<(Shared, [Mutex<Vec<u8>>; 2])>);

impl Plain {
    /// A fresh one.
    pub fn new() -> Plain {
        let area = || Mutex::new(vec![0; DATA]);
        Plain(Arc::new((Shared::default(), [area(), area()])))
    }

    /// The bytes at an address, which lie in the data area of `side`.
    pub fn at(&self, side: usize, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_bytes(side, (address - BASE - APART * side as u64) as usize, &mut bytes);
        bytes
    }
}

impl Area for Plain {
    fn shared(&self) -> &Shared {
        &self.0.0
    }

    fn address(&self, side: usize, offset: usize) -> u64 {
        assert!(side < 2 && offset < DATA);
        BASE + APART * side as u64 + offset as u64
    }

    fn fill_bytes(&self, side: usize, offset: usize, bytes: &[u8]) {
        self.0.1[side].lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read_bytes(&self, side: usize, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0.1[side].lock().unwrap()[offset..offset + into.len()]);
    }
}
