//! See the module of this name.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::checkpoint::check(data);
});
