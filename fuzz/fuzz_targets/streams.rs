//! What an embedded keyspace reads back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::streams::check(data);
});
