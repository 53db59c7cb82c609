//! Scenarios of protocol B: behaviours of the reference, and ours where the reference is wrong.

mod acts;
pub mod answers;
pub mod backend;
pub mod clock;
pub mod embedded;
pub mod every;
pub mod file;
pub mod groups;
pub mod keys;
pub mod model;
pub mod monitor;
mod options;
mod parties;
pub mod play;
pub mod random;
pub mod redis;
pub mod server;
mod shown;
mod value;
