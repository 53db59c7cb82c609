//! The handshake: its messages, and the machine that reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::handshake::check(data);
});
