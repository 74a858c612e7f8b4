//! Certificates: tokens that work once, refusals by name, secrets of groups.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lodestone_fabric::{NodeId, Registry, Swap, Term, ViewNumber};
use lodestone_registry::control::{Authority, ControlError, Credentials, Invitation, Name, join};
use lodestone_registry::{KeeperId, Security};
use tempfile::TempDir;

use crate::seeds::{GROUP, first_view};
use crate::sockets::Sockets;
use crate::suite;

const HOUR: Duration = Duration::from_secs(3600);

/// An authority, and the folder of all.
struct Cluster {
    folder: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Authority::create(folder.path().join("authority")).unwrap();
        Self { folder }
    }

    fn authority(&self) -> Authority {
        Authority::open(self.folder.path().join("authority")).unwrap()
    }

    fn issue(&self, name: Name) -> Security {
        let folder = self.folder.path().join(name.to_string());
        Security::Tls(Arc::new(self.authority().issue(name, folder).unwrap()))
    }

    /// Keepers, of which the first has the authority.
    fn keepers(&self, count: u64) -> Sockets {
        let security = |id: KeeperId| {
            let Security::Tls(issued) = self.issue(Name::Keeper(id)) else { unreachable!() };
            if id != KeeperId(1) {
                return Security::Tls(issued);
            }
            let folder = self.folder.path().join(issued.name().to_string());
            Security::Tls(Arc::new(Credentials::open_with_authority(folder, self.authority()).unwrap()))
        };
        Sockets::start(count, &security, self.issue(Name::Operator))
    }
}

#[test]
#[ignore = "leases count real seconds; `make prove` runs it"]
fn three_sealed_keepers_on_sockets() {
    let cluster = Cluster::new();
    suite::run(&mut cluster.keepers(3));
}

#[test]
fn a_token_works_once_and_names_its_owner() {
    let cluster = Cluster::new();
    let sockets = cluster.keepers(1);
    let keeper = sockets.addresses[&KeeperId(1)];
    let folder = |name: &str| cluster.folder.path().join(name);
    let token = cluster.authority().invite(Name::Node(NodeId(7)), HOUR).unwrap();
    // It is what the digits say.
    let token = Invitation::parse(&token.digits()).unwrap();
    let joined = join(keeper, &token, folder("seven")).expect("a fresh token");
    assert_eq!(joined.name(), Name::Node(NodeId(7)));
    let refusal = |token: &Invitation| match join(keeper, token, folder("other")) {
        Err(ControlError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refusal(&token).contains("used before"));
    let expired = cluster.authority().invite(Name::Operator, Duration::ZERO).unwrap();
    while SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_millis() > 900 {}
    std::thread::sleep(Duration::from_millis(1100));
    assert!(refusal(&expired).contains("expired"));
    // Another secret for a number that exists, and a number that does not.
    let good = cluster.authority().invite(Name::Operator, HOUR).unwrap();
    let mut digits = good.digits().into_bytes();
    let last = digits.len() - 1;
    digits[last] = if digits[last] == b'0' { b'1' } else { b'0' };
    assert!(refusal(&Invitation::parse(std::str::from_utf8(&digits).unwrap()).unwrap()).contains("secret"));
    digits[64] = if digits[64] == b'0' { b'1' } else { b'0' };
    assert!(refusal(&Invitation::parse(std::str::from_utf8(&digits).unwrap()).unwrap()).contains("unknown"));
    // A wrong secret does not use a token up.
    assert_eq!(join(keeper, &good, folder("operator")).unwrap().name(), Name::Operator);
    for wrong in ["", "12", &"x".repeat(112), &"\u{e9}".repeat(56)] {
        assert!(matches!(Invitation::parse(wrong), Err(ControlError::NoToken(_))), "{wrong}");
    }
    // A token of another authority is not sent to this keeper: its fingerprint differs.
    let foreign = Cluster::new().authority().invite(Name::Operator, HOUR).unwrap();
    let error = join(keeper, &foreign, folder("foreign")).unwrap_err().to_string();
    assert!(error.contains("another authority"), "{error}");
}

#[test]
fn a_token_that_two_use_at_once_works_for_one() {
    let cluster = Cluster::new();
    let sockets = cluster.keepers(1);
    let keeper = sockets.addresses[&KeeperId(1)];
    let token = cluster.authority().invite(Name::Node(NodeId(7)), HOUR).unwrap();
    let joined: Vec<bool> = std::thread::scope(|scope| {
        let join = |index: usize| {
            let folder = cluster.folder.path().join(format!("joined-{index}"));
            scope.spawn(move || join(keeper, &token, folder).is_ok())
        };
        let threads: Vec<_> = (0..6).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(joined.iter().filter(|joined| **joined).count(), 1, "{joined:?}");
}

/// Certificates that are wrong are refused at both ends, by the name of what is wrong.
#[test]
fn wrong_certificates_are_refused_by_name() {
    let cluster = Cluster::new();
    let sockets = cluster.keepers(1);
    let server = &sockets.servers[&KeeperId(1)];
    let folder = |name: &str| cluster.folder.path().join(name);
    let now = SystemTime::now();
    let node = Name::Node(NodeId(7));
    let between = |name: &str, from, until| {
        let made = cluster.authority().issue_between(node, folder(name), from, until).unwrap();
        Security::Tls(Arc::new(made))
    };
    let expired = between("expired", now - 2 * HOUR, now - HOUR);
    let early = between("early", now + HOUR, now + 2 * HOUR);
    let mut other = Cluster::new();
    let foreign = other.issue(node);
    // The foreign node believes this authority, and shows a certificate of its own one.
    std::fs::copy(folder("authority/authority.crt"), other.folder.path().join("node-7.lodestone/authority.crt"))
        .unwrap();
    let believing = Credentials::open(other.folder.path().join("node-7.lodestone")).unwrap();
    let believing = Security::Tls(Arc::new(believing));
    // A node that signs for itself: the authority's own certificate, as an identity.
    other = Cluster::new();
    let own = other.folder.path().join("own");
    other.issue(node);
    std::fs::create_dir_all(&own).unwrap();
    let self_made = self_made(&own, &folder("authority/authority.crt"));
    let ask = |security: &Security| {
        let mut options = sockets.keeper_client(security, NodeId(7));
        options.set_patience(Duration::from_secs(3));
        options.state().expect_err("it is refused").to_string()
    };
    // On a busy machine a try may end before the keeper has looked at the certificate.
    let refused = |security: &Security, told: &str, text: &str| {
        let is_refused = || {
            let is_told = ask(security).contains(told);
            is_told && server.status().refusals.iter().any(|refusal| refusal.contains(text))
        };
        assert!((0..10).any(|_| is_refused()), "{text} is not in {:?}", server.status().refusals);
    };
    refused(&expired, "has expired", "its certificate has expired");
    refused(&early, "", "its certificate is not valid yet");
    refused(&believing, "another authority", "its certificate is of another authority");
    refused(&self_made, "", "its certificate was made by itself");
    // A node that knows another authority does not believe the keeper.
    let mut told = String::new();
    let is_told = (0..10).any(|_| {
        told = ask(&foreign);
        told.contains("its certificate is of another authority")
    });
    assert!(is_told, "{told}");
    // And nothing plain is understood.
    ask(&Security::Plain);
    assert_eq!(sockets.servers[&KeeperId(1)].status().security, "tls");
}

/// Credentials whose certificate is signed by its own key.
fn self_made(folder: &std::path::Path, authority: &std::path::Path) -> Security {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["node-7.lodestone".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.join("identity.key"), key.serialize_der()).unwrap();
    std::fs::write(folder.join("identity.crt"), certificate.der()).unwrap();
    std::fs::copy(authority, folder.join("authority.crt")).unwrap();
    Security::Tls(Arc::new(Credentials::open(folder).unwrap()))
}

/// A node claims for itself alone, makes no volumes, and is told the secrets of its groups.
#[test]
fn rights_and_secrets_follow_the_certificate() {
    let cluster = Cluster::new();
    let sockets = cluster.keepers(1);
    let [one, two, three] = [1, 2, 3].map(|node| cluster.issue(Name::Node(NodeId(node))));
    let client = |security: &Security| {
        let mut client = sockets.keeper_client(security, NodeId(0));
        client.set_patience(Duration::from_secs(20));
        client
    };
    assert!(client(&one).create(vec![]).is_err(), "only an operator makes volumes");
    let mut sender = client(&two);
    assert!(sender.claim(NodeId(8), Term(0)).is_err(), "not for another node");
    assert!(client(&three).claim(NodeId(3), Term(0)).is_err(), "only members send");
    assert!(matches!(sender.claim(NodeId(2), Term(0)), Ok(Swap::Done(_))));
    let secret = sender.secret(GROUP, Term(1), ViewNumber(1)).expect("it is the sender");
    assert!(client(&one).secret(GROUP, Term(1), ViewNumber(1)).unwrap() == secret, "all members have the same");
    assert!(client(&three).secret(GROUP, Term(1), ViewNumber(1)).is_err(), "no member");
    // Node 1 is removed, and the secret of the next view is another one.
    let view = first_view().with(NodeId(1), None);
    assert!(matches!(sender.change(Term(1), 0, GROUP, &view), Ok(Swap::Done(_))));
    assert!(sender.secret(GROUP, Term(1), ViewNumber(2)).unwrap() != secret);
    let mut removed = client(&one);
    let error = removed.secret(GROUP, Term(1), ViewNumber(2)).unwrap_err().to_string();
    assert!(error.contains("no member"), "{error}");
    assert!(removed.secret(GROUP, Term(1), ViewNumber(1)).is_err(), "nor the one before");
    // It does not come back by a takeover, or by a change.
    assert!(removed.claim(NodeId(1), Term(1)).unwrap_err().to_string().contains("no member"));
    assert!(removed.change(Term(1), 1, GROUP, &first_view()).unwrap_err().to_string().contains("no member"));
    assert_eq!(sender.state().unwrap().term, Term(1));
}
