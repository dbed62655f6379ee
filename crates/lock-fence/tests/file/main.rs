//! A file that carries its token, with processes that race for it and that are killed.

mod alone;
mod processes;
