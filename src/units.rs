//! Quantities with their units in the type: text in files and on screens, plain integers inside.
//!
//! Bits and bytes are different types, and a conversion is always a named method. Text carries its unit
//! (`"1Gbit/s"`, `"1420B"`, `"0.2%"`, `"60us"`); a bare number is refused, since nobody can tell what it means.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Text that is not a quantity of the asked kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No digits, or digits that do not form a number.
    #[error("`{text}` does not begin with a number; write it like `{example}`")]
    NotANumber {
        /// What was written.
        text: String,
        /// A right spelling.
        example: &'static str,
    },
    /// A number alone.
    #[error("`{text}` has no unit; write it like `{example}`")]
    NoUnit {
        /// What was written.
        text: String,
        /// A right spelling.
        example: &'static str,
    },
    /// A unit of another kind, or none that is known.
    #[error("`{unit}` in `{text}` is not a unit of {kind}; the units are {known}")]
    WrongUnit {
        /// What was written.
        text: String,
        /// The unit that was read.
        unit: String,
        /// The kind of quantity that was expected.
        kind: &'static str,
        /// The units of that kind.
        known: String,
    },
    /// A number that the type cannot hold, or that makes no sense for it.
    #[error("`{text}` is out of range: {limit}")]
    OutOfRange {
        /// What was written.
        text: String,
        /// What the range is.
        limit: &'static str,
    },
}

/// A kind of quantity: how it is spelled.
struct Kind {
    name: &'static str,
    example: &'static str,
    units: &'static [(&'static str, f64)],
}

impl Kind {
    /// Reads `text` as a number in this kind's base unit.
    fn parse(&self, text: &str) -> Result<f64, UnitError> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let value: f64 =
            number.parse().map_err(|_| UnitError::NotANumber { text: text.to_owned(), example: self.example })?;
        let unit = unit.trim();
        if unit.is_empty() {
            return Err(UnitError::NoUnit { text: text.to_owned(), example: self.example });
        }
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let known = self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(UnitError::WrongUnit { text: text.to_owned(), unit: unit.to_owned(), kind: self.name, known });
        };
        Ok(value * factor)
    }

    /// As [`Kind::parse`], rounded to a whole number of base units.
    fn parse_whole(&self, text: &str) -> Result<u64, UnitError> {
        let value = self.parse(text)?.round();
        // 2^53: beyond it a float no longer holds every whole number.
        if value >= 9_007_199_254_740_992.0 {
            return Err(UnitError::OutOfRange { text: text.to_owned(), limit: "more than 2^53 base units" });
        }
        Ok(value as u64)
    }
}

/// Writes `value` with three significant digits or all its integer digits, without trailing zeros.
fn short(value: f64) -> String {
    let decimals = if value >= 100.0 || value == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The largest unit of `scale` (ascending) that leaves `value` at one or more.
fn scaled(value: f64, scale: &[(f64, &str)]) -> String {
    let (factor, unit) =
        scale.iter().rev().find(|(factor, _)| value >= *factor).or_else(|| scale.first()).copied().unwrap_or((1.0, ""));
    format!("{} {unit}", short(value / factor))
}

macro_rules! text_serde {
    ($type:ty) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "text with a unit, like \"{}\"", <$type>::KIND.example)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        Err(E::custom(UnitError::NoUnit { text: number.to_string(), example: <$type>::KIND.example }))
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$type, E> {
                        Err(E::custom(UnitError::NoUnit { text: number.to_string(), example: <$type>::KIND.example }))
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.exact())
            }
        }
    };
}

/// A rate of bits per second. Serialises as text without loss (`"1500000bit/s"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    const KIND: Kind = Kind {
        name: "bit rate",
        example: "1Gbit/s",
        units: &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)],
    };
    /// From bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }
    /// The mean rate of `bytes` over `window`; `None` for an empty window.
    pub fn mean(bytes: Bytes, window: Duration) -> Option<Self> {
        (!window.is_zero()).then(|| Self((bytes.get() as f64 * 8.0 / window.as_secs_f64()).round() as u64))
    }
    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
    /// Bytes that pass in `time` at this rate.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        Bytes((self.0 as f64 / 8.0 * time.as_secs_f64()).round() as u64)
    }
    fn exact(self) -> String {
        format!("{}bit/s", self.0)
    }
}
impl FromStr for BitRate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::KIND.parse_whole(text).map(Self)
    }
}
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = [(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s"), (1e12, "Tbit/s")];
        f.pad(&scaled(self.0 as f64, &scale))
    }
}
text_serde!(BitRate);

/// An amount of bytes. Decimal (`kB`, `MB`, `GB`) and binary (`KiB`, `MiB`, `GiB`) units are both understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    const KIND: Kind = Kind {
        name: "size",
        example: "1372B",
        units: &[
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
        ],
    };
    /// From a count of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }
    fn exact(self) -> String {
        format!("{}B", self.0)
    }
}
impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::KIND.parse_whole(text).map(Self)
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0 as f64, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")]))
    }
}
text_serde!(Bytes);

/// Events per second: packets, probes, transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketRate(u64);

impl PacketRate {
    const KIND: Kind =
        Kind { name: "packet rate", example: "100/s", units: &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)] };
    /// From packets per second.
    pub const fn from_per_second(packets: u64) -> Self {
        Self(packets)
    }
    /// Packets per second.
    pub const fn per_second(self) -> u64 {
        self.0
    }
    /// The time between two packets; `None` at rate zero.
    pub fn interval(self) -> Option<Duration> {
        (self.0 > 0).then(|| Duration::from_secs_f64(1.0 / self.0 as f64))
    }
    fn exact(self) -> String {
        format!("{}/s", self.0)
    }
}
impl FromStr for PacketRate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        Self::KIND.parse_whole(text).map(Self)
    }
}
impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0 as f64, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")]))
    }
}
text_serde!(PacketRate);

/// A part of a whole, written in percent.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    const KIND: Kind = Kind { name: "ratio", example: "5%", units: &[("%", 1.0)] };
    /// From a fraction: 0.05 is 5 %.
    pub const fn from_fraction(fraction: f64) -> Self {
        Self(fraction)
    }
    /// The fraction: 5 % is 0.05.
    pub const fn fraction(self) -> f64 {
        self.0
    }
    fn exact(self) -> String {
        // To ten decimals of a percent: what multiplication adds beyond is not in the quantity.
        format!("{}%", (self.0 * 1e12).round() / 1e10)
    }
}
impl FromStr for Ratio {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        // Divided, not multiplied by 0.01: the nearest float to 7 / 100 is the one that 7 % is written for.
        Self::KIND.parse(text).map(|percent| Self(percent / 100.0))
    }
}
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} %", short(self.0 * 100.0)))
    }
}
text_serde!(Ratio);

/// A length of time as people write it: `"60us"`, `"0.6s"`, `"5min"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(Duration);

impl Span {
    const KIND: Kind = Kind {
        name: "time",
        example: "60us",
        units: &[("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)],
    };
    /// From a duration.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }
    /// The duration.
    pub const fn duration(self) -> Duration {
        self.0
    }
    fn exact(self) -> String {
        format!("{}ns", self.0.as_nanos())
    }
}
impl FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let seconds = Self::KIND.parse(text)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| UnitError::OutOfRange { text: text.to_owned(), limit: "more time than a clock can hold" })
    }
}
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let text = if seconds >= 3600.0 {
            format!("{} h {} min", self.0.as_secs() / 3600, self.0.as_secs() % 3600 / 60)
        } else if seconds >= 60.0 {
            format!("{} min {} s", self.0.as_secs() / 60, self.0.as_secs() % 60)
        } else {
            scaled(seconds * 1e9, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
        };
        f.pad(&text)
    }
}
text_serde!(Span);

/// The largest IP packet that an interface passes whole, in bytes: 68 (RFC 791) to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Mtu(u16);

impl Mtu {
    /// From bytes, or the reason why it cannot be one.
    pub fn new(bytes: u64) -> Result<Self, UnitError> {
        match u16::try_from(bytes) {
            Ok(mtu) if mtu >= 68 => Ok(Self(mtu)),
            _ => Err(UnitError::OutOfRange { text: bytes.to_string(), limit: "an MTU is 68 to 65535 bytes" }),
        }
    }
    /// Bytes.
    pub const fn get(self) -> u16 {
        self.0
    }
}
impl TryFrom<u64> for Mtu {
    type Error = UnitError;
    fn try_from(bytes: u64) -> Result<Self, UnitError> {
        Self::new(bytes)
    }
}
impl From<Mtu> for u64 {
    fn from(mtu: Mtu) -> Self {
        Self::from(mtu.0)
    }
}
impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which way a pair's bulk data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
    Reverse,
}
impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        })
    }
}

/// The address family of an underlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}
impl Family {
    /// Bytes that WireGuard adds around an inner packet, without padding: outer IP, UDP, and 32 of its own
    /// (WireGuard paper section 5.4.6).
    pub const fn tunnel_overhead(self) -> u16 {
        match self {
            Self::Ipv4 => 20 + 8 + 32,
            Self::Ipv6 => 40 + 8 + 32,
        }
    }
}
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_and_prints_with_its_unit() {
        assert_eq!("1Gbit/s".parse::<BitRate>().unwrap().bits_per_second(), 1_000_000_000);
        assert_eq!("2.5 Gbit/s".parse::<BitRate>().unwrap().to_string(), "2.5 Gbit/s");
        assert_eq!("64KiB".parse::<Bytes>().unwrap().get(), 65_536);
        assert_eq!("60us".parse::<Span>().unwrap().duration(), Duration::from_micros(60));
        assert_eq!("60µs".parse::<Span>().unwrap().to_string(), "60 µs");
        assert!(("0.2%".parse::<Ratio>().unwrap().fraction() - 0.002).abs() < 1e-12);
        assert_eq!("100/s".parse::<PacketRate>().unwrap().interval(), Some(Duration::from_millis(10)));
    }

    #[test]
    fn a_bare_number_and_a_wrong_unit_are_refused_with_the_remedy() {
        let error = "1000".parse::<BitRate>().unwrap_err().to_string();
        assert!(error.contains("no unit") && error.contains("1Gbit/s"), "{error}");
        let error = "1GB/s".parse::<BitRate>().unwrap_err().to_string();
        assert!(error.contains("GB/s") && error.contains("Gbit/s"), "{error}");
        assert!("-5ms".parse::<Span>().is_err());
        assert!("1e400s".parse::<Span>().is_err());
        assert!(Mtu::new(67).is_err() && Mtu::new(65_536).is_err() && Mtu::new(68).is_ok());
    }

    #[test]
    fn serialised_text_parses_back_exactly() {
        let rate = BitRate::from_bits_per_second(123_456_789_012);
        let json = serde_json::to_string(&rate).unwrap();
        assert_eq!(serde_json::from_str::<BitRate>(&json).unwrap(), rate);
        let span = Span::new(Duration::from_nanos(1_234_567_891));
        assert_eq!(serde_json::from_str::<Span>(&serde_json::to_string(&span).unwrap()).unwrap(), span);
    }

    #[test]
    fn every_whole_percentage_survives_its_text() {
        for percent in 0..=100 {
            let ratio: Ratio = format!("{percent}%").parse().unwrap();
            let json = serde_json::to_string(&ratio).unwrap();
            assert_eq!(serde_json::from_str::<Ratio>(&json).unwrap(), ratio, "{json}");
        }
    }

    #[test]
    fn a_mean_over_nothing_is_absent() {
        assert_eq!(BitRate::mean(Bytes::new(100), Duration::ZERO), None);
        assert_eq!(BitRate::mean(Bytes::new(125), Duration::from_secs(1)).unwrap().bits_per_second(), 1000);
    }
}
