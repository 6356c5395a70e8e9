//! Link arguments of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // A ledger prints at exit, from a function of this library: the library stays until then.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
