//! A replica under any order of operations.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::replica::check(data);
});
