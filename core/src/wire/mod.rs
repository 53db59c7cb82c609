//! Frames and messages of protocol A.

pub mod frame;
pub mod json_read;
pub mod json_write;
