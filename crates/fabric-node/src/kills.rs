//! Kills under load: members, senders, both, all at once; and a sender that stops and comes back too late.
//!
//! A round waits for acknowledgements, kills at a random moment, judges the pools of the members that died, starts the
//! processes again, and waits until something is acknowledged. It measures the time from the kill until then; from the
//! start of the processes, if no quorum was alive.
//!
//! A member that dies leaves a pool in the page cache. In the `block` domain it leaves a file, and its memory is gone
//! with the process: everything that was not durable is lost, as in a power cut.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lodestone_width::to_u64;
use rustix::process::Signal;
use serde_json::json;

use crate::cluster::{Cluster, SENDERS, Setup};
use crate::network::Kind;
use crate::pools;
use crate::shuffle::Shuffle;
use crate::words::Order;

/// Arguments of `fabric-node kills`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds, shared out over the domains
    #[arg(long, default_value_t = 20)]
    rounds: u64,

    /// How packets travel
    #[arg(long, value_enum, default_value = "udp")]
    transport: Kind,

    /// Persistence domains of the pools, as DOMAIN or DOMAIN:FOLDER
    #[arg(long, value_delimiter = ',', default_value = "dax-emulated:/dev/shm,block")]
    domains: Vec<String>,

    /// Members
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=9))]
    members: u16,

    /// The lease of a sender, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    lease_ms: u64,

    /// A service that is back later than the lease and so many milliseconds is a failure
    #[arg(long, default_value_t = 1000)]
    back_ms: u64,

    /// The random moments and victims
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Overwrite a page that counts, at the end: the judge must find it
    #[arg(long, hide = true)]
    spoil: bool,

    /// Print one JSON object a domain and nothing else
    #[arg(long)]
    json: bool,
}

/// The victims of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Member,
    /// All members but one: no quorum is alive.
    Members,
    /// The sender, which starts again.
    Sender,
    /// The sender, and another node takes over at once.
    Takeover,
    /// The sender stops, another one takes over, and then it goes on.
    Stopped,
    /// Every process.
    All,
}

impl Victim {
    fn draw(shuffle: &mut Shuffle) -> Self {
        match shuffle.below(20) {
            0..8 => Self::Member,
            8..10 => Self::Members,
            10..14 => Self::Sender,
            14..17 => Self::Takeover,
            17 => Self::Stopped,
            _ => Self::All,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Member => "a member",
            Self::Members => "all members but one",
            Self::Sender => "the sender, started again",
            Self::Takeover => "the sender, another takes over",
            Self::Stopped => "the sender stopped, back late",
            Self::All => "all processes",
        }
    }

    const ALL: [Self; 6] = [Self::Member, Self::Members, Self::Sender, Self::Takeover, Self::Stopped, Self::All];
}

struct Rounds {
    cluster: Cluster,
    shuffle: Shuffle,
    /// How long the service was away, by victim.
    away: Vec<(Victim, Duration)>,
    kills: u64,
    most: Duration,
}

/// Runs the rounds. `false`: something was lost, or the service was away for too long.
pub fn run(args: &Args) -> Result<bool> {
    let domains = to_u64(args.domains.len());
    let mut holds = true;
    for (index, domain) in args.domains.iter().enumerate() {
        let index = to_u64(index);
        let rounds = args.rounds * (index + 1) / domains - args.rounds * index / domains;
        holds &= run_domain(args, domain, rounds)?;
    }
    Ok(holds)
}

fn run_domain(args: &Args, domain: &str, rounds: u64) -> Result<bool> {
    let (domain, folder) = domain
        .split_once(':')
        .map_or((domain, std::env::temp_dir()), |(domain, folder)| (domain, PathBuf::from(folder)));
    let folder = tempfile::Builder::new().prefix("fabric-kills-").tempdir_in(&folder).context("a folder for pools")?;
    let (addresses, group) = Setup::loopback(args.members, 2);
    let lease = Duration::from_millis(args.lease_ms);
    let setup = Setup {
        program: std::env::current_exe().context("finding this program")?,
        folder: folder.path().to_owned(),
        domain: domain.to_owned(),
        transport: args.transport,
        addresses,
        group,
        window: 16,
        spaces: std::collections::BTreeMap::new(),
        lease,
        more: Vec::new(),
    };
    let mut run = Rounds {
        cluster: Cluster::new(setup)?,
        shuffle: Shuffle::new(args.seed),
        away: Vec::new(),
        kills: 0,
        most: lease * 3 + Duration::from_secs(60),
    };
    let started = Instant::now();
    run.cluster.start_all(SENDERS)?;
    if run.cluster.acknowledged_after(started, None, run.most)?.is_none() {
        bail!("nothing is acknowledged {} s after the start", run.most.as_secs());
    }
    for round in 0..rounds {
        run.round().with_context(|| format!("round {round} of seed {}", args.seed))?;
        if !run.cluster.judge.violations.is_empty() {
            break;
        }
    }
    run.end(args.spoil)?;
    let limit = lease + Duration::from_millis(args.back_ms);
    Ok(run.report(args, started.elapsed(), limit))
}

impl Rounds {
    fn round(&mut self) -> Result<()> {
        let enough = self.cluster.judge.count + 50 + self.shuffle.below(400);
        if !self.cluster.until(self.most, |cluster| cluster.judge.count >= enough)? {
            bail!("the load stands still at {} records", self.cluster.judge.count);
        }
        self.cluster.run_for(Duration::from_micros(self.shuffle.below(20_000)))?;
        let Some((term, leader)) = self.cluster.leading else { bail!("no node sends") };
        let victim = Victim::draw(&mut self.shuffle);
        let since = match victim {
            Victim::Member => self.kill_members(1)?,
            Victim::Members => self.kill_members(self.cluster.setup.members().count() - 1)?,
            Victim::Sender => self.kill_sender(leader, leader)?,
            Victim::Takeover => self.kill_sender(leader, other(leader))?,
            Victim::Stopped => self.stop_sender(leader)?,
            Victim::All => self.kill_all()?,
        };
        // Lines of a sender that is gone may be read late.
        let term = (victim > Victim::Members).then_some(term);
        match self.cluster.acknowledged_after(since, term, self.most)? {
            Some(away) => self.away.push((victim, away)),
            None => bail!("nothing is acknowledged {} s after {}", self.most.as_secs(), victim.name()),
        }
        Ok(())
    }

    fn kill_members(&mut self, count: usize) -> Result<Instant> {
        let mut members: Vec<u16> = self.cluster.setup.members().collect();
        let mut since = Instant::now();
        let mut dead = Vec::new();
        for _ in 0..count {
            let index = usize::try_from(self.shuffle.below(to_u64(members.len())))?;
            let member = members.remove(index);
            self.cluster.kill(member)?;
            self.kills += 1;
            dead.push(member);
        }
        let has_quorum = members.len() > dead.len();
        if has_quorum {
            // For a while without it, and also beyond the time after which it is suspect.
            let while_away = [0, 10_000, 400_000][usize::try_from(self.shuffle.below(3))?];
            self.cluster.run_for(Duration::from_micros(self.shuffle.below(while_away + 1)))?;
        }
        for member in dead {
            self.cluster.inspect(member)?;
            self.cluster.start(member)?;
        }
        if !has_quorum {
            since = Instant::now();
        }
        Ok(since)
    }

    fn kill_sender(&mut self, leader: u16, next: u16) -> Result<Instant> {
        self.cluster.kill(leader)?;
        let since = Instant::now();
        self.kills += 1;
        self.cluster.start(leader)?;
        self.cluster.order(next, &Order::Lead);
        Ok(since)
    }

    /// The sender stops for longer than its lease. All that it acknowledges when it goes on must be in the new log.
    fn stop_sender(&mut self, leader: u16) -> Result<Instant> {
        self.cluster.signal(leader, Signal::STOP)?;
        let since = Instant::now();
        self.kills += 1;
        self.cluster.order(other(leader), &Order::Lead);
        let term = self.cluster.leading.map(|leading| leading.0);
        let is_new = |cluster: &Cluster| cluster.leading.map(|leading| leading.0) > term;
        if !self.cluster.until(self.most, is_new)? {
            bail!("no takeover from a sender that stopped");
        }
        self.cluster.signal(leader, Signal::CONT)?;
        Ok(since)
    }

    fn kill_all(&mut self) -> Result<Instant> {
        self.kills += to_u64(self.cluster.setup.addresses.len());
        self.cluster.kill_all()?;
        let since = Instant::now();
        let leader = SENDERS + u16::from(self.shuffle.below(2) == 1);
        self.cluster.start_all(leader)?;
        Ok(since)
    }

    /// Everything that was acknowledged is at every member.
    fn end(&mut self, is_spoiled: bool) -> Result<()> {
        if !self.cluster.settle(self.most)? {
            self.cluster.judge.violations.push("the members do not catch up at the end".to_owned());
        }
        let newest = self.cluster.judge.newest();
        self.cluster.kill_all()?;
        if is_spoiled {
            pools::spoil(&self.cluster.setup.pool(1), self.cluster.domain()?, newest)?;
        }
        let members: Vec<u16> = self.cluster.setup.members().collect();
        for member in members {
            let tail = self.cluster.inspect(member)?;
            if tail < newest {
                self.cluster.judge.violations.push(format!("member {member} ends at {tail}, not {newest}"));
            }
        }
        Ok(())
    }

    fn report(&mut self, args: &Args, took: Duration, limit: Duration) -> bool {
        self.away.sort_unstable_by_key(|away| away.1);
        let late = self.away.iter().filter(|away| away.1 > limit).count();
        let judge = &self.cluster.judge;
        let lost = judge.violations.len();
        let at = |away: &[Duration], share: usize| {
            away.get((away.len() * share / 100).min(away.len().saturating_sub(1))).copied()
        };
        let ms = |time: Option<Duration>| time.map_or(0, |time| time.as_millis());
        let of = |victim: Victim| -> Vec<Duration> {
            self.away.iter().filter(|away| away.0 == victim).map(|away| away.1).collect()
        };
        if args.json {
            let by = Victim::ALL.map(|victim| {
                let away = of(victim);
                json!({ "killed": victim.name(), "rounds": away.len(), "away_ms_p50": ms(at(&away, 50)),
                    "away_ms_max": ms(away.last().copied()) })
            });
            println!(
                "{}",
                json!({ "transport": self.cluster.transport, "domain": self.cluster.setup.domain,
                    "rounds": self.away.len(), "kills": self.kills, "acknowledged": judge.count,
                    "pages_compared": judge.compared, "violations": judge.violations, "late": late,
                    "limit_ms": limit.as_millis(), "seconds": took.as_secs(), "seed": args.seed, "by": by })
            );
            return lost == 0 && late == 0;
        }
        println!(
            "{} over {}, {} members, seed {}: {} rounds, {} kills, {} records acknowledged, {} pages compared, {} s",
            self.cluster.setup.domain,
            self.cluster.transport,
            args.members,
            args.seed,
            self.away.len(),
            self.kills,
            judge.count,
            judge.compared,
            took.as_secs()
        );
        for victim in Victim::ALL {
            let away = of(victim);
            if let Some(most) = away.last() {
                let (p50, most) = (ms(at(&away, 50)), ms(Some(*most)));
                println!(
                    "  {:32} {:5} rounds, service back after {p50} ms (half of them), {most} ms (all)",
                    victim.name(),
                    away.len()
                );
            }
        }
        for violation in &judge.violations {
            println!("  VIOLATION {violation}");
        }
        println!("  {lost} acknowledged lost or wrong, {late} rounds back later than {} ms", limit.as_millis());
        lost == 0 && late == 0
    }
}

const fn other(sender: u16) -> u16 {
    if sender == SENDERS { SENDERS + 1 } else { SENDERS }
}
