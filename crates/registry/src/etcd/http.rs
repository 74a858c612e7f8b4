//! One HTTP request on one connection: as much of the protocol as etcd's gateway needs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// How a request ended.
pub(super) enum Outcome {
    /// Status and body.
    Answered(u16, Vec<u8>),
    /// Nothing was sent.
    NotSent(io::Error),
    /// It was sent, and the answer is missing.
    Unanswered(io::Error),
}

/// Posts `body`, and waits for the answer up to `patience`.
pub(super) fn post(address: SocketAddr, path: &str, body: &str, patience: Duration) -> Outcome {
    let mut stream = match TcpStream::connect_timeout(&address, patience) {
        Ok(stream) => stream,
        Err(error) => return Outcome::NotSent(error),
    };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is no HTTP");
    match exchange(&mut stream) {
        Ok(answer) => match parse(&answer) {
            Some((status, body)) => Outcome::Answered(status, body),
            None => Outcome::Unanswered(malformed()),
        },
        Err(error) => Outcome::Unanswered(error),
    }
}

/// Status and body of an answer that has ended.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(answer.get(..end)?).ok()?, answer.get(end + 4..)?);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, &str)> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_lowercase(), value.trim())).collect();
    let header = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|found| found.1);
    if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Some((status, chunks(body)?));
    }
    match header("content-length") {
        // A body that was cut off is none.
        Some(length) => Some((status, body.get(..length.parse().ok()?)?.to_vec())),
        None => Some((status, body.to_vec())),
    }
}

fn chunks(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let line = body.windows(2).position(|bytes| bytes == b"\r\n")?;
        let length = std::str::from_utf8(body.get(..line)?).ok()?.split(';').next()?.trim();
        let length = usize::from_str_radix(length, 16).ok()?;
        body = body.get(line + 2..)?;
        if length == 0 {
            return Some(out);
        }
        out.extend(body.get(..length)?);
        body = body.get(length.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_whole_or_none() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(parse(plain), Some((200, b"hello".to_vec())));
        assert_eq!(parse(&plain[..plain.len() - 1]), None, "cut off");
        let chunked = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((503, b"hello".to_vec())));
        for cut in 40..chunked.len() - 4 {
            assert_ne!(parse(&chunked[..cut]), Some((503, b"hello".to_vec())));
        }
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), None);
    }
}
