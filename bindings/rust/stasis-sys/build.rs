//! Finds libstasis: in the directory of STASIS_LIB_DIR, else by pkg-config; with the feature
//! `static` the archive of pkg-config's stasis-static. Build scripts of packages that depend on
//! this one get its directory in DEP_STASIS_LIB_DIR and, if pkg-config was used, the headers' in
//! DEP_STASIS_INCLUDE.
use std::env;
use std::fs;
use std::process::{exit, Command};

fn main() {
    for name in ["STASIS_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    // For the test against the header, which compiles with the same compiler.
    println!("cargo:rustc-env=STASIS_SYS_RUSTC={}", env::var("RUSTC").unwrap_or_default());
    let archive = env::var_os("CARGO_FEATURE_STATIC").is_some();
    if let Err(reason) = find(archive) {
        eprintln!(
            "libstasis was not found: {reason}. Install it, add the directory of its \
             stasis.pc to PKG_CONFIG_PATH, or name that of libstasis.so in STASIS_LIB_DIR."
        );
        exit(1);
    }
}

fn find(archive: bool) -> Result<(), String> {
    if let Ok(directory) = env::var("STASIS_LIB_DIR") {
        if archive {
            return Err("STASIS_LIB_DIR does not say what libstasis.a is linked with, as the \
                        feature static needs"
                .to_string());
        }
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=dylib=stasis");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}"); // of this package's own tests
        println!("cargo:lib_dir={directory}");
        return Ok(());
    }
    let package = if archive { "stasis-static" } else { "stasis" };
    ask_pkg_config(&["--libs", package])?.iter().for_each(|flag| pass_on(flag));
    for (key, variable) in [("lib_dir", "libdir"), ("include", "includedir")] {
        let place = ask_pkg_config(&[&format!("--variable={variable}"), package])?.concat();
        let place = fs::canonicalize(&place).map_err(|error| format!("{place}: {error}"))?;
        println!("cargo:{key}={}", place.display());
    }
    Ok(())
}

/// The words of its answer.
fn ask_pkg_config(arguments: &[&str]) -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    // Directories of the system are named too: cargo's linker may not look there by itself.
    let answer = Command::new(&program)
        .args(arguments)
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .output()
        .map_err(|error| format!("{program} does not run: {error}"))?;
    if answer.status.success() {
        Ok(words(String::from_utf8_lossy(&answer.stdout).trim()))
    } else {
        Err(format!("{program} says: {}", String::from_utf8_lossy(&answer.stderr).trim()))
    }
}

/// As a shell splits them: a space within a word has a backslash.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => words.last_mut().unwrap().extend(letters.next()),
            ' ' => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}

fn pass_on(flag: &str) {
    if let Some(directory) = flag.strip_suffix("/libstasis.a") {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=static=stasis");
    } else if let Some(directory) = flag.strip_prefix("-L") {
        println!("cargo:rustc-link-search=native={directory}");
    } else if let Some(library) = flag.strip_prefix("-l") {
        println!("cargo:rustc-link-lib=dylib={library}");
    } else if !flag.is_empty() && flag != "-pthread" {
        println!("cargo:rustc-link-arg={flag}"); // of this package's own tests
    }
}
