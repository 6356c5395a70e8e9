//! Overlapped calls of both versions.

use std::sync::Arc;

use transom_engine::{Status, raw};

use crate::os::{File, OverlappedPtr, result_of};
use crate::status::*;

/// A version's status values: [`nd1`](crate::table::nd1) or [`nd2`](crate::table::nd2).
pub(crate) type Table = fn(Status) -> i32;

/// Begin an overlapped call of the engine. The engine's end of it is the request's.
pub(crate) fn begin(
    file: &Arc<File>,
    table: Table,
    overlapped: OverlappedPtr,
    call: impl FnOnce(raw::Sink) -> Result<(), raw::Error>,
) -> Outcome {
    let (started, finisher) = file.begin(overlapped)?;
    let sink = raw::Sink::call(move |status| finisher.finish(table(status)));
    Ok(started.answer(call(sink).map_err(|e| table(e.status))))
}

/// An overlapped call that is over before its method returns. A failure is answered inline.
pub(crate) fn at_once(
    file: &Arc<File>,
    overlapped: OverlappedPtr,
    call: impl FnOnce() -> Result<(), i32>,
) -> Outcome {
    let (started, finisher) = file.begin(overlapped)?;
    let done = call();
    if done.is_ok() {
        finisher.finish(ND_SUCCESS);
    }
    Ok(started.answer(done))
}

/// GetOverlappedResult: by the OVERLAPPED alone (ND2 2.3 rules 6 and 7; ND1 OV-6, OV-7).
pub(crate) fn overlapped_result(overlapped: OverlappedPtr, wait: bool) -> Outcome {
    outcome(result_of(overlapped, wait, |_| {}))
}

/// The answer of GetOverlappedResult; `None`: the OVERLAPPED is NULL.
pub(crate) fn outcome(result: Option<i32>) -> Outcome {
    match result {
        Some(status) if status >= 0 => Ok(status),
        Some(status) => Err(status),
        None => Err(ND_INVALID_PARAMETER_1),
    }
}
