//! Which texts a session may draw.
use stasis_sys as sys;

/// A set of texts that a reply must be one of. `CONSTRAINTS.md` says what each notation means, and
/// what of it is not supported: that is refused by its name.
///
/// ```
/// use stasis::Constraint;
/// let vowels = Constraint::Regex("[aeiou]+");
/// assert_ne!(vowels, Constraint::Grammar("root ::= [aeiou]+"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint<'a> {
    /// Any text.
    None,
    /// The instances of a JSON schema.
    JsonSchema(&'a str),
    /// Any JSON value.
    Json,
    /// What matches a regular expression as a whole.
    Regex(&'a str),
    /// The texts of a grammar in GBNF.
    Grammar(&'a str),
}

impl Constraint<'_> {
    /// The kind and the text, for the library.
    pub(crate) fn parts(&self) -> (u32, &str) {
        match *self {
            Constraint::None => (sys::STASIS_CONSTRAINT_NONE, ""),
            Constraint::JsonSchema(text) => (sys::STASIS_CONSTRAINT_JSON_SCHEMA, text),
            Constraint::Json => (sys::STASIS_CONSTRAINT_JSON, ""),
            Constraint::Regex(text) => (sys::STASIS_CONSTRAINT_REGEX, text),
            Constraint::Grammar(text) => (sys::STASIS_CONSTRAINT_GRAMMAR, text),
        }
    }
}
