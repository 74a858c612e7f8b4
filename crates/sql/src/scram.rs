//! Passwords: SCRAM-SHA-256 (RFC 5802, RFC 7677), as `PostgreSQL` speaks it.
//!
//! The database keeps a [`Verifier`]: a salt, and keys that prove that the other side knows the password. The password
//! itself is in no message and on no medium. An [`Exchange`] is the server's side of the proof, without a socket.
//!
//! A user that is not there has a verifier as well, which no password fulfils: from outside both look the same, also
//! by the clock.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use lodestone_sql_types::{Error, Result, SqlState};
use sha2::{Digest, Sha256};

/// The name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// How often the password is hashed.
const ITERATIONS: u32 = 4096;
/// Most iterations of a verifier that a client made.
const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

type Key = [u8; 32];

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Key::default() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// The password with its salt, hashed so often.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()]);
    let mut all = last;
    for _ in 1..iterations {
        last = hmac(password, &[&last]);
        all.iter_mut().zip(last).for_each(|(all, last)| *all ^= last);
    }
    all
}

/// Whether both are equal, in a time that does not tell where they differ.
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

/// Random bytes of the system.
///
/// # Errors
/// 58030 if it has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Error::new(SqlState::IO_ERROR, format!("the system has no random numbers: {error}")));
            }
        }
    }
    Ok(bytes)
}

/// A proof of a password, as it is kept.
///
/// ```
/// use lodestone_sql::scram::Verifier;
/// let verifier = Verifier::of("secret")?;
/// assert_eq!(verifier.to_string().parse::<Verifier>()?, verifier);
/// assert!(verifier.to_string().starts_with("SCRAM-SHA-256$4096:"));
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

/// Keys are in no log.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Verifier {
    /// That of a password, with a new salt.
    ///
    /// # Errors
    /// 58030 without random numbers.
    pub fn of(password: &str) -> Result<Self> {
        Ok(Self::with_salt(password, &random::<SALT_BYTES>()?, ITERATIONS))
    }

    fn with_salt(password: &str, salt: &[u8], iterations: u32) -> Self {
        let salted = salted(password.as_bytes(), salt, iterations);
        let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
        Self { iterations, salt: salt.to_vec(), stored_key, server_key: hmac(&salted, &[b"Server Key"]) }
    }

    /// One that no password fulfils, for a user that is not there: always the same for the same name.
    #[must_use]
    pub fn of_nobody(secret: &[u8; 32], user: &str) -> Self {
        let salt = hmac(secret, &[b"salt", user.as_bytes()])[..SALT_BYTES].to_vec();
        let stored_key = hmac(secret, &[b"key", user.as_bytes()]);
        Self { iterations: ITERATIONS, salt, stored_key, server_key: hmac(secret, &[b"server", user.as_bytes()]) }
    }
}

/// As `PostgreSQL` keeps it in `pg_authid`.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| BASE64.encode(bytes));
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::new(SqlState::INVALID_PARAMETER_VALUE, "the verifier of the password makes no sense");
        let parts = || {
            let (first, second) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
            let ((iterations, salt), (stored, server)) = (first.split_once(':')?, second.split_once(':')?);
            let iterations = iterations.parse().ok().filter(|count| (1..=ITERATIONS_MAX).contains(count))?;
            let key = |text: &str| Key::try_from(BASE64.decode(text).ok()?).ok();
            let salt = BASE64.decode(salt).ok()?;
            Some(Self { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
        };
        parts().ok_or_else(bad)
    }
}

/// The proof of a password, after the client's first message.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// The begin of the client's first message, which its last one repeats.
    header: String,
    client_first: String,
    server_first: String,
    nonce: String,
}

fn malformed(what: &str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message").detail(what.to_owned())
}

/// The value of the next attribute of a message, which has this letter.
fn attribute<'m>(rest: &mut &'m str, letter: char) -> Result<&'m str> {
    let wrong = || malformed(&format!("Expected attribute \"{letter}\"."));
    let (part, after) = rest.split_once(',').unwrap_or((rest, ""));
    let value = part.strip_prefix(letter).and_then(|part| part.strip_prefix('=')).ok_or_else(wrong)?;
    *rest = after;
    Ok(value)
}

impl Exchange {
    /// Takes the client's first message. Returns the exchange and the answer.
    ///
    /// # Errors
    /// 08P01; 0A000 for what is not built.
    pub fn begin(verifier: Verifier, message: &str) -> Result<(Self, String)> {
        Self::begin_with(verifier, message, &BASE64.encode(random::<NONCE_BYTES>()?))
    }

    fn begin_with(verifier: Verifier, message: &str, nonce: &str) -> Result<(Self, String)> {
        let mut parts = message.splitn(3, ',');
        let (Some(binding), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed("The message ends too early."));
        };
        if !matches!(binding, "n" | "y") {
            return Err(Error::unsupported("SCRAM with a channel binding"));
        }
        if !identity.is_empty() {
            return Err(Error::unsupported("SCRAM with another authorization identity"));
        }
        let mut rest = bare;
        // The user of the startup message counts.
        attribute(&mut rest, 'n')?;
        let client_nonce = attribute(&mut rest, 'r')?;
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed("Non-printable characters in SCRAM nonce."));
        }
        let nonce = format!("{client_nonce}{nonce}");
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let header = format!("{binding},,");
        let found = Self { verifier, header, client_first: bare.into(), server_first: server_first.clone(), nonce };
        Ok((found, server_first))
    }

    /// Takes the client's last message. Returns the answer, which proves that the server knows the verifier.
    /// `None`: the password is wrong.
    ///
    /// # Errors
    /// 08P01.
    pub fn finish(self, message: &str) -> Result<Option<String>> {
        let without_proof = message.rsplit_once(",p=").map(|(rest, _)| rest).unwrap_or_default();
        let mut rest = message;
        let binding = attribute(&mut rest, 'c')?;
        if binding != BASE64.encode(&self.header) {
            return Err(malformed("Unexpected SCRAM channel-binding attribute in client-final-message."));
        }
        let nonce = attribute(&mut rest, 'r')?;
        let proof = attribute(&mut rest, 'p')?;
        let proof = BASE64.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok());
        let proof = proof.ok_or_else(|| malformed("Malformed proof in client-final-message."))?;
        if !are_equal(nonce.as_bytes(), self.nonce.as_bytes()) {
            return Err(malformed("Nonce does not match."));
        }
        let parts = [self.client_first.as_bytes(), b",", self.server_first.as_bytes(), b",", without_proof.as_bytes()];
        let signature = hmac(&self.verifier.stored_key, &parts);
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, signature)| *byte ^= signature);
        let found: Key = Sha256::digest(client_key).into();
        let answer = format!("v={}", BASE64.encode(hmac(&self.verifier.server_key, &parts)));
        Ok(are_equal(&found, &self.verifier.stored_key).then_some(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_standard() -> Result<()> {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let verifier = Verifier::with_salt("pencil", &salt, 4096);
        let (exchange, answer) =
            Exchange::begin_with(verifier, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")?;
        assert_eq!(answer, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.finish(last)?.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        Ok(())
    }

    #[test]
    fn a_wrong_proof_is_no_proof() -> Result<()> {
        for verifier in [Verifier::of("other")?, Verifier::of_nobody(&[7; 32], "bob")] {
            let (exchange, answer) = Exchange::begin(verifier, "n,,n=,r=abc")?;
            let nonce = answer.split(',').next().expect("a nonce");
            let proof = BASE64.encode([9; 32]);
            assert_eq!(exchange.finish(&format!("c=biws,{nonce},p={proof}"))?, None);
        }
        Ok(())
    }

    #[test]
    fn wrong_messages_are_refused() -> Result<()> {
        let verifier = Verifier::of("secret")?;
        for first in
            ["", "n", "n,,", "n,,r=a", "n,,n=", "n,,n=,r=", "n,,n=,r=\u{7}", "p=tls-unique,,n=,r=a", "n,a=b,n=,r=a"]
        {
            assert!(Exchange::begin(verifier.clone(), first).is_err(), "{first}");
        }
        let proof = BASE64.encode([9; 32]);
        for last in
            ["", "c=biws", "c=biws,r=abc", "c=eSws,r=NONCE,p=PROOF", "c=biws,r=abc,p=PROOF", "c=biws,r=NONCE,p=AA=="]
        {
            let (exchange, answer) = Exchange::begin(verifier.clone(), "n,,n=,r=abc")?;
            let nonce = answer.split(',').next().and_then(|part| part.strip_prefix("r=")).expect("a nonce");
            let last = last.replace("NONCE", nonce).replace("PROOF", &proof);
            assert!(exchange.finish(&last).is_err(), "{last}");
        }
        for text in ["", "md5abc", "SCRAM-SHA-256$0:AAAA$AAAA:AAAA", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA"] {
            assert!(text.parse::<Verifier>().is_err(), "{text}");
        }
        Ok(())
    }
}
