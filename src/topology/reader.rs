//! Typed access to a TOML document that notes every problem at its place and goes on.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::diagnostic::Problems;
use crate::cell::{did_you_mean, printable};

/// Syntax errors that are worth reading: the rest mostly follows from them.
const SYNTAX_ERRORS_SHOWN: usize = 3;

/// The text as a TOML document; `None` after noting why it is none.
pub(super) fn document<'t>(text: &'t str, problems: &mut Problems<'_>) -> Option<Spanned<DeTable<'t>>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    // One slip makes the parser stumble on: the first error of a line is the telling one, and the first lines are.
    let mut lines = BTreeSet::new();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = text.get(..span.start).map_or(0, |before| before.matches('\n').count());
        if lines.len() < SYNTAX_ERRORS_SHOWN && lines.insert(line) {
            problems.push(
                span,
                format!("this is not TOML: {}", error.message()),
                "the form of a file is in docs/topology.md",
            );
        }
    }
    problems.is_empty().then_some(document)
}

/// A table of the file: what it is called in messages, and where it begins.
pub(super) struct Table<'a> {
    what: String,
    span: Range<usize>,
    fields: Vec<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)>,
}

impl<'a> Table<'a> {
    /// The whole file of a topology.
    pub(super) fn root(table: &'a DeTable<'a>) -> Self {
        Self::root_called("a topology", table)
    }

    /// The whole file, called `what`.
    pub(super) fn root_called(what: &str, table: &'a DeTable<'a>) -> Self {
        Self { what: what.to_owned(), span: 0..0, fields: in_file_order(table) }
    }

    /// `value` as a table, called `what`; anything else is a problem.
    pub(super) fn of(
        value: &'a Spanned<DeValue<'a>>,
        span: Range<usize>,
        what: &str,
        example: &str,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            problems.push(
                value.span(),
                format!("{what} is {}, not a table", kind(value)),
                format!("write it like `{example}`"),
            );
            return None;
        };
        Some(Self { what: what.to_owned(), span, fields: in_file_order(table) })
    }

    /// Where the table begins.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What it is called in messages.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// The keys and values, in the order of the file.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
        self.fields.iter().copied()
    }

    /// The value of `key`, unread.
    pub(super) fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.fields.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| *value)
    }

    /// Where `key` is written.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.fields.iter().find(|(name, _)| name.get_ref() == key).map_or_else(|| self.span(), |(name, _)| name.span())
    }

    /// Notes every key that is not one of `known`.
    pub(super) fn only(&self, known: &[&str], problems: &mut Problems<'_>) {
        for (name, _) in &self.fields {
            let name = *name;
            if !known.contains(&name.get_ref().as_ref()) {
                let suggestion = did_you_mean(name.get_ref(), known.iter().copied());
                let help = format!("{suggestion}the keys of {} are {}", self.what, known.join(", "));
                problems.push(name.span(), format!("{} has no key `{}`", self.what, name.get_ref()), help);
            }
        }
    }

    /// A value with a textual form: a word, or a quantity with its unit.
    pub(super) fn parsed<T>(&self, key: &str, problems: &mut Problems<'_>) -> Option<Spanned<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        let value = self.get(key)?;
        parse_text(value, key, problems)
    }

    /// Text.
    pub(super) fn text(&self, key: &str, problems: &mut Problems<'_>) -> Option<Spanned<String>> {
        let value = self.get(key)?;
        let DeValue::String(text) = value.get_ref() else {
            problems.push(value.span(), format!("`{key}` is {}, not text", kind(value)), "put it in quotes");
            return None;
        };
        Some(Spanned::new(value.span(), text.clone().into_owned()))
    }

    /// A whole number within `range`.
    pub(super) fn whole(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems<'_>,
    ) -> Option<Spanned<u64>> {
        let value = self.get(key)?;
        parse_whole(value, key, range, problems)
    }

    /// One item or a list of them; an empty list and an item twice are problems.
    pub(super) fn one_or_many<T: PartialEq>(
        &self,
        key: &str,
        problems: &mut Problems<'_>,
        mut item: impl FnMut(&'a Spanned<DeValue<'a>>, &mut Problems<'_>) -> Option<Spanned<T>>,
    ) -> Option<Vec<Spanned<T>>> {
        let value = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            return Some(item(value, problems).into_iter().collect());
        };
        if array.is_empty() {
            problems.push(
                value.span(),
                format!("`{key}` is an empty list"),
                format!("name at least one, or leave `{key}` out"),
            );
            return None;
        }
        let mut items: Vec<Spanned<T>> = Vec::new();
        for element in array.iter() {
            let Some(read) = item(element, problems) else { continue };
            if items.iter().any(|earlier| earlier.get_ref() == read.get_ref()) {
                problems.push(read.span(), format!("`{key}` names this twice"), "remove one of them");
                continue;
            }
            items.push(read);
        }
        Some(items)
    }

    /// A list of texts, where `example` shows how it looks.
    pub(super) fn texts(&self, key: &str, example: &str, problems: &mut Problems<'_>) -> Option<Vec<Spanned<String>>> {
        let value = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            problems.push(
                value.span(),
                format!("`{key}` is {}, not a list", kind(value)),
                format!("write it like `{example}`"),
            );
            return None;
        };
        if array.is_empty() {
            problems.push(value.span(), format!("`{key}` is an empty list"), format!("write it like `{example}`"));
            return None;
        }
        let mut texts = Vec::new();
        for element in array.iter() {
            match element.get_ref() {
                DeValue::String(text) => texts.push(Spanned::new(element.span(), text.clone().into_owned())),
                DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => problems.push(
                    element.span(),
                    format!("`{key}` holds {}, not text", kind(element)),
                    format!("write it like `{example}`"),
                ),
            }
        }
        Some(texts)
    }

    /// A table of tables: name to whatever `item` makes of it, in the order of the file.
    pub(super) fn tables(&self, key: &str, example: &str, problems: &mut Problems<'_>) -> Vec<(Spanned<String>, Self)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(outer) = Self::of(value, self.key_span(key), &format!("`{key}`"), example, problems) else {
            return Vec::new();
        };
        outer
            .fields()
            .filter_map(|(name, value)| {
                let what = format!("{key} `{}`", printable(name.get_ref()));
                let table = Self::of(value, name.span(), &what, example, problems)?;
                Some((Spanned::new(name.span(), name.get_ref().clone().into_owned()), table))
            })
            .collect()
    }
}

/// `value`, which must be text, read as a `T`. A bare number is read as text too, so that the message says what is missing.
pub(super) fn parse_text<T>(value: &Spanned<DeValue<'_>>, key: &str, problems: &mut Problems<'_>) -> Option<Spanned<T>>
where
    T: FromStr,
    T::Err: Display,
{
    let text = match value.get_ref() {
        DeValue::String(text) => text.clone(),
        DeValue::Integer(number) => number.to_string().into(),
        DeValue::Float(number) => number.to_string().into(),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            problems.push(value.span(), format!("`{key}` is {}, not text", kind(value)), "put it in quotes");
            return None;
        }
    };
    match text.parse() {
        Ok(parsed) => Some(Spanned::new(value.span(), parsed)),
        Err(error) => {
            let error = error.to_string();
            let (message, help) = error.split_once("; ").unwrap_or((&error, "see docs/topology.md"));
            problems.push(value.span(), format!("`{key}`: {message}"), help);
            None
        }
    }
}

/// `value`, which must be a whole number within `range`.
pub(super) fn parse_whole(
    value: &Spanned<DeValue<'_>>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    problems: &mut Problems<'_>,
) -> Option<Spanned<u64>> {
    let help = format!("write a whole number from {} to {}, without quotes", range.start(), range.end());
    let DeValue::Integer(number) = value.get_ref() else {
        problems.push(value.span(), format!("`{key}` is {}, not a whole number", kind(value)), help);
        return None;
    };
    match u64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) if range.contains(&number) => Some(Spanned::new(value.span(), number)),
        _ => {
            problems.push(value.span(), format!("`{key}` = {number} is out of range"), help);
            None
        }
    }
}

/// What a value is, in words.
pub(super) fn kind(value: &Spanned<DeValue<'_>>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A map sorts its keys; a reader remembers the file.
fn in_file_order<'a>(table: &'a DeTable<'a>) -> Vec<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
    let mut fields: Vec<_> = table.iter().collect();
    fields.sort_by_key(|(key, _)| key.span().start);
    fields
}
