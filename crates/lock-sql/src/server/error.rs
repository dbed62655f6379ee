//! What an error of a server means to a caller, with the way out.

use std::io;

use futures_util::stream::BoxStream;
use lock_core::{Error, ErrorKind, Result};
use sqlx::database::HasStatementCache;
use sqlx::error::DatabaseError;
use sqlx::{Database, Either};

use super::ConnectionOf;
use super::options::{Mode, Table};

/// How a server speaks.
pub(crate) trait Dialect: Sized + Send + Sync + 'static {
    /// The driver.
    type Database: Database + HasStatementCache;

    /// What the server says with this error.
    fn explain(error: &dyn DatabaseError) -> Said;

    /// Sends this text, statements without parameters, as one message.
    fn ask(connection: &mut ConnectionOf<Self>, text: String) -> Answering<'_, Self>;
}

/// What comes for a request, as it comes.
pub(crate) type Answering<'c, D> = BoxStream<
    'c,
    sqlx::Result<
        Either<<<D as Dialect>::Database as Database>::QueryResult, <<D as Dialect>::Database as Database>::Row>,
    >,
>;

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: ErrorKind,
    /// What is wrong, and the way out.
    pub(crate) wrong: &'static str,
    pub(crate) next: Next,
}

/// What to do about the connection and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the server answered.
    Stay,
    /// The server undid the request because another was in the way. It may be asked again.
    Again,
    /// The connection is of no use any more.
    Leave,
}

/// What to do about tables that this version cannot use.
macro_rules! other_tables {
    () => {
        "remove them while no program uses them, or name others by `table`"
    };
}

/// Something that a statement names is not there, or is another thing.
pub(crate) const SHAPE: Said = Said::new(
    ErrorKind::Refused,
    concat!("the tables have another shape than this version's; ", other_tables!()),
    Next::Stay,
);

const UNSAFE: Said = Said::new(
    ErrorKind::Refused,
    "no safe connection: it has no TLS, or a certificate that is not trusted or for another host; check sslmode and sslrootcert",
    Next::Leave,
);

/// Can tables of this version be used by a program that knows this one?
pub(crate) fn fit(found: Option<i64>, known: i64, server: &str, table: &Table) -> Result<()> {
    let way_out = match found {
        Some(found) if found == known => return Ok(()),
        Some(found) if found > known => "upgrade it, or name others by `table`",
        _ => other_tables!(),
    };
    let found = found.map_or_else(|| "no version".to_owned(), |found| format!("version {found}"));
    Err(Error::new(
        ErrorKind::Refused,
        format!(
            "the server {server}: the tables {table}_… are of {found}, and this program knows version {known}; \
             {way_out}"
        ),
    ))
}

/// Are the tables of this mode? A fleet whose clients lock in two ways would not exclude each other.
pub(crate) fn fit_mode(found: Option<&str>, known: Mode, server: &str, table: &Table) -> Result<()> {
    // Tables that were made before there were modes.
    let found = found.unwrap_or("row");
    if found == known.to_string() {
        return Ok(());
    }
    let message = format!(
        "the server {server}: the tables {table}_… are those of mode={found}, and this client was told mode={known}; have all \
         clients use one mode, or name other tables by `table`"
    );
    Err(Error::new(ErrorKind::Refused, message))
}

/// Of an owner whose request landed after it had given up.
pub(crate) fn given_up() -> Error {
    Error::new(ErrorKind::Refused, "this owner has given up; each acquisition needs an owner of its own")
}

impl Said {
    pub(crate) const fn new(kind: ErrorKind, wrong: &'static str, next: Next) -> Self {
        Self { kind, wrong, next }
    }

    /// What the error of a request says.
    pub(crate) fn of<D: Dialect>(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => D::explain(&**error),
            sqlx::Error::Encode(_) => Self::new(ErrorKind::Invalid, "something cannot be sent to it", Next::Stay),
            sqlx::Error::Configuration(_) => {
                Self::new(ErrorKind::Invalid, "the settings of the connection cannot be used", Next::Leave)
            }
            sqlx::Error::Tls(_) => UNSAFE,
            _ => Self::new(ErrorKind::Unknown, "the connection broke before the answer", Next::Leave),
        }
    }

    pub(crate) fn into_error(self, server: &str, error: sqlx::Error) -> Error {
        Error::new(self.kind, format!("the server {server}: {}", self.wrong)).with_source(error)
    }

    /// The error of connecting: nothing was asked yet, so nothing can be unknown.
    pub(crate) fn connecting(self, server: &str, error: sqlx::Error) -> Error {
        if self.kind != ErrorKind::Unknown {
            return self.into_error(server, error);
        }
        // How the driver passes on that a certificate is not trusted.
        if matches!(&error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData) {
            return UNSAFE.into_error(server, error);
        }
        let message = match &error {
            sqlx::Error::Protocol(_) => {
                format!("{server} answers, but not as the URL's scheme says; is it the right port?")
            }
            _ => format!("the server {server} cannot be reached; check the address, and that it runs"),
        };
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    }
}
