//! `--metrics`: a machine tells its figures to a Prometheus server, by HTTP.
//!
//! It answers `GET /metrics` and nothing else, one request for each connection. Who reaches the address can read the
//! figures, and change nothing.
//!
//! A client that is slow, or means harm, costs little: a connection has a thread and a few kilobytes for at most
//! [`PATIENCE`], and there are at most [`CONNECTIONS_MAX`]. When one more comes, the one that is open for longest ends.
//! So a client that sends its request at once is answered however many others do not.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lodestone_fs::cluster::MachineHandle;

/// Time for a request to arrive and the answer to leave, together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a client to close its end after the answer.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Bytes of a refused request that are read after the answer, so that the client sees it.
const REST_BYTES_MAX: usize = 64 << 10;
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Pause after a connection that could not be taken, and between two looks for a thread that has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers at an address until the process ends. Returns the address, whose port may have been 0.
pub fn serve(address: SocketAddr, machine: MachineHandle) -> Result<SocketAddr> {
    Server::start(address, PATIENCE, Box::new(move || machine.to_prometheus()))
}

struct Server {
    patience: Duration,
    /// Asked by one connection at a time: the metadata node has other work.
    figures: Mutex<Box<dyn Fn() -> String + Send>>,
    open: Mutex<Open>,
    fewer: Condvar,
}

/// Connections, in the order in which they came.
#[derive(Default)]
struct Open {
    next: u64,
    streams: BTreeMap<u64, TcpStream>,
}

/// The place of a connection. It is free again however the thread ends.
struct Seat {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.server.open().streams.remove(&self.number);
        self.server.fewer.notify_all();
    }
}

impl Server {
    fn start(address: SocketAddr, patience: Duration, figures: Box<dyn Fn() -> String + Send>) -> Result<SocketAddr> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("{address}: listening for --metrics failed"))?;
        let bound = listener.local_addr()?;
        let (figures, open) = (Mutex::new(figures), Mutex::default());
        let server = Arc::new(Self { patience, figures, open, fewer: Condvar::new() });
        std::thread::Builder::new().name("fs-metrics".into()).spawn(move || server.take_connections(&listener))?;
        Ok(bound)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_connections(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let taken = listener.accept().and_then(|(stream, from)| Ok((self.take_seat(&stream)?, stream, from)));
            let Ok((seat, stream, from)) = taken else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let work = move || {
                if let Err(error) = seat.server.answer(&stream) {
                    tracing::debug!("{from}: a request for metrics: {error}");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("fs-metrics".into()).spawn(work) {
                tracing::warn!("{from}: no thread for a request for metrics could be started: {error}");
            }
        }
    }

    /// A place for a connection. Others end for it, the oldest first.
    fn take_seat(self: &Arc<Self>, stream: &TcpStream) -> std::io::Result<Seat> {
        let end = stream.try_clone()?;
        let mut open = self.open();
        while open.streams.len() >= CONNECTIONS_MAX {
            if let Some((_, oldest)) = open.streams.first_key_value() {
                // Its thread wakes up, also when the client is gone already.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            open = self.fewer.wait_timeout(open, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = open.next;
        open.next += 1;
        open.streams.insert(number, end);
        Ok(Seat { server: Arc::clone(self), number })
    }

    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let until = Instant::now() + self.patience;
        let request = receive(stream, until)?;
        let (state, body) = match request.as_deref() {
            Ok(line) => {
                let mut words = line.split_whitespace();
                match (words.next(), words.next()) {
                    (Some("GET"), Some("/metrics")) => ("200 OK", self.figures()),
                    (Some("GET"), _) => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
                    _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
                }
            }
            Err(state) => (*state, format!("a request has at most {REQUEST_BYTES_MAX} bytes, and comes at once\n")),
        };
        let head = format!(
            "HTTP/1.1 {state}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        // The time to tell that a request came too late, too.
        let until = until.max(Instant::now() + CLOSE_PATIENCE);
        send(stream, [head, body].concat().as_bytes(), until)?;
        close(stream)
    }

    fn figures(&self) -> String {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)()
    }
}

/// The time until then. `None`: it is over.
fn left(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// The first line of a request whose head has arrived, or the state of the answer.
fn receive(mut stream: &TcpStream, until: Instant) -> std::io::Result<Result<String, &'static str>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1 << 10]);
    while let Some(left) = left(until) {
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut piece) {
            Ok(0) => return Ok(Err("400 Bad Request")),
            Ok(count) => count,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => continue,
                _ => return Err(error),
            },
        };
        let new = head.len().saturating_sub(3);
        head.extend(&piece[..count]);
        let ends = |end: &[u8]| head[new..].windows(end.len()).any(|bytes| bytes == end);
        if ends(b"\r\n\r\n") || ends(b"\n\n") {
            let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
            return Ok(Ok(String::from_utf8_lossy(line).into_owned()));
        }
        if head.len() >= REQUEST_BYTES_MAX {
            return Ok(Err("431 Request Header Fields Too Large"));
        }
    }
    Ok(Err("408 Request Timeout"))
}

fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let left = left(until).ok_or_else(|| std::io::Error::from(ErrorKind::TimedOut))?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes a connection. With bytes that were not read the kernel would take the answer back.
fn close(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let (until, mut rest, mut piece) = (Instant::now() + CLOSE_PATIENCE, 0, [0; 4 << 10]);
    while let Some(left) = left(until).filter(|_| rest < REST_BYTES_MAX) {
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            count => rest += count,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(figures: &'static str, times: usize) -> SocketAddr {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Server::start(address, Duration::from_millis(400), Box::new(move || figures.repeat(times))).expect("a server")
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        stream
    }

    fn read(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn get(address: SocketAddr) -> String {
        let mut stream = connect(address);
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        read(stream)
    }

    /// Threads of servers, of all tests.
    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "fs-metrics").count()
    }

    #[test]
    fn one_that_asks_is_answered_while_many_others_send_half_a_request() {
        let address = start("figures\n", 1);
        let mut others = Vec::new();
        for _ in 0..100 {
            let mut other = connect(address);
            other.write_all(b"GET /met").expect("a part");
            others.push(other);
        }
        let began = Instant::now();
        let answer = get(address);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfigures\n"), "{answer}");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        // Each of the other two servers of the tests may have its own.
        assert!(threads() <= 3 * (CONNECTIONS_MAX + 1), "{} threads", threads());
        // The newest of them wait until their time is over.
        assert!(read(others.pop().expect("the last")).starts_with("HTTP/1.1 408 "));
    }

    #[test]
    fn a_request_that_is_too_large_or_never_whole_has_an_end() {
        let address = start("figures\n", 1);
        let mut large = connect(address);
        large.write_all(&[b'a'; 20_000]).expect("a part");
        assert!(read(large).starts_with("HTTP/1.1 431 "));
        let mut half = connect(address);
        half.write_all(b"GET /metrics HTTP/1.1\r\n").expect("a part");
        half.shutdown(Shutdown::Write).expect("its end");
        assert!(read(half).starts_with("HTTP/1.1 400 "));
        // One byte after the other: the time is that of the whole request.
        let (mut slow, began) = (connect(address), Instant::now());
        let sending = slow.try_clone().expect("a handle");
        std::thread::spawn(move || {
            for byte in b"GET /metrics HTTP/1.1\r\nHost: a-long-name-that-takes-a-while".iter().cycle() {
                if (&sending).write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let mut answer = [0; 12];
        slow.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 408");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(get(address).ends_with("figures\n"));
    }

    #[test]
    fn clients_that_do_not_read_their_answers_keep_no_thread() {
        let address = start("figures\n", 1 << 20);
        let deaf: Vec<TcpStream> = (0..CONNECTIONS_MAX * 2)
            .map(|_| {
                let mut stream = connect(address);
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
                stream
            })
            .collect();
        assert!(get(address).ends_with("figures\n"), "others are answered");
        drop(deaf);
    }
}
