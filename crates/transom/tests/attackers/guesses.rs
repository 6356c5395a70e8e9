//! A peer that guesses tokens.

use std::time::Duration;

use transom::{GuessLimit, Rule};

use super::forge::*;

const STRICT: GuessLimit = GuessLimit {
    free: 3,
    pause: Duration::from_secs(3600),
    longest: Duration::from_secs(24 * 3600),
    own_user: true,
};

/// Design rules 4 and 7: one guess, one connection. Nothing moves, and no other connection notices.
#[test]
fn a_wrong_guess_ends_the_connection_and_moves_nothing() {
    let mut owner = Owner::new();
    let mut honest = owner.welcome([127, 0, 0, 2]);
    let mut guesses = 0;
    // Near misses of a token that lives: its key, its slot, its place in the directory.
    for change in [1, 0x80, 0x100, 0x8_0000, 0x10_0000, 0x8000_0000, u32::MAX] {
        for write in [true, false] {
            let (ours, mut forged) = owner.admit();
            let (memory, window) = owner.lend(&ours);
            let (token, address) = parts(window.grant());
            if write {
                forged.write(token ^ change, address, &[1; 8]);
            } else {
                forged.read(token ^ change, address, 8);
            }
            forged.is_thrown_out();
            guesses += 1;
            let denial = ours.recv().wait().unwrap_err().denial().copied().unwrap();
            assert_eq!(denial.rule, Rule::LiveToken);
            untouched(&memory);
        }
    }
    assert_eq!(owner.adapter.counters().guesses, guesses);
    assert_eq!(owner.adapter.counters().slowed, 0, "our own user on our own host");
    honest.is_served();
}

/// Rule 7: a peer that goes on guessing waits; a peer that is connected already does not.
#[test]
fn a_peer_that_guesses_again_and_again_is_slowed_down() {
    let mut owner = Owner::with(|options| options.guesses(Some(STRICT)));
    let mut honest = owner.welcome([127, 0, 0, 2]);
    for _ in 0..=STRICT.free {
        let (_ours, mut forged) = owner.admit();
        forged.write(0x1234_5678, 0, &[1; 8]);
        forged.is_thrown_out();
    }
    for turn in 1..=5 {
        let mut turned_away = Forged::ask(owner.listener.address());
        is_hung_up(&mut turned_away.stream);
        until("it was counted", || owner.adapter.counters().slowed == turn);
    }
    assert_eq!(owner.adapter.counters().guesses, u64::from(STRICT.free) + 1);
    honest.is_served();
}

/// Wrong bounds, or a window that was its own and was closed a moment ago, are no guesses.
#[test]
fn mistakes_of_other_kinds_slow_no_peer_down() {
    let mut owner = Owner::with(|options| options.guesses(Some(STRICT)));
    for turn in 0..2 * STRICT.free {
        let (ours, mut forged) = owner.admit();
        let (memory, window) = owner.lend(&ours);
        let (token, address) = parts(window.grant());
        if turn % 2 == 0 {
            forged.write(token, address + 1_000_000, &[1; 8]);
        } else {
            window.revoke().wait().unwrap();
            forged.write(token, address, &[1; 8]);
        }
        forged.is_thrown_out();
        untouched(&memory);
    }
    let counters = owner.adapter.counters();
    assert_eq!((counters.guesses, counters.slowed), (0, 0));
}

/// The switch.
#[test]
fn slowing_down_can_be_turned_off() {
    let mut owner = Owner::with(|options| options.guesses(None));
    for _ in 0..20 {
        let (_ours, mut forged) = owner.admit();
        forged.write(0x1234_5678, 0, &[1; 8]);
        forged.is_thrown_out();
    }
    let counters = owner.adapter.counters();
    assert_eq!((counters.guesses, counters.slowed), (20, 0), "counted all the same");
}
