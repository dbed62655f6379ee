//! What several stores need, and none should write twice.

mod background;
mod errors;
mod findings;
mod hand_over;
mod listing;
mod retry;
mod tls_files;
mod token_base;
mod waiters;

pub use background::Background;
pub use findings::warn_of;
pub use hand_over::InLine;
pub use retry::Failures;
pub use tls_files::{TlsFiles, read_file};
pub use token_base::TokenBase;
pub use waiters::{News, Waiters, Waiting, Watched};
