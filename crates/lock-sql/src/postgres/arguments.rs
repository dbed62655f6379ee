//! What statements are given.

/// The parameters of a statement.
macro_rules! arguments {
    () => {
        sqlx::postgres::PgArguments::default()
    };
    ($($value:expr),+) => {{
        use sqlx::Arguments as _;
        let mut arguments = sqlx::postgres::PgArguments::default();
        $(arguments.add($value).expect("numbers and text can be sent");)+
        arguments
    }};
}
pub(crate) use arguments;
