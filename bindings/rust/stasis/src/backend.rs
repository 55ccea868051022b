//! Backends of stores that the host brings.
use crate::error::{Error, Result, Status};
use crate::guard::Payload;
use crate::raw::{sized, text_of};
use stasis_sys as sys;
use std::any::Any;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Gets a key, its object's bytes and the time since it was put; false: no more.
pub type VisitFn<'a> = &'a mut dyn FnMut(&str, u64, Duration) -> bool;

/// A table of keys and bytes that a store is kept in; see [`Store::over`](crate::Store::over).
/// Objects (`objects/...`) are put once and never changed; roots (`roots/...`) are replaced. What a
/// method has written when it returns must survive.
///
/// Methods run on any thread, several at once, until the store, its snapshots and its sessions are
/// dropped; they must not use the store. An error ends the call of the store, which returns it
/// ([`Error::io`]), but for [`io::ErrorKind::TimedOut`] and a [`Status::Cancelled`] inside an
/// `io::Error`, which end it as themselves. A panic goes on in the caller.
pub trait Backend: Send + Sync {
    /// The bytes of an object; none: there is none.
    fn size(&self, key: &str) -> io::Result<Option<u64>>;
    /// Fills the buffer with bytes of an object, an empty one too, which asks whether the object is
    /// there. False: there is none, or it ends before them.
    fn read(&self, key: &str, offset: u64, buffer: &mut [u8]) -> io::Result<bool>;
    /// Puts an object if there is none of this key; if there is, its age begins anew. Nobody ever
    /// sees a part of it.
    fn put(&self, key: &str, data: &[u8]) -> io::Result<()>;
    /// A root and its mark, a text of 1 to 127 bytes that no other bytes under this key ever have;
    /// none: there is none.
    fn get_root(&self, key: &str) -> io::Result<Option<(Vec<u8>, String)>>;
    /// Puts a root in place of the one that has the mark, or without a mark of none, at once or not
    /// at all, and returns the new mark; none: another is there, or none.
    fn swap(&self, key: &str, mark: Option<&str>, data: &[u8]) -> io::Result<Option<String>>;
    /// Removes the root that has the mark. False: another is there, or none.
    fn remove_root(&self, key: &str, mark: &str) -> io::Result<bool>;
    /// Calls `visit` for each key that begins with the prefix, ascending, until it returns false.
    /// `visit` may call the other methods.
    fn list(&self, prefix: &str, visit: VisitFn<'_>) -> io::Result<()>;
    /// Removes an object; it may be gone already.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Whether there are locks. Without them, ages decide what a collection may remove.
    fn locks(&self) -> bool {
        false
    }
    /// Takes a lock, shared by all writers, or with `collect` a collector's alone. It is held until
    /// what is returned is dropped.
    fn lock(&self, _collect: bool) -> io::Result<Box<dyn Any + Send>> {
        Ok(Box::new(()))
    }
}

/// What a method has failed with.
enum Failed {
    Io(io::Error),
    Panic(Payload),
}

/// What methods have failed with, until the calls that they ended find it: these run on other
/// threads, too, and the library's message is all that they have in common.
#[derive(Default)]
pub(crate) struct Failures(Mutex<VecDeque<(String, Failed)>>);

impl Failures {
    const MOST: usize = 64;

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, Failed)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, function: &str, key: &str, failed: Failed) {
        let mut kept = self.kept();
        if kept.len() == Failures::MOST {
            kept.pop_front(); // of a call that ended otherwise
        }
        kept.push_back((format!("the backend's {function} of {key} "), failed));
    }

    fn take(&self, message: &str) -> Option<Failed> {
        let mut kept = self.kept();
        let index = kept.iter().position(|(what, _)| message.contains(what.as_str()))?;
        kept.remove(index).map(|(_, failed)| failed)
    }

    /// Returns the result of a call with what ended it, or resumes the panic that did.
    pub(crate) fn after<T>(failures: &Option<Arc<Failures>>, result: Result<T>) -> Result<T> {
        let (error, failures) = match (result, failures) {
            (Err(error), Some(failures)) if error.status() == Status::Io => (error, failures),
            (result, _) => return result,
        };
        match failures.take(error.message()) {
            Some(Failed::Panic(payload)) => resume_unwind(payload),
            Some(Failed::Io(own)) => Err(error.with_io(own)),
            None => Err(error),
        }
    }
}

/// A backend as C calls it; C owns it, by `release`.
pub(crate) struct Held {
    backend: Box<dyn Backend>,
    pub(crate) failures: Arc<Failures>,
}

impl Held {
    pub(crate) fn new(backend: Box<dyn Backend>) -> Box<Held> {
        Box::new(Held { backend, failures: Arc::default() })
    }

    /// The functions, over a box that has become C's.
    pub(crate) fn table(self: Box<Held>) -> sys::stasis_store_backend {
        let locks = self.backend.locks();
        sys::stasis_store_backend {
            size: Some(size),
            read: Some(read),
            put: Some(put),
            get_root: Some(get_root),
            swap: Some(swap),
            list: Some(list),
            remove: Some(remove),
            lock: if locks { Some(lock) } else { None },
            unlock: if locks { Some(unlock) } else { None },
            release: Some(release),
            user: Box::into_raw(self).cast(),
            ..sized()
        }
    }
}

/// The status that an error of a method ends the call with, if it is not IO.
fn own_status(error: &io::Error) -> Option<sys::stasis_status> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner.map(Error::status) {
        Some(Status::Cancelled) => Some(sys::STASIS_CANCELLED),
        Some(Status::Timeout) => Some(sys::STASIS_TIMEOUT),
        _ if error.kind() == io::ErrorKind::TimedOut => Some(sys::STASIS_TIMEOUT),
        _ => None,
    }
}

/// Runs a method for C.
///
/// # Safety
/// `user` must be that of a table, and `key` a zero-terminated text.
unsafe fn run(
    user: *mut c_void,
    function: &str,
    key: *const c_char,
    body: impl FnOnce(&dyn Backend, &str) -> io::Result<sys::stasis_status>,
) -> sys::stasis_status {
    let held = &*user.cast::<Held>();
    let key = text_of(key);
    match catch_unwind(AssertUnwindSafe(|| body(&*held.backend, &key))) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => own_status(&error).unwrap_or_else(|| {
            held.failures.keep(function, &key, Failed::Io(error));
            sys::STASIS_IO
        }),
        Err(payload) => {
            held.failures.keep(function, &key, Failed::Panic(payload));
            sys::STASIS_IO
        }
    }
}

fn found(there: bool) -> sys::stasis_status {
    if there {
        sys::STASIS_OK
    } else {
        sys::STASIS_NOT_FOUND
    }
}

/// # Safety
/// `data` must point to `length` bytes, or `length` be 0.
unsafe fn bytes<'a>(data: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data.cast(), length)
}

/// # Safety
/// `to` must have room for 128 bytes.
unsafe fn write_mark(mark: &str, to: *mut c_char) -> io::Result<()> {
    let refused = || {
        let message = format!("a backend's mark is {mark:.60?}: expected 1 to 127 bytes");
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let text = CString::new(mark).map_err(|_| refused())?;
    let bytes = text.as_bytes_with_nul();
    if mark.is_empty() || bytes.len() > 128 {
        return Err(refused());
    }
    ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
    Ok(())
}

unsafe extern "C" fn size(
    user: *mut c_void,
    key: *const c_char,
    size: *mut u64,
) -> sys::stasis_status {
    run(user, "size", key, |backend, key| {
        let told = backend.size(key)?;
        size.write(told.unwrap_or(0));
        Ok(found(told.is_some()))
    })
}

unsafe extern "C" fn read(
    user: *mut c_void,
    key: *const c_char,
    offset: u64,
    data: *mut c_void,
    length: usize,
) -> sys::stasis_status {
    run(user, "read", key, |backend, key| {
        if length == 0 {
            return Ok(found(backend.read(key, offset, &mut [])?));
        }
        ptr::write_bytes(data.cast::<u8>(), 0, length); // a backend may look at what it is given
        let buffer = std::slice::from_raw_parts_mut(data.cast::<u8>(), length);
        Ok(found(backend.read(key, offset, buffer)?))
    })
}

unsafe extern "C" fn put(
    user: *mut c_void,
    key: *const c_char,
    data: *const c_void,
    length: usize,
) -> sys::stasis_status {
    run(user, "put", key, |backend, key| {
        backend.put(key, bytes(data, length)).map(|()| sys::STASIS_OK)
    })
}

unsafe extern "C" fn get_root(
    user: *mut c_void,
    key: *const c_char,
    data: *mut c_void,
    capacity: usize,
    length: *mut usize,
    mark: *mut c_char,
) -> sys::stasis_status {
    run(user, "get_root", key, |backend, key| {
        let told = backend.get_root(key)?;
        if let Some((root, own)) = &told {
            length.write(root.len());
            if root.len() <= capacity {
                write_mark(own, mark)?;
                ptr::copy_nonoverlapping(root.as_ptr(), data.cast(), root.len());
            }
        }
        Ok(found(told.is_some()))
    })
}

unsafe extern "C" fn swap(
    user: *mut c_void,
    key: *const c_char,
    mark: *const c_char,
    data: *const c_void,
    length: usize,
    new_mark: *mut c_char,
) -> sys::stasis_status {
    run(user, "swap", key, |backend, key| {
        let mark = (!mark.is_null()).then(|| text_of(mark));
        let swapped = match (data.is_null(), mark) {
            (true, mark) => backend.remove_root(key, &mark.unwrap_or_default())?,
            (false, mark) => match backend.swap(key, mark.as_deref(), bytes(data, length))? {
                Some(made) => {
                    write_mark(&made, new_mark)?;
                    true
                }
                None => false,
            },
        };
        Ok(if swapped { sys::STASIS_OK } else { sys::STASIS_CONFLICT })
    })
}

unsafe extern "C" fn list(
    user: *mut c_void,
    prefix: *const c_char,
    visit: sys::stasis_store_key_fn,
    visit_user: *mut c_void,
) -> sys::stasis_status {
    run(user, "list", prefix, |backend, prefix| {
        let visit = visit.expect("a function of the library");
        let mut told = |key: &str, bytes: u64, age: Duration| {
            let key = CString::new(key).unwrap_or_default(); // no key of the library's has a zero
            visit(visit_user, key.as_ptr(), bytes, age.as_secs()) == 0
        };
        backend.list(prefix, &mut told).map(|()| sys::STASIS_OK)
    })
}

unsafe extern "C" fn remove(user: *mut c_void, key: *const c_char) -> sys::stasis_status {
    run(user, "remove", key, |backend, key| backend.remove(key).map(|()| sys::STASIS_OK))
}

type Lock = Box<dyn Any + Send>;

unsafe extern "C" fn lock(
    user: *mut c_void,
    collect: i32,
    lock: *mut *mut c_void,
) -> sys::stasis_status {
    let what: &[u8] = if collect != 0 { b"collect\0" } else { b"write\0" };
    run(user, "lock", what.as_ptr().cast(), |backend, _| {
        let held: Lock = backend.lock(collect != 0)?;
        lock.write(Box::into_raw(Box::new(held)).cast());
        Ok(sys::STASIS_OK)
    })
}

unsafe extern "C" fn unlock(_: *mut c_void, lock: *mut c_void) {
    drop(Box::from_raw(lock.cast::<Lock>()));
}

pub(crate) unsafe extern "C" fn release(user: *mut c_void) {
    drop(Box::from_raw(user.cast::<Held>()));
}
