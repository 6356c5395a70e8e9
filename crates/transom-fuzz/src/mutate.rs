//! Deterministic mutations, for runs without a fuzzer.

/// A small generator (xorshift), so that a failure comes again.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

/// A few changes to an input, some of them at its head, where the options are.
#[must_use]
pub fn mutate(seed: &[u8], others: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    const VALUES: [u8; 8] = [0, 1, 0x40, 0x7F, 0x80, 0xC1, 0xFE, 0xFF];
    let mut input = seed.to_vec();
    for _ in 0..=dice.roll(4) {
        let reach = if dice.roll(4) == 0 { input.len().min(32) } else { input.len() };
        let at = dice.roll(reach);
        match dice.roll(7) {
            0 => input[at] ^= 1 << dice.roll(8),
            1 => input[at] = VALUES[dice.roll(8)],
            2 => input.truncate(at.max(2)),
            3 => drop(input.drain(at..(at + dice.roll(40)).min(input.len()))),
            4 => {
                let piece = input[at..(at + dice.roll(80)).min(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            5 if !others.is_empty() => {
                let other = &others[dice.roll(others.len())];
                let from = dice.roll(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input[at] = dice.roll(256) as u8,
        }
        if input.len() < 3 {
            break;
        }
    }
    input
}
