//! The layers of HTTP, over loopback.

mod client;
mod marks;
mod server;
mod site;
