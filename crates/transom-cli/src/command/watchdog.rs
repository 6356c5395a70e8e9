//! Nothing here may hang: a command that takes far too long ends with a sentence.

use std::thread::Builder;
use std::time::Duration;

use crate::command::exit::{Exit, Failure};

/// End the process if it is still there after `limit`. A process that is the child of another also
/// ends with its parent, whose end of the pipe on our standard input it watches for. A process that may have no
/// further thread goes on without.
pub(crate) fn limit(what: &'static str, limit: Duration) {
    let _ = Builder::new().spawn(move || {
        std::thread::sleep(limit);
        let failure = Failure::new(
            Exit::NoConnection,
            format!("{what} did not finish within {} s", limit.as_secs()),
        )
        .try_this("run it again; if it stays so, report it with `transom --version`");
        let _ = failure.report();
        std::process::exit(Exit::NoConnection as i32);
    });
}

/// In a child: end when the parent is gone (its end of our standard input closes), if a thread can be had for it.
pub(crate) fn end_with_parent() {
    let _ = Builder::new().spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(Exit::System as i32);
    });
}
