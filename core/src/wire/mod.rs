//! Frames and messages of protocol A.

pub mod json_write;
