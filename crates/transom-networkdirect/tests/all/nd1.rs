//! Version 1, as a C++ program uses it: the conformance list of ND1 16, and what belongs to it.
//! `docs/rules/networkdirect-v1.md` says which test holds which rule.

use crate::support::{over_each_path, program, run};

fn windows(case: &str) {
    over_each_path(program("nd1_windows"), &[case]);
}

fn requests(case: &str) {
    over_each_path(program("nd1_requests"), &[case]);
}

fn connections(case: &str) {
    over_each_path(program("nd1_connections"), &[case]);
}

fn objects(case: &str) {
    run(program("nd1_objects"), &[case], &[]);
}

#[test]
fn nd1_t1_slots_identities_and_references() {
    objects("t1");
}

#[test]
fn nd1_t2_sizes_and_offsets() {
    objects("t2");
}

#[test]
fn nd1_t3_a_descriptor_byte_for_byte() {
    windows("t3");
}

#[test]
fn nd1_t4_bind_needs_a_connection() {
    windows("t4");
}

#[test]
fn nd1_t5_bind_needs_a_right_and_knows_its_flags() {
    windows("t5");
}

#[test]
fn nd1_t6_every_precondition_of_bind() {
    windows("t6");
}

#[test]
fn nd1_t7_places_are_free_when_results_are_retrieved() {
    requests("t7");
}

#[test]
fn nd1_t8_bind_and_send_without_waiting_between_two_processes() {
    windows("t8");
}

#[test]
fn nd1_t9_the_wrong_right_moves_nothing_and_ends_the_connection() {
    windows("t9");
}

#[test]
fn nd1_t10_overlapping_windows_are_judged_alone() {
    windows("t10");
}

#[test]
fn nd1_t11_a_token_is_good_on_its_connection_only() {
    windows("t11");
}

#[test]
fn nd1_t12_one_byte_beside_the_window() {
    windows("t12");
}

#[test]
fn nd1_t13_an_invalidated_window_is_closed_and_can_be_bound_again() {
    windows("t13");
}

#[test]
fn nd1_t14_deregister_is_busy_while_bound_and_harmless() {
    windows("t14");
}

#[test]
fn nd1_t15_send_and_invalidate_notifies_the_owner_first() {
    windows("t15");
}

#[test]
fn nd1_t16_what_a_peer_cannot_invalidate() {
    windows("t16");
}

#[test]
fn nd1_t17_of_two_invalidations_exactly_one_succeeds() {
    windows("t17");
}

#[test]
fn nd1_t18_silent_success_and_loud_failure_of_all_six_kinds() {
    requests("t18");
}

#[test]
fn nd1_t19_results_come_in_posting_order_and_fences_hold() {
    requests("t19");
}

#[test]
fn nd1_t20_records_are_not_touched_once_handed_out() {
    requests("t20");
}

#[test]
fn nd1_t21_notifications() {
    requests("t21");
}

#[test]
fn nd1_t22_a_receive_that_is_too_small() {
    requests("t22");
}

#[test]
fn nd1_t23_requests_of_no_bytes() {
    requests("t23");
}

#[test]
fn nd1_t24_inline_data() {
    requests("t24");
}

#[test]
fn nd1_t25_read_limits() {
    connections("t25");
}

#[test]
fn nd1_t26_the_active_side_rejects_the_acceptance() {
    connections("t26");
}

#[test]
fn nd1_t27_connection_data_in_short_buffers() {
    connections("t27");
}

#[test]
fn nd1_t28_a_peer_s_disconnect_flushes_nothing() {
    connections("t28");
}

#[test]
fn nd1_t29_after_disconnect_memory_is_left_alone() {
    requests("t29");
}

#[test]
fn nd1_t30_ports_protocols_and_backlogs() {
    connections("t30");
}

#[test]
fn nd1_t31_a_timeout_in_both_versions() {
    connections("t31");
}

#[test]
fn nd1_t32_released_windows_and_endpoints_end_access() {
    windows("t32");
}

#[test]
fn nd1_t33_access_ends_without_a_poll() {
    windows("t33");
}

#[test]
fn nd1_11_3_every_call_in_every_state() {
    connections("states");
}

#[test]
fn nd2_1_3_objects_are_released_in_every_order() {
    objects("orders");
}

#[test]
fn nd2_2_3_requests_driven_by_polling() {
    objects("poll");
}

#[test]
fn nd2_2_3_requests_driven_by_events() {
    objects("event");
}

#[test]
fn nd2_2_3_requests_driven_by_events_without_packets() {
    objects("event1");
}

#[test]
fn nd2_2_3_requests_driven_by_a_port_with_four_threads() {
    objects("port");
}

#[test]
fn refusals_are_explained_by_every_object_and_on_standard_error() {
    objects("explain");
    let words = run(program("nd1_objects"), &["explain"], &[("TRANSOM_EXPLAIN", "1")]);
    assert!(words.contains("transom: ") && words.contains("REMOTE_WRITE"), "{words}");
    assert!(words.contains("window \"lent\""), "{words}");
}

#[test]
fn nd1_the_device_is_removed() {
    over_each_path(program("removed"), &["version_1"]);
}

#[test]
fn nd1_every_status_is_reached_or_has_its_reason() {
    run(program("nd1_statuses"), &[], &[]);
}

#[test]
fn a_version_1_server_and_a_version_2_client_exchange_windows_and_revoke_them() {
    run(program("nd1_mixed"), &["old_server"], &[]);
}

#[test]
fn a_version_1_client_and_a_version_2_server_exchange_windows_and_revoke_them() {
    run(program("nd1_mixed"), &["old_client"], &[]);
}

#[test]
fn four_processes_connect_to_each_other_head_to_head() {
    run(program("mesh"), &[], &[]);
}

/// Random sequences of calls, valid and not, on objects of both versions. A failure prints its
/// seed; `TRANSOM_SEED` and `TRANSOM_SEQUENCES` replay and prolong.
#[test]
fn random_sequences_of_calls_keep_every_promise() {
    run(program("sequences"), &[], &[]);
}

/// By the environment, and not without it.
#[test]
fn nd1_15_1_an_endpoint_has_one_window_where_that_is_asked_for() {
    let strict = ("TRANSOM_ND1_ONE_WINDOW", "1");
    for path in ["tcp", "auto"] {
        run(program("nd1_strict"), &["one_window"], &[strict, ("TRANSOM_PATH", path)]);
    }
    run(program("nd1_strict"), &["any_windows"], &[("TRANSOM_ND1_SPEAK_FIRST", "0")]);
}

#[test]
fn nd1_c7_the_passive_side_listens_first_where_that_is_asked_for() {
    let strict = ("TRANSOM_ND1_SPEAK_FIRST", "1");
    for path in ["tcp", "auto"] {
        run(program("nd1_strict"), &["speak_first"], &[strict, ("TRANSOM_PATH", path)]);
    }
    run(program("nd1_strict"), &["speak"], &[("TRANSOM_ND1_ONE_WINDOW", "0")]);
}
