//! What MySQL's and MariaDB's errors mean, by their numbers.

use std::error::Error as _;

use lock_core::Error;
use lock_core::ErrorKind::{Refused, Unavailable, Unknown, Unsupported};
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection};

use crate::server::{Answering, Dialect, Next, SHAPE, Said};

#[derive(Debug)]
pub(crate) struct MySql;

impl Dialect for MySql {
    type Database = sqlx::MySql;

    fn explain(error: &dyn DatabaseError) -> Said {
        of_number(number(error))
    }

    fn ask(connection: &mut MySqlConnection, text: String) -> Answering<'_, Self> {
        connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text)))
    }
}

fn number(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number).unwrap_or_default()
}

/// The number by which the server says why a request failed, if it said so.
pub(crate) fn number_of(error: &Error) -> Option<u16> {
    let source = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>());
    source.and_then(sqlx::Error::as_database_error).map(number)
}

/// Did the request fail because a table is missing?
pub(super) fn is_missing_table(error: &Error) -> bool {
    number_of(error) == Some(1146)
}

/// An error of a statement undoes all of it; one that ends the session may come after the commit.
fn of_number(number: u16) -> Said {
    use Next::{Again, Leave, Stay};
    let said = Said::new;
    match number {
        // The last by Group Replication, whose members did not agree.
        1205 | 1213 | 1020 | 3101 => {
            said(Unavailable, "other transactions were in the way again and again; look for one that stays open", Again)
        }
        1317 | 1969 | 3024 => said(
            Unavailable,
            "the request took too long and was cancelled; look for a transaction that stays open, or raise `timeout`",
            Stay,
        ),
        1290 | 1792 | 1836 => said(Unavailable, "the server is a replica or read-only; name the primary", Leave),
        1040 | 1203 | 1226 => {
            said(Unavailable, "the server has no connection left; raise max_connections, or lower `connections`", Leave)
        }
        1053 | 1077 | 1079 | 1152 | 1927 => said(Unknown, "the server ended the connection", Leave),
        1047 => said(Unavailable, "the server is not part of its cluster now; try again, or name another", Leave),
        1021 | 1114 => said(Refused, "the server's disk or a table is full; make room", Stay),
        1037 | 1038 | 1041 => said(Refused, "the server is out of memory; look at its log", Stay),
        1045 | 1698 | 1251 | 1275 => said(
            Refused,
            "wrong user or password, or none given, or the user has to come by TLS; check the URL, sslmode and sslcert",
            Leave,
        ),
        1094 | 1095 => said(Refused, "the user may not end that statement, or its session has ended", Stay),
        1046 => said(Refused, "no database is named; write mysql://host/database", Leave),
        1049 => said(Refused, "there is no such database; check the URL", Leave),
        1044 | 1142 | 1143 | 1227 | 1370 => said(
            Refused,
            "the user may not do this; have the tables made by what `oarlock schema` prints, and grant the rights that it names",
            Stay,
        ),
        1243 | 1615 => said(
            Unsupported,
            "something between us and the server lends connections, which this backend cannot use; go past it",
            Leave,
        ),
        1048 | 1050 | 1051 | 1054 | 1062 | 1064 | 1109 | 1136 | 1146 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406
        | 1690 => SHAPE,
        _ => said(Unknown, "the server refused; look at its log", Leave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_errors_are_told_apart() {
        let of = |number| (of_number(number).kind, of_number(number).next);
        assert_eq!(of(1213), (Unavailable, Next::Again));
        assert_eq!(of(1205), (Unavailable, Next::Again));
        assert_eq!(of(3101), (Unavailable, Next::Again));
        assert_eq!(of(1290), (Unavailable, Next::Leave));
        assert_eq!(of(1927), (Unknown, Next::Leave), "the commit may have been before");
        assert_eq!(of(1146), (Refused, Next::Stay));
        assert_eq!(of(1142).0, Refused);
        assert_eq!(of(0), (Unknown, Next::Leave));
    }
}
