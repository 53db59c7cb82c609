//! Two real replicas, and everything that may happen to them within small bounds: every order of
//! frames, syncs, breaks, new connections and power cuts is tried, by the model checker `stateright`.
//!
//! Nothing of the protocol is written again here. A state holds what `strandline-core` makes of it:
//! its `Recovery` and `Replica`, run by its `drain`, over its `Handshake`. A replica cannot be copied
//! (its tickets are used once), so a state is kept as the way to it and made again when it is needed;
//! two ways lead to the same state if all that the replicas hold, the disks, the frames on their way
//! and the promises given print the same. What differs only in a counter counts as two states: that
//! costs time, and hides nothing.
//!
//! **What is free:** when an append or a new `current` becomes durable, when a frame arrives, when each
//! end of a connection learns of its end, who dials, and a power cut with any beginning of what was
//! not durable. **What is not:** every other effect happens at once (the simulator and its crash
//! scripts take those apart), a frame arrives whole, and a disk keeps what it synced. Frames of one
//! connection come in order, as TCP brings them; frames of an old connection may come after those of a
//! new one. The budget of frame faults breaks that order, too: then all promises of safety must hold,
//! and the next connection must repair.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod model;
pub mod spec;
pub mod world;

#[path = "../../../core/tests/common/blobs.rs"]
#[allow(dead_code, reason = "shared with the tests of the core, which use other parts of it")]
mod blobs;
mod connection;
#[path = "../../../core/tests/common/disk.rs"]
#[allow(dead_code, reason = "shared with the tests of the core, which use other parts of it")]
mod disk;
mod host;
