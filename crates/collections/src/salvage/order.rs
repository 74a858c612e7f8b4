//! The order of a list's nodes when some of them are lost.
//!
//! 1. Two nodes that name each other are neighbours. So the nodes form *runs*.
//! 2. A run that ends before a lost node, and a run that begins after the same one, are one item apart.
//! 3. The run after the last node that was reached comes first. The one that ends the list comes last.
//! 4. Runs in between have no known place. They follow each other by address.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_stm::PmAddr;
use lodestone_width::to_u64;

/// A node's neighbours: the one before, the one after.
pub(crate) type Neighbours = (PmAddr, PmAddr);

/// Known facts about the list beside the nodes to arrange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Items before the first node to arrange.
    pub reached: u64,
    /// The lost node at that position, or null where the list begins there.
    pub open: PmAddr,
    /// Items of the list.
    pub len: Option<u64>,
    /// The last node of the list, or null where it is unknown.
    pub last: PmAddr,
}

/// Nodes with their positions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arranged {
    /// In order.
    pub placed: Vec<(u64, PmAddr)>,
    /// From where on, and up to where, positions are guesses.
    pub guessed: Option<(u64, Option<u64>)>,
    /// Whether the end of the list is among the placed.
    pub has_end: bool,
}

#[derive(Debug)]
struct Run {
    before: PmAddr,
    nodes: Vec<PmAddr>,
    after: PmAddr,
}

/// Divides the nodes into runs, by address of their first node.
fn runs(nodes: &BTreeMap<PmAddr, Neighbours>) -> Vec<Run> {
    let is_pair = |left: PmAddr, right: PmAddr| {
        nodes.get(&left).is_some_and(|links| links.1 == right) && nodes.get(&right).is_some_and(|links| links.0 == left)
    };
    let firsts = nodes.iter().filter(|(at, links)| !is_pair(links.0, **at)).map(|(at, _)| *at);
    // A circle has no first node. It begins at its smallest address.
    let starts: Vec<PmAddr> = firsts.chain(nodes.keys().copied()).collect();
    let (mut seen, mut runs) = (BTreeSet::new(), Vec::new());
    for start in starts {
        let (mut at, mut run) = (start, Run { before: nodes[&start].0, nodes: Vec::new(), after: PmAddr::NULL });
        while seen.insert(at) {
            run.nodes.push(at);
            run.after = nodes[&at].1;
            if !is_pair(at, run.after) {
                break;
            }
            at = run.after;
        }
        if !run.nodes.is_empty() {
            runs.push(run);
        }
    }
    runs
}

/// Takes the one run that `fits`. `None` when there is none, or more than one.
fn take(runs: &mut Vec<Run>, fits: impl Fn(&Run) -> bool) -> Option<Run> {
    let found = runs.iter().position(&fits)?;
    let is_one = !runs[found + 1..].iter().any(fits);
    is_one.then(|| runs.remove(found))
}

/// Arranges the nodes of a list that were not reached.
pub(crate) fn arrange(nodes: &BTreeMap<PmAddr, Neighbours>, frame: Frame) -> Arranged {
    let mut rest = runs(nodes);
    let mut arranged = Arranged::default();
    // From the front.
    let (mut position, mut open) = (frame.reached, frame.open);
    while let Some(run) = take(&mut rest, |run| run.before == open) {
        // The lost node between the two runs.
        position += u64::from(!open.is_null());
        place(&mut arranged, &mut position, &run);
        open = run.after;
        if open.is_null() {
            arranged.has_end = true;
            break;
        }
    }
    // From the end: runs in order, the last one first.
    let (mut back, mut items, mut open) = (Vec::new(), 0, PmAddr::NULL);
    let ends = |rest: &mut Vec<Run>, open: PmAddr| take(rest, |run| run.after == open);
    if let Some(run) = ends(&mut rest, PmAddr::NULL) {
        arranged.has_end = true;
        (items, open) = (to_u64(run.nodes.len()), run.before);
        back.push((0, run));
    } else if !frame.last.is_null() && !arranged.has_end {
        open = frame.last;
    }
    while !open.is_null()
        && let Some(run) = ends(&mut rest, open)
    {
        items += 1;
        back.push((items, run));
        let (_, run) = &back[back.len() - 1];
        (items, open) = (items + to_u64(run.nodes.len()), run.before);
    }
    // The runs without a place, after one lost node each.
    let from = position;
    for run in &rest {
        position += 1;
        place(&mut arranged, &mut position, run);
    }
    if back.is_empty() {
        arranged.guessed = (!rest.is_empty()).then_some((from, frame.len));
        return arranged;
    }
    // At least one node is lost before the last runs. Otherwise they would be known to follow.
    let start = frame.len.map(|len| len.saturating_sub(items)).filter(|start| *start > position);
    let is_guess = start.is_none() || !rest.is_empty();
    arranged.guessed = is_guess.then_some((from, start));
    let end = start.unwrap_or(position + 1) + items;
    for (behind, run) in back.iter().rev() {
        let mut position = end - behind - to_u64(run.nodes.len());
        place(&mut arranged, &mut position, run);
    }
    arranged
}

fn place(arranged: &mut Arranged, position: &mut u64, run: &Run) {
    for at in &run.nodes {
        arranged.placed.push((*position, *at));
        *position += 1;
    }
}

/// The positions from `from` on that are not among `placed`, which ascend, as ranges. `len` ends the last one.
pub(crate) fn gaps(from: u64, placed: &[u64], len: Option<u64>) -> Vec<(u64, u64)> {
    let (mut gaps, mut next) = (Vec::new(), from);
    for at in placed.iter().copied().chain(len) {
        if at > next {
            gaps.push((next, at));
        }
        next = next.max(at.saturating_add(1));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> PmAddr {
        if number == 0 { PmAddr::NULL } else { PmAddr::new(0, number * 64) }
    }

    /// A list of the nodes 1 to `len`, of which `lost` are gone.
    fn rest(len: u64, lost: &[u64]) -> BTreeMap<PmAddr, Neighbours> {
        let links = |number: u64| (at(number - 1), if number == len { at(0) } else { at(number + 1) });
        (1..=len).filter(|number| !lost.contains(number)).map(|number| (at(number), links(number))).collect()
    }

    fn placed(arranged: &Arranged) -> Vec<(u64, u64)> {
        arranged.placed.iter().map(|(position, at)| (*position, at.offset() / 64 - 1)).collect()
    }

    const UNKNOWN: Frame = Frame { reached: 0, open: PmAddr::NULL, len: None, last: PmAddr::NULL };

    #[test]
    fn single_losses_leave_the_order_known() {
        // Node 3 ended the walk; 6 and 8 are lost too.
        let nodes = rest(10, &[1, 2, 3, 6, 8]);
        let arranged = arrange(&nodes, Frame { reached: 2, open: at(3), len: Some(10), last: at(10) });
        assert!(placed(&arranged).iter().all(|(position, number)| position == number), "{arranged:?}");
        assert_eq!((arranged.placed.len(), arranged.guessed), (5, None));
        assert_eq!(gaps(2, &[3, 4, 6, 8, 9], Some(10)), [(2, 3), (5, 6), (7, 8)]);
    }

    #[test]
    fn a_list_without_a_header_is_whole() {
        let arranged = arrange(&rest(7, &[]), UNKNOWN);
        assert_eq!(placed(&arranged), (0..7).map(|number| (number, number)).collect::<Vec<_>>());
        assert!(arranged.has_end && arranged.guessed.is_none());
    }

    #[test]
    fn the_end_is_known_from_the_length() {
        let arranged =
            arrange(&rest(10, &[1, 4, 5, 9, 10]), Frame { reached: 0, open: at(1), len: Some(10), last: at(10) });
        // 6 to 8 are between two lost ones on both sides.
        assert_eq!(placed(&arranged)[..2], [(1, 1), (2, 2)]);
        assert_eq!(arranged.guessed, Some((3, Some(10))));
        let arranged =
            arrange(&rest(10, &[1, 4, 5, 10]), Frame { reached: 0, open: at(1), len: Some(10), last: at(10) });
        assert_eq!(placed(&arranged), [(1, 1), (2, 2), (5, 5), (6, 6), (7, 7), (8, 8)]);
        assert_eq!(arranged.guessed, None);
    }

    #[test]
    fn runs_without_a_place_follow_each_other_and_are_named() {
        let arranged = arrange(&rest(12, &[3, 4, 8, 9]), UNKNOWN);
        let numbers: Vec<u64> = placed(&arranged).iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [0, 1, 4, 5, 6, 9, 10, 11]);
        assert_eq!(arranged.guessed, Some((2, None)));
    }

    #[test]
    fn links_in_a_circle_end() {
        let nodes = [(at(1), (at(2), at(2))), (at(2), (at(1), at(1)))].into_iter().collect();
        assert_eq!(arrange(&nodes, UNKNOWN).placed.len(), 2);
    }
}
