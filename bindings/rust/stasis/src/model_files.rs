//! Files of models that are not at a path.
use crate::guard::Guard;
use crate::raw::{sized, text_of};
use crate::stream::Stream;
use stasis_sys as sys;
use std::io;
use std::os::raw::{c_char, c_void};
use std::ptr;

/// Gives the files of a model by their names, from an archive, an object store or memory; see
/// [`Model::open_files`](crate::Model::open_files).
pub trait ModelFiles {
    /// The size of a file in bytes, the same at every call; none: there is none of this name.
    fn size(&mut self, name: &str) -> io::Result<Option<u64>>;
    /// Reads at least a byte, from an offset below the size on, and returns how many.
    fn read_at(&mut self, name: &str, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

type Files<'a> = &'a mut dyn ModelFiles;

const FAILED: i64 = -2;

unsafe extern "C" fn size(user: *mut c_void, name: *const c_char) -> i64 {
    let name = text_of(name);
    Guard::<Stream<Files<'_>>>::run(user, FAILED, |files| match files.end.size(&name) {
        Ok(found) => found.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX)),
        Err(error) => files.fail(error, FAILED),
    })
}

unsafe extern "C" fn read(
    user: *mut c_void,
    name: *const c_char,
    offset: u64,
    data: *mut c_void,
    size: usize,
) -> i64 {
    let name = text_of(name);
    // A reader may look at what it is given.
    ptr::write_bytes(data.cast::<u8>(), 0, size);
    let bytes = std::slice::from_raw_parts_mut(data.cast::<u8>(), size);
    Guard::<Stream<Files<'_>>>::run(user, FAILED, |files| loop {
        match files.end.read_at(&name, offset, bytes) {
            Ok(count) => return i64::try_from(count).unwrap_or(i64::MAX),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return files.fail(error, FAILED),
        }
    })
}

pub(crate) fn guard<'a>(files: Files<'a>) -> Guard<Stream<Files<'a>>> {
    Guard::over(files)
}

/// The files as C sees them, for as long as the guard lives.
pub(crate) fn source(guard: &mut Guard<Stream<Files<'_>>>) -> sys::stasis_model_source {
    sys::stasis_model_source { size: Some(size), read: Some(read), user: guard.user(), ..sized() }
}
