//! Every target over its corpus, and over a fixed number of mutations of it.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use transom_fuzz::mutate::{Dice, mutate};
use transom_fuzz::talk::talk;
use transom_fuzz::{TARGETS, Target};

/// Mutations of each corpus; TRANSOM_FUZZ_ROUNDS says another number.
const ROUNDS: usize = 6000;

fn directory(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", name].iter().collect()
}

/// The inputs of a target, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(directory(name)).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn play((name, target): Target, input: &[u8]) {
    let played = std::panic::catch_unwind(|| target(input));
    let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(played.is_ok(), "target {name}, input {digits}");
}

fn rounds(name: &str) {
    let target = *TARGETS.iter().find(|target| target.0 == name).unwrap();
    let seeds = corpus(name);
    assert!(seeds.len() >= 10, "{name} has a corpus of {}", seeds.len());
    for seed in &seeds {
        play(target, seed);
    }
    let rounds = std::env::var("TRANSOM_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mut dice = Dice(0x7261_6e64_6f6d);
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let input = mutate(&seeds[round % seeds.len()], &seeds, &mut dice);
        play(target, &input);
    }
}

#[test]
fn a_hostile_stream_breaks_nothing() {
    rounds("stream");
}

#[test]
fn a_hostile_start_up_breaks_nothing() {
    rounds("start_up");
}

#[test]
fn two_ends_agree_whatever_happens_between_them() {
    rounds("talk");
}

#[test]
fn noise_in_shared_rings_breaks_nothing() {
    rounds("rings");
}

#[test]
fn whatever_a_peer_hands_over_says_one_thing_or_nothing() {
    rounds("descriptors");
}

#[test]
fn only_offers_that_the_kernel_confirms_are_believed() {
    rounds("upgrade");
}

#[test]
fn the_kernel_names_only_the_holder_of_the_socket_asked_for() {
    rounds("answers");
}

#[test]
fn noise_in_the_segment_of_a_connection_breaks_nothing() {
    rounds("segment");
}

/// Found by `talk`: over shared memory, an answer of more than one record was mixed with a message of
/// the side that answered, and the other side took that for a broken stream: honest connections ended.
#[test]
fn the_answer_to_a_read_and_a_message_take_turns() {
    let (connect, read, send) = ([4, 4, 4], [2, 15], [16, 15]);
    let wires = [[3, 0, 0, 0, 0, 0x44, 0], [0, 0, 0, 0, 0, 0x44, 0]];
    for wire in wires {
        // The passive side has a large answer and a large message to give at the same time.
        talk(&[&wire[..], &connect, &read, &send, &[4, 4], &read, &[4, 15]].concat());
    }
}

/// Bytes of no form at all.
#[test]
fn random_bytes_break_nothing() {
    let mut dice = Dice(0x6e_6f69_7365);
    for target in TARGETS {
        for _ in 0..96 {
            let length = dice.roll(4000);
            let input: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
            play(target, &input);
        }
    }
}

/// `cargo test -p transom-fuzz -- --ignored write_the_corpus` writes what is made here. That of `answers` is
/// made by the same test of transom-engine; a few sessions between two streams, and what a fuzzer has
/// found, are kept beside it.
#[test]
#[ignore = "writes fuzz/corpus"]
fn write_the_corpus() {
    for (target, prefix, inputs) in transom_fuzz::seeds::all() {
        let directory = directory(target);
        std::fs::create_dir_all(&directory).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            std::fs::write(directory.join(format!("{prefix}{number:03}")), input).unwrap();
        }
    }
}
