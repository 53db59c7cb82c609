//! What several test binaries share: a disk in memory, a root over the journal alone, and a cluster
//! of replicas.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod blobs;
pub(crate) mod cluster;
pub(crate) mod disk;
pub(crate) mod event_log;
pub(crate) mod forks;
pub(crate) mod handshake;
pub(crate) mod numbers;
pub(crate) mod peer;
pub(crate) mod subscriber;
