//! `--metrics`: a machine tells its figures to a Prometheus server, by HTTP.
//!
//! It answers `GET /metrics` and nothing else, one request for each connection. Who reaches the address can read the
//! figures, and change nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use lodestone_fs::cluster::MachineHandle;

/// Time for a request to arrive, and for the answer to leave.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const REQUEST_BYTES_MAX: u64 = 8 << 10;

/// Answers at an address until the process ends. Returns the address, whose port may have been 0.
pub fn serve(address: SocketAddr, machine: MachineHandle) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).with_context(|| format!("{address}: listening for --metrics failed"))?;
    let bound = listener.local_addr()?;
    let work = move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = answer(&stream, &machine) {
                tracing::debug!("a request for metrics: {error}");
            }
        }
    };
    std::thread::Builder::new().name("fs-metrics".into()).spawn(work)?;
    Ok(bound)
}

fn answer(stream: &TcpStream, machine: &MachineHandle) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The rest of its head.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split_whitespace();
    let (state, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", machine.to_prometheus()),
        (Some("GET"), _) => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {state}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
