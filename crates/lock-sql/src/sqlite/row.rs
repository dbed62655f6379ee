//! What a statement answers, kept apart from the connection that it came over.

use std::sync::Arc;

use rusqlite::types::Value;

/// The names of the columns, which the rows of one answer share.
pub(super) type Columns = Arc<[String]>;

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    columns: Columns,
    values: Vec<Value>,
}

/// What a column can be read as.
pub(super) trait Cell<'r>: Sized {
    fn read(value: &'r Value) -> Option<Self>;
}

impl Row {
    pub(super) fn read(columns: &Columns, row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let values = (0..columns.len()).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?;
        Ok(Self { columns: Arc::clone(columns), values })
    }

    /// The column of this name. It panics where our own statements do not answer such a one.
    pub(super) fn get<'r, T: Cell<'r>>(&'r self, name: &str) -> T {
        let column = self.columns.iter().position(|column| column == name);
        let value = column.and_then(|column| T::read(&self.values[column]));
        value.unwrap_or_else(|| panic!("no column {name} of this type"))
    }
}

impl Cell<'_> for i64 {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

impl Cell<'_> for bool {
    fn read(value: &Value) -> Option<Self> {
        i64::read(value).map(|number| number != 0)
    }
}

impl<'r> Cell<'r> for &'r str {
    fn read(value: &'r Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Cell<'_> for String {
    fn read(value: &Value) -> Option<Self> {
        <&str>::read(value).map(str::to_owned)
    }
}

impl<'r, T: Cell<'r>> Cell<'r> for Option<T> {
    fn read(value: &'r Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}
