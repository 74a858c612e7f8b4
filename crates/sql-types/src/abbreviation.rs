//! Short names of time zones, as `PostgreSQL` knows them by default.
//!
//! The same letters mean several zones in the world; the table has one meaning for each. Most have an offset that never
//! changed. Others name a zone, whose offset at the moment in question counts.

/// Names with a fixed offset: its quarters of an hour east of UTC, and whether it is a summer time. In the order of
/// the names.
#[rustfmt::skip]
const FIXED: &[(&str, i64, bool)] = &[
    ("acdt", 42, true), ("acsst", 42, true), ("acst", 38, false), ("act", -20, false), ("acwst", 35, false),
    ("adt", -12, true), ("aedt", 44, true), ("aesst", 44, true), ("aest", 40, false), ("aft", 18, false),
    ("akdt", -32, true), ("akst", -36, false), ("almst", 28, true), ("almt", 24, false), ("amt", -16, false),
    ("ast", -16, false), ("awsst", 36, true), ("awst", 32, false), ("azost", 0, true), ("azot", -4, false),
    ("bdst", 8, true), ("bdt", 24, false), ("bnt", 32, false), ("bort", 32, false), ("bot", -16, false),
    ("bra", -12, false), ("brst", -8, true), ("brt", -12, false), ("bst", 4, true), ("btt", 24, false),
    ("cadt", 42, true), ("cast", 38, false), ("cct", 32, false), ("cdt", -20, true), ("cest", 8, true),
    ("cet", 4, false), ("cetdst", 8, true), ("chadt", 55, true), ("chast", 51, false), ("chut", 40, false),
    ("clst", -12, true), ("cot", -20, false), ("cst", -24, false), ("cxt", 28, false), ("ddut", 40, false),
    ("eat", 12, false), ("edt", -16, true), ("eest", 12, true), ("eet", 8, false), ("eetdst", 12, true),
    ("egst", 0, true), ("egt", -4, false), ("est", -20, false), ("fet", 12, false), ("fjst", 52, true),
    ("fjt", 48, false), ("fnst", -4, true), ("fnt", -8, false), ("galt", -24, false), ("gamt", -36, false),
    ("gft", -12, false), ("gilt", 48, false), ("gmt", 0, false), ("hkt", 32, false), ("hst", -40, false),
    ("ict", 28, false), ("idt", 12, true), ("irt", 14, false), ("ist", 8, false), ("jayt", 36, false),
    ("jst", 36, false), ("kdt", 40, true), ("kgst", 24, true), ("kst", 36, false), ("lhst", 42, false),
    ("ligt", 40, false), ("mart", -38, false), ("mdt", -24, true), ("mest", 8, true), ("mesz", 8, true),
    ("met", 4, false), ("metdst", 8, true), ("mez", 4, false), ("mht", 48, false), ("mmt", 26, false),
    ("mpt", 40, false), ("msd", 16, true), ("mst", -28, false), ("must", 20, true), ("mut", 16, false),
    ("mvt", 20, false), ("myt", 32, false), ("ndt", -10, true), ("nft", -14, false), ("npt", 23, false),
    ("nst", -14, false), ("nzdt", 52, true), ("nzst", 48, false), ("nzt", 48, false), ("pdt", -28, true),
    ("pet", -20, false), ("pgt", 40, false), ("pht", 32, false), ("pkst", 24, true), ("pkt", 20, false),
    ("pmdt", -8, true), ("pmst", -12, false), ("pont", 44, false), ("pst", -32, false), ("pwt", 36, false),
    ("pyst", -12, true), ("ret", 16, false), ("sadt", 42, true), ("sast", 8, false), ("sct", 16, false),
    ("taht", -40, false), ("tft", 20, false), ("tjt", 20, false), ("tot", 52, false), ("trut", 40, false),
    ("tvt", 48, false), ("uct", 0, false), ("ulast", 36, true), ("ut", 0, false), ("utc", 0, false),
    ("uyst", -8, true), ("uyt", -12, false), ("uzst", 24, true), ("uzt", 20, false), ("vut", 44, false),
    ("wadt", 32, true), ("wakt", 48, false), ("wast", 28, false), ("wat", 4, false), ("wdt", 36, true),
    ("wet", 0, false), ("wetdst", 4, true), ("wft", 48, false), ("wgst", -8, true), ("wgt", -12, false),
    ("xjt", 24, false), ("yapt", 40, false), ("yekst", 24, true), ("z", 0, false), ("zulu", 0, false),
];

/// Names whose offset changed in the course of time: the zone that they are of. In the order of the names.
#[rustfmt::skip]
const CHANGING: &[(&str, &str)] = &[
    ("amst", "Asia/Yerevan"), ("anast", "Asia/Anadyr"), ("anat", "Asia/Anadyr"),
    ("arst", "America/Argentina/Buenos_Aires"), ("art", "America/Argentina/Buenos_Aires"), ("azst", "Asia/Baku"),
    ("azt", "Asia/Baku"), ("ckt", "Pacific/Rarotonga"), ("clt", "America/Santiago"), ("davt", "Antarctica/Davis"),
    ("easst", "Pacific/Easter"), ("east", "Pacific/Easter"), ("fkst", "Atlantic/Stanley"),
    ("fkt", "Atlantic/Stanley"), ("gest", "Asia/Tbilisi"), ("get", "Asia/Tbilisi"), ("gyt", "America/Guyana"),
    ("iot", "Indian/Chagos"), ("irkst", "Asia/Irkutsk"), ("irkt", "Asia/Irkutsk"), ("kgt", "Asia/Bishkek"),
    ("kost", "Pacific/Kosrae"), ("krast", "Asia/Krasnoyarsk"), ("krat", "Asia/Krasnoyarsk"),
    ("lhdt", "Australia/Lord_Howe"), ("lint", "Pacific/Kiritimati"), ("lkt", "Asia/Colombo"),
    ("magst", "Asia/Magadan"), ("magt", "Asia/Magadan"), ("mawt", "Antarctica/Mawson"), ("msk", "Europe/Moscow"),
    ("novst", "Asia/Novosibirsk"), ("novt", "Asia/Novosibirsk"), ("nut", "Pacific/Niue"), ("omsst", "Asia/Omsk"),
    ("omst", "Asia/Omsk"), ("petst", "Asia/Kamchatka"), ("pett", "Asia/Kamchatka"), ("pyt", "America/Asuncion"),
    ("sgt", "Asia/Singapore"), ("tkt", "Pacific/Fakaofo"), ("tmt", "Asia/Ashgabat"), ("ulat", "Asia/Ulaanbaatar"),
    ("vet", "America/Caracas"), ("vlast", "Asia/Vladivostok"), ("vlat", "Asia/Vladivostok"),
    ("volt", "Europe/Volgograd"), ("yakst", "Asia/Yakutsk"), ("yakt", "Asia/Yakutsk"), ("yekt", "Asia/Yekaterinburg"),
];

/// Seconds east of UTC of a name in lower case, and whether it is a summer time.
#[must_use]
pub fn fixed(name: &str) -> Option<(i64, bool)> {
    let place = FIXED.binary_search_by(|row| row.0.cmp(name)).ok()?;
    Some((FIXED[place].1 * 900, FIXED[place].2))
}

/// The zone that a name in lower case is of, if its offset changed.
#[must_use]
pub fn changing(name: &str) -> Option<&'static str> {
    let place = CHANGING.binary_search_by(|row| row.0.cmp(name)).ok()?;
    Some(CHANGING[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(FIXED.is_sorted_by_key(|row| row.0) && CHANGING.is_sorted_by_key(|row| row.0));
        assert_eq!((fixed("pdt"), fixed("npt")), (Some((-25_200, true)), Some((20_700, false))));
        assert_eq!((changing("msk"), fixed("xyz")), (Some("Europe/Moscow"), None));
    }
}
