//! Memory of the judged runs, by the contents that they read: the decision tree of the reading-driven mode.
//!
//! Recovery and judgement are deterministic functions of the lines they read, in the order of first touch. So each run
//! is a path in a tree: a node is the line that is touched next, an edge its content. Before a state is run, the tree
//! is walked with the state's contents. If the walk arrives at a leaf, a run that read exactly this has been judged.
//! The contents of unread lines make no difference.
//!
//! Only lines that vary are in the tree: those that the run or some recovery stored to. All other lines are the same in
//! every state. When a recovery stores to a line for the first time, the tree is forgotten, because its paths lack that
//! line.
//!
//! Invariant: a leaf is a run whose verdict was good under the same history and the same lengths of parts. If the run
//! is to be crashed again, the leaf keeps its trace, for every image that leads to it.

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use lodestone_pmem::LineAddr;

use crate::event::{Content, Event, EventKind};
use crate::options::{Contents, Options};
use crate::persist::Baseline;
use crate::recorder::Decision;

/// Nodes kept before everything is forgotten: about a quarter of a gibibyte.
const NODES_MAX: usize = 2_000_000;

/// Number of a node.
type NodeId = u32;

enum Node {
    Line { line: LineAddr, edges: Vec<(Content, NodeId)> },
    Leaf { trace: Option<Rc<Vec<Event>>>, read_in_recovery: usize },
}

/// A run that needs no repetition.
pub(crate) struct Known {
    pub(crate) trace: Rc<Vec<Event>>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) decided_in_recovery: usize,
}

/// The tree, one for each history. See the module text.
#[derive(Default)]
pub(crate) struct Memo {
    varying: HashSet<LineAddr>,
    nodes: Vec<Node>,
    roots: HashMap<u64, NodeId>,
}

impl Memo {
    /// The lines that vary, for the recorder.
    pub(crate) fn varying(&self) -> &HashSet<LineAddr> {
        &self.varying
    }

    /// Notes the lines that `trace` stored to, and forgets everything if one is new. Returns whether one was.
    pub(crate) fn note_stores(&mut self, trace: &[Event]) -> bool {
        let mut is_new = false;
        for event in trace {
            if let EventKind::Store { at, .. } | EventKind::Stream { at, .. } = event.kind {
                is_new |= self.varying.insert(at.line());
            }
        }
        if is_new {
            self.nodes.clear();
            self.roots.clear();
        }
        is_new
    }

    /// Walks the tree with `contents`, deciding along `plan`. `None` if the walk ends before a leaf, or at a leaf
    /// without the wanted trace.
    pub(crate) fn find(
        &self,
        root: u64,
        contents: &Contents,
        baseline: &Baseline,
        plan: &[usize],
        wants_trace: bool,
    ) -> Option<Known> {
        let mut node = *self.roots.get(&root)?;
        let (mut decisions, mut decided_at) = (Vec::new(), Vec::new());
        for depth in 0.. {
            match &self.nodes[node as usize] {
                Node::Leaf { trace, read_in_recovery } => {
                    let trace = match trace {
                        Some(trace) => trace.clone(),
                        None if wants_trace => return None,
                        None => Rc::default(),
                    };
                    // The number of first touches that were decisions differs from image to image.
                    let decided_in_recovery = decided_at.iter().filter(|depth| *depth < read_in_recovery).count();
                    return Some(Known { trace, decisions, decided_in_recovery });
                }
                Node::Line { line, edges } => {
                    let content = match contents.get(line) {
                        None => baseline.line(*line),
                        Some(Options::One(content)) => *content,
                        Some(options) => {
                            let taken = plan.get(decisions.len()).copied().unwrap_or(0).min(options.count() - 1);
                            decided_at.push(depth);
                            decisions.push(Decision { line: *line, taken, options: options.count() });
                            options.at(taken)
                        }
                    };
                    node = edges.iter().find(|(known, _)| *known == content)?.1;
                }
            }
        }
        None
    }

    /// Adds the run that touched `reads` in this order. Returns `false` if a run that read the same contents continued
    /// with other lines: then recovery or judgement is not a function of its reads.
    pub(crate) fn add(
        &mut self,
        root: u64,
        reads: &[(LineAddr, Content)],
        trace: Option<Rc<Vec<Event>>>,
        read_in_recovery: usize,
    ) -> bool {
        if self.nodes.len() > NODES_MAX {
            self.nodes.clear();
            self.roots.clear();
        }
        let leaf = Node::Leaf { trace, read_in_recovery };
        let Some(((first, _), _)) = reads.split_first() else {
            self.nodes.push(leaf);
            let former = self.roots.insert(root, (self.nodes.len() - 1) as NodeId);
            return former.is_none_or(|former| matches!(self.nodes[former as usize], Node::Leaf { .. }));
        };
        let mut node = match self.roots.get(&root) {
            Some(node) => *node,
            None => {
                self.nodes.push(Node::Line { line: *first, edges: Vec::new() });
                let node = (self.nodes.len() - 1) as NodeId;
                self.roots.insert(root, node);
                node
            }
        };
        for (index, (line, content)) in reads.iter().enumerate() {
            let next = self.nodes.len() as NodeId;
            let Node::Line { line: expected, edges } = &mut self.nodes[node as usize] else {
                return false;
            };
            if expected != line {
                return false;
            }
            node = match edges.iter().find(|(known, _)| known == content) {
                Some((_, known)) => *known,
                None => {
                    edges.push((*content, next));
                    self.nodes.push(match reads.get(index + 1) {
                        Some((line, _)) => Node::Line { line: *line, edges: Vec::new() },
                        None => {
                            self.nodes.push(leaf);
                            return true;
                        }
                    });
                    next
                }
            };
        }
        // All edges were known. Either the leaf lacked the wanted trace, or the run ended earlier than before.
        let lacked_trace = matches!(self.nodes[node as usize], Node::Leaf { trace: None, .. });
        if lacked_trace {
            self.nodes[node as usize] = leaf;
        }
        lacked_trace
    }

    /// Decided contents of the lines that recovery read, for the crash of that recovery.
    pub(crate) fn decide(contents: &Contents, decisions: &[Decision]) -> Contents {
        let mut decided: BTreeMap<_, _> = contents.clone();
        for decision in decisions {
            decided.insert(decision.line, Options::One(contents[&decision.line].at(decision.taken)));
        }
        decided
    }
}
