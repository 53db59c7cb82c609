//! The messages of the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::handshake::check(data);
});
