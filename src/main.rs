//! The `wglab` binary.

use std::error::Error;
use std::process::ExitCode;

use wglab::lab::init;
use wglab::tunnel;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result: Result<(), Box<dyn Error>> = match args.next().as_deref() {
        Some(init::INIT_COMMAND) => init::run().map_err(Into::into),
        Some("tunnel") => {
            tunnel::ServeOptions::from_args(args).and_then(|options| tunnel::serve(&options)).map_err(Into::into)
        }
        _ => return ExitCode::from(2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(error.as_ref());
            ExitCode::from(2)
        }
    }
}

/// Prints an error with its causes; a hidden command reports to its parent's log.
#[expect(clippy::print_stderr, reason = "this is where messages leave the program")]
fn report(error: &dyn Error) {
    eprint!("{error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
}
