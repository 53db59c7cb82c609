//! Protocol C under test: the scenarios of Pad's buses, and random schedules before an all-knowing
//! observer.

pub mod broker;
mod faults;
pub mod host;
pub mod judge;
pub mod model;
pub mod observer;
pub mod play;
pub mod redis_server;
pub mod resume;
pub mod rng;
pub mod runner;
pub mod scenario;
pub mod tally;
pub mod world;
