//! Which connections the user wants switched: a list of rules, of which the first that matches decides.
//!
//! A rule is `[!][PROGRAM@][ADDRESS[/BITS]][:PORT[-PORT]]`. With `!` it keeps connections on TCP. Address
//! and port are those of the listening side, on both sides. A connection that no rule matches stays with TCP,
//! except where every rule has a `!`: then it is switched.

use std::net::{IpAddr, SocketAddr};

/// A list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: bool,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    keeps_tcp: bool,
    program: Option<String>,
    network: Option<(IpAddr, u32)>,
    ports: (u16, u16),
}

/// A rule that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRule(pub String);

impl std::fmt::Display for NoRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} is no rule for sockets; a rule is [!][PROGRAM@][ADDRESS[/BITS]][:PORT[-PORT]], as in \
             :6379 or !psql@127.0.0.1:5432",
            self.0
        )
    }
}

impl std::error::Error for NoRule {}

impl Rules {
    /// Nothing is switched.
    #[must_use]
    pub fn off() -> Rules {
        Rules { off: true, rules: Vec::new() }
    }

    /// Rules in a text, separated by commas, spaces or lines; what follows a `#` on a line is left out.
    /// `off` and `0` stand for none; `on`, `1` and no rule at all for every connection.
    ///
    /// # Errors
    /// [`NoRule`]: the first word that is none.
    pub fn parse(text: &str) -> Result<Rules, NoRule> {
        let mut all = Rules::default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let words = lines.flat_map(|line| line.split([',', ' ', '\t']));
        for word in words.filter(|word| !word.is_empty()) {
            match word {
                "off" | "0" => return Ok(Rules::off()),
                "on" | "1" => {}
                _ => all.rules.push(rule(word).ok_or_else(|| NoRule(word.to_owned()))?),
            }
        }
        Ok(all)
    }

    /// Whether a connection of `program` is switched whose listening side is at `at`.
    #[must_use]
    pub fn switch(&self, program: &str, at: SocketAddr) -> bool {
        if self.off {
            return false;
        }
        let found = self.rules.iter().find(|rule| rule.matches(program, at));
        found.map_or_else(|| self.rules.iter().all(|rule| rule.keeps_tcp), |rule| !rule.keeps_tcp)
    }

    /// Whether any connection of `program` can be switched, whatever its address.
    #[must_use]
    pub fn may_switch(&self, program: &str) -> bool {
        let everywhere = |rule: &Rule| rule.network.is_none() && rule.ports == (0, u16::MAX);
        let mut mine = self.rules.iter().filter(|rule| rule.is_for(program));
        !self.off
            && match mine.find(|rule| !rule.keeps_tcp || everywhere(rule)) {
                Some(rule) => !rule.keeps_tcp,
                None => self.rules.iter().all(|rule| rule.keeps_tcp),
            }
    }

    /// Whether nothing is ever switched.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.off
    }
}

impl Rule {
    fn is_for(&self, program: &str) -> bool {
        self.program.as_deref().is_none_or(|name| match name.strip_suffix('*') {
            Some(start) => program.starts_with(start),
            None => program == name,
        })
    }

    fn matches(&self, program: &str, at: SocketAddr) -> bool {
        let (first, last) = self.ports;
        self.is_for(program)
            && (first..=last).contains(&at.port())
            && self.network.is_none_or(|(network, bits)| same(network, at.ip(), bits))
    }
}

/// Whether two addresses have their first `bits` bits in common.
fn same(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits
        }
        _ => false,
    }
}

fn rule(word: &str) -> Option<Rule> {
    let keeps_tcp = word.starts_with('!');
    let word = word.strip_prefix('!').unwrap_or(word);
    let (program, place) = match word.split_once('@') {
        Some((program, place)) => (Some(program.to_owned()), place),
        None => (None, word),
    };
    if program.as_deref() == Some("") || place.is_empty() && program.is_none() {
        return None;
    }
    let (address, ports) = if let Some(rest) = place.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        match rest.strip_prefix('/') {
            Some(rest) => {
                let (bits, ports) = rest.split_once(':').unwrap_or((rest, ""));
                (format!("{address}/{bits}"), ports)
            }
            None if rest.is_empty() => (address.to_owned(), ""),
            None => (address.to_owned(), rest.strip_prefix(':').filter(|it| !it.is_empty())?),
        }
    } else if place.matches(':').count() > 1 {
        (place.to_owned(), "")
    } else {
        match place.split_once(':') {
            Some((_, "")) => return None,
            Some((address, ports)) => (address.to_owned(), ports),
            None => (place.to_owned(), ""),
        }
    };
    Some(Rule { keeps_tcp, program, network: network(&address)?, ports: range(ports)? })
}

/// `Some(None)`: every address.
#[allow(clippy::option_option, reason = "not readable, any, and one network are three answers")]
fn network(text: &str) -> Option<Option<(IpAddr, u32)>> {
    if text.is_empty() || text == "*" {
        return Some(None);
    }
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = if bits.is_empty() { most } else { bits.parse().ok()? };
    (bits <= most).then_some(Some((address, bits)))
}

fn range(text: &str) -> Option<(u16, u16)> {
    if text.is_empty() || text == "*" {
        return Some((0, u16::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(rules: &str, program: &str, at: &str) -> bool {
        Rules::parse(rules).unwrap().switch(program, at.parse().unwrap())
    }

    #[test]
    fn no_rule_switches_everything_and_off_nothing() {
        for text in ["", "on", "1", "  \n# nothing\n"] {
            assert!(switched(text, "x", "127.0.0.1:80"), "{text:?}");
        }
        for text in ["off", "0", ":80,off"] {
            assert!(!switched(text, "x", "127.0.0.1:80"), "{text:?}");
            assert!(Rules::parse(text).unwrap().is_off());
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = "!:22, redis*@:6379-6380, 10.0.0.0/8, [fd00::]/16:443";
        for (program, at, expected) in [
            ("redis-server", "127.0.0.1:6379", true),
            ("redis-cli", "127.0.0.1:6380", true),
            ("redis-cli", "127.0.0.1:6381", false),
            ("nginx", "127.0.0.1:6379", false),
            ("redis-server", "10.1.2.3:22", false),
            ("nginx", "10.1.2.3:23", true),
            ("nginx", "11.1.2.3:23", false),
            ("nginx", "10.128.0.0:23", true),
            ("nginx", "[fd00::1]:443", true),
            ("nginx", "[fd00:8000::]:443", true),
            ("nginx", "[fd00::1]:444", false),
            ("nginx", "[fd01::1]:443", false),
            ("nginx", "[::ffff:10.0.0.1]:1", true),
        ] {
            assert_eq!(switched(rules, program, at), expected, "{program} {at}");
        }
        assert!(!switched("redis-server@", "nginx", "127.0.0.1:1"));
        assert!(switched("redis-server@", "redis-server", "127.0.0.1:1"));
        assert!(switched("!:22 !psql@", "nginx", "127.0.0.1:1"), "refusals only");
        assert!(!switched("!:22 !psql@", "psql", "127.0.0.1:1"));
    }

    #[test]
    fn a_program_is_left_out_that_no_address_is_switched_of() {
        for (rules, program, expected) in [
            ("", "x", true),
            ("off", "x", false),
            (":80,off", "x", false),
            ("!x@", "x", false),
            ("!x@", "y", true),
            ("!x@:80", "x", true),
            ("!x@10.0.0.0/8", "x", true),
            ("x@:80,!x@", "x", true),
            ("!x@,x@:80", "x", false),
            ("x@", "y", false),
            (":80", "y", true),
            ("!:22,!psql*@", "psql-17", false),
            ("!", "x", false),
        ] {
            let may = Rules::parse(rules).is_ok_and(|rules| rules.may_switch(program));
            assert_eq!(may, expected, "{rules} {program}");
        }
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for word in [
            "!",
            "@",
            "@:1",
            ":",
            ":x",
            ":2-1",
            ":65536",
            "1.2.3",
            "1.2.3.4/33",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[::]/129",
            "on!",
        ] {
            assert_eq!(Rules::parse(&format!(":80 {word}")), Err(NoRule(word.to_owned())));
        }
    }
}
