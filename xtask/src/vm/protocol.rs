//! The guest's messages: one line per check or event on its second serial port, with tabs between the fields.
//!
//! ```text
//! @check  name  place  pass|fail|skip  domain or -  seconds  detail
//! @event  name  detail
//! ```
//!
//! `vm/guest/protocol.sh` writes these lines. Other text on the port is noise and is ignored.

/// Outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Pass,
    Fail,
    /// Nothing to run: not a failure, but not evidence either.
    Skip,
}

impl Outcome {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Pass, Self::Fail, Self::Skip].into_iter().find(|outcome| outcome.name() == text)
    }
}

/// One line of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Check { name: String, place: String, outcome: Outcome, domain: Option<String>, seconds: u64, detail: String },
    Event { name: String, detail: String },
}

impl Message {
    /// The message on this line; `None` if it is not a message.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.trim_end_matches(['\r', '\n']).split('\t');
        match fields.next()? {
            "@check" => {
                let name = fields.next()?.to_owned();
                let place = fields.next()?.to_owned();
                let outcome = Outcome::parse(fields.next()?)?;
                let domain = Some(fields.next()?.to_owned()).filter(|domain| domain != "-");
                let seconds = fields.next()?.parse().ok()?;
                let detail = fields.next().unwrap_or_default().to_owned();
                Some(Self::Check { name, place, outcome, domain, seconds, detail })
            }
            "@event" => {
                let name = fields.next()?.to_owned();
                Some(Self::Event { name, detail: fields.next().unwrap_or_default().to_owned() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_has_seven_fields() {
        let line = "@check\tpool-domain\text4\tpass\tdax\t3\t/mnt/ext4/first.pool\r\n";
        let expected = Message::Check {
            name: "pool-domain".into(),
            place: "ext4".into(),
            outcome: Outcome::Pass,
            domain: Some("dax".into()),
            seconds: 3,
            detail: "/mnt/ext4/first.pool".into(),
        };
        assert_eq!(Message::parse(line), Some(expected));
    }

    #[test]
    fn a_dash_is_no_domain() {
        let Some(Message::Check { domain, outcome, .. }) = Message::parse("@check\tplaces\tguest\tfail\t-\t0\t") else {
            panic!("a check without detail is a check");
        };
        assert_eq!((domain, outcome), (None, Outcome::Fail));
    }

    #[test]
    fn events_carry_an_optional_detail() {
        let event = |detail: &str| Some(Message::Event { name: "booted".into(), detail: detail.into() });
        assert_eq!(Message::parse("@event\tbooted\t3.7"), event("3.7"));
        assert_eq!(Message::parse("@event\tbooted"), event(""));
    }

    #[test]
    fn noise_and_mangled_lines_are_no_messages() {
        for line in ["", "[    1.0] Linux", "@check", "@check\ta\tb\tmaybe\t-\t0\t", "@check\ta\tb\tpass\t-\tsoon\t"] {
            assert_eq!(Message::parse(line), None, "{line:?}");
        }
    }
}
