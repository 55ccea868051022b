//! Stores: sessions under names, which hold what they share once.
use crate::backend::{release, Backend, Failures, Held};
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::digest::Digest;
use crate::error::{check, Result, Status};
use crate::guard::{progress, Guard, ProgressFn};
use crate::model::Model;
use crate::options::{Codec, Keep, LoadOptions};
use crate::raw::{c_path, c_text, sized, text_of};
use crate::session::Session;
use crate::snapshot::Snapshot;
use crate::stream::load;
use stasis_sys as sys;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Open no store that is not there: [`Status::NotFound`].
    pub existing: bool,
}

/// How a call on a store runs.
#[derive(Default)]
pub struct StoreCallOptions<'a> {
    /// Of put, fork, import and export: replace what is there, whatever it is.
    pub overwrite: bool,
    /// Of put: keep the whole row of logits beside the hidden state.
    pub full_logits: bool,
    /// Of put: codec of what it writes.
    pub codec: Codec,
    /// Of put: the part of the session's keys and values that is kept.
    pub keep: Keep,
    /// Of collect, over a backend without locks: what was put less long ago stays, which must be
    /// longer than any put takes; none: a day.
    pub grace: Option<Duration>,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`].
    pub timeout: Option<Duration>,
    /// Gets done and total bytes, or objects that collect removes; a break stops.
    pub progress: Option<ProgressFn<'a>>,
}

impl StoreCallOptions<'_> {
    fn call(
        self,
        call: impl FnOnce(*const sys::stasis_store_call_options, *mut sys::stasis_error) -> i32,
    ) -> Result<()> {
        let mut guard = Guard::<ProgressFn<'_>>::new(self.progress);
        let grace = self.grace.unwrap_or_default();
        let raw = sys::stasis_store_call_options {
            flags: if self.overwrite { sys::STASIS_STORE_OVERWRITE } else { 0 }
                | if self.full_logits { sys::STASIS_STORE_FULL_LOGITS } else { 0 },
            codec: self.codec.raw(),
            keep: self.keep.raw(),
            grace_seconds: grace.as_secs() + u64::from(grace.subsec_nanos() > 0),
            cancel: raw_of(self.cancel),
            timeout_ms: raw_ms(self.timeout),
            progress: guard.is_some().then_some(progress),
            progress_user: guard.user(),
            ..sized()
        };
        let result = check(|error| call(&raw, error));
        guard.resume();
        result
    }
}

/// What a put or an import has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreResult {
    /// Root digest of what is stored now.
    pub root: Digest,
    /// Digest of the session.
    pub state: Digest,
    /// Puts to this name.
    pub sequence: u64,
    /// Bytes that this call wrote.
    pub bytes_written: u64,
    /// Bytes of pages and the like that the store had already.
    pub bytes_shared: u64,
}

/// A session in the list of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSession {
    /// Its name; of a damaged root its key.
    pub name: String,
    /// Why the root is damaged, if it is: then the others are zero.
    pub damage: Option<String>,
    /// Root digest of what is stored.
    pub root: Digest,
    /// Digest of the session.
    pub state: Digest,
    /// Identity of the model.
    pub model: Digest,
    /// Tokens in the log.
    pub position: u64,
    /// Bytes that an export writes.
    pub bytes: u64,
}

/// What a collection found and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// Sessions in the store.
    pub sessions: u64,
    /// Objects that there were.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that no session referred to, and that are gone.
    pub removed_objects: u64,
    /// Their bytes.
    pub removed_bytes: u64,
}

/// Any number of sessions, each under a name, in a directory, a file of SQLite or a [`Backend`] of
/// the host's. Any number of threads and processes may use one at the same time: a put replaces
/// exactly what its session was put to or got from last, or fails with [`Status::Conflict`], so
/// that no turn is lost.
///
/// ```
/// use stasis::{Model, Session, Status, Store};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/recall-gemma3");
/// # let folder = std::env::temp_dir().join(format!("stasis-doc-store-{}", std::process::id()));
/// let model = Model::open(path, Default::default())?;
/// let mut session = Session::create(&model, Default::default())?;
/// # let uri = format!("dir:{}", folder.display());
/// let store = Store::open(&uri, Default::default())?; // "dir:PATH" or "sqlite:PATH"
/// store.put(&mut session, "talk", Default::default())?;
///
/// let mut one = store.get(&model, "talk", Default::default())?;
/// let mut two = store.get(&model, "talk", Default::default())?;
/// one.append(&[5, 6], Default::default())?;
/// let newer = store.put(&mut one, "talk", Default::default())?;
/// let refused = store.put(&mut two, "talk", Default::default()).unwrap_err();
/// assert_eq!(refused.status(), Status::Conflict);
/// assert_eq!(refused.root(), Some(newer.root));
/// # std::fs::remove_dir_all(folder).unwrap();
/// # fn usable_from_any_thread<T: Send + Sync>() {}
/// # usable_from_any_thread::<Store>();
/// # Ok::<(), stasis::Error>(())
/// ```
pub struct Store {
    raw: NonNull<sys::stasis_store>,
    failures: Option<Arc<Failures>>,
}

// SAFETY: "all functions are thread-safe, but for close", which needs the only owner.
unsafe impl Send for Store {}
unsafe impl Sync for Store {}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the only owner; what was got from it stays as it is.
        unsafe { sys::stasis_store_close(self.raw()) }
    }
}

impl Store {
    /// Opens the store of a URI, or makes one: `dir:PATH` is a directory, `sqlite:PATH` one file,
    /// `s3://...` object storage (`stasis_store.h`).
    pub fn open(uri: &str, options: StoreOptions) -> Result<Store> {
        let uri = c_text(uri, "uri")?;
        let given = sys::stasis_store_options {
            flags: if options.existing { sys::STASIS_STORE_EXISTING } else { 0 },
            ..sized()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a zero-terminated text, a struct with its size, a place for a pointer.
        check(|error| unsafe { sys::stasis_store_open(uri.as_ptr(), &given, &mut raw, error) })?;
        Ok(Store::owned(raw, None))
    }

    /// Opens a store over a backend of the host's. The name is for messages, and tells backends
    /// apart: a session that was put to or got from a store knows it by its name.
    pub fn over(backend: impl Backend + 'static, name: &str) -> Result<Store> {
        let name = c_text(name, "name")?;
        let held = Held::new(Box::new(backend));
        let failures = Arc::clone(&held.failures);
        let table = held.table();
        let mut raw = ptr::null_mut();
        // SAFETY: structs with their sizes, a place for a pointer.
        let opened = check(|error| unsafe {
            sys::stasis_store_open_backend(&table, name.as_ptr(), ptr::null(), &mut raw, error)
        });
        if opened.is_err() {
            // SAFETY: after a failure the library has not called it, and never will.
            unsafe { release(table.user) }
        }
        opened.map(|()| Store::owned(raw, Some(failures)))
    }

    fn owned(raw: *mut sys::stasis_store, failures: Option<Arc<Failures>>) -> Store {
        Store { raw: NonNull::new(raw).expect("a store that was opened"), failures }
    }

    fn raw(&self) -> *mut sys::stasis_store {
        self.raw.as_ptr()
    }

    fn after<T>(&self, result: Result<T>) -> Result<T> {
        Failures::after(&self.failures, result)
    }

    fn call(
        &self,
        options: StoreCallOptions<'_>,
        call: impl FnOnce(*const sys::stasis_store_call_options, *mut sys::stasis_error) -> i32,
    ) -> Result<()> {
        self.after(options.call(call))
    }

    /// Returns what a call has written; a conflict says what is there.
    fn written(&self, result: Result<()>, raw: &sys::stasis_store_result) -> Result<StoreResult> {
        let (root, state) = (Digest::of(raw.root), Digest::of(raw.state));
        match result {
            Ok(()) => Ok(StoreResult {
                root,
                state,
                sequence: raw.sequence,
                bytes_written: raw.bytes_written,
                bytes_shared: raw.bytes_shared,
            }),
            Err(error) if error.status() == Status::Conflict && root != Digest::default() => {
                Err(error.with_stored(root, state))
            }
            Err(error) => Err(error),
        }
    }

    /// Stores a session under a name, whole or not at all. What is there must be what this session,
    /// or the one that it was forked from, put or got there last, and nothing if it did neither;
    /// else [`Status::Conflict`], with [`Error::root`](crate::Error::root).
    pub fn put(
        &self,
        session: &mut Session,
        name: &str,
        options: StoreCallOptions<'_>,
    ) -> Result<StoreResult> {
        let name = c_text(name, "name")?;
        let mut raw = sized();
        // SAFETY: living objects, a zero-terminated text, a struct with its size.
        let result = self.call(options, |options, error| unsafe {
            let session = session.raw();
            sys::stasis_store_put(self.raw(), session, name.as_ptr(), options, &mut raw, error)
        });
        self.written(session.after(result), &raw)
    }

    /// Continues a stored session with the same bits and settings, as [`Session::load`] does from a
    /// file. Pages that the store has lost are computed again.
    pub fn get(&self, model: &Model, name: &str, options: LoadOptions<'_>) -> Result<Session> {
        let name = c_text(name, "name")?;
        self.after(load(model, options, |options, raw, error| {
            // SAFETY: living objects, a zero-terminated text, a place for a pointer.
            unsafe {
                let model = model.raw();
                sys::stasis_store_get(self.raw(), model, name.as_ptr(), options, raw, error)
            }
        }))
    }

    /// Opens a stored session for inspection, comparison and verification. Pages are read when they
    /// are needed: after a put to this name and a collection they may be gone.
    pub fn snapshot(&self, name: &str, options: StoreCallOptions<'_>) -> Result<Snapshot> {
        let name = c_text(name, "name")?;
        let mut raw = ptr::null_mut();
        // SAFETY: a living store, a zero-terminated text, a place for a pointer.
        self.call(options, |options, error| unsafe {
            sys::stasis_store_snapshot(self.raw(), name.as_ptr(), options, &mut raw, error)
        })?;
        Ok(Snapshot::owned(raw, self.failures.clone()))
    }

    /// Returns the sessions of the store. Those that come and go meanwhile may be missing.
    pub fn list(&self, options: StoreCallOptions<'_>) -> Result<Vec<StoredSession>> {
        let mut guard = Guard::new(Some(Vec::new()));
        let user = guard.user();
        // SAFETY: a living store; the guard outlives the call.
        let result = self.call(options, |options, error| unsafe {
            sys::stasis_store_list(self.raw(), options, Some(hear), user, error)
        });
        guard.resume();
        result.map(|()| guard.closure_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Removes a name, also one whose root is damaged; collect removes what it alone referred to.
    pub fn remove(&self, name: &str, options: StoreCallOptions<'_>) -> Result<()> {
        let name = c_text(name, "name")?;
        // SAFETY: a living store, a zero-terminated text.
        self.call(options, |options, error| unsafe {
            sys::stasis_store_remove(self.raw(), name.as_ptr(), options, error)
        })
    }

    /// Gives a session a second name, under which it goes on by itself: some hundred bytes.
    pub fn fork(&self, from: &str, to: &str, options: StoreCallOptions<'_>) -> Result<()> {
        let (from, to) = (c_text(from, "from")?, c_text(to, "to")?);
        // SAFETY: a living store, zero-terminated texts.
        self.call(options, |options, error| unsafe {
            sys::stasis_store_fork(self.raw(), from.as_ptr(), to.as_ptr(), options, error)
        })
    }

    /// Removes what no session refers to, while others may use the store.
    pub fn collect(&self, options: StoreCallOptions<'_>) -> Result<Collected> {
        let mut raw: sys::stasis_store_collected = sized();
        // SAFETY: a living store, a struct with its size.
        self.call(options, |options, error| unsafe {
            sys::stasis_store_collect(self.raw(), options, &mut raw, error)
        })?;
        Ok(Collected {
            sessions: raw.sessions,
            objects: raw.objects,
            bytes: raw.bytes,
            removed_objects: raw.removed_objects,
            removed_bytes: raw.removed_bytes,
        })
    }

    /// Copies a snapshot file into the store, with the history of its commits; no model is needed.
    /// [`Status::Conflict`]: the name is there.
    pub fn import(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        options: StoreCallOptions<'_>,
    ) -> Result<StoreResult> {
        let (path, name) = (c_path(path.as_ref())?, c_text(name, "name")?);
        let mut raw = sized();
        // SAFETY: a living store, zero-terminated texts, a struct with its size.
        let result = self.call(options, |options, error| unsafe {
            let (path, name) = (path.as_ptr(), name.as_ptr());
            sys::stasis_store_import(self.raw(), path, name, options, &mut raw, error)
        });
        self.written(result, &raw)
    }

    /// Copies a stored session into a new file, which a load continues.
    pub fn export(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        options: StoreCallOptions<'_>,
    ) -> Result<()> {
        let (path, name) = (c_path(path.as_ref())?, c_text(name, "name")?);
        // SAFETY: a living store, zero-terminated texts.
        self.call(options, |options, error| unsafe {
            sys::stasis_store_export(self.raw(), name.as_ptr(), path.as_ptr(), options, error)
        })
    }
}

unsafe extern "C" fn hear(user: *mut c_void, session: *const sys::stasis_stored_session) -> i32 {
    Guard::<Vec<StoredSession>>::run(user, 1, |sessions| {
        let raw = &*session;
        sessions.push(StoredSession {
            name: text_of(raw.name),
            damage: (!raw.damage.is_null()).then(|| text_of(raw.damage)),
            root: Digest::of(raw.root),
            state: Digest::of(raw.state),
            model: Digest::of(raw.model),
            position: raw.position,
            bytes: raw.bytes,
        });
        0
    })
}

impl std::fmt::Debug for Store {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Store")
    }
}
