//! Unpredictable numbers: the ChaCha20 key stream (RFC 8439 2.3), keyed by the table's seed.

/// A generator. The output cannot be told from random without the key, however much of it is seen.
pub(crate) struct Random {
    state: [u32; 16],
    block: [u32; 16],
    used: usize,
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random(secret)")
    }
}

impl Random {
    pub(crate) fn new(key: [u8; 32]) -> Random {
        Random::at(key, 0, [0; 3])
    }

    fn at(key: [u8; 32], counter: u32, nonce: [u32; 3]) -> Random {
        let mut state = [0; 16];
        state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (word, bytes) in state[4..12].iter_mut().zip(key.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        state[12] = counter;
        state[13..].copy_from_slice(&nonce);
        Random { state, block: [0; 16], used: 16 }
    }

    /// The next word.
    #[inline]
    pub(crate) fn word(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.refill();
        }
        let word = self.block[self.used];
        self.used += 1;
        word
    }

    /// A number below `end`, evenly enough (the bias is below 2^-32 times `end`). 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.word()) * u64::from(end)) >> 32) as u32
    }

    /// A random order of `items`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        let mut x = self.state;
        for _ in 0..10 {
            // Written out, so that the words stay in registers.
            quarter::<0, 4, 8, 12>(&mut x);
            quarter::<1, 5, 9, 13>(&mut x);
            quarter::<2, 6, 10, 14>(&mut x);
            quarter::<3, 7, 11, 15>(&mut x);
            quarter::<0, 5, 10, 15>(&mut x);
            quarter::<1, 6, 11, 12>(&mut x);
            quarter::<2, 7, 8, 13>(&mut x);
            quarter::<3, 4, 9, 14>(&mut x);
        }
        for (out, (mixed, input)) in self.block.iter_mut().zip(x.iter().zip(&self.state)) {
            *out = mixed.wrapping_add(*input);
        }
        // 2^64 blocks: the nonce's first word takes the carry.
        self.state[12] = self.state[12].wrapping_add(1);
        if self.state[12] == 0 {
            self.state[13] = self.state[13].wrapping_add(1);
        }
        self.used = 0;
    }
}

/// The quarter round (RFC 8439 2.1).
#[inline(always)]
fn quarter<const A: usize, const B: usize, const C: usize, const D: usize>(x: &mut [u32; 16]) {
    for (left, right) in [(16, 12), (8, 7)] {
        x[A] = x[A].wrapping_add(x[B]);
        x[D] = (x[D] ^ x[A]).rotate_left(left);
        x[C] = x[C].wrapping_add(x[D]);
        x[B] = (x[B] ^ x[C]).rotate_left(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439 2.3.2: key 00..1f, nonce 000000090000004a00000000, counter 1.
    #[test]
    fn chacha20_block_of_rfc_8439() {
        let key = std::array::from_fn(|i| i as u8);
        let mut random = Random::at(key, 1, [0x0900_0000, 0x4a00_0000, 0]);
        let block: Vec<u32> = (0..16).map(|_| random.word()).collect();
        let expected = [
            0xe4e7_f110_u32,
            0x1559_3bd1,
            0x1fdd_0f50,
            0xc471_20a3,
            0xc7f4_d1c7,
            0x0368_c033,
            0x9aaa_2204,
            0x4e6c_d4c3,
            0x4664_82d2,
            0x09aa_9f07,
            0x05d7_c214,
            0xa202_8bd9,
            0xd19c_12b5,
            0xb94e_16de,
            0xe883_d0cb,
            0x4e3c_50a2,
        ];
        assert_eq!(block, expected);
    }

    /// The counter moves on: blocks differ, and carry into the nonce rather than repeat.
    #[test]
    fn blocks_do_not_repeat() {
        let mut random = Random::at([7; 32], u32::MAX, [0; 3]);
        let first: Vec<u32> = (0..16).map(|_| random.word()).collect();
        let second: Vec<u32> = (0..16).map(|_| random.word()).collect();
        assert_ne!(first, second);
        let wrapped: Vec<u32> = {
            let mut zero = Random::new([7; 32]);
            (0..16).map(|_| zero.word()).collect()
        };
        assert_ne!(second, wrapped);
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut random = Random::new([3; 32]);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }

    /// Every order comes, each about as often as any other: 6,000 draws of six leave a count of
    /// 1,000 by 150 (five standard deviations) for one key in a million.
    #[test]
    fn a_shuffle_makes_every_order_alike() {
        let mut random = Random::new([4; 32]);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..6_000 {
            let mut items = [1, 2, 3];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0_i32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 150), "{counts:?}");
    }

    /// Whatever prints a table does not print what its tokens are drawn from.
    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", Random::new([0x5a; 32])), "Random(secret)");
    }
}
