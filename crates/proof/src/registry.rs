//! Keepers of the registry under the crash explorer: what they told, and the vote that they gave, survives.
//!
//! One keeper decides alone, so each of its answers rests on its own log. Among three a keeper gives its vote to a
//! candidate, whose messages are those of a second keeper on memory that does not count.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, History, Outcome, Redundant, SiteKey, Structure, Target};
use lodestone_fabric::{Moment, NodeId, Term};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr, Pool};
use lodestone_registry::{
    Answer, Keeper, KeeperId, KeeperOptions, KeeperOutbound, Request, TICK_NS, Token, VolumeId,
};

/// The smallest journal: the table is written anew after some dozen entries.
const BYTES: u64 = 512 + 64 * 64;
const VOLUME: VolumeId = VolumeId(1);

/// An operation of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A node claims the next term.
    Claim,
    /// Another keeper asks for the vote and gets it.
    Vote,
}

/// A script on a keeper.
struct Script {
    name: &'static str,
    /// All keepers of the registry.
    keepers: u64,
    /// Terms that were claimed before the run.
    before: u32,
    steps: Vec<Step>,
}

/// The keeper of a life.
pub struct Life {
    keeper: Keeper,
    now: Moment,
}

/// Targets of keepers.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let script = |name, keepers, before, steps| -> Box<dyn Target> { Box::new(Script { name, keepers, before, steps }) };
    vec![
        script("registry-keeper", 1, 1, vec![Step::Claim, Step::Claim]),
        // The journal is half full: one of these writes the table anew.
        script("registry-keeper-table", 1, 9, vec![Step::Claim, Step::Claim, Step::Claim]),
        script("registry-keeper-vote", 3, 0, vec![Step::Vote]),
    ]
}

/// Bugs that a target of this module must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![Bug::new("registry-told-before-it-is-durable", "a term is handed out twice", || {
        targets().into_iter().find(|target| target.name() == "registry-keeper").expect("a target of that name")
    })]
}

fn at(pool: &Pool) -> PmAddr {
    pool.heap_area(0).0
}

fn options(id: u64) -> KeeperOptions {
    KeeperOptions { id: KeeperId(id), registry: 5, seed: id }
}

fn all(keepers: u64) -> Vec<KeeperId> {
    (1..=keepers).map(KeeperId).collect()
}

impl Life {
    fn tick(&mut self) -> Outcome<KeeperOutbound> {
        let mut out = KeeperOutbound::default();
        self.now = self.now.plus(TICK_NS);
        self.keeper.tick(self.now, &mut out)?;
        Ok(out)
    }

    /// Asks, and has the answer at once: this keeper decides alone.
    fn ask(&mut self, request: Request) -> Outcome<Answer> {
        let mut out = KeeperOutbound::default();
        while !self.keeper.is_leading() {
            self.tick()?;
        }
        self.keeper.request(self.now, Token(1), VOLUME, request, &mut out)?;
        let answer = out.answers.pop().ok_or_else(|| Failure::new("a keeper alone does not answer"))?;
        Ok(answer.1)
    }

    fn term(&mut self) -> Outcome<Term> {
        match self.ask(Request::State)? {
            Answer::State(state) => Ok(state.term),
            other => Err(Failure::new(format!("a state, and not {other:?}"))),
        }
    }

    fn claim(&mut self) -> Outcome {
        let term = self.term()?;
        match self.ask(Request::Claim(NodeId(1), term))? {
            Answer::Done(_) => Ok(()),
            other => Err(Failure::new(format!("a claim of the newest term: {other:?}"))),
        }
    }

    /// A candidate asks for the vote until it has it.
    fn vote(&mut self) -> Outcome {
        let memory = Memory::anonymous(64 << 10)?;
        let keeper = Keeper::create(options(2), &memory, PmAddr::new(0, 4096), BYTES, &all(3))?;
        let mut candidate = Life { keeper, now: Moment(1) };
        for _ in 0..200 {
            let out = candidate.tick()?;
            for (_, bytes) in out.messages.into_iter().filter(|message| message.0 == KeeperId(1)) {
                let mut answer = KeeperOutbound::default();
                self.keeper.message(self.now, &bytes, &mut answer)?;
                for (_, bytes) in answer.messages.into_iter().filter(|message| message.0 == KeeperId(2)) {
                    let mut more = KeeperOutbound::default();
                    candidate.keeper.message(candidate.now, &bytes, &mut more)?;
                    for (_, bytes) in more.messages.into_iter().filter(|message| message.0 == KeeperId(1)) {
                        self.keeper.message(self.now, &bytes, &mut KeeperOutbound::default())?;
                    }
                }
            }
            if self.keeper.vote() == Some(KeeperId(2)) {
                return Ok(());
            }
        }
        Err(Failure::new("the candidate never gets the vote"))
    }
}

impl Structure for Script {
    type Op = Step;
    type Handle = Mutex<Life>;
    /// The newest term of the volume, and the term and vote of the keeper among three.
    type View = (u32, Option<(u64, KeeperId)>);

    fn name(&self) -> String {
        self.name.into()
    }

    fn script(&self) -> Vec<Step> {
        self.steps.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let keeper = Keeper::create(options(1), pool.memory(), at(pool), BYTES, &all(self.keepers))?;
        let mut life = Life { keeper, now: Moment(1) };
        if self.keepers == 1 {
            life.ask(Request::Create(Vec::new()))?;
            for _ in 0..self.before {
                life.claim()?;
            }
        }
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Mutex<Life>> {
        let keeper = Keeper::open(options(1), pool.memory(), at(pool), BYTES)?;
        Ok(Mutex::new(Life { keeper, now: Moment(1) }))
    }

    fn apply(&self, handle: &Mutex<Life>, step: &Step) -> Outcome {
        let mut life = lock(handle);
        match step {
            Step::Claim => life.claim(),
            Step::Vote => life.vote(),
        }
    }

    fn view(&self, handle: &Mutex<Life>) -> Outcome<Self::View> {
        let mut life = lock(handle);
        if self.keepers > 1 {
            return Ok((0, life.keeper.vote().map(|vote| (life.keeper.term(), vote))));
        }
        Ok((life.term()?.0, None))
    }

    fn model(&self, steps: &[Step]) -> Self::View {
        let claims = steps.iter().filter(|step| **step == Step::Claim).count();
        let vote = steps.contains(&Step::Vote).then_some((2, KeeperId(2)));
        (if self.keepers > 1 { 0 } else { self.before + u32::try_from(claims).unwrap_or(0) }, vote)
    }

    fn judge(&self, view: &Self::View, history: &History, ops: &[Step]) -> Outcome {
        let fits = history.any_sequence(|sequence| {
            let steps: Vec<Step> = sequence.iter().map(|op| ops[*op]).collect();
            self.model(&steps) == *view
        });
        Failure::unless(fits, || format!("recovered {view:?}; acknowledged {:?}", history.acked()))
    }

    fn more(&self) -> Vec<Step> {
        if self.keepers == 1 { vec![Step::Claim] } else { Vec::new() }
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("registry/src/") || site.file.contains("fabric/src/")
    }

    fn redundant(&self) -> Vec<Redundant> {
        Vec::new()
    }
}
