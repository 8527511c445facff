//! What is measured, how long and how often.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Problems;
use super::names::check_name;
use super::reader::{Table, kind, parse_text, parse_whole};
use super::words::{Precision, Profile, Rate};
use super::{DEFAULT_CONGESTION_CONTROL, PerTest, ProfileSpec, Test};
use crate::cell::{TestKind, did_you_mean, printable};
use crate::units::{Bytes, Direction, PacketRate, Ratio, Span};

/// The most visits to one arrangement.
const MOST_ROUNDS: u64 = 1000;

/// The most streams of one run: beyond it the sockets, not the path, are measured.
const MOST_STREAMS: u64 = 1024;

/// More than any link carries: beyond it is a slip of the pen.
const FASTEST_BITS: u64 = 10_000_000_000_000;
const FASTEST_PACKETS: u64 = 1_000_000_000;

/// The longest window or warm-up.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The probe of a stream whose test says nothing: 100 a second.
const DEFAULT_PROBE: PacketRate = PacketRate::from_per_second(100);

const TEST_EXAMPLE: &str = "[[test]] kind = \"tcp-stream\"";
const PROFILE_EXAMPLE: &str = "[profile.quick] rounds = 3";
pub(super) const PROFILE_KEYS: [&str; 7] =
    ["rounds", "precision", "duration", "warmup", "streams", "direction", "tests"];

/// The keys of a test of `kind`, beside `kind`, `name`, `duration` and `warmup`.
const fn own_keys(kind: TestKind) -> &'static [&'static str] {
    match kind {
        TestKind::TcpStream => &["streams", "direction", "congestion_control", "probe"],
        TestKind::UdpStream => &["streams", "direction", "rate", "payload", "probe"],
        TestKind::UdpSearch => &["streams", "direction", "payload", "probe"],
        TestKind::TcpRr | TestKind::TcpCrr => &["payload", "congestion_control"],
        TestKind::UdpRr => &["payload"],
        TestKind::Ping => &["rate", "payload"],
        TestKind::Connections => &["congestion_control"],
        TestKind::Handshake | TestKind::Mtu => &[],
    }
}

/// Every key of some test.
pub(super) const TEST_KEYS: [&str; 10] =
    ["kind", "name", "duration", "warmup", "streams", "direction", "rate", "payload", "congestion_control", "probe"];

/// The smallest and largest payload of `kind`, and the default.
const fn payloads(kind: TestKind) -> Option<(u64, u64, u64)> {
    match kind {
        // A datagram carries 32 bytes of our own; 65,000 fits behind the headers of either family.
        TestKind::UdpStream | TestKind::UdpSearch => Some((32, 65_000, 1_300)),
        TestKind::UdpRr => Some((32, 65_000, 32)),
        // netperf's default transaction is one byte each way.
        TestKind::TcpRr | TestKind::TcpCrr => Some((1, 1 << 20, 1)),
        TestKind::Ping => Some((16, 65_000, 56)),
        TestKind::TcpStream | TestKind::Handshake | TestKind::Connections | TestKind::Mtu => None,
    }
}

/// `forward`, `reverse` or `both`.
struct Directions(Vec<Direction>);

impl FromStr for Directions {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forward" => Ok(Self(vec![Direction::Forward])),
            "reverse" => Ok(Self(vec![Direction::Reverse])),
            "both" => Ok(Self(vec![Direction::Forward, Direction::Reverse])),
            _ => {
                let known = ["forward", "reverse", "both"];
                let suggestion = did_you_mean(text, known);
                Err(format!("`{}` is not a direction; {suggestion}choose {}", printable(text), known.join(", ")))
            }
        }
    }
}

/// `[[test]]`.
pub(super) fn tests(root: &Table<'_>, problems: &mut Problems<'_>) -> Vec<Spanned<Test>> {
    let Some(value) = root.get("test") else {
        problems.push(0..0, "a topology needs tests", format!("write `{TEST_EXAMPLE}`"));
        return Vec::new();
    };
    let DeValue::Array(array) = value.get_ref() else {
        let span = root.key_span("test");
        problems.push(
            span,
            format!("`test` is {}, not a list", kind(value)),
            format!("write `{TEST_EXAMPLE}`, in two brackets"),
        );
        return Vec::new();
    };
    if array.is_empty() {
        problems.push(value.span(), "`test` is an empty list", format!("write `{TEST_EXAMPLE}`"));
    }
    let mut tests: Vec<Spanned<Test>> = Vec::new();
    for element in array.iter() {
        let Some(table) = Table::of(element, element.span(), "a test", TEST_EXAMPLE, problems) else { continue };
        let Some(test) = test(&table, problems) else { continue };
        if tests.iter().any(|earlier| earlier.get_ref().name == test.name) {
            let help = "give one of them a `name` of its own, or make one test with lists";
            problems.push(table.span(), format!("two tests are called `{}`", test.name), help);
            continue;
        }
        tests.push(Spanned::new(table.span(), test));
    }
    tests
}

fn test(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Test> {
    if table.get("kind").is_none() {
        table.only(&TEST_KEYS, problems);
        problems.push(table.span(), "a test has no kind", format!("write `{TEST_EXAMPLE}`"));
        return None;
    }
    let Some(kind) = table.parsed::<TestKind>("kind", problems) else {
        table.only(&TEST_KEYS, problems);
        return None;
    };
    let kind = kind.into_inner();
    check_keys(table, kind, problems);
    let name = table.text("name", problems);
    if let Some(name) = &name
        && let Err(why) = check_name(name.get_ref())
    {
        let message = format!("`{}` cannot name a test: {why}", printable(name.get_ref()));
        problems.push(name.span(), message, "choose another name");
    }
    let has = |key: &str| own_keys(kind).contains(&key);
    let streams = has("streams").then(|| streams(table, problems).unwrap_or_else(|| vec![1]));
    let direction = has("direction").then(|| direction(table, problems).unwrap_or_else(|| vec![Direction::Forward]));
    let congestion = has("congestion_control")
        .then(|| congestion_control(table, problems).unwrap_or_else(|| vec![DEFAULT_CONGESTION_CONTROL.to_owned()]));
    Some(Test {
        name: name.map_or_else(|| kind.name().to_owned(), Spanned::into_inner),
        kind,
        direction: direction.unwrap_or_default(),
        streams: streams.unwrap_or_default(),
        rate: if has("rate") { rates(kind, table, problems) } else { Vec::new() },
        payload: if has("payload") { payload(kind, table, problems) } else { Vec::new() },
        congestion_control: congestion.unwrap_or_default(),
        warmup: table.parsed::<Span>("warmup", problems).and_then(|span| bounded(span, "warmup", true, problems)),
        duration: table
            .parsed::<Span>("duration", problems)
            .and_then(|span| bounded(span, "duration", false, problems)),
        probe: if has("probe") { probe(table, problems) } else { None },
    })
}

/// Unknown keys, and keys of other kinds of test.
fn check_keys(table: &Table<'_>, kind: TestKind, problems: &mut Problems<'_>) {
    let general = ["kind", "name", "duration", "warmup"];
    let own: Vec<&str> = general.into_iter().chain(own_keys(kind).iter().copied()).collect();
    for (key, _) in table.fields() {
        let name = key.get_ref().as_ref();
        if own.contains(&name) {
            continue;
        }
        let message = if TEST_KEYS.contains(&name) {
            format!("a {kind} test has no `{name}`")
        } else {
            format!("a test has no key `{}`", printable(name))
        };
        let suggestion = did_you_mean(name, own.iter().copied());
        problems.push(key.span(), message, format!("{suggestion}the keys of a {kind} test are {}", own.join(", ")));
    }
}

fn streams(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Vec<u32>> {
    let read = table.one_or_many("streams", problems, |value, problems| {
        parse_whole(value, "streams", 1..=MOST_STREAMS, problems)
    })?;
    Some(read.into_iter().map(|streams| streams.into_inner() as u32).collect())
}

fn direction(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Vec<Direction>> {
    table.parsed::<Directions>("direction", problems).map(|directions| directions.into_inner().0)
}

fn congestion_control(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Vec<String>> {
    let read = table.one_or_many("congestion_control", problems, |value, problems| {
        let name = parse_text::<String>(value, "congestion_control", problems)?;
        // TCP_CA_NAME_MAX is 16 with its NUL (include/net/tcp.h).
        let plain = name.get_ref().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
        if name.get_ref().is_empty() || name.get_ref().len() > 15 || !plain {
            let message = format!("`{}` is not a congestion control", printable(name.get_ref()));
            problems.push(name.span(), message, "write it as the kernel does, like \"cubic\" or \"bbr\"");
            return None;
        }
        Some(name)
    })?;
    Some(read.into_iter().map(Spanned::into_inner).collect())
}

/// A UDP stream has no implicit rate: at any that were assumed, its loss would be the assumption's. A ping's is the probe's.
fn rates(kind: TestKind, table: &Table<'_>, problems: &mut Problems<'_>) -> Vec<Rate> {
    if table.get("rate").is_none() {
        if kind == TestKind::UdpStream {
            let help = "write rate = \"1Gbit/s\", \"100k/s\" (packets) or \"max\"";
            problems.push(table.span(), "a udp-stream test has no rate", help);
            return Vec::new();
        }
        return vec![Rate::Packets(DEFAULT_PROBE)];
    }
    let read = table.one_or_many("rate", problems, |value, problems| {
        let rate = parse_text::<Rate>(value, "rate", problems)?;
        let (possible, pingable) = match rate.get_ref() {
            Rate::Bits(rate) => ((1..=FASTEST_BITS).contains(&rate.bits_per_second()), false),
            Rate::Packets(rate) => ((1..=FASTEST_PACKETS).contains(&rate.per_second()), rate.per_second() <= 1_000),
            Rate::Max => (true, false),
        };
        if !possible {
            problems.push(rate.span(), "no link has this rate", "write 1bit/s to 10Tbit/s, or 1/s to 1000M/s");
            return None;
        }
        if kind == TestKind::Ping && !pingable {
            problems.push(rate.span(), "a ping's rate is 1/s to 1000/s", "write it like \"100/s\"");
            return None;
        }
        Some(rate)
    });
    read.unwrap_or_default().into_iter().map(Spanned::into_inner).collect()
}

fn payload(kind: TestKind, table: &Table<'_>, problems: &mut Problems<'_>) -> Vec<Bytes> {
    let Some((smallest, largest, default)) = payloads(kind) else { return Vec::new() };
    let read = table.one_or_many("payload", problems, |value, problems| {
        let payload = parse_text::<Bytes>(value, "payload", problems)?;
        if !(smallest..=largest).contains(&payload.get_ref().get()) {
            let help = format!("write a size from {smallest}B to {largest}B");
            problems.push(
                payload.span(),
                format!("a {kind} test cannot carry a payload of {}", payload.get_ref()),
                help,
            );
            return None;
        }
        Some(payload)
    });
    read.map_or_else(|| vec![Bytes::new(default)], |read| read.into_iter().map(Spanned::into_inner).collect())
}

/// `"100/s"` or `"off"`.
fn probe(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<PacketRate> {
    let Some(value) = table.get("probe") else { return Some(DEFAULT_PROBE) };
    if matches!(value.get_ref(), DeValue::String(text) if text == "off") {
        return None;
    }
    let probe = parse_text::<PacketRate>(value, "probe", problems)?;
    if !(1..=10_000).contains(&probe.get_ref().per_second()) {
        problems.push(probe.span(), "a probe's rate is 1/s to 10000/s", "write it like \"100/s\", or \"off\"");
        return None;
    }
    Some(probe.into_inner())
}

fn bounded(span: Spanned<Span>, key: &str, zero: bool, problems: &mut Problems<'_>) -> Option<Span> {
    let time = span.get_ref().duration();
    if time > LONGEST || (!zero && time < Duration::from_millis(1)) {
        let least = if zero { "0s" } else { "1ms" };
        problems.push(span.span(), format!("`{key}` is out of range"), format!("write a time from {least} to 24h"));
        return None;
    }
    Some(span.into_inner())
}

/// `[profile.quick|standard|thorough]`.
pub(super) fn profiles(
    root: &Table<'_>,
    tests: &[Spanned<Test>],
    problems: &mut Problems<'_>,
) -> BTreeMap<Profile, ProfileSpec> {
    let mut profiles = BTreeMap::new();
    for (name, table) in root.tables("profile", PROFILE_EXAMPLE, problems) {
        table.only(&PROFILE_KEYS, problems);
        let profile = match name.get_ref().parse::<Profile>() {
            Ok(profile) => profile,
            Err(error) => {
                let error = printable(&error.to_string());
                let (message, help) = error.split_once("; ").unwrap_or((&error, PROFILE_EXAMPLE));
                problems.push(name.span(), message, help);
                continue;
            }
        };
        let rounds = table.whole("rounds", 1..=MOST_ROUNDS, problems).map(|rounds| rounds.into_inner() as u32);
        let spec = ProfileSpec {
            rounds,
            precision: precision(&table, problems),
            duration: per_test(&table, "duration", false, tests, problems),
            warmup: per_test(&table, "warmup", true, tests, problems),
            streams: streams(&table, problems),
            direction: direction(&table, problems),
            tests: kept_tests(&table, tests, problems),
        };
        profiles.insert(profile, spec);
    }
    profiles
}

/// `"3%"`: what [`super::Precision`] may be, but for its `off`.
fn precision(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Ratio> {
    let precision = table.parsed::<Precision>("precision", problems)?;
    match precision.get_ref() {
        Precision::To(width) => Some(*width),
        Precision::Off => {
            problems.push(precision.span(), "a profile without a precision names none", "leave `precision` out");
            None
        }
    }
}

/// `"10s"`, or `{ tcp-stream = "10s", ... }`.
fn per_test(
    table: &Table<'_>,
    key: &str,
    zero: bool,
    tests: &[Spanned<Test>],
    problems: &mut Problems<'_>,
) -> PerTest<Span> {
    let mut per_test = PerTest::default();
    let Some(value) = table.get(key) else { return per_test };
    if !matches!(value.get_ref(), DeValue::Table(_)) {
        per_test.all = parse_text(value, key, problems).and_then(|span| bounded(span, key, zero, problems));
        return per_test;
    }
    let what = format!("`{key}` of {}", table.what());
    let example = format!("{key} = {{ tcp-stream = \"10s\" }}");
    let Some(inner) = Table::of(value, table.key_span(key), &what, &example, problems) else { return per_test };
    for (name, value) in inner.fields() {
        let name = Spanned::new(name.span(), name.get_ref().clone().into_owned());
        let span = parse_text(value, key, problems).and_then(|span| bounded(span, key, zero, problems));
        if let (true, Some(span)) = (known_test(&name, tests, problems), span) {
            per_test.by_test.insert(name.into_inner(), span);
        }
    }
    per_test
}

fn kept_tests(table: &Table<'_>, tests: &[Spanned<Test>], problems: &mut Problems<'_>) -> Option<Vec<String>> {
    let names = table.texts("tests", "tests = [\"tcp-stream\"]", problems)?;
    let known = names.into_iter().filter(|name| known_test(name, tests, problems));
    Some(known.map(Spanned::into_inner).collect())
}

fn known_test(name: &Spanned<String>, tests: &[Spanned<Test>], problems: &mut Problems<'_>) -> bool {
    let known: Vec<&str> = tests.iter().map(|test| test.get_ref().name.as_str()).collect();
    if known.contains(&name.get_ref().as_str()) || known.is_empty() {
        return true;
    }
    let suggestion = did_you_mean(name.get_ref(), known.iter().copied());
    let help = format!("{suggestion}the tests are {}", known.join(", "));
    problems.push(name.span(), format!("there is no test `{}`", printable(name.get_ref())), help);
    false
}
