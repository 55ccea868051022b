//! One list of questions about the headers' declarations, as a C program and as a Rust program that
//! print the answers. The Rust one compiles only if types and signatures are the header's.
use crate::parse::{CType, Declared, Header};
use std::fmt::Write;

pub fn c_program(headers: &[Header]) -> String {
    let mut code = String::from("#include <stdio.h>\n#include \"stasis.h\"\nint main(void) {\n");
    for name in headers.iter().flat_map(|header| &header.constants) {
        let _ = writeln!(
            code,
            "printf(\"{name} %llu of %zu bytes\\n\", (unsigned long long)({name}), sizeof({name}));"
        );
    }
    for (name, fields) in headers.iter().flat_map(|header| &header.structs) {
        let _ = writeln!(code, "printf(\"{name} %zu %zu\\n\", sizeof({name}), _Alignof({name}));");
        for field in fields {
            let field = &field.name;
            let _ = writeln!(
                code,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof({name}, {field}), \
                 sizeof((({name} *)0)->{field}));"
            );
        }
    }
    code + "return 0;\n}\n"
}

/// Returns the facts of the crate whose root is `root`.
pub fn rust_program(headers: &[Header], root: &str) -> String {
    let mut code = format!("#![allow(dead_code, unused)]\n#[path = {root:?}]\nmod sys;\n");
    code.push_str("use std::{mem::*, os::raw::*, ptr::addr_of};\n");
    for declared in headers.iter().flat_map(|header| &header.functions) {
        let (name, kind) = (&declared.name, bare_function(&declared.kind));
        let _ = writeln!(code, "const _: {kind} = sys::{name};");
    }
    for declared in headers.iter().flat_map(|header| &header.callbacks) {
        let (name, kind) = (&declared.name, rust_type(&declared.kind));
        let _ = writeln!(code, "const _: fn(sys::{name}) -> {kind} = |same| same;");
    }
    for declared in headers.iter().flat_map(|header| &header.plain_types) {
        let (name, kind) = (&declared.name, rust_type(&declared.kind));
        let _ = writeln!(code, "const _: fn(sys::{name}) -> {kind} = |same| same;");
    }
    for name in headers.iter().flat_map(|header| &header.opaque) {
        let _ = writeln!(code, "const _: [(); 0] = [(); size_of::<sys::{name}>()];");
    }
    code.push_str("fn main() {\n");
    for name in headers.iter().flat_map(|header| &header.constants) {
        let _ = writeln!(
            code,
            "println!(\"{name} {{}} of {{}} bytes\", sys::{name} as u64, \
             size_of_val(&sys::{name}));"
        );
    }
    for (name, fields) in headers.iter().flat_map(|header| &header.structs) {
        structure(&mut code, name, fields);
    }
    code + "}\n"
}

fn structure(code: &mut String, name: &str, fields: &[Declared]) {
    let _ = writeln!(code, "{{\nlet at = MaybeUninit::<sys::{name}>::uninit();");
    let _ = writeln!(
        code,
        "println!(\"{name} {{}} {{}}\", size_of::<sys::{name}>(), align_of::<sys::{name}>());"
    );
    for Declared { name: field, kind } in fields {
        let kind = rust_type(kind);
        let raw = if field == "type" { "r#type" } else { field };
        // The annotation holds the type, the arithmetic the place.
        let _ = writeln!(
            code,
            "let place: *const {kind} = unsafe {{ addr_of!((*at.as_ptr()).{raw}) }};\n\
             println!(\"{name}.{field} {{}} {{}}\", place as usize - at.as_ptr() as usize, \
             size_of::<{kind}>());"
        );
    }
    code.push_str("}\n");
}

fn bare_function(kind: &CType) -> String {
    let (result, arguments) = match kind {
        CType::Function { result, arguments } => (result, arguments),
        CType::Plain { .. } => panic!("not a function"),
    };
    let arguments: Vec<String> = arguments.iter().map(|each| rust_type(&each.kind)).collect();
    let result = match rust_type(result) {
        nothing if nothing == "c_void" => String::new(),
        something => format!(" -> {something}"),
    };
    format!("unsafe extern \"C\" fn({}){result}", arguments.join(", "))
}

fn rust_type(kind: &CType) -> String {
    let (base, mut constant, stars, array) = match kind {
        CType::Function { .. } => return format!("Option<{}>", bare_function(kind)),
        CType::Plain { base, constant, stars, array } => (base, *constant, stars, array),
    };
    let mut name = match base.as_str() {
        "char" => "c_char".to_string(),
        "void" => "c_void".to_string(),
        "float" => "f32".to_string(),
        "double" => "f64".to_string(),
        "size_t" => "usize".to_string(),
        fixed if fixed.starts_with("uint") => format!("u{}", &fixed[4..fixed.len() - 2]),
        fixed if fixed.starts_with("int") => format!("i{}", &fixed[3..fixed.len() - 2]),
        own => format!("sys::{own}"),
    };
    for star in stars {
        name = format!("*{} {name}", if constant { "const" } else { "mut" });
        constant = *star;
    }
    match array {
        None => name,
        Some(count) if count.starts_with("STASIS") => format!("[{name}; sys::{count} as usize]"),
        Some(count) => format!("[{name}; {count}]"),
    }
}
