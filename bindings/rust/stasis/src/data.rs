//! What a host keeps in a session, and the turns of its log.
use crate::error::{check, Result, Status};
use crate::raw::{c_text, fill, text_in};
use crate::session::Source;
use crate::{Session, Snapshot};
use stasis_sys as sys;
use std::mem::size_of;
use std::ptr;

/// A name of a session's data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataEntry {
    /// In a file that others wrote, bytes that are no UTF-8 are U+FFFD.
    pub name: String,
    /// Of the value.
    pub bytes: u64,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Nobody's: tokens outside a chat template's turns.
    None,
    /// The system's.
    System,
    /// The user's.
    User,
    /// The model's.
    Assistant,
    /// Of a role that none of these names, such as "tool".
    Other,
}

/// One turn of a conversation; `stasis_data.h` says where turns begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Whose it is.
    pub role: Role,
    /// Of its content; [`Source::Template`]: it has none.
    pub source: Source,
    /// Its first position, with what the chat template added.
    pub begin: u64,
    /// The position behind it.
    pub end: u64,
    /// Its first position that the template did not add: from here on [`Session::text`] shows it.
    pub content_begin: u64,
    /// The position behind its last one that the template did not add.
    pub content_end: u64,
}

// Zero is valid: `fill` gives the library arrays of them.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct RawEntry(sys::stasis_data_entry);

impl Default for RawEntry {
    fn default() -> RawEntry {
        RawEntry(sys::stasis_data_entry { struct_size: 0, reserved: 0, bytes: 0, name: [0; 256] })
    }
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct RawTurn(sys::stasis_turn);

impl Default for RawTurn {
    fn default() -> RawTurn {
        RawTurn(sys::stasis_turn {
            struct_size: 0,
            role: 0,
            begin: 0,
            end: 0,
            content_begin: 0,
            content_end: 0,
            source: 0,
            reserved: 0,
        })
    }
}

fn entries_of(raw: Vec<RawEntry>) -> Vec<DataEntry> {
    let entry = |RawEntry(raw): &RawEntry| DataEntry { name: text_in(&raw.name), bytes: raw.bytes };
    raw.iter().map(entry).collect()
}

fn turns_of(raw: Vec<RawTurn>) -> Vec<Turn> {
    let turn = |RawTurn(raw): RawTurn| Turn {
        role: match raw.role {
            sys::STASIS_ROLE_NONE => Role::None,
            sys::STASIS_ROLE_SYSTEM => Role::System,
            sys::STASIS_ROLE_USER => Role::User,
            sys::STASIS_ROLE_ASSISTANT => Role::Assistant,
            _ => Role::Other,
        },
        source: Source::of(raw.source as u8),
        begin: raw.begin,
        end: raw.end,
        content_begin: raw.content_begin,
        content_end: raw.content_end,
    };
    raw.into_iter().map(turn).collect()
}

/// None where the name is not there.
fn if_there(result: Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    match result {
        Err(error) if error.status() == Status::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Session {
    /// Keeps bytes of the host's own under a name, saved with the session; nothing that is computed
    /// depends on them. The limits are those of `stasis_data.h`.
    ///
    /// ```no_run
    /// # fn keep(session: &mut stasis::Session) -> stasis::Result<()> {
    /// session.set_data("title", b"About k")?;
    /// assert_eq!(session.data("title")?.as_deref(), Some(&b"About k"[..]));
    /// # Ok(()) }
    /// ```
    pub fn set_data(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let name = c_text(name, "name")?;
        // SAFETY: a zero-terminated name, an array with its length, whose address is never null.
        self.after(check(|error| unsafe {
            let data = bytes.as_ptr().cast();
            sys::stasis_session_set_data(self.raw(), name.as_ptr(), data, bytes.len(), error)
        }))
    }

    /// Forgets a name; [`Status::NotFound`]: it is not there.
    pub fn remove_data(&mut self, name: &str) -> Result<()> {
        let name = c_text(name, "name")?;
        // SAFETY: a zero-terminated name, and no value.
        self.after(check(|error| unsafe {
            sys::stasis_session_set_data(self.raw(), name.as_ptr(), ptr::null(), 0, error)
        }))
    }

    /// The bytes under a name, if it is there.
    pub fn data(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = c_text(name, "name")?;
        // SAFETY: a zero-terminated name, a buffer with its capacity.
        if_there(self.after(fill(|to: *mut u8, capacity, length, error| unsafe {
            let (raw, to) = (self.raw(), to.cast());
            sys::stasis_session_get_data(raw, name.as_ptr(), to, capacity, length, error)
        })))
    }

    /// The names of the data, ascending by their bytes.
    pub fn list_data(&self) -> Result<Vec<DataEntry>> {
        let stride = size_of::<RawEntry>();
        // SAFETY: an array of these structs with its capacity.
        let raw = self.after(fill(|to: *mut RawEntry, capacity, count, error| unsafe {
            sys::stasis_session_list_data(self.raw(), to.cast(), stride, capacity, count, error)
        }))?;
        Ok(entries_of(raw))
    }

    /// The turns of the log from the one that position `begin` is in.
    pub fn turns(&self, begin: u64) -> Result<Vec<Turn>> {
        let stride = size_of::<RawTurn>();
        // SAFETY: an array of these structs with its capacity.
        let raw = self.after(fill(|to: *mut RawTurn, capacity, count, error| unsafe {
            sys::stasis_session_turns(self.raw(), begin, to.cast(), stride, capacity, count, error)
        }))?;
        Ok(turns_of(raw))
    }
}

impl Snapshot {
    /// The bytes that the session had under a name, if it was there.
    pub fn data(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = c_text(name, "name")?;
        // SAFETY: a zero-terminated name, a buffer with its capacity.
        if_there(self.after(fill(|to: *mut u8, capacity, length, error| unsafe {
            let (raw, to) = (self.raw(), to.cast());
            sys::stasis_snapshot_get_data(raw, name.as_ptr(), to, capacity, length, error)
        })))
    }

    /// The names of the data that the session had, ascending by their bytes.
    pub fn list_data(&self) -> Result<Vec<DataEntry>> {
        let stride = size_of::<RawEntry>();
        // SAFETY: an array of these structs with its capacity.
        let raw = self.after(fill(|to: *mut RawEntry, capacity, count, error| unsafe {
            sys::stasis_snapshot_list_data(self.raw(), to.cast(), stride, capacity, count, error)
        }))?;
        Ok(entries_of(raw))
    }

    /// The turns of the log from the one that position `begin` is in.
    pub fn turns(&self, begin: u64) -> Result<Vec<Turn>> {
        let stride = size_of::<RawTurn>();
        // SAFETY: an array of these structs with its capacity.
        let raw = self.after(fill(|to: *mut RawTurn, capacity, count, error| unsafe {
            sys::stasis_snapshot_turns(self.raw(), begin, to.cast(), stride, capacity, count, error)
        }))?;
        Ok(turns_of(raw))
    }
}
