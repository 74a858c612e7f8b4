//! `fabric-node`: members and senders of the fabric as processes of their own, and the harnesses that kill them and
//! spoil the network between them.
//!
//! | command | purpose |
//! | --- | --- |
//! | `member` | a member of a group, on a pool ([`member`]) |
//! | `sender` | a node that may send, on a pool ([`sender`]); it tells each acknowledgement on its standard output |
//! | `drive` | a sender for members elsewhere, until they have so many records ([`drive`]) |
//! | `kills` | kills members and senders under load, and judges what they leave ([`kills`]) |
//! | `namespaces` | the same group over network namespaces with loss, repeats, another order and cuts ([`namespaces`]) |
//! | `relay` | the switch between these namespaces ([`relay`]) |
//!
//! A record writes one page whose bytes follow from its term and sequence ([`content`]). So a
//! harness that knows what was acknowledged can judge any pool that a killed process left ([`judge`]).
//!
//! `cargo xtask fabric` builds and runs it.

#![deny(unsafe_code)]

mod cluster;
mod content;
mod drive;
mod judge;
mod kills;
mod member;
mod namespaces;
mod network;
mod packet_socket;
mod pools;
mod relay;
mod sender;
mod shuffle;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Members and senders of the fabric as processes.
#[derive(Parser)]
#[command(name = "fabric-node")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a member of the group until standard input ends.
    Member(member::Args),
    /// Run a node that may send until standard input ends; it tells what happens, and obeys lines.
    Sender(sender::Args),
    /// Send to members that run elsewhere, until they have so many records.
    Drive(drive::Args),
    /// Kill members and senders under load, and judge the pools they leave.
    Kills(kills::Args),
    /// Run a group over network namespaces with a bad network, and judge what it acknowledged.
    Namespaces(namespaces::Args),
    /// Carry frames between interfaces, badly.
    #[command(hide = true)]
    Relay(relay::Args),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Member(args) => member::run(&args).map(|()| true),
        Command::Sender(args) => sender::run(&args).map(|()| true),
        Command::Drive(args) => drive::run(&args),
        Command::Kills(args) => kills::run(&args),
        Command::Namespaces(args) => namespaces::run(&args),
        Command::Relay(args) => relay::run(&args).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            report_error(&error);
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stderr, reason = "the one place where the program says why it ended")]
fn report_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
