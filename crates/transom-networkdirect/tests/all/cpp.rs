//! C++ programs on the headers and the shared library, compiled here as a user compiles them.

use crate::support::{build, over_each_path, program, run};

#[test]
fn layout_of_the_headers_is_the_library_s() {
    run(&build("layout"), &[], &[]);
}

macro_rules! cases {
    ($source:literal: $($name:ident = $argument:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                over_each_path(program($source), &[$argument]);
            }
        )*
    };
}

cases!("easy":
    easy_01 = "1", easy_02 = "2", easy_03 = "3", easy_04 = "4", easy_05 = "5", easy_06 = "6",
    easy_07 = "7", easy_08 = "8", easy_09 = "9", easy_10 = "10", easy_11 = "11", easy_12 = "12",
    easy_13 = "13", easy_14 = "14", easy_15 = "15", easy_16 = "16", easy_17 = "17", easy_18 = "18",
    easy_19 = "19", easy_20 = "20", easy_21 = "21", easy_22 = "22", easy_23 = "23", easy_24 = "24",
    easy_25 = "25", easy_26 = "26", easy_27 = "27", easy_28 = "28", easy_29 = "29", easy_30 = "30",
    easy_31 = "31", easy_32 = "32",
);

/// Calls that come to nothing before there is a path.
macro_rules! misuses {
    ($($name:ident = $argument:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run(program("misuse"), &[$argument], &[]);
            }
        )*
    };
}

misuses!(
    misuse_foreign_objects = "foreign",
    misuse_another_adapter_s_objects = "adapter",
    misuse_handles = "handles",
    misuse_null_pointers_and_bad_ones = "null",
    misuse_null_overlapped = "overlapped",
    misuse_released_in_every_order = "orders",
);

cases!("traffic":
    send_and_receive_driven_by_polling = "poll",
    send_and_receive_driven_by_an_event = "event",
    send_and_receive_driven_by_an_event_without_packets = "event1",
    send_and_receive_driven_by_a_port_with_four_threads = "port",
    ping_pong_by_read = "read",
    four_byte_writes_through_notify_and_wait = "notify",
    nd2_5_5_a_every_use_of_a_region = "rights",
);

cases!("tuning":
    nd2_c29_a_completion_queue_is_resized_and_loses_nothing = "resize",
    nd2_2_7_a_shared_queue_changes_its_depth = "depth",
    nd2_2_7_a_shared_queue_changes_its_threshold = "threshold",
    nd2_2_6_queues_tell_the_affinity_that_was_asked_for = "affinity",
);

cases!("addresses":
    nd2_6_3_connections_of_version_2_over_ipv6 = "version_2",
    nd2_6_3_connections_of_version_1_over_ipv6 = "version_1",
    nd2_6_3_the_address_that_leads_to_a_peer = "resolve",
    nd2_6_3_a_flush_unloads_nothing_that_is_in_use = "flush",
);

cases!("states":
    nd2_4_1_every_post_in_every_state = "posts",
    nd2_4_7_3_every_call_in_every_state = "connectors",
    nd2_4_7_3_a_queue_pair_that_is_attached = "attached",
    nd2_4_7_3_every_call_on_a_listener = "listeners",
    nd2_4_7_4_cancel_in_every_state = "cancels",
);

cases!("refused":
    refused_and_cancelled_calls_seen_by_events = "event",
    refused_and_cancelled_calls_seen_by_a_port = "port",
);

cases!("outcomes":
    nd2_4_5_every_row_of_a_request_that_fails = "rows",
    nd2_4_5_the_peer_disconnects = "disconnects",
    nd2_4_5_a_post_says_that_there_is_no_room = "full",
    nd2_4_5_the_peer_is_lost = "lost",
    nd2_4_9_the_peer_dies = "dies",
    nd2_4_5_the_device_is_removed_from_a_forked_child = "removed",
);

cases!("removed":
    nd2_4_5_the_device_is_removed = "version_2",
    nd2_2_4_an_interface_that_is_down_is_not_listed = "down",
);

cases!("edges":
    nd2_2_5_limits_of_what_is_created = "creating",
    nd2_2_5_query_and_its_version = "query",
    nd2_2_9_every_flag_of_every_operation = "flags",
    nd2_5_1_a_region_holds_one_buffer = "registering",
    nd2_2_6_a_queue_is_destroyed_while_a_notify_waits = "destroying",
    nd2_4_8_private_data_and_read_limits = "connecting",
    nd2_2_11_a_listener_at_the_wildcard = "listening",
    nd2_5_2_when_a_window_may_be_bound_again = "rebinding",
);

cases!("windows":
    nd2_5_5_b_every_bind = "binds",
    nd2_5_5_c_every_access_through_a_window = "accesses",
    nd2_5_6_deregister_against_bind_and_invalidate = "deregister",
);

#[test]
fn nd2_7_5_every_sub_test() {
    run(program("subtests"), &[], &[]);
}

cases!("overlapped":
    nd2_2_3_every_overlapped_call_driven_by_polling = "poll",
    nd2_2_3_every_overlapped_call_driven_by_an_event = "event",
    nd2_2_3_every_overlapped_call_driven_by_an_event_without_packets = "event1",
    nd2_2_3_every_overlapped_call_driven_by_a_port_with_four_threads = "port",
    nd2_2_3_cancel_finds_its_packets_already_queued_in_order = "cancel",
);

/// TRANSOM_CONNECTIONS=100000 makes it a hundred thousand.
#[test]
fn thousands_of_connections_through_one_port_and_none_is_refused() {
    run(program("churn"), &[], &[]);
}

/// TRANSOM_REGISTRATIONS=10000 makes it as many per thread and size.
#[test]
fn registrations_by_one_to_eight_threads_on_one_port() {
    run(program("registration"), &[], &[]);
}
