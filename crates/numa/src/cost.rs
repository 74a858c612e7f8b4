//! The costs of accesses by size. They decide whether a remote access is cheaper through the agent.
//!
//! A [`Curve`] consists of a few measured or modelled points, with straight lines between them. [`Costs`] has one for
//! each way. The unit is that of the curves, for example nanoseconds that a medium's probe has measured. Only the
//! ratios matter.

use lodestone_width::nearest_f64;
use serde::Serialize;

/// Cost by number of bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// The curve through `points` (bytes, cost), which are sorted by bytes here.
    #[must_use]
    pub fn new(mut points: Vec<(u64, f64)>) -> Self {
        points.sort_by_key(|(bytes, _)| *bytes);
        points.dedup_by_key(|(bytes, _)| *bytes);
        Self { points }
    }

    /// Cost of `bytes`: on the line between the nearest points. After the last point the cost is in proportion to it.
    /// Before the first point it is that of the first, because a medium moves whole blocks.
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let above = self.points.partition_point(|(point, _)| *point < bytes);
        match (above.checked_sub(1).and_then(|below| self.points.get(below)), self.points.get(above)) {
            (Some((low, low_cost)), Some((high, high_cost))) => {
                let share = nearest_f64(bytes - low) / nearest_f64(high - low);
                low_cost + share * (high_cost - low_cost)
            }
            (None, Some((_, cost))) => *cost,
            (Some((last, cost)), None) if *last > 0 => cost * nearest_f64(bytes) / nearest_f64(*last),
            (_, None) => self.points.last().map_or(0.0, |(_, cost)| *cost),
        }
    }
}

/// Costs of every way to persistent memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Reading the node's own memory.
    pub local_read: Curve,
    /// Reading another node's memory.
    pub remote_read: Curve,
    /// Writing to the node's own memory until it is persistent.
    pub local_write: Curve,
    /// The same for another node's memory.
    pub remote_write: Curve,
    /// A message with a payload of this size, to or from an agent, without the access itself.
    pub message: Curve,
}

impl Costs {
    /// Whether reading `bytes` of another node's memory costs less through its agent.
    #[must_use]
    pub fn read_by_agent(&self, bytes: u64) -> bool {
        self.message.at(bytes) + self.local_read.at(bytes) < self.remote_read.at(bytes)
    }

    /// Whether writing `bytes` to another node's memory costs less through its agent.
    #[must_use]
    pub fn write_by_agent(&self, bytes: u64) -> bool {
        self.message.at(bytes) + self.local_write.at(bytes) < self.remote_write.at(bytes)
    }
}

impl Default for Costs {
    /// The estimates of paper 4 (section 2.1.3) for 256 bytes, and in proportion for more. Less costs as much as 256.
    fn default() -> Self {
        let line = |cost: f64| Curve::new(vec![(256, cost), (1 << 20, cost * 4096.0)]);
        Self {
            local_read: line(100.0),
            remote_read: line(1000.0),
            local_write: line(1000.0),
            remote_write: line(2000.0),
            message: line(35.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_go_through_their_points_and_straight_between_them() {
        let curve = Curve::new(vec![(1024, 40.0), (64, 10.0), (256, 20.0)]);
        assert_eq!(
            [8, 64, 160, 256, 640, 1024, 2048].map(|bytes| curve.at(bytes)),
            [10.0, 10.0, 15.0, 20.0, 30.0, 40.0, 80.0]
        );
        assert_eq!(Curve::new(vec![]).at(5), 0.0);
    }

    #[test]
    fn the_default_costs_send_everything_to_the_agent_and_dear_messages_nothing() {
        let costs = Costs::default();
        for bytes in [8, 64, 256, 4096, 8192] {
            assert!(costs.read_by_agent(bytes) && costs.write_by_agent(bytes), "{bytes} bytes");
        }
        // A message that costs 1200 at any size: it pays for a large read, but for no small access.
        let dear = Costs { message: Curve::new(vec![(0, 1200.0), (1 << 20, 1200.0)]), ..costs };
        assert!(!dear.read_by_agent(256) && !dear.write_by_agent(64) && dear.read_by_agent(4096));
    }
}
