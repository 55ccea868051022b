//! What a model's files say of it, by key.
use crate::error::{check, Result, Status};
use crate::raw::{c_text, copied, sized, text_of};
use crate::Model;
use stasis_sys as sys;

/// What a model's files say of it under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// A GGUF file's own, such as `general.name`; or of a directory the name of a JSON file and
    /// its members', such as `config.hidden_size`.
    pub key: String,
    /// How the value is given.
    pub kind: MetadataKind,
    /// Of that kind.
    pub value: String,
}

/// How a value of metadata is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataKind {
    /// The value itself.
    Text,
    /// A number, a boolean, null or an array, in JSON.
    Json,
    /// Too large: the value says what it is.
    LeftOut,
}

impl Metadata {
    /// # Safety
    /// The pointers must be those of a living model.
    unsafe fn of(raw: &sys::stasis_metadata) -> Metadata {
        Metadata {
            key: text_of(raw.key),
            kind: match raw.kind {
                sys::STASIS_METADATA_TEXT => MetadataKind::Text,
                sys::STASIS_METADATA_JSON => MetadataKind::Json,
                _ => MetadataKind::LeftOut,
            },
            value: String::from_utf8_lossy(&copied(raw.value.cast::<u8>(), raw.length))
                .into_owned(),
        }
    }
}

impl Model {
    /// What the model's files say under one key; none: nothing.
    pub fn metadata(&self, key: &str) -> Result<Option<Metadata>> {
        let key = c_text(key, "key")?;
        let mut raw = sized();
        // SAFETY: a living model, which owns the texts, and a struct with its size.
        found(unsafe {
            check(|error| sys::stasis_model_get_metadata(self.raw(), key.as_ptr(), &mut raw, error))
                .map(|()| Metadata::of(&raw))
        })
    }

    /// What the model's files say, in the order of the keys.
    pub fn all_metadata(&self) -> Result<Vec<Metadata>> {
        let mut all = Vec::new();
        let mut raw = sized();
        loop {
            // SAFETY: a living model, which owns the texts, and a struct with its size.
            let next = found(unsafe {
                check(|error| {
                    sys::stasis_model_get_metadata_at(self.raw(), all.len(), &mut raw, error)
                })
                .map(|()| Metadata::of(&raw))
            })?;
            match next {
                Some(metadata) => all.push(metadata),
                None => return Ok(all),
            }
        }
    }
}

fn found(result: Result<Metadata>) -> Result<Option<Metadata>> {
    match result {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.status() == Status::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
