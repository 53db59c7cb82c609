//! A disk in memory and a small root over the journal alone, for every test that needs them.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod disk;
pub(crate) mod event_log;
pub(crate) mod numbers;
