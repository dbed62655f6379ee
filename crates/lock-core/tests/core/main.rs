//! The core over the in-memory backend, by a clock that the test moves.

mod all;
mod both;
mod code_of_others;
mod common;
mod engine;
mod faulty;
mod latch;
mod observer;
mod once;
mod parsing;
#[path = "../properties/mod.rs"]
mod properties;
mod queue;
mod queue_model;
mod rates;
mod readers;
mod unanswered;
mod unnoticed;
