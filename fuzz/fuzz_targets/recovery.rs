//! Recovery of a replica's directory whose bytes were altered.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::recovery::check(data);
});
