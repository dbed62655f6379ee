//! Many claims, some of them with each request.

use lock_core::{Claim, Result};

/// Asks for some claims after the others. Answers each in its place; what fails is an error of all that were asked for
/// with it.
pub(crate) async fn some_at_a_time<'c, T, F>(
    groups: impl Iterator<Item = &'c [Claim]>,
    ask: impl Fn(&'c [Claim]) -> F,
) -> Vec<Result<T>>
where
    T: Clone,
    F: Future<Output = Result<Vec<T>>>,
{
    let mut answers = Vec::new();
    for some in groups {
        match ask(some).await {
            Ok(told) => answers.extend(told.into_iter().map(Ok)),
            Err(error) => answers.extend(vec![Err(error); some.len()]),
        }
    }
    answers
}

/// So many of these claims at a time, those with the same lease together.
#[cfg(feature = "mysql")]
pub(crate) fn of_one_lease(claims: &[Claim], most: usize) -> impl Iterator<Item = &[Claim]> {
    claims.chunk_by(|one, next| one.lease == next.lease).flat_map(move |same| same.chunks(most))
}
