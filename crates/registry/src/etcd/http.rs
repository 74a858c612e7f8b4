//! One HTTP request on one connection: as much of the protocol as etcd's gateway needs.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::net::line::Wire;

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

/// Posts `body`, and waits for the answer. All of it takes at most `patience`, also if the answer comes byte by byte.
pub(super) fn post(address: SocketAddr, path: &str, body: &str, patience: Duration) -> Outcome {
    let mut wire = match Wire::connect(address, patience) {
        Ok(wire) => wire,
        Err(error) => return Outcome::NotSent(error),
    };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = |wire: &mut Wire| {
        wire.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        wire.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is no HTTP");
    match exchange(&mut wire) {
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
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim()))
        .collect();
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
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// An answer of which a byte comes now and then never ends, but the request does.
    #[test]
    fn a_slow_answer_ends_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let slow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the other end closes.
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let outcome = post(address, "/", "{}", Duration::from_millis(300));
        assert!(matches!(outcome, Outcome::Unanswered(_)));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        slow.join().unwrap();
    }

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
