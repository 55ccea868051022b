//! Finds libstasis: in the directory that STASIS_LIB_DIR names, else where pkg-config says.
use std::env;
use std::process::{exit, Command};

fn main() {
    for name in ["STASIS_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    // For the test against the header, which compiles with the same compiler.
    println!("cargo:rustc-env=STASIS_SYS_RUSTC={}", env::var("RUSTC").unwrap_or_default());
    if let Ok(directory) = env::var("STASIS_LIB_DIR") {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=dylib=stasis");
        return;
    }
    match ask_pkg_config() {
        Ok(flags) => flags.split_whitespace().for_each(pass_on),
        Err(reason) => {
            eprintln!(
                "libstasis was not found: {reason}. Install it, add the directory of its \
                 stasis.pc to PKG_CONFIG_PATH, or name that of libstasis.so in STASIS_LIB_DIR."
            );
            exit(1);
        }
    }
}

fn ask_pkg_config() -> Result<String, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    // Directories of the system are named too: cargo's linker may not look there by itself.
    let answer = Command::new(&program)
        .args(["--libs", "stasis"])
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output()
        .map_err(|error| format!("{program} does not run: {error}"))?;
    if answer.status.success() {
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    } else {
        Err(format!("{program} says: {}", String::from_utf8_lossy(&answer.stderr).trim()))
    }
}

fn pass_on(flag: &str) {
    if let Some(directory) = flag.strip_prefix("-L") {
        println!("cargo:rustc-link-search=native={directory}");
    } else if let Some(library) = flag.strip_prefix("-l") {
        println!("cargo:rustc-link-lib=dylib={library}");
    } else {
        println!("cargo:rustc-link-arg={flag}");
    }
}
