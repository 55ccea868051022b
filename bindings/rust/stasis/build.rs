//! The examples and tests of this package find libstasis where it was linked from. cargo passes no
//! link argument on from stasis-sys to packages that depend on it, so a host outside the system's
//! own places has a build script like this one (README.md).
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_STATIC").is_none() {
        let place = env::var("DEP_STASIS_LIB_DIR").expect("stasis-sys says it");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{place}");
    }
}
