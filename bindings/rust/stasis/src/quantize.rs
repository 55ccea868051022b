//! Models to GGUF files, their weights in a smaller type.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Result};
use crate::guard::{progress, Guard, ProgressFn};
use crate::raw::{c_path, c_text, pointer_to, sized, text_in};
use stasis_sys as sys;
use std::path::Path;
use std::time::Duration;

/// How a model is written.
#[derive(Default)]
pub struct QuantizeOptions<'a> {
    /// Replace an existing GGUF file.
    pub replace: bool,
    /// As `stasis_quantize.h` lists them; none: Q8_0.
    pub kind: Option<&'a str>,
    /// That compute, the caller's included; 0: one per core.
    pub threads: u32,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total bytes of weights read; a break stops.
    pub progress: Option<ProgressFn<'a>>,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct QuantizeShare {
    pub kind: String,
    pub tensors: u64,
    pub values: u64,
    pub bytes: u64,
}

/// Outcome of a quantization.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuantizeReport {
    /// Bytes of the weights that were read.
    pub source_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Types in use, the largest first.
    pub shares: Vec<QuantizeShare>,
}

/// Writes the Hugging Face directory `path` as the GGUF file `out`, whole or not at all.
pub fn quantize(
    path: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: QuantizeOptions<'_>,
) -> Result<QuantizeReport> {
    let (path, out) = (c_path(path.as_ref())?, c_path(out.as_ref())?);
    let kind = options.kind.map(|kind| c_text(kind, "kind")).transpose()?;
    let mut guard = Guard::<ProgressFn<'_>>::new(options.progress);
    let raw = sys::stasis_quantize_options {
        flags: if options.replace { sys::STASIS_QUANTIZE_REPLACE } else { 0 },
        r#type: pointer_to(&kind),
        threads: options.threads,
        cancel: raw_of(options.cancel),
        timeout_ms: raw_ms(options.timeout),
        progress: guard.is_some().then_some(progress),
        progress_user: guard.user(),
        ..sized()
    };
    let mut report: sys::stasis_quantize_report = sized();
    // SAFETY: zero-terminated paths, structs with their sizes.
    let result = check(|error| unsafe {
        sys::stasis_model_quantize(path.as_ptr(), out.as_ptr(), &raw, &mut report, error)
    });
    guard.resume();
    result?;
    let shares = report.shares.iter().take(report.share_count as usize);
    Ok(QuantizeReport {
        source_bytes: report.source_bytes,
        file_bytes: report.file_bytes,
        shares: shares
            .map(|share| QuantizeShare {
                kind: text_in(&share.r#type),
                tensors: share.tensors,
                values: share.values,
                bytes: share.bytes,
            })
            .collect(),
    })
}
