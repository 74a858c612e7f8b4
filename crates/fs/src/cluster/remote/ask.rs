//! Questions to one machine of a volume: how it stands, which description it has, and what its program knows.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lodestone_fabric::NodeId;
use lodestone_registry::{Channel, Security};

use crate::cluster::machine::site::Site;
use crate::cluster::machine::wire;
use crate::error::{Error, Result};

/// Time for a connection to a machine.
const CONNECT_PATIENCE: Duration = Duration::from_millis(400);
/// Time for a machine to say who leads.
pub(super) const STANDING_PATIENCE: Duration = Duration::from_millis(600);
/// Time for a call: longer than the metadata node waits for a quorum, of a mount or of a program there.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(45);

/// Asks a machine something that the program there knows. `progress` is told all answers but the last.
///
/// # Errors
/// A machine that does not answer.
pub fn ask_machine(
    site: &Site,
    security: &Security,
    machine: u16,
    text: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<String> {
    let failed = |error| Error::Options(format!("machine {machine} does not answer: {error}"));
    let mut channel = connect(site, security, machine)?;
    channel.within(Some(CALL_PATIENCE));
    channel.send(&[&[wire::TEXT], text.as_bytes()].concat()).map_err(failed)?;
    loop {
        channel.within(Some(CALL_PATIENCE));
        let frame = channel.receive(wire::ANSWER_BYTES_MAX).map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match frame.split_first() {
            Some((0, last)) => return Ok(text(last)),
            Some((1, more)) => progress(&text(more)),
            _ => return Err(Error::Options(format!("machine {machine}: an answer that makes no sense"))),
        }
    }
}

/// Asks a machine how it stands.
pub(crate) fn standing(channel: &mut Channel) -> std::io::Result<wire::Standing> {
    channel.within(Some(STANDING_PATIENCE));
    channel.send(&[wire::STANDING])?;
    let wrong = || std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer that makes no sense");
    wire::Standing::from_bytes(&channel.receive(wire::ANSWER_BYTES_MAX)?).ok_or_else(wrong)
}

/// Asks a machine for the description that it has.
pub(crate) fn description(channel: &mut Channel) -> std::io::Result<Site> {
    channel.within(Some(STANDING_PATIENCE));
    channel.send(&[wire::SITE])?;
    let text = String::from_utf8(channel.receive(wire::ANSWER_BYTES_MAX)?).unwrap_or_default();
    let wrong = || std::io::Error::new(std::io::ErrorKind::InvalidData, "a description that makes no sense");
    Site::parse(&text).ok_or_else(wrong)
}

/// The newest description of a volume: of this one, and those that its machines have. Machines that do not answer are
/// left out.
#[must_use]
pub fn newest_site(site: &Site, security: &Security) -> Site {
    let mut newest = site.clone();
    for machine in site.machines.keys().copied() {
        let found = connect(site, security, machine).ok().and_then(|mut channel| description(&mut channel).ok());
        let newer = found.filter(|found| found.volume == site.volume && found.revision > newest.revision);
        newest = newer.unwrap_or(newest);
    }
    newest
}

/// Whether the system of a machine says that no process listens there: the one that did has ended.
pub(crate) fn refuses(site: &Site, machine: u16) -> bool {
    let Ok(address) = site.address(machine) else { return false };
    let found = TcpStream::connect_timeout(&SocketAddr::V4(address), CONNECT_PATIENCE);
    found.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// A connection to a machine, which says that it has this volume.
pub(crate) fn connect(site: &Site, security: &Security, machine: u16) -> Result<Channel> {
    let address = SocketAddr::V4(site.address(machine)?);
    let failed = |error| Error::Options(format!("machine {machine} at {address}: {error}"));
    let mut channel = Channel::connect(security, NodeId(machine), address, CONNECT_PATIENCE).map_err(failed)?;
    channel.send(&wire::hello(site.volume)).map_err(failed)?;
    match channel.receive(wire::ANSWER_BYTES_MAX).map_err(failed)?.split_first() {
        Some((0, _)) => Ok(channel),
        Some((_, text)) => {
            Err(Error::Options(format!("machine {machine} at {address}: {}", String::from_utf8_lossy(text))))
        }
        None => Err(Error::Options(format!("machine {machine} at {address}: an answer that makes no sense"))),
    }
}
