//! Where a file says what: for what turns out to be wrong with it only when it is made definite.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Problems, TopologyError};

/// The places of a file's keys, values, tables and lists' items, each by its path: `underlay`, `private`, `budget`.
///
/// An item of a list of tables is found by its `name`, or else by its `kind`; one of another list by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    file: String,
    text: String,
    spans: BTreeMap<Vec<String>, Range<usize>>,
}

impl Places {
    /// Those of the file called `file`, which was read from `text` to `root`.
    pub(super) fn of(file: &str, text: &str, root: &DeTable<'_>) -> Self {
        let mut places = Self { file: file.to_owned(), text: text.to_owned(), spans: BTreeMap::new() };
        places.gather(&mut Vec::new(), root);
        places
    }

    fn gather(&mut self, path: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.put(path, key.span());
                    self.gather(path, inner);
                }
                DeValue::Array(items) => {
                    self.put(path, value.span());
                    for item in items {
                        self.item(path, item);
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => self.put(path, value.span()),
            }
            path.pop();
        }
    }

    fn item(&mut self, path: &mut Vec<String>, item: &Spanned<DeValue<'_>>) {
        match item.get_ref() {
            DeValue::Table(table) => {
                let name = ["name", "kind"].into_iter().find_map(|key| {
                    let value = table.get(key)?;
                    Some((value.get_ref().as_str()?, value.span()))
                });
                let Some((name, span)) = name else { return };
                path.push(name.to_owned());
                self.put(path, span);
                self.gather(path, table);
                path.pop();
            }
            DeValue::String(text) => {
                path.push(text.to_string());
                self.put(path, item.span());
                path.pop();
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {}
        }
    }

    /// Of two things with one path the first counts.
    fn put(&mut self, path: &[String], span: Range<usize>) {
        self.spans.entry(path.to_vec()).or_insert(span);
    }

    /// `sentence` as a problem at the first of `paths` that the file has; none, where it has none of them. What stands behind
    /// the first semicolon is what to do.
    pub(super) fn problem(&self, paths: &[Vec<String>], sentence: &str) -> Option<TopologyError> {
        let span = paths.iter().find_map(|path| self.spans.get(path))?;
        let (message, help) = sentence.split_once("; ").unwrap_or((sentence, "see docs/topology.md"));
        let mut problems = Problems::new(&self.text);
        problems.push(span.clone(), message, help);
        problems.into_error(&self.file)
    }
}
