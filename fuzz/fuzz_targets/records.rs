//! Canonical bytes of records, and their JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::records::check(data);
});
