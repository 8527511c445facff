//! Values to lines. Everything that JSON would silently turn into an absence is refused here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{End, Header, RecordError, Run};

/// A line with the word that says which of the three it is.
#[derive(Serialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line<'a> {
    Header(&'a Header),
    Run(&'a Run),
    End(&'a End),
}

impl Header {
    /// This header as one line, with its line feed.
    ///
    /// # Errors
    /// [`RecordError::NotFinite`] for a number that JSON has no word for.
    pub fn to_line(&self) -> Result<String, RecordError> {
        if let Some(value) = self.min_effect {
            finite("min_effect", value)?;
        }
        to_line(&Line::Header(self))
    }
}

impl Run {
    /// This run as one line, with its line feed.
    ///
    /// # Errors
    /// [`RecordError::NotFinite`] for a metric or a step of a series that is not finite, [`RecordError::Null`] for a
    /// condition that is `null` or holds one.
    pub fn to_line(&self) -> Result<String, RecordError> {
        for (name, value) in &self.metrics {
            finite(&format!("metrics.{name}"), *value)?;
        }
        for (name, series) in &self.series {
            for (step, value) in series.values.iter().enumerate() {
                if let Some(value) = value {
                    finite(&format!("series.{name}.values[{step}]"), *value)?;
                }
            }
        }
        no_nulls("conditions", &self.conditions)?;
        to_line(&Line::Run(self))
    }
}

impl End {
    /// This end as one line, with its line feed.
    ///
    /// # Errors
    /// [`RecordError::NotFinite`] for a precision that is not finite.
    pub fn to_line(&self) -> Result<String, RecordError> {
        if let Some(precision) = &self.precision {
            finite("precision.asked", precision.asked)?;
            precision.half_width.map_or(Ok(()), |width| finite("precision.half_width", width))?;
        }
        to_line(&Line::End(self))
    }
}

fn to_line(line: &Line<'_>) -> Result<String, RecordError> {
    let mut text = serde_json::to_string(line).map_err(|error| RecordError::Unserialisable(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

fn finite(field: &str, value: f64) -> Result<(), RecordError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(RecordError::NotFinite { field: field.to_owned(), value: value.to_string() })
}

fn no_nulls(path: &str, values: &BTreeMap<String, Value>) -> Result<(), RecordError> {
    values.iter().try_for_each(|(name, value)| no_null(&format!("{path}.{name}"), value))
}

fn no_null(path: &str, value: &Value) -> Result<(), RecordError> {
    match value {
        Value::Null => Err(RecordError::Null { field: path.to_owned() }),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| no_null(&format!("{path}[{index}]"), item))
        }
        Value::Object(entries) => {
            entries.iter().try_for_each(|(name, entry)| no_null(&format!("{path}.{name}"), entry))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}
