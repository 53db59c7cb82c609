//! Frames and messages of protocol A.

pub mod admission;
pub mod auth;
pub mod batch_builder;
pub mod blob;
pub mod capability;
pub mod error;
pub mod frame;
pub mod handshake;
pub mod identity;
pub mod json_read;
pub mod json_write;
pub mod limits;
pub mod message;
pub mod own;
pub mod repair;
