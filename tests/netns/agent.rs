//! An agent for tests: one JSON request per line, one JSON answer per line.

use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wglab::reach::local::LocalAgent;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Read a file.
    Read(String),
    /// Write a file.
    Write(String, String),
    /// The names in a directory.
    List(String),
}

pub(crate) fn serve() -> ExitCode {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = match serde_json::from_str(&line).map_err(|error| error.to_string()).and_then(answer) {
            Ok(value) => serde_json::json!({ "Ok": value }),
            Err(error) => serde_json::json!({ "Err": error }),
        };
        println!("{answer}");
    }
    ExitCode::SUCCESS
}

fn answer(ask: Ask) -> Result<Value, String> {
    let text = |error: std::io::Error| error.to_string();
    match ask {
        Ask::Read(path) => std::fs::read_to_string(path).map(Value::from).map_err(text),
        Ask::Write(path, content) => std::fs::write(path, content).map(|()| Value::Null).map_err(text),
        Ask::List(path) => {
            let entries = std::fs::read_dir(path).map_err(text)?;
            let mut names: Vec<String> =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            Ok(Value::from(names))
        }
    }
}

/// Asks one agent one thing.
pub(crate) fn ask(agent: &LocalAgent, ask: &Ask) -> Result<Value, String> {
    let mut pipe = &agent.pipe;
    writeln!(pipe, "{}", serde_json::to_string(ask).unwrap()).map_err(|error| error.to_string())?;
    let mut line = String::new();
    // Strictly one answer per request, so the buffer cannot hold more than this line.
    BufReader::new(pipe).read_line(&mut line).map_err(|error| error.to_string())?;
    serde_json::from_str::<Result<Value, String>>(&line).map_err(|error| format!("{error}: `{line}`"))?
}
