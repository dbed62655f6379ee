//! What statements are given.

use sqlx::mysql::MySqlArguments;

/// The parameters of a statement. Text goes as bytes, which no collation touches.
macro_rules! arguments {
    () => {
        sqlx::mysql::MySqlArguments::default()
    };
    ($($value:expr),+) => {{
        let mut arguments = sqlx::mysql::MySqlArguments::default();
        $($crate::mysql::Argument::add_to($value, &mut arguments);)+
        arguments
    }};
}
pub(crate) use arguments;

/// What a statement can be given.
pub(crate) trait Argument {
    fn add_to(self, arguments: &mut MySqlArguments);
}

impl Argument for &[u8] {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self).expect("bytes can be sent");
    }
}

impl Argument for &str {
    fn add_to(self, arguments: &mut MySqlArguments) {
        self.as_bytes().add_to(arguments);
    }
}

/// Text that is compared with a column of text, by that column's collation: where it went as bytes, no index would be
/// used.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Argument for Text<'_> {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self.0).expect("text can be sent");
    }
}

impl Argument for i64 {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self).expect("numbers can be sent");
    }
}

impl Argument for Option<i64> {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self).expect("numbers can be sent");
    }
}
