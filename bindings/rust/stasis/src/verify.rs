//! Proof: what a snapshot holds, computed again.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Result, Status};
use crate::guard::{progress, Guard, ProgressFn};
use crate::model::Model;
use crate::raw::{sized, text_in};
use crate::snapshot::{some_position, somewhere, Element, Snapshot};
use stasis_sys as sys;
use std::ops::Range;
use std::time::Duration;

/// The part to recompute.
#[derive(Default)]
pub struct VerifyOptions<'a> {
    /// Positions computed together; 0: chosen.
    pub chunk: u32,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total positions now and then; a break stops.
    pub progress: Option<ProgressFn<'a>>,
    /// Percentage of the pages to recompute, up to 100; 0: the whole log.
    pub audit_percent: f64,
    /// Decides which; to be chosen after the file was made.
    pub audit_seed: u64,
    /// First the checksums of all that the file holds, dead bytes included.
    pub strict: bool,
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Keys,
    Values,
}

/// Outcome of a verification; in the error of one that found other bits, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Positions recomputed.
    pub positions: u64,
    /// First position that differs.
    pub position: Option<u64>,
    /// Layer of the first difference.
    pub layer: Option<u32>,
    /// The element that differs; none: all is as stored.
    pub element: Option<Element>,
    /// The difference in words.
    pub message: String,
    /// KV head.
    pub head: Option<u32>,
    /// Keys or values.
    pub part: Option<Part>,
    /// Tokens drawn again.
    pub drawn: u64,
    /// Drawn tokens that differed.
    pub drawn_otherwise: u64,
    /// Pages that an audit drew from.
    pub audit_pages: u64,
    /// Pages that it drew.
    pub audit_drawn: u64,
    /// Positions that the audit cannot recompute.
    pub unreachable: Range<u64>,
    /// Sections of the file that `strict` has found right.
    pub sections: u64,
    /// The root of the last commit is damaged: it was the state before it that was verified.
    pub older: bool,
}

impl VerifyReport {
    fn of(raw: &sys::stasis_verify_report) -> VerifyReport {
        VerifyReport {
            positions: raw.positions,
            position: some_position(raw.position),
            layer: somewhere(raw.layer),
            element: (raw.verified == 0).then(|| Element::of(raw.element)),
            message: text_in(&raw.message),
            head: somewhere(raw.head),
            part: match raw.part {
                sys::STASIS_KEYS if raw.verified == 0 => Some(Part::Keys),
                sys::STASIS_VALUES if raw.verified == 0 => Some(Part::Values),
                _ => None,
            },
            drawn: raw.drawn,
            drawn_otherwise: raw.drawn_otherwise,
            audit_pages: raw.audit_pages,
            audit_drawn: raw.audit_drawn,
            unreachable: raw.unreachable_begin..raw.unreachable_end,
            sections: raw.sections,
            older: raw.older != 0,
        }
    }
}

impl Snapshot {
    /// Recomputes everything from the token log and compares it with what is stored. Other bits are
    /// an error, [`Status::Diverged`], that says where
    /// ([`Error::divergence`](crate::Error::divergence)).
    pub fn verify(&self, model: &Model, options: VerifyOptions<'_>) -> Result<VerifyReport> {
        let mut guard = Guard::<ProgressFn<'_>>::new(options.progress);
        let raw = sys::stasis_verify_options {
            chunk: options.chunk,
            cancel: raw_of(options.cancel),
            timeout_ms: raw_ms(options.timeout),
            progress: guard.is_some().then_some(progress),
            progress_user: guard.user(),
            audit_percent: options.audit_percent,
            audit_seed: options.audit_seed,
            flags: if options.strict { sys::STASIS_VERIFY_STRICT } else { 0 },
            ..sized()
        };
        let mut report = sized();
        // SAFETY: a living snapshot and model, structs with their sizes.
        let result = check(|error| unsafe {
            sys::stasis_snapshot_verify(self.raw(), model.raw(), &raw, &mut report, error)
        });
        guard.resume();
        let report = VerifyReport::of(&report);
        match result {
            Ok(()) => Ok(report),
            Err(error) if error.status() == Status::Diverged => Err(error.with_report(report)),
            Err(error) => self.after(Err(error)),
        }
    }
}
