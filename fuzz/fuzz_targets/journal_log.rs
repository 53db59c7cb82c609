//! A bare journal under any order of operations.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::journal_log::check(data);
});
