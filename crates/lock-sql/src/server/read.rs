//! What a server answered is read with care: the drivers panic at what no server says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use lock_core::{Error, ErrorKind, Result};
use sqlx::{ColumnIndex, Decode, Row, Type};

/// A row of which any column may be something else than was asked for.
pub(crate) trait Read: Row {
    /// What stands in this column.
    fn read<'r, T, I>(&'r self, column: I) -> Result<T>
    where
        T: Decode<'r, Self::Database> + Type<Self::Database>,
        I: ColumnIndex<Self>,
    {
        let read = catch_unwind(AssertUnwindSafe(|| self.try_get(column))).unwrap_or_else(|_| Err(panicked()));
        read.map_err(|error| {
            let message = "the server answered something else than was asked; look what is at this address";
            Error::new(ErrorKind::Unknown, message).with_source(error)
        })
    }
}

impl<R: Row> Read for R {}

/// What the driver is asked, where a panic of its is an error. The connection is of no use afterwards.
pub(crate) async fn caught<T>(asked: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    AssertUnwindSafe(asked).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> sqlx::Error {
    sqlx::Error::Protocol("the driver panicked at what the server said".to_owned())
}
