//! Lines to values. Errors name the line and the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Cut, End, FORMAT, Header, Record, RecordError, Run, VERSION};

impl Record {
    /// Reads a record from the bytes of a `runs.jsonl`.
    ///
    /// A last line without a line feed that does not parse was cut: it is left out and [`Record::cut`] says so. The
    /// same run standing in the file twice counts once, and [`Record::notes`] says so.
    ///
    /// # Errors
    /// Any other line that does not parse, with its number and byte; a first line that is not a header; a version
    /// that is too new; two different runs in one place; a later header of another plan.
    pub fn parse(bytes: impl AsRef<[u8]>) -> Result<Self, RecordError> {
        let bytes = bytes.as_ref();
        let mut lines = Lines { rest: bytes, number: 0 }.filter(|line| !line.is_blank());
        let first = lines.next().ok_or(RecordError::Empty)?;
        let header = first_header(&first)?;
        let mut record = Self {
            header,
            resumed: Vec::new(),
            runs: Vec::new(),
            superseded: Vec::new(),
            end: None,
            cut: None,
            whole_bytes: first.end(bytes),
            notes: Vec::new(),
        };
        let mut places = BTreeMap::new();
        let mut sittings = Vec::new();
        let mut repeated = 0_usize;
        for line in lines {
            let parsed = match parse_line(&line) {
                Ok(parsed) => parsed,
                Err(_) if !line.terminated => {
                    record.cut = Some(Cut { line: line.number, bytes: line.text.len() });
                    break;
                }
                Err(error) => return Err(error),
            };
            record.whole_bytes = line.end(bytes);
            if let Line::Run(run) = &parsed
                && let Some((name, value)) = run.metrics.iter().find(|(_, value)| **value < 0.0)
            {
                let why = format!("run {}: {name} is {value}, and no metric is below zero", run.order);
                return Err(RecordError::Contradiction { line: line.number, why });
            }
            match parsed {
                Line::Header(header) => record.resume(*header, line.number)?,
                Line::Run(run) => match places.get(&run.order) {
                    None => {
                        places.insert(run.order, record.runs.len());
                        record.runs.push(*run);
                        sittings.push(record.resumed.len());
                        record.end = None;
                    }
                    Some(&place) if record.runs.get(place) == Some(&*run) => repeated += 1,
                    Some(_) => {
                        let why = format!("a run with order {} is there already, with other content", run.order);
                        return Err(RecordError::Contradiction { line: line.number, why });
                    }
                },
                Line::End(end) => record.end = Some(end),
                Line::Unknown => {}
            }
        }
        if repeated > 0 {
            record.notes.push(format!("{repeated} runs stand in the file twice and count once"));
        }
        record.settle(&sittings);
        match record.superseded.len() {
            0 => {}
            1 => record.notes.push("1 run of a visit that was cut short was measured again and is left out".to_owned()),
            runs => {
                record
                    .notes
                    .push(format!("{runs} runs of visits that were cut short were measured again and are left out"));
            }
        }
        Ok(record)
    }

    fn resume(&mut self, header: Header, line: usize) -> Result<(), RecordError> {
        if header == self.header || self.resumed.contains(&header) {
            return Ok(());
        }
        if header.plan_hash != self.header.plan_hash {
            let why = format!(
                "a header of plan {} in a record of plan {}: two records in one file",
                header.plan_hash, self.header.plan_hash
            );
            return Err(RecordError::Contradiction { line, why });
        }
        self.resumed.push(header);
        self.end = None;
        Ok(())
    }

    /// Gives each run the number of its sitting, and takes out what was measured again.
    fn settle(&mut self, sittings: &[usize]) {
        // Runs of versions that wrote no session stand behind their header all the same.
        for (run, sitting) in
            self.runs.iter_mut().zip(sittings).filter(|(run, sitting)| run.session.is_none() && **sitting > 0)
        {
            run.session = u32::try_from(*sitting).ok();
        }
        let again: BTreeSet<u32> = self
            .resumed
            .iter()
            .filter_map(|header| header.resumes.as_ref())
            .flat_map(|it| it.superseded.clone())
            .collect();
        let (superseded, runs) = std::mem::take(&mut self.runs).into_iter().partition(|run| again.contains(&run.order));
        (self.superseded, self.runs) = (superseded, runs);
    }
}

/// What a line may be. A kind that this version does not know is ignored, as a key is.
enum Line {
    Header(Box<Header>),
    Run(Box<Run>),
    End(End),
    Unknown,
}

fn first_header(line: &RawLine<'_>) -> Result<Header, RecordError> {
    #[derive(Deserialize)]
    struct Opening {
        format: Option<String>,
        version: Option<u32>,
    }
    let not = |why: String| RecordError::NotARecord { why };
    let opening: Opening = typed(line).map_err(|error| not(error.to_string()))?;
    match opening.format {
        Some(format) if format == FORMAT => {}
        Some(format) => return Err(not(format!("its format is `{format}`"))),
        None => return Err(not("it has no `format`".to_owned())),
    }
    match opening.version {
        Some(version) if version > VERSION => return Err(RecordError::TooNew { version }),
        Some(0) | None => return Err(not("it has no version".to_owned())),
        Some(_) => {}
    }
    unique_keys(line)?;
    let header: Header = typed(line)?;
    match out_of_range(&header) {
        Some((field, value)) => Err(RecordError::NotAPart { line: line.number, field, value: value.to_string() }),
        None => Ok(header),
    }
}

/// A least change of the header that is no part.
fn out_of_range(header: &Header) -> Option<(String, f64)> {
    let own = header.min_effect.map(|effect| ("min_effect".to_owned(), effect));
    let single = header.policy.iter().flat_map(|policy| &policy.min_effects);
    let single = single.map(|(name, effect)| (format!("policy.min_effects.{name}"), effect.fraction()));
    own.into_iter().chain(single).find(|(_, effect)| !(0.0..1.0).contains(effect))
}

fn parse_line(line: &RawLine<'_>) -> Result<Line, RecordError> {
    #[derive(Deserialize)]
    struct Tag {
        line: String,
    }
    unique_keys(line)?;
    let tag: Tag = typed(line)?;
    match tag.line.as_str() {
        "header" => Ok(Line::Header(Box::new(first_header(line)?))),
        "run" => Ok(Line::Run(Box::new(typed(line)?))),
        "end" => Ok(Line::End(typed(line)?)),
        _ => Ok(Line::Unknown),
    }
}

fn typed<T: DeserializeOwned>(line: &RawLine<'_>) -> Result<T, RecordError> {
    serde_json::from_slice(line.text).map_err(|error| line.error(&error))
}

/// One line of the input.
struct RawLine<'a> {
    text: &'a [u8],
    number: usize,
    terminated: bool,
}

impl RawLine<'_> {
    fn is_blank(&self) -> bool {
        self.text.iter().all(u8::is_ascii_whitespace)
    }

    /// Where the line ends within the `whole` input, with its line feed.
    fn end(&self, whole: &[u8]) -> usize {
        self.text.as_ptr_range().end as usize - whole.as_ptr() as usize + usize::from(self.terminated)
    }

    fn error(&self, error: &serde_json::Error) -> RecordError {
        // serde_json appends the place within the text that it was given, which is always its line 1.
        let text = error.to_string();
        let why = text.split(" at line 1 column ").next().unwrap_or(&text).to_owned();
        RecordError::Line { line: self.number, byte: error.column().max(1), why }
    }
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = RawLine<'a>;

    fn next(&mut self) -> Option<RawLine<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        let (text, rest, terminated) = match self.rest.iter().position(|&byte| byte == b'\n') {
            Some(at) => (&self.rest[..at], &self.rest[at + 1..], true),
            None => (self.rest, &self.rest[self.rest.len()..], false),
        };
        self.rest = rest;
        Some(RawLine { text, number: self.number, terminated })
    }
}

/// Metrics: numbers only, so that a `null` is not taken for an absence.
pub(super) fn metrics<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let metrics = BTreeMap::<String, f64>::deserialize(deserializer)?;
    match metrics.iter().find(|(_, value)| !value.is_finite()) {
        Some((name, value)) => Err(de::Error::custom(format!("metric `{name}` is {value}, which is no result"))),
        None => Ok(metrics),
    }
}

/// Refuses an object with the same key twice, at any depth: the last one would win unseen.
fn unique_keys(line: &RawLine<'_>) -> Result<(), RecordError> {
    serde_json::from_slice::<Unique>(line.text).map(|_| ()).map_err(|error| line.error(&error))
}

/// Any JSON value whose objects have every key once.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
        while items.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(de::Error::custom(format!("the key `{key}` is there twice")));
            }
            keys.insert(key);
            entries.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
}
