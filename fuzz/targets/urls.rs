#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| oarlock_fuzz::urls(text));
