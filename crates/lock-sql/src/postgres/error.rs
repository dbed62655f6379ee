//! What PostgreSQL's errors mean, by their SQLSTATE.

use lock_core::ErrorKind::{Refused, Unavailable, Unknown, Unsupported};
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::server::{Answering, Dialect, Next, SHAPE, Said};

#[derive(Debug)]
pub(crate) struct Postgres;

impl Dialect for Postgres {
    type Database = sqlx::Postgres;

    fn explain(error: &dyn DatabaseError) -> Said {
        of_code(error.code().unwrap_or_default().as_ref())
    }

    fn ask(connection: &mut PgConnection, text: String) -> Answering<'_, Self> {
        connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text)))
    }
}

/// An error inside a statement undoes all of it; one that ends the session may come after the commit.
fn of_code(code: &str) -> Said {
    use Next::{Again, Leave, Stay};
    let said = Said::new;
    match code {
        "40001" | "40P01" => {
            said(Unavailable, "other transactions were in the way again and again; look for one that stays open", Again)
        }
        // Not again: it took half the time that there is, and a procedure may have committed before.
        "55P03" => {
            said(Unavailable, "another transaction was in the way for too long; look for one that stays open", Stay)
        }
        "57014" => said(
            Unavailable,
            "the request took too long and was cancelled; look for a transaction that stays open, or raise `timeout`",
            Stay,
        ),
        "25006" => said(Unavailable, "the server is a standby or read-only; name the primary", Leave),
        "53300" => said(
            Unavailable,
            "the server has no connection left; raise max_connections, lower `connections`, or use a pooler",
            Leave,
        ),
        "57P03" => said(Unavailable, "the server is starting or shutting down; try again", Leave),
        "57P01" | "57P02" | "57P05" => said(Unknown, "the server ended the connection", Leave),
        "53100" => said(Refused, "the server's disk is full; make room", Stay),
        "53200" => said(Refused, "the server is out of memory or of room for locks; look at its log", Stay),
        "28000" | "28P01" => said(
            Refused,
            "wrong user or password, or none given, or no TLS; check the URL, sslmode, sslcert and pg_hba.conf",
            Leave,
        ),
        "3D000" => said(Refused, "there is no such database; check the URL", Leave),
        "42501" => said(
            Refused,
            "the user may not do this; have the tables made by what `oarlock schema` prints, and grant the rights that it names",
            Stay,
        ),
        "3F000" => said(Refused, "there is no schema to make the tables in; make it, or name another by `table`", Stay),
        "22P05" | "22021" => {
            said(Refused, "the database's encoding has no place for this name; use a database in UTF8", Stay)
        }
        // Our own, of a function for sessions.
        "OL001" => said(
            Refused,
            "another name, or something that is no lock, has the number of this one; choose another name",
            Stay,
        ),
        "26000" | "08P01" => said(
            Unsupported,
            "something between us and the server lends connections; say so by `pooler=true`, or go past it",
            Leave,
        ),
        code if code.starts_with("42") || code.starts_with("22") || code.starts_with("23") || code == "P0001" => SHAPE,
        code if code.starts_with("08")
            || code.starts_with("57")
            || code.starts_with("58")
            || code.starts_with("XX") =>
        {
            said(Unknown, "the server had to give up; look at its log", Leave)
        }
        _ => said(Unknown, "the server refused; look at its log", Leave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_errors_are_told_apart() {
        let of = |code| (of_code(code).kind, of_code(code).next);
        assert_eq!(of("40P01"), (Unavailable, Next::Again));
        assert_eq!(of("25006"), (Unavailable, Next::Leave));
        assert_eq!(of("57P01"), (Unknown, Next::Leave), "the commit may have been before");
        assert_eq!(of("42P01"), (Refused, Next::Stay));
        assert_eq!(of("42501").0, Refused);
        assert_eq!(of("XX000"), (Unknown, Next::Leave));
        assert_eq!(of(""), (Unknown, Next::Leave));
    }
}
