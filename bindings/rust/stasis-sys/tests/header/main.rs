//! The declarations are the header's: constants with their values and sizes, structs with the place
//! and type of every field, functions and callbacks with their signatures. And the check detects a
//! declaration that is not: each kind of fault is planted in a copy of the sources.
mod facts;
mod parse;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADERS: [&str; 13] = [
    "stasis",
    "stasis_chat",
    "stasis_constraint",
    "stasis_data",
    "stasis_describe",
    "stasis_embed",
    "stasis_generate",
    "stasis_quantize",
    "stasis_resources",
    "stasis_scheduler",
    "stasis_snapshot",
    "stasis_store",
    "stasis_trace",
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header_folder() -> PathBuf {
    here().join("../../../abi")
}

/// A folder of its own for one test, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("stasis-sys-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Output of a command, or its error message.
fn output(command: &mut Command) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

fn answers_of_c(headers: &[parse::Header], folder: &Path) -> Result<String, String> {
    let (source, program) = (folder.join("facts.c"), folder.join("facts_c"));
    fs::write(&source, facts::c_program(headers)).map_err(|error| error.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    output(
        Command::new(compiler)
            .args(["-std=c11", "-Wall", "-Werror", "-I"])
            .arg(header_folder())
            .arg(&source)
            .arg("-o")
            .arg(&program),
    )?;
    output(&mut Command::new(program))
}

fn answers_of_rust(
    headers: &[parse::Header],
    sources: &Path,
    folder: &Path,
) -> Result<String, String> {
    let (source, program) = (folder.join("facts.rs"), folder.join("facts_rust"));
    let root = sources.join("lib.rs").display().to_string();
    fs::write(&source, facts::rust_program(headers, &root)).map_err(|error| error.to_string())?;
    // `crate` would be the program's, as the sources are a module of this test.
    for entry in fs::read_dir(sources).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let moved = text.replace("use crate::", "use super::");
        fs::write(&path, moved).map_err(|error| error.to_string())?;
    }
    output(
        Command::new(env!("STASIS_SYS_RUSTC"))
            .args(["--edition", "2021", "-o"])
            .arg(&program)
            .arg(&source),
    )?;
    output(&mut Command::new(program))
}

/// Names that the sources declare and the header does not.
fn strangers(headers: &[parse::Header], text: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    for header in headers {
        known.extend(header.constants.iter().chain(&header.opaque).cloned());
        known.extend(header.structs.iter().map(|(name, _)| name.clone()));
        let named = header.functions.iter().chain(&header.callbacks).chain(&header.plain_types);
        known.extend(named.map(|declared| declared.name.clone()));
    }
    let word = |text: &str| -> String {
        text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let mut found = Vec::new();
    for start in ["pub const ", "pub struct ", "pub fn ", "pub type "] {
        let names = text.split(start).skip(1).map(word).filter(|name| !name.is_empty());
        found.extend(names.filter(|name| !known.contains(name)));
    }
    found
}

/// Holds the sources, after `edit` of all of their text, against the headers.
fn check(name: &str, edit: impl Fn(String) -> String) -> Result<usize, String> {
    let folder = Folder::new(name);
    let headers: Vec<parse::Header> = HEADERS
        .iter()
        .map(|name| header_folder().join(format!("{name}.h")))
        .map(|path| parse::read(&fs::read_to_string(path).expect("a public header")))
        .collect();
    let sources = folder.0.join("src");
    fs::create_dir(&sources).map_err(|error| error.to_string())?;
    for entry in fs::read_dir(here().join("src")).expect("the sources") {
        let path = entry.expect("a source").path();
        let text = edit(fs::read_to_string(&path).expect("a source"));
        let strangers = strangers(&headers, &text);
        if !strangers.is_empty() {
            return Err(format!("not in the header: {strangers:?}"));
        }
        fs::write(sources.join(path.file_name().expect("a name")), text).expect("a copy");
    }
    let c = answers_of_c(&headers, &folder.0)?;
    let rust = answers_of_rust(&headers, &sources, &folder.0)?;
    for (c, rust) in c.lines().zip(rust.lines()) {
        if c != rust {
            return Err(format!("the header has {c}, the crate {rust}"));
        }
    }
    assert_eq!(c.lines().count(), rust.lines().count());
    let signatures = headers.iter().map(|header| header.functions.len() + header.callbacks.len());
    Ok(c.lines().count() + signatures.sum::<usize>())
}

#[test]
fn the_declarations_are_the_headers() {
    let facts = check("whole", |text| text).unwrap_or_else(|reason| panic!("{reason}"));
    println!("{facts} facts compared");
    assert!(facts > 400, "{facts} facts: is the header read whole?");
}

#[test]
fn every_public_header_is_read() {
    let mut found: Vec<String> = fs::read_dir(header_folder())
        .expect("the headers")
        .map(|entry| entry.expect("a header").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("stasis") && name.ends_with(".h"))
        .collect();
    found.sort();
    assert_eq!(found, HEADERS.map(|name| format!("{name}.h")));
}

/// Replaces one text, which must occur in the sources, in all of them together.
fn refused(name: &str, from: &'static str, to: &'static str, because: &str) {
    let texts = fs::read_dir(here().join("src"))
        .expect("the sources")
        .map(|entry| fs::read_to_string(entry.expect("a source").path()).expect("a source"));
    assert_eq!(texts.filter(|text| text.contains(from)).count(), 1, "{from}");
    let reason = check(name, |text| text.replace(from, to)).expect_err(name);
    assert!(reason.contains(because), "{name}: {reason}");
}

#[test]
fn a_missing_function_is_seen() {
    refused("function", "pub fn stasis_version() -> u32;", "", "stasis_version");
}

#[test]
fn fields_in_another_order_are_seen() {
    refused(
        "order",
        "pub position: u64,\n    pub file_bytes: u64,",
        "pub file_bytes: u64,\n    pub position: u64,",
        "stasis_snapshot_info.position",
    );
}

#[test]
fn a_missing_field_is_seen() {
    refused("field", "    pub kv_free_bytes: u64,\n", "", "kv_free_bytes");
    // At the end of a struct, in its padding, no size would show it.
    refused("tail", "    pub dry_range: u32,\n", "", "dry_range");
}

#[test]
fn a_wrong_constant_is_seen() {
    refused("constant", "STASIS_FULL: stasis_status = 9", "STASIS_FULL: stasis_status = 8", "FULL");
    refused("width", "STASIS_NOWHERE: u32 = u32::MAX", "STASIS_NOWHERE: u64 = 0xFFFF_FFFF", "NOWH");
}

#[test]
fn a_wrong_signature_is_seen() {
    refused("result", "pub fn stasis_version() -> u32;", "pub fn stasis_version() -> i32;", "i32");
    refused("type", "pub temperature: f32", "pub temperature: u32", "f32");
    refused("callback", "done: u64, total: u64) -> i32", "done: u64, total: u32) -> i32", "u32");
}

#[test]
fn a_name_of_its_own_is_seen() {
    refused("stranger", "STASIS_OK", "STASIS_FINE", "STASIS_FINE");
}
