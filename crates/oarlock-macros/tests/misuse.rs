//! Each misuse is an error that points at the words that are wrong. `TRYBUILD=overwrite` writes what is said now.

#[test]
fn what_is_wrong_is_said() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
