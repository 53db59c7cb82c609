//! A simulator of Strandline: replicas of the core over disks, blob stores, links and clocks that
//! fail as `docs/FAULTS.md` says. One seed gives one run, byte for byte.

pub mod blobs;
pub mod crash;
pub mod effect;
pub mod fault;
pub mod fs;
pub mod host;
pub mod model;
pub mod node;
pub mod plan;
pub mod reference_peer;
pub mod rng;
pub mod run;
pub mod shrink;
pub mod world;
