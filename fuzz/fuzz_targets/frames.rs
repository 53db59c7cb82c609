//! Frames cut out of a stream that arrives in pieces of any size.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::frames::check(data);
});
