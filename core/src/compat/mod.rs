//! Formats of the systems whose protocols these are.
