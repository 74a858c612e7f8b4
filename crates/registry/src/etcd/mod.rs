//! A registry in etcd, by its JSON gateway.
//!
//! ```text
//! key lodestone/VOLUME/state   the bytes of a VolumeState
//! key lodestone/VOLUME/lease   the term that holds the lease, in decimal; bound to a lease of etcd
//! ```
//!
//! 1. *Swap*: read the state with its revision, and put the next one if the revision is still that. Reads of etcd are
//!    linearizable.
//! 2. *Lease*: a lease of etcd of two seconds is made, and the key is put with it, if the state is still of that term
//!    and the key is absent or of that term. etcd removes the key when the lease is over, by its leader's clock. So a
//!    new term waits up to two seconds. The lease began after its holder asked, and is longer than the holder counts.
//!
//! An answer that is lost after a swap was sent leaves it open whether it happened. The error says so. Only the making
//! of a volume is repeated: it needs an absent key, and a volume that exists as it was asked for is as good.
//!
//! Connections are plain HTTP: use this on loopback, or through a proxy that encrypts.

mod http;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lodestone_fabric::{
    Error, GroupId, LEASE_NS, Lease, Moment, NodeId, Registry, Result, Swap, Term, View, VolumeState,
};
use serde_json::{Value, json};

use crate::table::VolumeId;
use http::{Outcome, post};

/// Seconds of a lease in etcd: the least that it grants with its own defaults.
const LEASE_SECONDS: u64 = 2;
const _: () = assert!(LEASE_SECONDS * 1_000_000_000 > LEASE_NS + LEASE_NS / 5, "longer than its holder counts");
/// Least time for one endpoint, if there is as much.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
/// Tries of a swap whose state changed between reading and writing.
const TRIES: usize = 16;

/// A volume's registry in etcd.
#[derive(Clone, Debug)]
pub struct EtcdRegistry {
    endpoints: Vec<SocketAddr>,
    volume: VolumeId,
    patience: Duration,
}

/// A key as it was read.
struct Found {
    value: Vec<u8>,
    revision: i64,
    lease: i64,
}

fn broken(what: &str) -> Error {
    Error::Registry(format!("etcd: {what}"))
}

/// A number that the gateway writes as text.
fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64()).unwrap_or(0)
}

fn found(kvs: &Value) -> Option<Found> {
    let first = kvs.get(0)?;
    let value = STANDARD.decode(first.get("value")?.as_str()?).ok()?;
    let lease = first.get("lease").map_or(0, number);
    Some(Found { value, revision: number(first.get("mod_revision")?), lease })
}

impl EtcdRegistry {
    /// The registry of `volume` in the etcd at these addresses. A call takes at most `patience`.
    #[must_use]
    pub const fn new(endpoints: Vec<SocketAddr>, volume: VolumeId, patience: Duration) -> Self {
        Self { endpoints, volume, patience }
    }

    /// Makes the volume with these members, or finds it with them and with no change since. `false`: it exists and
    /// differs.
    ///
    /// # Errors
    /// An etcd that does not answer.
    pub fn create(&self, groups: Vec<(GroupId, View)>) -> Result<bool> {
        let state = VolumeState { groups, ..VolumeState::default() };
        if !state.is_possible() {
            return Err(Error::Registry("a group or a member is there twice, or there are too many".to_owned()));
        }
        let asking = self.asking();
        if asking.swap(0, &state, true)? {
            return Ok(true);
        }
        let found = asking.newest()?.0;
        Ok(found.change == 0 && found.groups == state.groups)
    }

    /// A call that begins now.
    fn asking(&self) -> Asking<'_> {
        Asking { registry: self, end: Instant::now() + self.patience }
    }
}

/// One call of the registry: all its requests end in time.
struct Asking<'r> {
    registry: &'r EtcdRegistry,
    end: Instant,
}

impl Asking<'_> {
    fn key(&self, name: &str) -> String {
        STANDARD.encode(format!("lodestone/{:016x}/{name}", self.registry.volume.0))
    }

    /// Asks one endpoint after the other. `is_repeatable`: also another one when an answer is lost.
    fn call(&self, path: &str, body: &Value, is_repeatable: bool) -> Result<Value> {
        let (body, endpoints) = (body.to_string(), &self.registry.endpoints);
        let mut last = "no endpoints, or no time is left".to_owned();
        let tries = 2 * endpoints.len();
        for (number, address) in endpoints.iter().cycle().take(tries).enumerate() {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // An endpoint that is silent leaves time for the others. A swap is not asked for again: it has all of it.
            let others = u32::try_from(tries - number).unwrap_or(1);
            let patience = if is_repeatable { (left / others).max(PATIENCE_MIN).min(left) } else { left };
            match post(*address, path, &body, patience) {
                Outcome::Answered(200, body) => {
                    return serde_json::from_slice(&body).map_err(|error| broken(&format!("its answer: {error}")));
                }
                Outcome::Answered(status, body) => {
                    let text = String::from_utf8_lossy(&body).chars().take(200).collect::<String>();
                    last = format!("{address} answers {status}: {text}");
                    if !is_repeatable {
                        return Err(Error::RegistryUnanswered(format!("etcd: {last}")));
                    }
                }
                Outcome::Unanswered(error) if !is_repeatable => {
                    return Err(Error::RegistryUnanswered(format!("etcd at {address}: {error}")));
                }
                Outcome::NotSent(error) | Outcome::Unanswered(error) => last = format!("{address}: {error}"),
            }
        }
        Err(broken(&format!("{last}; check that a majority of it runs")))
    }

    fn read(&self, name: &str) -> Result<Option<Found>> {
        let answer = self.call("/v3/kv/range", &json!({ "key": self.key(name) }), true)?;
        Ok(answer.get("kvs").and_then(found))
    }

    /// The state and its revision.
    fn newest(&self) -> Result<(VolumeState, i64)> {
        let missing = || broken(&format!("{} is not there; make it first", self.registry.volume));
        let found = self.read("state")?.ok_or_else(missing)?;
        let state = VolumeState::from_bytes(&found.value);
        let state = state.ok_or_else(|| broken("the state of the volume is damaged; restore the key from a copy"))?;
        Ok((state, found.revision))
    }

    /// Puts the state if the key has this revision; 0: if it is absent.
    fn swap(&self, revision: i64, state: &VolumeState, is_repeatable: bool) -> Result<bool> {
        let key = self.key("state");
        let compare = json!({ "key": key, "result": "EQUAL", "target": "MOD", "mod_revision": revision.to_string() });
        let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(state.to_bytes()) } });
        let answer = self.call("/v3/kv/txn", &json!({ "compare": [compare], "success": [put] }), is_repeatable)?;
        Ok(answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false))
    }

    fn swapped(&self, next: &dyn Fn(&VolumeState) -> Result<Option<VolumeState>>) -> Result<Swap> {
        for _ in 0..TRIES {
            let (state, revision) = self.newest()?;
            let Some(next) = next(&state)? else { return Ok(Swap::Differs(state)) };
            if self.swap(revision, &next, false)? {
                return Ok(Swap::Done(next));
            }
        }
        Err(broken("the state changes all the time; ask again"))
    }

    /// Nanoseconds until the lease of a key is over.
    fn left(&self, lease: i64) -> Result<u64> {
        let answer = self.call("/v3/lease/timetolive", &json!({ "ID": lease.to_string() }), true)?;
        let seconds = answer.get("TTL").map_or(0, number).max(0).unsigned_abs();
        // etcd rounds down, and removes the key a little later.
        Ok(seconds.min(2 * LEASE_SECONDS) * 1_000_000_000 + 200_000_000)
    }

    fn renew(&self, term: Term) -> Result<Lease> {
        let (state, revision) = self.newest()?;
        if state.term != term {
            return Ok(Lease::Lost(state.term));
        }
        if term == Term(0) {
            return Err(Error::Registry("no node has claimed a term yet; claim one first".to_owned()));
        }
        let own = STANDARD.encode(term.0.to_string());
        let held = self.read("lease")?;
        if let Some(held) = &held
            && held.value != term.0.to_string().as_bytes()
        {
            return Ok(Lease::Wait(self.left(held.lease)?));
        }
        let granted = self.call("/v3/lease/grant", &json!({ "TTL": LEASE_SECONDS.to_string() }), true)?;
        let lease = granted.get("ID").map_or(0, number);
        if granted.get("TTL").map_or(0, number) < i64::try_from(LEASE_SECONDS).unwrap_or(i64::MAX) {
            return Err(broken("it grants a shorter lease than was asked for"));
        }
        let (key, at) = (self.key("lease"), held.map_or(0, |held| held.revision));
        let compare = json!([
            { "key": self.key("state"), "result": "EQUAL", "target": "MOD", "mod_revision": revision.to_string() },
            { "key": key, "result": "EQUAL", "target": "MOD", "mod_revision": at.to_string() },
        ]);
        let put = json!({ "request_put": { "key": key, "value": own, "lease": lease.to_string() } });
        let answer = self.call("/v3/kv/txn", &json!({ "compare": compare, "success": [put] }), true)?;
        if answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false) {
            return Ok(Lease::Held(LEASE_NS));
        }
        // The state or the lease changed meanwhile: the caller asks again soon.
        let newest = self.newest()?.0.term;
        Ok(if newest == term { Lease::Wait(50_000_000) } else { Lease::Lost(newest) })
    }
}

impl Registry for EtcdRegistry {
    fn state(&self) -> Result<VolumeState> {
        Ok(self.asking().newest()?.0)
    }

    fn claim(&mut self, node: NodeId, seen: Term) -> Result<Swap> {
        self.asking().swapped(&|state| state.claimed(node, seen))
    }

    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Swap> {
        self.asking().swapped(&|state| state.changed(term, change, group, view))
    }

    /// `now` is not used: etcd counts by its own clock.
    fn renew(&mut self, _: Moment, term: Term) -> Result<Lease> {
        self.asking().renew(term)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use lodestone_fabric::NodeId;

    use super::*;

    /// Answers one request after the other with these bodies; `None`: the connection ends without an answer.
    fn answers(listener: &TcpListener, bodies: &[Option<String>]) {
        for body in bodies {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut length = 0;
            for line in stream.by_ref().lines().map(std::io::Result::unwrap).take_while(|line| !line.is_empty()) {
                length = line.strip_prefix("Content-Length: ").map_or(length, |bytes| bytes.parse().unwrap());
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            if let Some(body) = body {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn a_volume_whose_answer_was_lost_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = EtcdRegistry::new(vec![listener.local_addr().unwrap()], VolumeId(1), Duration::from_secs(60));
        let groups = vec![(GroupId(1), View::of(&[NodeId(1)]))];
        let state = VolumeState { groups: groups.clone(), ..VolumeState::default() };
        let kvs = json!({ "kvs": [{ "value": STANDARD.encode(state.to_bytes()), "mod_revision": "5" }] }).to_string();
        let there = Some("{}".to_owned());
        let bodies = [None, there.clone(), Some(kvs.clone()), there, Some(kvs)];
        let etcd = std::thread::spawn(move || answers(&listener, &bodies));
        assert!(registry.create(groups).expect("it was made"), "as it was asked for");
        assert!(!registry.create(vec![]).expect("an answer"), "another volume of that name");
        etcd.join().unwrap();
    }
}
