//! Every decoder of a message.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    strandline_fuzz::messages::check(data);
});
