//! Language-model sessions that can be frozen, copied, moved and proven, bit for bit.
//!
//! ```
//! use stasis::{GenerateOptions, Model, Reply, SaveOptions, Session};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/recall-gemma3");
//! # let file = std::env::temp_dir().join(format!("stasis-doc-{}", std::process::id()));
//! let model = Model::open(path, Default::default())?;
//! let mut session = Session::create(&model, Default::default())?;
//! session.append_message("user", "What is k, if k is 5?", Reply::Prompt, Default::default())?;
//! for generated in session.generate(GenerateOptions { tokens_max: 40, ..Default::default() }) {
//!     print!("{}", generated?.text);
//! }
//! session.save(&file, SaveOptions { replace: true, ..Default::default() })?;
//!
//! let resumed = Session::load(&model, &file, Default::default())?;
//! assert_eq!(resumed.digest()?, session.digest()?); // the same from here on
//! # std::fs::remove_file(file).unwrap();
//! # Ok::<(), stasis::Error>(())
//! ```
//!
//! The comments of the C header, `stasis.h`, are the specification of every call; this crate adds:
//!
//! **Errors.** A call that fails leaves every object as it was, and returns an [`Error`] with its
//! [`Status`]. An [`std::io::Error`] of a reader or writer comes back as itself.
//!
//! **Threads.** A [`Model`], a [`Scheduler`], a [`Store`] and a [`Cancel`] serve any number of
//! threads. A
//! [`Session`] and a [`Snapshot`] serve one caller at a time: calls that change a session take
//! `&mut self`, so the compiler keeps others away; those that read take `&self` and may come from
//! several threads, for the library itself lets a second caller wait where that is short, or
//! answers with [`Status::Busy`], and never mixes two calls up. So all six are `Send` and `Sync`.
//! A session that generates is read through [`Generation::session`].
//!
//! **Closures** run on the thread that called, while the call runs. They may borrow what outlives
//! the call (a [`Trace`], what outlives everything). A closure that panics ends the call, as if it
//! had asked for that, and the panic continues in the caller after the library has returned.
//!
//! **Options** are structs whose defaults are the library's: write the fields that matter and
//! `..Default::default()`.
#![warn(missing_docs)]

mod backend;
mod cancel;
mod chat;
mod constraint;
mod data;
mod describe;
mod digest;
mod embed;
mod error;
mod estimate;
mod generate;
mod guard;
mod info;
mod metadata;
mod model;
mod model_files;
mod options;
mod quantize;
mod raw;
mod sampling;
mod scheduled;
mod scheduler;
mod session;
mod snapshot;
mod step;
mod store;
mod stream;
mod text_stream;
mod threads;
mod trace;
mod verify;

pub use backend::{Backend, VisitFn};
pub use cancel::Cancel;
pub use chat::ChatTokens;
pub use constraint::Constraint;
pub use data::{DataEntry, Role, Turn};
pub use describe::{build, TokenInfo, TokenKind};
pub use digest::Digest;
pub use embed::{EmbedInfo, EmbedInput, EmbedOptions, Pooling};
pub use error::{Error, Result, Status};
pub use estimate::{estimate, EstimateOptions, ModelEstimate, SessionMemory};
pub use generate::{GenerateOptions, GenerateResult, Generated, Generation, Stop};
pub use guard::ProgressFn;
pub use info::{ModelInfo, ModelStats, SessionInfo, SnapshotInfo};
pub use metadata::{Metadata, MetadataKind};
pub use model::{Detokenize, Message, Model, ModelOptions, Reply, Tokenize};
pub use model_files::ModelFiles;
pub use options::{
    Codec, Domain, Keep, LoadOptions, LogitsFn, RunOptions, SaveOptions, SessionOptions, Track,
    RETAIN_NONE,
};
pub use quantize::{quantize, QuantizeOptions, QuantizeReport, QuantizeShare};
pub use sampling::Sampling;
pub use scheduled::{Events, Scheduled, ScheduledId, SchedulerEnd, SchedulerEvent};
pub use scheduler::{Prompt, Refused, Scheduler, SchedulerOptions, SchedulerStats};
pub use session::{Attention, Draft, KeysValues, Session, Source};
pub use snapshot::{compact, Difference, Element, Snapshot};
pub use step::{step, StepItem};
pub use store::{Collected, Store, StoreCallOptions, StoreOptions, StoreResult, StoredSession};
pub use text_stream::{Piece, TextStream};
pub use threads::{Threads, ThreadsOptions};
pub use trace::{ListenerFn, Trace, TraceEvent, TraceKind};
pub use verify::{Part, VerifyOptions, VerifyReport};

/// A token's number, below the model's vocabulary.
pub type Token = u32;

/// The library's version, 0xMMmmpp.
pub fn version() -> u32 {
    // SAFETY: takes nothing and always succeeds.
    unsafe { stasis_sys::stasis_version() }
}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
