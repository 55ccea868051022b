//! Reads what the public headers declare. A reader of those headers, not of C: what it does not
//! recognise makes it panic, so that nothing is passed over.

/// A name with its type, as the header writes both.
pub struct Declared {
    pub name: String,
    pub kind: CType,
}

pub enum CType {
    /// `base` with `stars`, each true if the pointer is itself const; `array` elements.
    Plain {
        base: String,
        constant: bool,
        stars: Vec<bool>,
        array: Option<String>,
    },
    Function {
        result: Box<CType>,
        arguments: Vec<Declared>,
    },
}

#[derive(Default)]
pub struct Header {
    pub constants: Vec<String>,
    pub structs: Vec<(String, Vec<Declared>)>,
    pub functions: Vec<Declared>,
    pub callbacks: Vec<Declared>,
    pub opaque: Vec<String>,
    pub plain_types: Vec<Declared>,
}

pub fn read(text: &str) -> Header {
    let text = without_comments(text).replace("\\\n", " ");
    let mut header = Header::default();
    let mut code = String::new();
    for line in text.lines() {
        match line.trim().strip_prefix('#') {
            Some(directive) => header.constants.extend(constant(directive)),
            None => {
                code.push_str(line);
                code.push(' ');
            }
        }
    }
    let code = code.replace("extern \"C\" {", "");
    let mut rest = code.trim_end_matches([' ', '}']).trim();
    while !rest.is_empty() {
        let end = end_of_statement(rest);
        statement(rest[..end].trim().trim_start_matches('}').trim(), &mut header);
        rest = rest[end + 1..].trim();
    }
    header
}

fn without_comments(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("/*") {
        result.push_str(&rest[..begin]);
        let end = begin + rest[begin..].find("*/").expect("a comment that ends");
        // Lines stay lines: a definition's comment may continue on the next one.
        rest = &rest[end + 2..];
        result.push(' ');
    }
    result + rest
}

/// The name of an object-like macro with a value.
fn constant(directive: &str) -> Option<String> {
    let mut words = directive.strip_prefix("define")?.split_whitespace();
    let name = words.next().expect("a definition names something");
    assert!(!name.contains('('), "a macro with arguments: {name}");
    words.next().map(|_| name.to_string())
}

fn end_of_statement(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at,
            _ => {}
        }
    }
    panic!("a statement without an end: {code}")
}

fn statement(code: &str, header: &mut Header) {
    let defined = match code.strip_prefix("typedef ") {
        Some(defined) => defined.trim(),
        None if !code.contains('(') => return, // a struct of another header is announced
        None => return header.functions.push(function(code)),
    };
    if let Some(open) = defined.find('{') {
        let close = defined.rfind('}').expect("a struct's end");
        let name = defined[close + 1..].trim().to_string();
        let body = &defined[open + 1..close];
        header.structs.push((name, body.split(';').flat_map(fields).collect()));
    } else if defined.contains("(*") {
        header.callbacks.push(declared(defined));
    } else if let Some(named) = defined.strip_prefix("struct ") {
        header.opaque.push(named.split_whitespace().last().unwrap_or_default().to_string());
    } else {
        header.plain_types.push(declared(defined));
    }
}

/// `uint32_t a, b` and `const T *a, *b` are two fields of one type.
fn fields(line: &str) -> Vec<Declared> {
    let line = line.trim();
    if line.is_empty() {
        return Vec::new();
    }
    if line.contains("(*") {
        return vec![declared(line)];
    }
    let mut parts = line.split(',');
    let first = parts.next().unwrap_or_default().trim();
    let words = if first.starts_with("const ") || first.starts_with("struct ") { 2 } else { 1 };
    let words = if first.starts_with("const struct ") { 3 } else { words };
    let base: Vec<&str> = first.split_whitespace().take(words).collect();
    let mut found = vec![declared(first)];
    found.extend(parts.map(|part| declared(&format!("{} {}", base.join(" "), part.trim()))));
    found
}

fn function(code: &str) -> Declared {
    let open = code.find('(').unwrap_or_else(|| panic!("not a declaration: {code}"));
    let before = declared(&code[..open]);
    Declared { name: before.name, kind: of_function(before.kind, &code[open..]) }
}

fn of_function(result: CType, arguments: &str) -> CType {
    let inside = arguments.trim().trim_start_matches('(').trim_end_matches(')').trim();
    let arguments = match inside {
        "void" => Vec::new(),
        _ => inside.split(',').map(declared).collect(),
    };
    CType::Function { result: Box::new(result), arguments }
}

/// `const char *const *name`, `uint32_t name[3]` or `int32_t (*name)(void *user)`.
fn declared(code: &str) -> Declared {
    let code = code.trim();
    if let Some(at) = code.find("(*") {
        let close = at + code[at..].find(')').expect("the end of a name");
        let result = declared(&format!("{} result", &code[..at])).kind;
        let kind = of_function(result, &code[close + 1..]);
        return Declared { name: code[at + 2..close].trim().to_string(), kind };
    }
    let (code, array) = match code.find('[') {
        Some(at) => (&code[..at], Some(code[at + 1..code.len() - 1].to_string())),
        None => (code, None),
    };
    let spaced = code.replace('*', " * ");
    let mut words: Vec<&str> = spaced.split_whitespace().filter(|word| *word != "struct").collect();
    let name = words.pop().expect("a name").to_string();
    let constant = words.first() == Some(&"const");
    let base = words.remove(usize::from(constant)).to_string();
    let mut stars = Vec::new();
    for word in &words[usize::from(constant)..] {
        match (*word, stars.last_mut()) {
            ("*", _) => stars.push(false),
            ("const", Some(last)) => *last = true,
            _ => panic!("not understood: {code}"),
        }
    }
    Declared { name, kind: CType::Plain { base, constant, stars, array } }
}
