//! What several stores need, and none should write twice.

mod token_base;

pub use token_base::TokenBase;
