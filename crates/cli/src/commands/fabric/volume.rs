//! `lodestone fabric volume` and `lodestone fabric state`.

use anyhow::{Result, bail};
use lodestone_fabric::{GroupId, NodeId, Registry, Role, View};
use lodestone_registry::VolumeId;
use serde::Serialize;

use super::{ClientArgs, volume};
use crate::output::Output;

const MAKE_AFTER_HELP: &str = "\
Examples:
  lodestone fabric volume 1f --group 0=4 --group 1=1,2,3 \\
    --keepers 1=127.0.0.1:7411

Group 0 has the operations of the volume, the others are its units.";

const STATE_AFTER_HELP: &str = "\
Examples:
  lodestone fabric state 1f --keepers 1=127.0.0.1:7411
  lodestone fabric state 1f --json --keepers 1=127.0.0.1:7411

The answer is agreed on by a majority of the keepers: without one there is none.";

fn group(text: &str) -> std::result::Result<(GroupId, View), String> {
    let wrong = || format!("`{text}` is not as in 1=1,2,3");
    let (group, nodes) = text.split_once('=').ok_or_else(wrong)?;
    let nodes: Option<Vec<NodeId>> = nodes.split(',').map(|node| node.parse().ok().map(NodeId)).collect();
    Ok((GroupId(group.parse().map_err(|_| wrong())?), View::of(&nodes.ok_or_else(wrong)?)))
}

/// Arguments of `lodestone fabric volume`.
#[derive(Debug, clap::Args)]
#[command(after_help = MAKE_AFTER_HELP)]
pub struct MakeArgs {
    /// Number of the volume, hexadecimal
    #[arg(value_name = "VOLUME", value_parser = volume)]
    volume: VolumeId,

    /// A group and its nodes, such as 1=1,2,3; again for each group
    #[arg(long, value_name = "GROUP=NODES", required = true, value_parser = group)]
    group: Vec<(GroupId, View)>,

    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `lodestone fabric state`.
#[derive(Debug, clap::Args)]
#[command(after_help = STATE_AFTER_HELP)]
pub struct StateArgs {
    /// Number of the volume, hexadecimal
    #[arg(value_name = "VOLUME", value_parser = volume)]
    volume: VolumeId,

    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Serialize)]
struct Shown {
    volume: String,
    term: u32,
    sender: u16,
    changes: u64,
    security: &'static str,
    groups: Vec<ShownGroup>,
}

#[derive(Serialize)]
struct ShownGroup {
    group: u32,
    view: u32,
    active: Vec<u16>,
    joining: Vec<u16>,
}

/// Makes a volume.
pub fn make(args: &MakeArgs, output: &Output) -> Result<()> {
    let client = args.client.client(args.volume, output)?;
    if !client.create(args.group.clone())? {
        bail!("{} exists already, with other members; look at it by `lodestone fabric state`", args.volume);
    }
    show(&args.client, args.volume, output)
}

/// Shows a volume.
pub fn state(args: &StateArgs, output: &Output) -> Result<()> {
    show(&args.client, args.volume, output)
}

fn show(args: &ClientArgs, volume: VolumeId, output: &Output) -> Result<()> {
    let client = args.client(volume, output)?;
    let state = client.state()?;
    let groups = state.groups.iter().map(|(group, view)| {
        let of = |role| view.members.iter().filter(move |member| member.role == role).map(|member| member.node.0);
        let (active, joining) = (of(Role::Active).collect(), of(Role::Joining).collect());
        ShownGroup { group: group.0, view: view.number.0, active, joining }
    });
    let shown = Shown {
        volume: format!("{:x}", volume.0),
        term: state.term.0,
        sender: state.sender.0,
        changes: state.change,
        security: client.security_name(),
        groups: groups.collect(),
    };
    output.result(&shown, |shown| {
        let sender = if shown.term == 0 { "nobody sends yet".into() } else { format!("node {} sends", shown.sender) };
        let mut text = format!("volume {}: term {}, {sender} ({})", shown.volume, shown.term, shown.security);
        for group in &shown.groups {
            let joining =
                if group.joining.is_empty() { String::new() } else { format!(", joining {:?}", group.joining) };
            text += &format!("\ngroup {} view {}: nodes {:?}{joining}", group.group, group.view, group.active);
        }
        text
    })
}
