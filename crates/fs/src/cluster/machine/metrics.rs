//! The figures of a machine in the text format of Prometheus, for a server that asks for them.
//!
//! A name ends in `_total` where the figure only rises as long as the process runs. Those of the metadata node begin
//! again when it takes over, as Prometheus expects of a process that was started anew. They are there at the machine
//! that leads alone.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestone_pmem::sync::lock;

use super::leases::Leases;
use super::{MachineHandle, Shared};
use crate::cluster::link::Link;
use crate::cluster::remote::calls::{CALLS, Call};
use crate::usage::MetadataUsage;
use crate::volume::Volume;

/// Counts of the calls of mounts, by kind, and how long they took.
#[derive(Debug, Default)]
pub(crate) struct CallCounts([CallCount; CALLS.len()]);

#[derive(Debug, Default)]
struct CallCount {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CallCounts {
    /// A call has its answer.
    pub(crate) fn note(&self, call: &Call, took: Duration) {
        let Some(found) = self.0.get(call.place()) else { return };
        found.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        found.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Figures, each with its description.
struct Figures {
    text: String,
    /// Of all of them.
    labels: String,
}

impl Figures {
    /// A figure with a value for each of `of`: further labels, and the value.
    fn add<V: Display>(&mut self, name: &str, about: &str, of: impl IntoIterator<Item = (String, V)>) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let full = format!("lodestone_fs_{name}");
        let mut values = of.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        // Text that is written to a string does not fail.
        let _ = writeln!(self.text, "# HELP {full} {about}\n# TYPE {full} {kind}");
        for (labels, value) in values {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(self.text, "{full}{{{}{comma}{labels}}} {value}", self.labels);
        }
    }

    fn one<V: Display>(&mut self, name: &str, about: &str, value: V) {
        self.add(name, about, [(String::new(), value)]);
    }
}

impl MachineHandle {
    /// The figures of the machine as Prometheus reads them, each as `lodestone_fs_NAME` with the labels `volume` and
    /// `machine`.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let Some(machine) = &self.shared.machine else { return String::new() };
        let labels = format!("volume=\"{:016x}\",machine=\"{}\"", machine.site().volume, machine.number);
        let mut figures = Figures { text: String::new(), labels };
        of_process(&self.shared, &mut figures);
        if let Ok((volume, link)) = self.shared.leading_here() {
            of_volume(&volume, &mut figures);
            of_metadata(self.shared.status().metadata, &mut figures);
            of_link(&link, &mut figures);
            of_leases(machine.leases(link.term()).as_deref(), &mut figures);
        }
        figures.text
    }
}

fn of_process(shared: &Shared, figures: &mut Figures) {
    let Some(machine) = &shared.machine else { return };
    let status = shared.status();
    let leads = u8::from(shared.leading_here().is_ok());
    figures.one("leads", "Whether the metadata node is on this machine.", leads);
    figures.one("takeovers_total", "Takeovers of this machine.", status.takeovers);
    figures.one("revision", "Changes of the machines of the volume that this one knows.", status.revision);
    let answer = lock(&machine.keepers_down).is_none();
    figures.one("keepers_answer", "Whether the keepers answered when they were last asked.", u8::from(answer));
    let others = lock(&machine.others).iter().map(|(other, found)| (*other, found.1.is_ok())).collect::<Vec<_>>();
    let others = others.into_iter().map(|(other, answers)| (format!("other=\"{other}\""), u8::from(answers)));
    figures.add("machine_answers", "Whether another machine answers.", others);
    let standing = shared.own_standing();
    let node = |node: &super::wire::NodeStanding| format!("node=\"{}\"", node.node.0);
    let runs = standing.nodes.iter().map(|found| (node(found), u8::from(found.runs)));
    figures.add("node_runs", "Whether a node of this machine runs.", runs);
    let executed = standing.nodes.iter().filter(|found| found.executed > 0).map(|found| (node(found), found.executed));
    figures.add("node_executed", "The last operation that a node of this machine has executed.", executed);
    let call = |place: usize| format!("call=\"{}\"", CALLS[place]);
    let counts = &machine.calls.0;
    let of = || counts.iter().enumerate().filter(|(_, count)| count.count.load(Ordering::Relaxed) > 0);
    let answered = of().map(|(place, count)| (call(place), count.count.load(Ordering::Relaxed)));
    figures.add("calls_total", "Calls of mounts that were answered here.", answered);
    let seconds = |count: &CallCount| Duration::from_nanos(count.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
    let took = of().map(|(place, count)| (call(place), seconds(count)));
    figures.add("call_seconds_total", "Time that these calls took.", took);
}

fn of_volume(volume: &Volume, figures: &mut Figures) {
    let (counts, room) = (volume.counts(), volume.room());
    for (name, about, value) in [
        ("operations_total", "Operations of the metadata node.", counts.operations),
        ("log_bytes_total", "Bytes of their records.", counts.log_bytes),
        ("syncs_total", "Calls that made everything durable.", counts.syncs),
        ("image_batches_total", "Batches of the image.", counts.batches),
        ("pages_written_total", "Pages that were written.", counts.pages_written),
        ("files", "Files of the volume.", room.files),
        ("pages", "Pages of the volume.", room.pages),
        ("pages_free", "Pages that belong to no file.", room.free),
        ("page_bytes", "Bytes of a page.", room.page_bytes),
    ] {
        figures.one(name, about, value);
    }
}

fn of_metadata(usage: Option<MetadataUsage>, figures: &mut Figures) {
    let Some(usage) = usage else { return };
    for (name, about, value) in [
        ("metadata_files", "Files and folders in the image.", usage.files),
        ("metadata_used_bytes", "Bytes of the pool in use, without the pages of files.", usage.used_bytes),
        ("metadata_image_bytes", "Bytes of the image.", usage.image_bytes),
        ("metadata_file_bytes", "Bytes of the image for each file.", usage.bytes_per_file),
        ("metadata_free_bytes", "Bytes of the pool that nothing uses.", usage.free_bytes),
        ("metadata_node_bytes", "Bytes of the pool with the rings and the log of the node.", usage.node_bytes),
    ] {
        figures.one(name, about, value);
    }
}

fn of_leases(leases: Option<&Leases>, figures: &mut Figures) {
    let Some(found) = leases.map(Leases::figures) else { return };
    for (name, about, value) in [
        ("leases_granted_total", "Leases of files that mounts got.", found.counts.granted),
        ("leases_recalled_total", "Leases that were taken back.", found.counts.recalled),
        ("leases_evicted_total", "Those taken back because a mount had too many.", found.counts.evicted),
        ("lease_sessions_expired_total", "Mounts with leases that were silent.", found.counts.expired),
        ("lease_waits_total", "Calls that waited until mounts had dropped what they kept.", found.waits),
    ] {
        figures.one(name, about, value);
    }
    figures.one("lease_wait_seconds_total", "Time that these calls waited.", found.waited.as_secs_f64());
    figures.one("leases_out", "Leases that mounts have now.", found.out);
}

fn of_link(link: &Link, figures: &mut Figures) {
    let now = link.now();
    let sending = link.sending();
    let volume = sending.leader.volume();
    figures.one("term", "The term of the metadata node.", volume.operations().term().0);
    let has_lease = u8::from(sending.leader.may_read(now));
    figures.one("lease_held", "Whether it holds the lease: without it nothing is read.", has_lease);
    let groups: Vec<_> = volume.groups().collect();
    let each = |value: &dyn Fn(&lodestone_fabric::Sender) -> u64| {
        let of = groups.iter().map(|group| (format!("group=\"{}\"", group.group().0), value(group)));
        of.collect::<Vec<_>>()
    };
    let count = lodestone_width::to_u64;
    figures.add("copies", "Members of a group that count.", each(&|group| count(group.view().active().count())));
    figures.add("quorum", "Members that a record needs.", each(&|group| count(group.view().quorum())));
    figures.add("view", "Changes of the members of a group.", each(&|group| group.view().number.0.into()));
    figures.add("record_last", "The last record of a group.", each(&|group| group.ring().last().0));
    let acknowledged = each(&|group| group.acknowledged().0);
    figures.add("record_acknowledged", "The last record that a quorum has.", acknowledged);
    figures.add("record_stable", "The last record that every member has.", each(&|group| group.stable().0));
    figures.add("ring_bytes", "Bytes of a ring.", each(&|group| group.ring().capacity()));
    figures.add("ring_used_bytes", "Bytes of a ring that are in use.", each(&|group| group.ring().used()));
    figures.add("records_total", "Records that were submitted.", each(&|group| group.counts().submitted));
    figures.add("record_packets_total", "Packets of records.", each(&|group| group.counts().fragments));
    figures.add("resent_total", "Packets of records that were sent again.", each(&|group| group.counts().resent));
    figures.add("held_total", "Times that a record waited for credit.", each(&|group| group.counts().held));
    let members = groups.iter().flat_map(|group| {
        let last = group.ring().last().0;
        let behind =
            move |node: lodestone_fabric::NodeId| last.saturating_sub(group.tail(node).map_or(0, |tail| tail.0));
        group.view().members.iter().map(move |member| (format!("node=\"{}\"", member.node.0), behind(member.node)))
    });
    figures.add("node_behind", "Records that a member has not reported as durable.", members.collect::<Vec<_>>());
    let counts = sending.tx.counts();
    for (name, about, value) in [
        ("packets_total", "Packets that the metadata node sent.", counts.packets),
        ("sends_total", "Sends that they took.", counts.sends),
        ("sent_bytes_total", "Bytes of these sends.", counts.bytes),
        ("lost_total", "Packets that could not be sent.", counts.lost),
    ] {
        figures.one(name, about, value);
    }
}
