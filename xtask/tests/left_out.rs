//! Says at the end of `cargo test` what that was not. Asked for anything in particular, it says nothing.

fn main() {
    if std::env::args_os().len() == 1 {
        println!(
            "\nWhat needs servers was left out: `cargo xtask test` runs everything, and installs what it needs.\n"
        );
    }
}
