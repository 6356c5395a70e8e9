//! The simulator can fail: each of these defects, planted in the engine, is found within the budget.

#![allow(clippy::unwrap_used, clippy::panic)]

use transom_sim::{plant, run};

/// Seeds within which a defect must be found: no more than the budget has.
const SEEDS: u64 = 4000;

fn is_found(name: &'static str) {
    plant(name);
    let found =
        (1..=SEEDS).find_map(|seed| run(seed, false).failure.map(|failure| (seed, failure)));
    plant("");
    let (seed, failure) = found.unwrap_or_else(|| panic!("{name:?} was not found"));
    println!("{name:?}: seed {seed}: {failure}");
}

macro_rules! each {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            is_found($name);
        })*
    };
}

each! {
    planted_off_by_one: "off by one",
    planted_window_of_another_queue_pair: "window of another queue pair",
    planted_connection_scope_ignored: "connection scope ignored",
    planted_epoch_ignored: "epoch ignored",
    planted_rights_of_a_read: "rights of a read",
    planted_read_after_close: "read after close",
    planted_guard_dropped_early: "guard dropped early",
    planted_guard_leaked: "guard leaked",
    planted_token_reused: "token reused",
    planted_live_at_once: "live at once",
    planted_flushed_bind_lives: "flushed bind lives",
    planted_invalidate_does_not_close: "invalidate does not close",
    planted_freed_while_bound: "freed while bound",
    planted_windows_outlive_their_connection: "windows outlive their connection",
    planted_completion_lost: "completion lost",
    planted_completion_twice: "completion twice",
    planted_completion_out_of_order: "completion out of order",
    planted_silent_success_reported: "silent success reported",
    planted_flush_split: "flush split",
    planted_shared_receive_lost: "shared receive lost",
    planted_frames_behind_the_end: "frames behind the end",
    planted_fence_ignored: "fence ignored",
    planted_staging_leaked: "staging leaked",
    planted_list_not_judged: "list not judged",
    planted_announcement_not_judged: "announcement not judged",
    planted_acknowledged_before_placed: "acknowledged before placed",
    planted_acknowledged_twice: "acknowledged twice",
    planted_goes_on_after_a_denial: "goes on after a denial",
    planted_too_long_for_its_receive: "too long for its receive",
    planted_last_byte_first: "last byte first",
    planted_refused_counts_as_done: "refused counts as done",
    planted_read_limit_ignored: "read limit ignored",
    planted_checksum_ignored: "checksum ignored",
    planted_pieces_in_one_place: "pieces in one place",
    planted_another_domain: "another domain",
    planted_key_ignored: "key ignored",
    planted_rights_of_a_write: "rights of a write",
    planted_window_outlives_its_region: "window outlives its region",
    planted_peer_closes_what_is_anothers: "peer closes what is another's",
    planted_peer_closes_regions: "peer closes regions",
    planted_invalidated_on_another_queue_pair: "invalidated on another queue pair",
    planted_regions_outlive_their_connection: "regions outlive their connection",
    planted_receive_used_twice: "receive used twice",
    planted_flush_succeeds: "flush succeeds",
    planted_silent_failure: "silent failure",
    planted_refusal_not_told: "refusal not told",
    planted_event_behind_the_end: "event behind the end",
    planted_younger_one_blamed: "younger one blamed",
    planted_own_failure_names_a_message: "own failure names a message",
    planted_nobody_woken: "nobody woken",
    planted_private_data_of_another_connection: "private data of another connection",
    planted_credits_over_granted: "credits over-granted",
    planted_process_acknowledged_before_placed: "process: acknowledged before placed",
    planted_process_wrong_record_named: "process: wrong record named",
    planted_process_read_limit_ignored: "process: read limit ignored",
    planted_process_answer_repeats: "process: answer repeats",
    planted_process_done_too_early: "process: done too early",
    planted_process_credits_over_granted: "process: credits over-granted",
    planted_ring_published_before_its_bytes: "ring: published before its bytes",
    planted_ring_used_again_before_it_was_read: "ring: used again before it was read",
    planted_ring_word_passed_over: "ring: word passed over",
    planted_ring_bell_forgotten: "ring: bell forgotten",
    planted_ring_acknowledgement_lost_at_its_end: "ring: acknowledgement lost at its end",
    planted_ring_asleep_without_looking_again: "ring: asleep without looking again",
    planted_ring_the_same_wish_twice: "ring: the same wish twice",
    planted_ring_stuck_half_way: "ring: stuck half-way",
    planted_small_acknowledged_before_placed: "small: acknowledged before placed",
    planted_small_goes_on_after_a_denial: "small: goes on after a denial",
    planted_small_fence_ignored: "small: fence ignored",
    planted_small_done_when_it_is_sent: "small: done when it is sent",
}

/// None is on unless it is selected, and only for the thread that selects it.
#[test]
fn planted_defects_are_off_unless_selected() {
    plant("off by one");
    let other = std::thread::spawn(|| transom_wire::planted!("off by one"));
    assert!(transom_wire::planted!("off by one"));
    assert!(!other.join().unwrap());
    plant("");
    assert!(!transom_wire::planted!("off by one"));
}
