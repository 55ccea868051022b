//! SHA-256 digests.
use stasis_sys as sys;
use std::fmt;

/// 32 bytes of SHA-256; shown in hexadecimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub(crate) fn of(raw: sys::stasis_digest) -> Digest {
        Digest(raw.bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Digest({self})")
    }
}
