//! `#[oarlock::locked(…)]` and `#[oarlock::once(…)]`. Use them by the crate `oarlock`, which re-exports them: what they
//! write calls that crate and has no behaviour of its own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod expand;
mod options;

use proc_macro::TokenStream;

/// Runs the function with a lock held, and drops it at the loss.
///
/// ```
/// use oarlock::{Locks, Result};
///
/// #[oarlock::locked(name = "orders/{id}", wait = "5s", with = lease)]
/// async fn ship(locks: &Locks, id: u64) -> Result<u64> {
///     lease.check()?;
///     Ok(id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// assert_eq!(ship(&oarlock::connect("memory:").await?, 42).await?, 42);
/// # Ok(()) }
/// ```
///
/// - `name`, required: the lock's name, with arguments of the function, or fields of these, in braces: `{id}`, `{self.id}`.
/// - `locks`: where the locks are, if no argument is called `locks`; for a method for example `locks = self.locks`.
/// - `wait`, `lease`, `max_hold`, `fair`: as on `Mutex`. A time is a text such as `"5s"`, or an expression.
/// - `with`: how the function calls the view of its hold, a `Lease`.
///
/// The function returns a `Result` whose error is made from `oarlock::Error`. An `async fn` has `oarlock::Locks`, and a
/// plain one `oarlock::blocking::Locks`: it is not dropped at the loss, and checks its lease between its steps.
#[proc_macro_attribute]
pub fn locked(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(expand::Kind::Locked, options.into(), function.into()).into()
}

/// Runs the function unless another runs it, or has done so: see `oarlock::Once`.
///
/// ```
/// use oarlock::{Locks, OnceRun, Result};
///
/// #[oarlock::once(name = "invoices", slot = "{month}", at_most = "1h")]
/// async fn invoices(locks: &Locks, month: &str) -> Result<usize> {
///     Ok(month.len())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let locks = oarlock::connect("memory:").await?;
/// assert_eq!(invoices(&locks, "2026-11").await?, OnceRun::Ran(7));
/// assert!(matches!(invoices(&locks, "2026-11").await?, OnceRun::Skipped(_)));
/// # Ok(()) }
/// ```
///
/// - `name`, required, and `slot`: texts with arguments of the function, or fields of these, in braces.
/// - `slot` or `at_least`, or both, say for how long it is done.
/// - `at_least`, `at_most`, `keep_on_failure`, `lease`: as on `Once`. A time is a text such as `"5m"`, or an expression.
/// - `locks`, `with`: as for [`locked`](macro@locked).
///
/// A function that is written to return `Result<T, E>` returns `Result<OnceRun<T>, E>`. An error is a failure of the job.
#[proc_macro_attribute]
pub fn once(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(expand::Kind::Once, options.into(), function.into()).into()
}

/// What the compiler says itself: an error that is not made from ours, and the wrong kind of locks.
///
/// ```compile_fail,E0277
/// struct Failure;
/// #[oarlock::locked(name = "x")]
/// async fn ship(locks: &oarlock::Locks) -> Result<(), Failure> { Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// #[oarlock::locked(name = "x")]
/// fn ship(locks: &oarlock::Locks) -> oarlock::Result<()> { Ok(()) }
/// ```
#[cfg(doctest)]
struct Misuse;
