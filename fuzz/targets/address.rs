#![no_main]
//! The address of a volume, as a user or an invitation gives it.

use link::Address;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match text.parse::<Address>() {
        Ok(address) => {
            assert_eq!(address.to_string().parse::<Address>().expect("just printed"), address);
        }
        Err(mistake) => assert!(!mistake.to_string().is_empty()),
    }
});
