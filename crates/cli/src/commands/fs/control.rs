//! The socket by which other commands reach the process that has a volume with replicas.
//!
//! A request is a line of JSON, an answer some lines: of progress, and the last one with the result or an error. The
//! socket is in the folder of the nodes, so who may reach it is who may enter that folder.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::{ClusterStatus, Images, MachineHandle, ScrubOptions, ScrubReport, Site};
use lodestone_fs::{CheckReport, Volume};
use serde::{Deserialize, Serialize};

use super::Opened;

/// The longest silence of the process that has the volume.
const SILENCE: Duration = Duration::from_secs(60);
/// Pause between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// The state of the nodes.
    Status,
    /// A scrub.
    Scrub {
        /// Pages of each replica in a second; 0: as many as possible.
        pages_per_second: u64,
        /// Whether damage is repaired.
        repairs: bool,
    },
    /// A check of names, links, pages and checksums.
    Check {
        /// Whether pages are read.
        reads_pages: bool,
    },
    /// A check of the image of one machine, if it follows.
    CheckImage,
    /// Stops a node.
    Stop {
        /// The node.
        node: u16,
    },
    /// Starts a node.
    Start {
        /// The node.
        node: u16,
    },
    /// Adds a replica in another process.
    Add {
        /// Where it listens.
        address: SocketAddrV4,
    },
    /// Removes a replica in another process.
    Remove {
        /// The node.
        node: u16,
    },
    /// Adds a machine to a volume on several.
    AddMachine {
        /// Its number.
        machine: u16,
        /// Where it will listen.
        address: SocketAddrV4,
    },
    /// Has a machine drained.
    DrainMachine {
        /// Its number.
        machine: u16,
    },
    /// Takes a machine out that is drained.
    RemoveMachine {
        /// Its number.
        machine: u16,
    },
}

/// A line of an answer.
#[derive(Debug, Serialize, Deserialize)]
struct Answer<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The folder of the nodes of a volume.
pub fn folder(volume: &Path) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push(".nodes");
    PathBuf::from(name)
}

/// The request for the state of the nodes, as a text.
pub const STATUS: &str = r#"{"do":"status"}"#;

/// The result in the last answer to a request.
pub fn answered<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T> {
    let answer: Answer<T> = serde_json::from_str(text).context("an answer that makes no sense")?;
    if let Some(error) = answer.error {
        bail!("{error}");
    }
    answer.result.context("an answer without a result")
}

/// The progress in an answer that is not the last.
pub fn progress_of(text: &str) -> Option<(u64, u64)> {
    serde_json::from_str::<Answer<serde_json::Value>>(text).ok()?.done
}

/// Answers the request of a machine or a command elsewhere, for a volume on several machines.
pub fn answer_text(machine: &MachineHandle, text: &str, progress: &mut dyn FnMut(&str)) -> String {
    let to_text = |outcome: std::result::Result<String, serde_json::Error>| {
        outcome.unwrap_or_else(|error| format!(r#"{{"error":"the answer cannot be written: {error}"}}"#))
    };
    let changed = |outcome: lodestone_fs::Result<Site>| {
        to_text(serde_json::to_string(&result(outcome.map(|site| site.to_text()).map_err(anyhow::Error::from))))
    };
    match serde_json::from_str(text) {
        Ok(Request::Status) => to_text(serde_json::to_string(&result(Ok(machine.status())))),
        Ok(Request::Scrub { pages_per_second, repairs }) => {
            let work = |volume: Volume, tell: &Tell<'_>| scrub(&volume, pages_per_second, repairs, tell);
            let outcome = machine.volume().map_err(Into::into);
            let outcome = outcome.and_then(|volume| with_lines(progress, |tell| work(volume, tell)));
            to_text(serde_json::to_string(&result(outcome)))
        }
        Ok(Request::Check { reads_pages }) => {
            // Standbys are on the other machines, which are asked on their own.
            let work = |volume: Volume, tell: &Tell<'_>| check(&volume, None, reads_pages, tell);
            let outcome = machine.volume().map_err(Into::into);
            let outcome = outcome.and_then(|volume| with_lines(progress, |tell| work(volume, tell)));
            to_text(serde_json::to_string(&result(outcome)))
        }
        Ok(Request::CheckImage) => {
            let images = machine.images();
            let outcome = with_lines(progress, |tell| check_images(&images, tell));
            to_text(serde_json::to_string(&result(outcome)))
        }
        Ok(Request::AddMachine { machine: number, address }) => changed(machine.add_machine(number, address)),
        Ok(Request::DrainMachine { machine: number }) => changed(machine.drain_machine(number)),
        Ok(Request::RemoveMachine { machine: number }) => changed(machine.remove_machine(number)),
        Ok(_) => to_text(serde_json::to_string(&result::<bool>(Err(anyhow::anyhow!(
            "machines of a volume are started and stopped where they run"
        ))))),
        Err(error) => to_text(serde_json::to_string(&result::<bool>(Err(anyhow::anyhow!("no request: {error}"))))),
    }
}

/// A report of how far a long work is: done, and all.
type Tell<'t> = dyn Fn(u64, u64) + Send + Sync + 't;

/// Does a long work in another thread. `progress` is told lines meanwhile.
fn with_lines<T: Serialize + Send>(
    progress: &mut dyn FnMut(&str),
    work: impl FnOnce(&Tell<'_>) -> Result<T> + Send,
) -> Result<T> {
    let (lines, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let working = scope.spawn(move || {
            work(&move |done, all| {
                let line = Answer::<bool> { done: Some((done, all)), result: None, error: None };
                // Who asked may be gone: the work goes on.
                let _ = lines.send(serde_json::to_string(&line).unwrap_or_default());
            })
        });
        told.iter().for_each(|line| progress(&line));
        working.join().unwrap_or_else(|_| bail!("the work ended with a panic; this is a bug"))
    })
}

/// The socket of a volume.
fn place(volume: &Path) -> PathBuf {
    folder(volume).join("control")
}

/// Asks the process that has the volume. `None`: there is none.
pub fn ask<T: for<'a> Deserialize<'a>>(
    volume: &Path,
    request: &Request,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<T>> {
    let Ok(mut stream) = UnixStream::connect(place(volume)) else { return Ok(None) };
    stream.set_read_timeout(Some(SILENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the process that has the volume does not answer")?;
        let answer: Answer<T> = serde_json::from_str(&line).context("an answer that makes no sense")?;
        if let Some((done, all)) = answer.done {
            progress(done, all);
        }
        if let Some(error) = answer.error {
            bail!("{error}");
        }
        if answer.result.is_some() {
            return Ok(answer.result);
        }
    }
    bail!("the process that has the volume ended before it answered; try again")
}

/// As [`ask`], for a volume that must be mounted.
pub fn ask_mounted<T: for<'a> Deserialize<'a>>(volume: &Path, request: &Request) -> Result<T> {
    let answer = ask(volume, request, &mut |_, _| {})?;
    let path = volume.display();
    answer.with_context(|| format!("{path}: no process has it with replicas; mount it by `lodestone fs mount --try 3`"))
}

/// The socket, as long as the volume is mounted.
#[derive(Debug)]
pub struct Control(Option<PathBuf>);

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Without it the next mount replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Control {
    /// Answers requests about a volume with replicas, in threads of its own.
    pub fn serve(opened: &Arc<Opened>) -> Result<Self> {
        let Opened::Many(cluster) = &**opened else { return Ok(Self(None)) };
        let path = cluster.folder().join("control");
        // That of a process that was killed: this one has the volume now.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("{}: no socket", path.display()))?;
        // The volume ends with the mount, and not with this thread.
        let opened = Arc::downgrade(opened);
        std::thread::Builder::new().name("fs-control".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(opened) = opened.upgrade() else { return };
                let work = move || {
                    if let Err(error) = answer(opened, &stream) {
                        tracing::warn!("a request about the volume: {error}");
                    }
                };
                let _ = std::thread::Builder::new().name("fs-request".into()).spawn(work);
            }
        })?;
        Ok(Self(Some(path)))
    }
}

fn tell<T: Serialize>(mut stream: &UnixStream, answer: &Answer<T>) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    Ok(stream.write_all(line.as_bytes())?)
}

fn answer(opened: Arc<Opened>, stream: &UnixStream) -> Result<()> {
    let Opened::Many(cluster) = &*opened else { return Ok(()) };
    stream.set_read_timeout(Some(SILENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Request::Status => tell(stream, &result(Ok(cluster.status()))),
        Request::Scrub { pages_per_second, repairs } => {
            let volume = cluster.volume();
            // A scrub is long: it ends with the mount.
            drop(opened);
            let outcome = volume.map_err(Into::into).and_then(|volume| {
                scrub(&volume, pages_per_second, repairs, &|done, all| {
                    let line = Answer::<ScrubReport> { done: Some((done, all)), result: None, error: None };
                    // Who asked may be gone: the scrub goes on.
                    let _ = tell(stream, &line);
                })
            });
            tell(stream, &result(outcome))
        }
        Request::Check { reads_pages } => {
            let (volume, images) = (cluster.volume(), cluster.images());
            // A check is long: it ends with the mount.
            drop(opened);
            let outcome = volume.map_err(Into::into).and_then(|volume| {
                check(&volume, Some(&images), reads_pages, &|done, all| {
                    let line = Answer::<bool> { done: Some((done, all)), result: None, error: None };
                    // Who asked may be gone: the check goes on.
                    let _ = tell(stream, &line);
                })
            });
            tell(stream, &result(outcome))
        }
        Request::Add { address } => tell(stream, &result(cluster.add_node(address).map_err(Into::into))),
        Request::Remove { node } => tell(stream, &result(cluster.remove_node(node).map_err(Into::into).map(|()| true))),
        Request::Stop { node } => tell(stream, &result(cluster.stop_node(node).map_err(Into::into).map(|()| true))),
        Request::Start { node } => tell(stream, &result(cluster.start_node(node).map_err(Into::into).map(|()| true))),
        Request::AddMachine { .. }
        | Request::DrainMachine { .. }
        | Request::RemoveMachine { .. }
        | Request::CheckImage => {
            tell(stream, &result::<bool>(Err(anyhow::anyhow!("the volume is not on several machines"))))
        }
    }
}

fn result<T>(outcome: Result<T>) -> Answer<T> {
    match outcome {
        Ok(value) => Answer { done: None, result: Some(value), error: None },
        Err(error) => Answer { done: None, result: None, error: Some(format!("{error:#}")) },
    }
}

/// Scrubs. Tells the progress every half second, also while a page waits for a node: otherwise who asked would take
/// the silence for the end.
pub fn scrub(
    volume: &Volume,
    pages_per_second: u64,
    repairs: bool,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<ScrubReport> {
    let mut options = ScrubOptions::default();
    (options.pages_per_second, options.repairs) = (pages_per_second, repairs);
    telling(progress, |counts| Ok(volume.scrub(&options, counts)?))
}

/// Checks names, links, pages and checksums, and the images of the standbys of this process. Tells the progress as a
/// scrub does.
pub fn check(
    volume: &Volume,
    images: Option<&Images>,
    reads_pages: bool,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<CheckReport> {
    telling(progress, |counts| {
        let mut report = volume.check_with(reads_pages, counts)?;
        images.map_or(Ok(()), |images| images.check(Some(volume), reads_pages, &mut report))?;
        Ok(report)
    })
}

/// Checks the image of a machine that follows: nothing of one that leads.
fn check_images(images: &Images, progress: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<CheckReport> {
    telling(progress, |_| {
        let mut report = CheckReport::default();
        images.check(None, false, &mut report)?;
        Ok(report)
    })
}

/// Does a long work, and tells every half second how far it is.
fn telling<T>(
    progress: &(dyn Fn(u64, u64) + Send + Sync),
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T>,
) -> Result<T> {
    let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (now, of) = (&done, &all);
        scope.spawn(move || {
            // The other end is dropped when the scrub ends.
            while ended.recv_timeout(PROGRESS) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress(now.load(Ordering::Relaxed), of.load(Ordering::Relaxed));
            }
        });
        let outcome = work(&mut |now, of| {
            done.store(now, Ordering::Relaxed);
            all.store(of, Ordering::Relaxed);
        });
        drop(end);
        outcome
    })
}

/// The state of the nodes, if a process has them.
pub fn status(volume: &Path) -> Result<Option<ClusterStatus>> {
    ask(volume, &Request::Status, &mut |_, _| {})
}
