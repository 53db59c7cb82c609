//! Frames and messages of protocol A.
