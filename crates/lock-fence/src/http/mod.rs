//! Fencing tokens of HTTP requests: layers of `tower` for servers and for clients.
//!
//! A holder sends its token in the header `Fencing-Token`. The server keeps the highest one that it has seen of each
//! resource, and refuses a request with a lower one before the application sees it.
//!
//! | header | of |
//! | --- | --- |
//! | `Fencing-Token: 7` | a holder that has the lock alone |
//! | `Fencing-Token: 7;shared` | a reader |
//! | `Fencing-Token: 7;slot=2` | a holder of permit 2 of a semaphore; of more permits, `7;slot=2;slot=3` |
//!
//! - **Servers**: [`CheckLayer`], for axum, hyper, tonic and whatever else is made of `tower` services.
//! - **Clients**: [`TokenLayer`] sets the header. For a client without layers, [`value`] is what to send as
//!   [`FENCING_TOKEN`]. [`check_response`] makes an error of kind [`Stale`](lock_core::ErrorKind::Stale) of a refusal.
//!
//! # What a check at the door does not cover
//!
//! **A request passes, stalls inside the server, and writes after a later one.** The check and the write are two steps,
//! so nothing keeps a request in between from being overtaken: by a slow disk, a full queue, or a server that is
//! paused. So pass the token on to the data store, and let that check it with the write. The handler finds the
//! [`Access`](crate::Access) in the request's extensions:
//!
//! ```text
//! async fn put(Extension(access): Extension<Access>, State(pool): State<PgPool>, body: String) -> Result<()> {
//!     let mut tx = pool.begin().await?;
//!     fence::sql::check(&mut tx, &access).await?;
//! ```
//!
//! The check at the door is still worth its microseconds: it is enough where a request is done in much less time than
//! the rest of a lease, and it refuses early.
//!
//! Nor does it cover:
//!
//! - **Other ways to the data.** What does not come through the layer is not checked.
//! - **Forgotten marks.** See [`MemoryMarks`](crate::MemoryMarks) for what a restart loses, and when to share marks.
//! - **Malice.** Any client can send the highest token and so lock all others out. Put the layer behind that which
//!   authenticates clients.
//! - **Two names for one resource.** The path is taken as it was sent, without its query: `/a` and `/a/` have a mark
//!   each. [`CheckLayer::named`] chooses another name.

mod client;
mod header;
mod server;

pub use client::{TokenLayer, TokenService, check_response};
pub use header::{FENCING_TOKEN, NEWEST_TOKEN, value};
pub use server::{CheckLayer, CheckService, Required};
