//! A bound on the length of an answer. The client library keeps what has come of one until it is whole, however long
//! the server says that it will be.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Many times what we ever ask for: the longest answers have a hundred locks with all who wait for them.
const LONGEST: u64 = 64 << 20;

/// What a value takes in memory beside its text, which may be a single digit.
const VALUE: u64 = 64;

/// A line with a number that is longer, however it is filled up, is from no server.
const NUMBER: usize = 32;

/// A stream on which a longer answer is an error.
pub(crate) struct Bounded<S> {
    stream: S,
    answer: Answer,
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, answer: Answer::default() }
    }
}

/// How much has come, and is announced, of the present answer. The form is that of
/// [RESP3](https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// How much memory it takes so far.
    taken: u64,
    /// How many values of it have not come whole.
    values: u64,
    /// How much more text belongs to the present value.
    text: u64,
    /// The present line, or how it begins: its kind and its number, if it has one.
    line: Vec<u8>,
    /// Does it end, if a line feed comes next?
    returned: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Answer {
    /// Counts what has come.
    pub(crate) fn come(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if self.text > 0 {
                let come = self.text.min(bytes.len() as u64);
                (self.text, self.taken) = (self.text - come, self.taken + come);
                bytes = &bytes[come as usize..];
                if self.text == 0 {
                    self.value_ends();
                }
            } else {
                // A line feed alone ends no line, and the two may come apart.
                let end = (0..bytes.len())
                    .find(|&at| bytes[at] == b'\n' && if at == 0 { self.returned } else { bytes[at - 1] == b'\r' });
                let come = end.map_or(bytes.len(), |end| end + 1);
                self.returned = bytes[come - 1] == b'\r';
                let rest = (NUMBER + 1).saturating_sub(self.line.len());
                self.line.extend_from_slice(&bytes[..come.min(rest)]);
                self.taken += come as u64;
                bytes = &bytes[come..];
                if end.is_some() {
                    self.line_ends();
                }
            }
            let announced = self.text.saturating_add(self.values.saturating_mul(VALUE));
            if self.taken.saturating_add(announced) > LONGEST {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    fn line_ends(&mut self) {
        let kind = self.line.first().copied();
        let number = match kind {
            // What is no number ends the connection.
            _ if self.line.len() > NUMBER => i64::MAX,
            Some(b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|') => {
                let number = std::str::from_utf8(&self.line[1..]).ok();
                number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            }
            _ => 0,
        };
        self.line.clear();
        // Below zero some are nothing, and others the client library takes for more than anybody has.
        let [count, endless] = [0, u64::MAX].map(|below| u64::try_from(number).unwrap_or(below));
        self.taken += VALUE;
        self.values = self.values.max(1);
        let more = match kind {
            Some(b'$') if number < 0 => 0,
            Some(b'$' | b'!' | b'=') => {
                // And the end of its line.
                self.text = endless.saturating_add(2);
                return;
            }
            Some(b'*' | b'~' | b'>') => count,
            Some(b'%') => endless.saturating_mul(2),
            Some(b'|') => endless.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        self.values = self.values.saturating_add(more);
        self.value_ends();
    }

    fn value_ends(&mut self) {
        self.values = self.values.saturating_sub(1);
        if self.values == 0 {
            self.taken = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let too_long =
            |TooLong| io::Error::new(io::ErrorKind::InvalidData, "the server's answer is too long to be one");
        Poll::Ready(self.answer.come(&buffer.filled()[before..]).map_err(too_long))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole, in pieces of every length.
    fn come(text: &str) -> Result<Answer, TooLong> {
        let mut whole = Answer::default();
        whole.come(text.as_bytes())?;
        for length in 1..text.len().min(9) {
            let mut pieces = Answer::default();
            for piece in text.as_bytes().chunks(length) {
                pieces.come(piece).unwrap();
            }
            assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
        }
        Ok(whole)
    }

    #[test]
    fn each_answer_is_counted_by_itself() {
        for whole in [
            "+OK\r\n",
            ":1\r\n",
            "$5\r\n*9\r\nx\r\n",
            "$-1\r\n",
            "$ -1\r\n",
            "+no end\n*9\nyet\r\n",
            "$0\r\n\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
            "%1\r\n+a\r\n+b\r\n",
            "|1\r\n+a\r\n+b\r\n:1\r\n",
            ">2\r\n+message\r\n=5\r\ntxt:x\r\n",
            "-ERR no\r\n_\r\n",
        ] {
            let answer = come(whole).unwrap();
            assert_eq!(answer, Answer::default(), "{whole:?}");
        }
        let half = come("*3\r\n$4\r\nab").unwrap();
        assert_eq!((half.values, half.text), (3, 4));
    }

    #[test]
    fn what_is_announced_counts_as_come() {
        for long in [
            "$99999999999\r\n",
            "=9223372036854775807\r\n",
            "*2000000\r\n",
            "%9223372036854775807\r\n",
            "|9223372036854775807\r\n",
            "*1000000\r\n*1000000\r\n",
            "!-1\r\n",
            "%-1\r\n",
            "$                                        99999999999\r\n",
            "*00000000000000000000000000000000000002000000\r\n",
        ] {
            assert_eq!(come(long).map(drop), Err(TooLong), "{long:?}");
        }
        let mut line = Answer::default();
        let piece = vec![b'+'; 1 << 20];
        assert!((0..65).map(|_| line.come(&piece)).any(|come| come == Err(TooLong)));
        let mut line = Answer::default();
        assert!((0..65).map(|_| line.come(&b"+\n".repeat(1 << 19))).any(|come| come == Err(TooLong)));
    }
}
