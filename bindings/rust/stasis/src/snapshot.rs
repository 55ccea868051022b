//! Snapshot files without their model.
use crate::backend::Failures;
use crate::error::{check, Result};
use crate::guard::Guard;
use crate::info::SnapshotInfo;
use crate::options::SaveOptions;
use crate::raw::{c_path, fill, sized, text_from, text_in};
use crate::session::Source;
use crate::stream::{source, Stream};
use crate::Token;
use stasis_sys as sys;
use std::io::Read;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// An opened snapshot, read-only. As with a session, a second caller at the same time gets
/// [`Status::Busy`](crate::Status::Busy).
///
/// ```
/// fn usable_from_any_thread<T: Send + Sync>() {}
/// usable_from_any_thread::<stasis::Snapshot>();
/// ```
pub struct Snapshot {
    raw: NonNull<sys::stasis_snapshot>,
    failures: Option<Arc<Failures>>, // of the host's backend that it is read from
}

// SAFETY: it belongs to no thread, and a second caller gets BUSY.
unsafe impl Send for Snapshot {}
unsafe impl Sync for Snapshot {}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: the only owner, and no call can be running on what it owns.
        unsafe { sys::stasis_snapshot_close(self.raw.as_ptr()) }
    }
}

/// One of the twelve elements of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Element {
    KvCache,
    TokenEmbeddings,
    PositionalState,
    InputTokens,
    AttentionMask,
    ModelConfig,
    LayerNorms,
    AttentionWeights,
    Logits,
    Tokenizer,
    FormatVersion,
    Provenance,
    /// A number that this crate does not know.
    Other(u32),
}

/// By their numbers, from 1 on.
const ELEMENTS: [Element; 12] = [
    Element::KvCache,
    Element::TokenEmbeddings,
    Element::PositionalState,
    Element::InputTokens,
    Element::AttentionMask,
    Element::ModelConfig,
    Element::LayerNorms,
    Element::AttentionWeights,
    Element::Logits,
    Element::Tokenizer,
    Element::FormatVersion,
    Element::Provenance,
];

impl Element {
    /// All of them.
    pub const ALL: [Element; 12] = ELEMENTS;

    /// The number in the header.
    pub fn number(self) -> u32 {
        match self {
            Element::Other(number) => number,
            known => (1..).zip(ELEMENTS).find(|(_, it)| *it == known).map_or(0, |(at, _)| at),
        }
    }

    pub(crate) fn of(number: u32) -> Element {
        let index = number.wrapping_sub(1) as usize;
        ELEMENTS.get(index).copied().unwrap_or(Element::Other(number))
    }
}

/// The first difference between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The element that differs.
    pub element: Element,
    /// None: no layer applies.
    pub layer: Option<u32>,
    /// KV head; none: no head applies.
    pub head: Option<u32>,
    /// None: no position applies.
    pub position: Option<u64>,
    /// The difference in words.
    pub message: String,
}

pub(crate) fn somewhere(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number != sys::STASIS_NOWHERE)
}

pub(crate) fn some_position(position: u64) -> Option<u64> {
    Some(position).filter(|position| *position != u64::MAX)
}

impl Snapshot {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Snapshot> {
        let path = c_path(path.as_ref())?;
        let mut raw = ptr::null_mut();
        // SAFETY: a zero-terminated path, a place for a pointer.
        check(|error| unsafe { sys::stasis_snapshot_open(path.as_ptr(), &mut raw, error) })?;
        Ok(Snapshot::owned(raw, None))
    }

    /// Opens what a reader gives and keeps all of it in memory. If the reader fails, its error
    /// comes back as itself ([`Error::io`](crate::Error::io)).
    pub fn read(mut from: impl Read) -> Result<Snapshot> {
        let mut guard = Guard::<Stream<&mut dyn Read>>::over(&mut from);
        let source = source(&mut guard);
        let mut raw = ptr::null_mut();
        // SAFETY: a struct with its size, a place for a pointer.
        let result =
            check(|error| unsafe { sys::stasis_snapshot_open_source(&source, &mut raw, error) });
        let snapshot = result.map(|()| Snapshot::owned(raw, None));
        guard.finish(snapshot)
    }

    pub(crate) fn owned(
        raw: *mut sys::stasis_snapshot,
        failures: Option<Arc<Failures>>,
    ) -> Snapshot {
        Snapshot { raw: NonNull::new(raw).expect("a snapshot that was opened"), failures }
    }

    /// Work to do after a call on the snapshot has returned.
    pub(crate) fn after<T>(&self, result: Result<T>) -> Result<T> {
        Failures::after(&self.failures, result)
    }

    /// Describes the state.
    pub fn info(&self) -> Result<SnapshotInfo> {
        let mut info = sized();
        // SAFETY: a living snapshot and a struct with its size.
        self.after(check(|error| unsafe {
            sys::stasis_snapshot_get_info(self.raw(), &mut info, error)
        }))?;
        Ok(SnapshotInfo::of(&info))
    }

    /// One of the twelve elements, as a JSON object.
    pub fn element(&self, element: Element) -> Result<String> {
        let number = element.number();
        // SAFETY: a buffer with its capacity.
        let json = self.after(fill(|json: *mut u8, capacity, length, error| unsafe {
            sys::stasis_snapshot_element(self.raw(), number, json.cast(), capacity, length, error)
        }))?;
        Ok(text_from(json))
    }

    /// Tokens from `begin` to the end.
    pub fn tokens(&self, begin: u64) -> Result<Vec<Token>> {
        let none = ptr::null_mut();
        // SAFETY: a buffer with its capacity, and none for sources.
        self.after(fill(|tokens, capacity, count, error| unsafe {
            sys::stasis_snapshot_tokens(self.raw(), begin, tokens, none, capacity, count, error)
        }))
    }

    /// Returns the sources of the tokens from `begin` to the end.
    pub fn sources(&self, begin: u64) -> Result<Vec<Source>> {
        let none = ptr::null_mut();
        // SAFETY: a buffer with its capacity, and none for tokens.
        let sources = self.after(fill(|sources, capacity, count, error| unsafe {
            sys::stasis_snapshot_tokens(self.raw(), begin, none, sources, capacity, count, error)
        }))?;
        Ok(sources.into_iter().map(Source::of).collect())
    }

    /// The first difference: identity and settings, then tokens, then keys and values by position.
    /// None: the states are equal.
    pub fn compare(&self, other: &Snapshot) -> Result<Option<Difference>> {
        let mut raw: sys::stasis_difference = sized();
        // SAFETY: two living snapshots and a struct with its size.
        self.after(check(|error| unsafe {
            sys::stasis_snapshot_compare(self.raw(), other.raw(), &mut raw, error)
        }))?;
        Ok((raw.equal == 0).then(|| Difference {
            element: Element::of(raw.element),
            layer: somewhere(raw.layer),
            head: somewhere(raw.head),
            position: some_position(raw.position),
            message: text_in(&raw.message),
        }))
    }

    pub(crate) fn raw(&self) -> *mut sys::stasis_snapshot {
        self.raw.as_ptr()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Snapshot").field("info", &self.info()).finish()
    }
}

/// Puts a new file in the place of a snapshot that holds its state and nothing else. Only cancel,
/// timeout, progress and codec of the options apply.
pub fn compact(path: impl AsRef<Path>, options: SaveOptions<'_>) -> Result<()> {
    let path = c_path(path.as_ref())?;
    // SAFETY: a zero-terminated path.
    options.call(|options, error| unsafe {
        sys::stasis_snapshot_compact(path.as_ptr(), options, error)
    })
}
