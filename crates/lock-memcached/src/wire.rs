//! The text protocol, as far as it is needed: the meta commands, and answers that are lists of lines. Its source is
//! `doc/protocol.txt` of memcached.

/// The longest line that an answer may have.
const LONGEST_LINE: usize = 64 << 10;

/// The longest value: memcached keeps no longer ones unless it is told to.
const LONGEST_VALUE: usize = 2 << 20;

/// The most that is kept of one list of lines, in bytes.
const LONGEST_LIST: usize = 64 << 20;

/// Some commands, sent at once and done in their order, and what each is answered with.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    pub(crate) shapes: Vec<Shape>,
}

/// What an answer looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One line, and behind some a value.
    Meta,
    /// Lines up to `END`; those are kept that begin so.
    List(&'static str, String),
}

impl Commands {
    /// What stands at this key.
    pub(crate) fn look(&mut self, key: &str) {
        self.meta(format!("mg {key} v c t\r\n"));
    }

    /// The same, and if nothing does, an empty item from now on that expires then.
    pub(crate) fn look_or_put(&mut self, key: &str, expires: u64) {
        self.meta(format!("mg {key} v c t N{expires}\r\n"));
    }

    /// Another value instead of the one with this CAS number, if that still stands.
    pub(crate) fn replace(&mut self, key: &str, cas: u64, expires: u64, value: &str) {
        self.meta(format!("ms {key} {} C{cas} T{expires} c\r\n{value}\r\n", value.len()));
    }

    /// Nothing instead of the one with this CAS number, if that still stands.
    pub(crate) fn remove(&mut self, key: &str, cas: u64) {
        self.meta(format!("md {key} C{cas}\r\n"));
    }

    /// What the server tells of itself, as lines `STAT name value`.
    pub(crate) fn statistics(&mut self, which: &str) {
        let command = if which.is_empty() { "stats\r\n".to_owned() } else { format!("stats {which}\r\n") };
        self.list(command, "STAT ", String::new());
    }

    /// All keys that begin so, as lines `key=… …`.
    pub(crate) fn keys(&mut self, way: &str, beginning: &str) {
        self.list(format!("lru_crawler metadump {way}\r\n"), "key=", beginning.to_owned());
    }

    fn meta(&mut self, command: String) {
        self.bytes.extend_from_slice(command.as_bytes());
        self.shapes.push(Shape::Meta);
    }

    fn list(&mut self, command: String, kind: &'static str, beginning: String) {
        self.bytes.extend_from_slice(command.as_bytes());
        self.shapes.push(Shape::List(kind, beginning));
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It was done: `HD`, and `VA` with what stands there.
    Done(Item),
    /// There is nothing at the key.
    Missing,
    /// Something else stands there than what was named by its CAS number.
    Changed,
    /// What stands behind the beginnings of the lines that were asked for.
    List(Vec<String>),
    /// The server says that it did not do it, and why.
    Refused(String),
}

/// What stands at a key, as far as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) cas: u64,
    /// For how many seconds yet.
    pub(crate) left: Option<u64>,
}

/// The answer is none that a server gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Makes answers of what arrives.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) arrived: Vec<u8>,
    /// The list that has not ended.
    list: Vec<String>,
    /// How much of it there is.
    size: usize,
}

impl Decoder {
    /// The next answer, if it has arrived.
    pub(crate) fn next(&mut self, shape: &Shape) -> Result<Option<Reply>, Malformed> {
        match shape {
            Shape::Meta => self.meta(),
            Shape::List(kind, beginning) => self.list(kind, beginning),
        }
    }

    fn meta(&mut self) -> Result<Option<Reply>, Malformed> {
        let Some((line, behind)) = first_line(&self.arrived)? else { return Ok(None) };
        let (status, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (reply, length) = match status {
            "HD" => (Reply::Done(item(rest)?), behind),
            "EN" | "NF" => (Reply::Missing, behind),
            "EX" | "NS" => (Reply::Changed, behind),
            "VA" => {
                let (size, flags) = rest.split_once(' ').unwrap_or((rest, ""));
                let size: usize = size.parse().map_err(|_| Malformed("a value without a size"))?;
                if size > LONGEST_VALUE {
                    return Err(Malformed("a value that is too long"));
                }
                let Some(value) = self.arrived.get(behind..behind + size + 2) else { return Ok(None) };
                let value = value.strip_suffix(b"\r\n").ok_or(Malformed("a value that is not as long as it says"))?;
                (Reply::Done(Item { value: value.to_vec(), ..item(flags)? }), behind + size + 2)
            }
            _ => (refused(line)?, behind),
        };
        self.arrived.drain(..length);
        Ok(Some(reply))
    }

    fn list(&mut self, kind: &str, beginning: &str) -> Result<Option<Reply>, Malformed> {
        let mut read = 0;
        let mut ended = None;
        while ended.is_none()
            && let Some((line, length)) = first_line(&self.arrived[read..])?
        {
            read += length;
            match line.strip_prefix(kind) {
                Some(told) if told.starts_with(beginning) => {
                    self.size += told.len();
                    if self.size > LONGEST_LIST {
                        return Err(Malformed("a list without end"));
                    }
                    self.list.push(told.to_owned());
                }
                Some(_) => {}
                None if line == "END" => ended = Some(Reply::List(std::mem::take(&mut self.list))),
                None => ended = Some(refused(line)?),
            }
        }
        self.arrived.drain(..read);
        if ended.is_some() {
            (self.list, self.size) = (Vec::new(), 0);
        }
        Ok(ended)
    }
}

/// The first line, without its end, and its length with it.
fn first_line(arrived: &[u8]) -> Result<Option<(&str, usize)>, Malformed> {
    let Some(end) = arrived.iter().position(|byte| *byte == b'\n') else {
        return if arrived.len() > LONGEST_LINE { Err(Malformed("a line without end")) } else { Ok(None) };
    };
    // In the list of keys, lines end without it.
    let line = arrived[..end].strip_suffix(b"\r").unwrap_or(&arrived[..end]);
    let line = std::str::from_utf8(line).map_err(|_| Malformed("a line that is no text"))?;
    Ok(Some((line, end + 1)))
}

fn refused(line: &str) -> Result<Reply, Malformed> {
    let says_no = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR", "BUSY"];
    let is_one = says_no.contains(&line.split(' ').next().unwrap_or_default());
    if is_one { Ok(Reply::Refused(line.to_owned())) } else { Err(Malformed("an answer that memcached does not give")) }
}

/// What the flags of an answer tell.
fn item(flags: &str) -> Result<Item, Malformed> {
    let mut item = Item::default();
    for flag in flags.split(' ') {
        if let Some(cas) = flag.strip_prefix('c') {
            item.cas = cas.parse().map_err(|_| Malformed("a CAS number that is none"))?;
        } else if let Some(left) = flag.strip_prefix('t') {
            // One that does not expire has -1.
            item.left = left.parse().ok();
        }
    }
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(shape: &Shape, arrived: &str) -> Result<Option<Reply>, Malformed> {
        let mut decoder = Decoder { arrived: arrived.into(), ..Decoder::default() };
        let reply = decoder.next(shape);
        if let Ok(Some(_)) = reply {
            assert_eq!(decoder.arrived, b"more");
        }
        reply
    }

    fn value(value: &str, cas: u64, left: Option<u64>) -> Reply {
        Reply::Done(Item { value: value.into(), cas, left })
    }

    #[test]
    fn answers_to_meta_commands_are_read() {
        for (arrived, reply) in [
            ("VA 3 c7 t30 W\r\na\r\n\r\nmore", value("a\r\n", 7, Some(30))),
            ("VA 0 t-1 c9\r\n\r\nmore", value("", 9, None)),
            ("HD\r\nmore", value("", 0, None)),
            ("HD c18446744073709551615\r\nmore", value("", u64::MAX, None)),
            ("EN\r\nmore", Reply::Missing),
            ("NF\r\nmore", Reply::Missing),
            ("EX\r\nmore", Reply::Changed),
            ("SERVER_ERROR out of memory\r\nmore", Reply::Refused("SERVER_ERROR out of memory".to_owned())),
        ] {
            assert_eq!(decoded(&Shape::Meta, arrived), Ok(Some(reply)), "{arrived:?}");
            // However it is cut.
            let whole = arrived.trim_end_matches("more");
            for length in 0..whole.len() {
                assert_eq!(decoded(&Shape::Meta, &whole[..length]), Ok(None), "{:?}", &whole[..length]);
            }
        }
    }

    #[test]
    fn what_no_server_says_is_refused() {
        let long = "x".repeat(LONGEST_LINE + 1);
        for bad in ["\r\n", "+OK\r\n", "VA x\r\n", "VA 99999999999\r\n", "VA 1\r\nabc", "HD cx\r\n", "VA\r\n", &long] {
            assert!(decoded(&Shape::Meta, bad).is_err(), "{bad:?}");
        }
        assert!(decoded(&Shape::List("STAT ", String::new()), "VALUE\r\n").is_err());
    }

    #[test]
    fn a_list_is_read_line_by_line_and_what_is_not_asked_for_is_left_out() {
        let shape = Shape::List("key=", "app:".to_owned());
        let mut decoder = Decoder::default();
        for (arrived, reply) in [
            ("key=app:a exp=1\nkey=other:b", None),
            (" exp=2\r\nkey=app:c\r\n", None),
            ("END\r\n", Some(Reply::List(vec!["app:a exp=1".to_owned(), "app:c".to_owned()]))),
            ("BUSY currently processing\r\n", Some(Reply::Refused("BUSY currently processing".to_owned()))),
            ("END\r\n", Some(Reply::List(Vec::new()))),
        ] {
            decoder.arrived.extend_from_slice(arrived.as_bytes());
            assert_eq!(decoder.next(&shape), Ok(reply), "{arrived:?}");
        }
    }

    #[test]
    fn commands_are_written_as_the_protocol_says() {
        let mut commands = Commands::default();
        commands.look("k");
        commands.look_or_put("k", 10);
        commands.replace("k", 7, 99, "a\r\nb");
        commands.remove("k", 8);
        commands.statistics("");
        commands.statistics("settings");
        commands.keys("hash", "app:");
        let written = "mg k v c t\r\nmg k v c t N10\r\nms k 4 C7 T99 c\r\na\r\nb\r\nmd k C8\r\nstats\r\n\
                       stats settings\r\nlru_crawler metadump hash\r\n";
        assert_eq!((String::from_utf8(commands.bytes).unwrap().as_str(), commands.shapes.len()), (written, 7));
    }
}
