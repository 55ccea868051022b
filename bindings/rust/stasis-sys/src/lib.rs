//! Raw declarations of everything in Stasis' public headers (`stasis.h` and what it includes), one
//! file for each of them. The headers' comments are the specification and are not repeated. A test
//! compares names, types, values, layouts and signatures with the headers.
//!
//! The crate `stasis` is the safe way to all of this.
#![allow(non_camel_case_types)]

mod chat;
mod constraint;
mod data;
mod describe;
mod embed;
mod generate;
mod quantize;
mod resources;
mod scheduler;
mod snapshot;
mod stasis;
mod store;
mod trace;

pub use chat::*;
pub use constraint::*;
pub use data::*;
pub use describe::*;
pub use embed::*;
pub use generate::*;
pub use quantize::*;
pub use resources::*;
pub use scheduler::*;
pub use snapshot::*;
pub use stasis::*;
pub use store::*;
pub use trace::*;
