//! Scenarios of protocol B: behaviours of the reference, and ours where the reference is wrong.

pub mod answers;
pub mod backend;
pub mod file;
pub mod keys;
pub mod model;
mod options;
pub mod play;
mod value;
