//! How often the lab's verdicts are wrong: the tables of `docs/statistics.md`.
//!
//! ```text
//! cargo run --release --example operating-characteristics -- [--trials N] [--seed N] [--only TABLE]
//!     [--real RECORD...] [--write docs/statistics.md]
//! ```
//!
//! Made-up runs go through the same `measure`, `adjust` and `decide` that a comparison uses. Records of A/A runs, given with
//! `--real`, go through `compare` itself, with their two levels dealt anew by lot, so that nothing has changed. With
//! `--write` the section goes between two marks of that file, else to standard output.

mod design;
mod noise;
mod real;
mod tables;
mod widths;

use std::error::Error;
use std::io::Write as _;

const BEGIN: &str = "<!-- operating characteristics: begin -->";
const END: &str = "<!-- operating characteristics: end -->";

/// What was asked for.
pub(crate) struct Request {
    pub(crate) trials: usize,
    pub(crate) seed: u64,
    only: Option<String>,
    real: Vec<String>,
    write: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let request = request(std::env::args().skip(1))?;
    let mut section = format!(
        "{} trials a line unless it says otherwise, seed {}; a share has a Monte Carlo error (two standard errors) of at most \
         {:.1} points, and one near 5 % of {:.1}. Everything is judged as a gate does: minimum effect 5 %, error 5 %.\n",
        request.trials,
        request.seed,
        200.0 * (0.25 / request.trials as f64).sqrt(),
        200.0 * (0.05 * 0.95 / request.trials as f64).sqrt(),
    );
    let asked = |name: &str| request.only.as_deref() == Some(name);
    let all = tables::ALL.into_iter().filter(|(name, _)| request.only.is_none() || asked(name));
    for (_, table) in all.chain(tables::ASIDE.into_iter().filter(|(name, _)| asked(name))) {
        section.push_str(&table(&request));
    }
    if !request.real.is_empty() {
        section.push_str(&real::table(&request, &request.real)?);
    }
    match &request.write {
        Some(path) => write_between(path, &section),
        None => Ok(std::io::stdout().lock().write_all(section.as_bytes())?),
    }
}

fn request(mut arguments: impl Iterator<Item = String>) -> Result<Request, Box<dyn Error>> {
    let mut request = Request { trials: 1000, seed: 1, only: None, real: Vec::new(), write: None };
    let mut option = String::new();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--trials" => request.trials = value()?.parse()?,
            "--seed" => request.seed = value()?.parse()?,
            "--only" => request.only = Some(value()?),
            "--write" => request.write = Some(value()?),
            "--real" => {}
            record if option == "--real" => {
                request.real.push(record.to_owned());
                continue;
            }
            other => return Err(format!("{other} is not understood: see the head of this example").into()),
        }
        option = argument;
    }
    Ok(request)
}

/// Replaces what stands between the marks of the file.
fn write_between(path: &str, section: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let missing = |mark: &str| format!("{path} has no line `{mark}`");
    let (head, rest) = text.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, tail) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(std::fs::write(path, format!("{head}{BEGIN}\n\n{section}\n{END}{tail}"))?)
}
