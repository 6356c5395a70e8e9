//! The shared library stays in the process once it is loaded: programs unload providers without
//! asking whether objects are alive (ND2 1.3 rule 10).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtransom_nd.so");
    }
}
