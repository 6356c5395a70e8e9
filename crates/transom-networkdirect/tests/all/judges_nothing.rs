//! The front judges nothing: rights, bounds and tokens are compared in `transom-memory` alone.

use transom_rules::judges_nothing;

#[test]
fn the_sources_judge_no_bound_right_or_token() {
    judges_nothing(env!("CARGO_MANIFEST_DIR"));
}
