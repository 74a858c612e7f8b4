//! One running guest: QEMU without acceleration (TCG), several NUMA nodes, an NVDIMM on each over a file of the host.
//!
//! Algorithm:
//!
//! 1. Start QEMU with the kernel's console going to a log file and the second serial port to our pipe.
//! 2. A thread reads the pipe and passes on the messages. [`Guest::next`] waits for one, at most until a deadline.
//! 3. [`Guest::cut_power`] sends SIGKILL: processes, kernel and page cache of the guest are gone at once. Only the
//!    stores that its processors had made into the NVDIMMs' backing files remain.
//!
//! Invariants: no guest outlives its `Guest` value (dropping kills it) or this process, and no wait is unbounded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::protocol::Message;

const QEMU: &str = "qemu-system-x86_64";
/// Space for namespaces on all NVDIMMs together. Each share is a multiple of the namespaces' alignment (16 MiB).
const MODULES_MIB: u64 = 2048;
/// Memory and processors of all nodes together.
const MEMORY_MIB: u64 = 2048;
const CPUS: usize = 4;
/// Label area after it: names the namespaces, so that they survive a reboot. It keeps the module a multiple of 2 MiB.
const LABELS_MIB: u64 = 2;

/// The platform's protection when the power fails: QEMU's `nvdimm-persistence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    /// It saves the memory controller's queues: caches must be flushed (ADR). Pools are in the domain `dax`.
    Dax,
    /// It saves the processors' caches too (eADR). Pools are in the domain `eadr`.
    Eadr,
    /// It has no persistent memory.
    Plain,
}

impl Platform {
    /// The persistence domain that every pool must have here.
    pub(super) const fn domain(self) -> &'static str {
        match self {
            Self::Dax => "dax",
            Self::Eadr => "eadr",
            Self::Plain => "none",
        }
    }

    const fn qemu_persistence(self) -> &'static str {
        match self {
            Self::Dax => "mem-ctrl",
            Self::Eadr => "cpu",
            Self::Plain => "none",
        }
    }
}

/// The guest's NUMA nodes: processors, memory and persistent memory in equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    nodes: usize,
}

impl Machine {
    /// A machine of `nodes` nodes, at most as many as there are processors.
    pub(super) const fn with_nodes(nodes: usize) -> Self {
        assert!(nodes >= 1 && nodes <= CPUS, "every node has a processor");
        Self { nodes }
    }

    const fn module_mib(self) -> u64 {
        MODULES_MIB / self.nodes as u64 / 16 * 16
    }

    /// As between sockets. With more than two nodes, neighbours are nearer than the others.
    fn distance(self, here: usize, there: usize) -> u32 {
        if self.nodes > 2 && here ^ there == 1 { 16 } else { 21 }
    }

    /// First and last processor of a node.
    fn cpus(self, node: usize) -> (usize, usize) {
        (node * CPUS / self.nodes, (node + 1) * CPUS / self.nodes - 1)
    }
}

/// The result of [`Guest::next`].
pub(super) enum Heard {
    Message(Message),
    /// The guest powered itself off or died.
    Ended,
    /// The deadline passed.
    Late,
}

/// A running guest.
pub(super) struct Guest {
    child: Child,
    messages: Receiver<Message>,
}

impl Guest {
    /// Boots a guest on `cache` (`vm/.cache`): kernel, initramfs, modules in `pm/`, shared folder `share/`.
    pub(super) fn boot(cache: &Path, platform: Platform, machine: Machine) -> Result<Self> {
        Self::start(cache, "", machine_arguments(cache, platform, machine), "")
    }

    /// Boots one of several guests, numbered from 1, that are joined by a network of their own. The first one has the
    /// hub: it is booted first, and the others when their sockets are there.
    pub(super) fn boot_linked(cache: &Path, link: &Link, number: usize) -> Result<Self> {
        let name = format!("-{number}");
        let mut arguments = common_arguments(cache, &name);
        arguments.extend(["-machine", "q35", "-smp", "1", "-m", "1024M"].map(str::to_owned));
        arguments.extend(link.arguments(number));
        Self::start(cache, &name, arguments, &format!(" guest={number}"))
    }

    fn start(cache: &Path, name: &str, arguments: Vec<String>, append: &str) -> Result<Self> {
        let version = fs::read_to_string(cache.join("kernel/version"))
            .context("no kernel in vm/.cache; run: cargo xtask vm setup")?;
        if !is_installed(QEMU) {
            bail!("{QEMU} is not installed; run: cargo xtask vm setup");
        }
        // If this process dies without dropping its guest, the kernel kills the guest.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", QEMU]);
        command.args(arguments);
        command.arg("-kernel").arg(cache.join(format!("kernel/boot/vmlinuz-{}", version.trim())));
        command.arg("-initrd").arg(cache.join("initramfs.gz"));
        command.args(["-append", &format!("console=ttyS0 quiet loglevel=4 panic=-1{append}")]);
        let errors = fs::File::create(cache.join(format!("qemu-errors{name}.log")));
        let errors = errors.context("could not write into vm/.cache")?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("could not start setpriv (of util-linux); run: cargo xtask vm setup")?;
        let Some(output) = child.stdout.take() else { bail!("QEMU's output is not a pipe") };
        let messages = read_messages(output);
        Ok(Self { child, messages })
    }

    /// The next message, the guest's end, or the deadline, whichever comes first.
    pub(super) fn next(&self, deadline: Instant) -> Heard {
        match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(message) => Heard::Message(message),
            Err(RecvTimeoutError::Timeout) => Heard::Late,
            Err(RecvTimeoutError::Disconnected) => Heard::Ended,
        }
    }

    /// SIGKILL to the whole guest, then waits until the process is gone.
    pub(super) fn cut_power(mut self) -> Result<()> {
        self.child.kill().context("could not kill QEMU")?;
        self.child.wait().context("could not wait for QEMU")?;
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A guest that is already gone is as good as killed, and there is no caller to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Creates the NVDIMMs' backing files afresh: sparse, all zero.
pub(super) fn create_modules(cache: &Path, machine: Machine) -> Result<()> {
    let folder = cache.join("pm");
    fs::create_dir_all(&folder).context("could not create vm/.cache/pm")?;
    for node in 0..machine.nodes {
        let path = module_path(cache, node);
        let file = fs::File::create(&path).with_context(|| format!("could not create {path}"))?;
        file.set_len((machine.module_mib() + LABELS_MIB) << 20).with_context(|| format!("could not size {path}"))?;
    }
    Ok(())
}

fn module_path(cache: &Path, node: usize) -> String {
    cache.join(format!("pm/module{node}")).display().to_string()
}

/// A network of guests: a hub in the first one, and a socket of this machine for each of the others.
pub(super) struct Link {
    folder: PathBuf,
    guests: usize,
}

impl Link {
    /// A network for so many guests.
    pub(super) fn new(guests: usize) -> Self {
        Self { folder: std::env::temp_dir(), guests }
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.folder.join(format!("lodestone-vm-{}-{number}.sock", std::process::id()))
    }

    /// Whether the sockets of all guests but the first are there.
    pub(super) fn is_ready(&self) -> bool {
        (2..=self.guests).all(|number| self.socket(number).exists())
    }

    fn arguments(&self, number: usize) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        let stream = |id: &str, is_server: bool, of: usize| {
            let (server, path) = (if is_server { "on" } else { "off" }, self.socket(of));
            format!("stream,id={id},server={server},addr.type=unix,addr.path={}", path.display())
        };
        if number == 1 {
            add("-netdev", "hubport,id=card,hubid=0".into());
            for other in 2..=self.guests {
                add("-netdev", stream(&format!("wire{other}"), true, other));
                add("-netdev", format!("hubport,id=port{other},hubid=0,netdev=wire{other}"));
            }
        } else {
            add("-netdev", stream("card", false, number));
        }
        add("-device", format!("virtio-net-pci,netdev=card,mac=52:54:00:77:70:{number:02x},romfile="));
        arguments
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        (2..=self.guests).for_each(|number| drop(fs::remove_file(self.socket(number))));
    }
}

/// The devices of every guest: serial ports, a processor, shared folders.
fn common_arguments(cache: &Path, name: &str) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-display", "none".into());
    // Order matters: the first is ttyS0 (console), the second ttyS1 (messages).
    add("-serial", format!("file:{}", cache.join(format!("console{name}.log")).display()));
    add("-serial", "stdio".into());
    add("-accel", "tcg,thread=multi".into());
    add("-cpu", "max".into());
    let share = |path: &str, tag: &str| format!("local,path={path},mount_tag={tag},security_model=none");
    add("-virtfs", format!("{},readonly=on", share("/usr", "usr")));
    add("-virtfs", format!("{},readonly=on", share(&cache.join("kernel").display().to_string(), "kernel")));
    add("-virtfs", share(&cache.join("share").display().to_string(), "share"));
    arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    arguments
}

fn machine_arguments(cache: &Path, platform: Platform, machine: Machine) -> Vec<String> {
    let mut arguments = common_arguments(cache, "");
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-machine", format!("q35,nvdimm=on,nvdimm-persistence={}", platform.qemu_persistence()));
    let nodes = machine.nodes;
    add("-smp", format!("{CPUS},sockets={nodes},cores={},threads=1", CPUS / nodes));
    add("-m", format!("{MEMORY_MIB}M,slots=8,maxmem=8G"));
    for node in 0..nodes {
        let (first, last) = machine.cpus(node);
        add("-object", format!("memory-backend-ram,id=ram{node},size={}M", MEMORY_MIB / nodes as u64));
        add("-numa", format!("node,nodeid={node},cpus={first}-{last},memdev=ram{node}"));
    }
    for (here, there) in (0..nodes).flat_map(|here| (here + 1..nodes).map(move |there| (here, there))) {
        add("-numa", format!("dist,src={here},dst={there},val={}", machine.distance(here, there)));
    }
    for node in 0..nodes {
        let (path, size) = (module_path(cache, node), machine.module_mib() + LABELS_MIB);
        add("-object", format!("memory-backend-file,id=pm{node},share=on,mem-path={path},size={size}M"));
        add("-device", format!("nvdimm,id=nvdimm{node},memdev=pm{node},node={node},label-size={LABELS_MIB}M"));
    }
    arguments
}

/// Reads until the guest ends. Noise is dropped.
fn read_messages(output: ChildStdout) -> Receiver<Message> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            let Some(message) = Message::parse(&String::from_utf8_lossy(&line)) else { continue };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}
