#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oarlock_fuzz::redis_wire(bytes));
