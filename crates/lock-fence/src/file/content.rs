//! What is in the file.

use std::collections::BTreeMap;

use crate::{Access, Stale};

const HEAD: &str = "oarlock-fence 1";

/// What stands between the name of a lock and the number of a slot: see [`Access::marks`].
const SLOT: char = '\u{1f}';

/// The marks by their names, and the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    marks: BTreeMap<String, u64>,
    pub(super) data: Vec<u8>,
}

impl Content {
    /// Refuses a late access, and otherwise raises its marks. Is one of them higher than before?
    pub(super) fn check(&mut self, access: &Access) -> Result<bool, Stale> {
        let mut is_raised = false;
        for name in access.marks() {
            let found = self.marks.get(&name).copied();
            if let Some(mark) = access.mark_after(found)? {
                is_raised |= found != Some(mark);
                self.marks.insert(name, mark);
            }
        }
        Ok(is_raised)
    }

    /// A head, a line for each mark (the token, the slot or a dash, and the name), an empty line, and the data.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{HEAD}\n");
        for (mark, token) in &self.marks {
            let (name, slot) = mark.split_once(SLOT).unwrap_or((mark, "-"));
            text.push_str(&format!("{token} {slot} {name}\n"));
        }
        text.push('\n');
        [text.as_bytes(), &self.data].concat()
    }

    /// None of what is not ours.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut line = || {
            let end = rest.iter().position(|&byte| byte == b'\n')?;
            let line = std::str::from_utf8(&rest[..end]).ok()?;
            rest = &rest[end + 1..];
            Some(line)
        };
        if line()? != HEAD {
            return None;
        }
        let mut marks = BTreeMap::new();
        loop {
            let mark = line()?;
            if mark.is_empty() {
                return Some(Self { marks, data: rest.to_vec() });
            }
            let (token, mark) = mark.split_once(' ')?;
            let (slot, name) = mark.split_once(' ')?;
            let access = Access::new(name, token.parse::<u64>().ok()?).ok()?;
            let access = if slot == "-" { access } else { access.with_slots([slot.parse().ok()?]) };
            marks.extend(access.marks().into_iter().map(|mark| (mark, access.token())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut content = Content::default();
        assert_eq!(Content::parse(&content.to_bytes()), Some(content.clone()));
        for access in [
            Access::new("orders/42", 7_u64).unwrap(),
            Access::new("2 slot names", Access::MAX_TOKEN).unwrap(),
            Access::new("exports", 9_u64).unwrap().with_slots([0, 2]),
        ] {
            assert_eq!(content.check(&access), Ok(true));
            assert_eq!(content.check(&access), Ok(false));
        }
        for data in [&b""[..], b"\n", b"a\nb", b"\0\xff"] {
            content.data = data.to_vec();
            assert_eq!(Content::parse(&content.to_bytes()), Some(content.clone()));
        }
        content.data = b"data".to_vec();
        let max = Access::MAX_TOKEN;
        let text = format!("oarlock-fence 1\n{max} - 2 slot names\n9 0 exports\n9 2 exports\n7 - orders/42\n\ndata");
        assert_eq!(String::from_utf8(content.to_bytes()).unwrap(), text);
    }

    #[test]
    fn readers_leave_no_mark() {
        let mut content = Content::default();
        let [early, late] = [7_u64, 9].map(|token| Access::new("a", token).unwrap());
        assert_eq!(content.check(&late.clone().shared()), Ok(false));
        assert_eq!(content.check(&early), Ok(true));
        assert_eq!(content.check(&late.clone().shared()), Ok(false));
        assert_eq!(content.check(&late), Ok(true));
        assert_eq!(content.check(&early.shared()).unwrap_err().newest, 9);
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        for text in [
            "",
            "{}",
            "oarlock-fence 1",
            "oarlock-fence 1\n",
            "oarlock-fence 2\n\n",
            "oarlock-fence 1\n7 - a\n",
            "oarlock-fence 1\n7 a\n\n",
            "oarlock-fence 1\n-7 - a\n\n",
            "oarlock-fence 1\n7 x a\n\n",
            "oarlock-fence 1\n7 - \n\n",
        ] {
            assert_eq!(Content::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
