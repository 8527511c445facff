//! The command line: arguments as typed, what they mean, what is printed where, exit codes.
//!
//! Data goes to standard output; progress, notes and errors to standard error. The answer is the first line.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::lab::init as lab_init;
use crate::sys::signals::survive_file_size_limit;
use crate::{agent, tunnel};

mod args;
mod compare;
mod files;
mod init;
mod lab;
mod measure;
mod output;
mod plan;
mod watch;

use args::{Cli, Command};
use output::Output;

/// How a command ended: `wglab run --help` lists the exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and no gate failed.
    Done,
    /// A gate failed.
    GateFailed,
    /// Could not measure, or what was measured is invalid.
    NotMeasured,
    /// A gate could not decide.
    Inconclusive,
    /// Interrupted; what was measured is kept.
    Interrupted,
    /// The exit code of a command that was run in the lab.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::GateFailed => 1,
            Exit::NotMeasured => 2,
            Exit::Inconclusive => 3,
            Exit::Interrupted => 130,
            Exit::Of(code) => code,
        })
    }
}

/// Runs the program with the arguments that it was given.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Where the system refuses, a limit on files kills as it does by default; nothing else depends on it.
    let _as_before = survive_file_size_limit();
    // The processes of a lab are this program too; what they print is their parent's to read.
    if let Some(code) = hidden(&arguments) {
        return code;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and succeed. A closed pipe is nobody who could be told.
            let _closed = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let output = Output::new(cli.color, cli.quiet, cli.verbose);
    match dispatch(cli.command, &output) {
        Ok(exit) => exit.into(),
        // Whoever reads us has seen enough, `wglab report | head` for one.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(files::Refused(refused)) = error.downcast_ref() {
                output.rendered_error(&refused.render(output.colors_stderr()));
            } else if let Some(init::Refused(files)) = error.downcast_ref() {
                for refused in files {
                    output.rendered_error(&refused.render(output.colors_stderr()));
                }
            } else {
                output.error(&error);
            }
            ExitCode::from(2)
        }
    }
}

fn dispatch(command: Command, output: &Output) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => measure::run(&args, output),
        Command::Compare(args) => compare::compare(&args, output),
        Command::Pick(args) => compare::pick(&args, output),
        Command::Report(args) => compare::report(&args, output),
        Command::Plan(args) => plan::plan(&args, output),
        Command::Init(args) => init::init(&args, output),
        Command::Up(args) => lab::up(&args, output),
        Command::Exec(args) => lab::exec(&args, output),
        Command::Completions { shell } => {
            output.data(&completions(shell)?)?;
            Ok(Exit::Done)
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output.data(&String::from_utf8(page)?)?;
            Ok(Exit::Done)
        }
        // `hidden` has it, unless an option came first.
        Command::Agent => {
            agent::serve()?;
            Ok(Exit::Done)
        }
    }
}

/// In memory first: the generator panics where it cannot write.
fn completions(shell: clap_complete::Shell) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wglab", &mut script);
    Ok(String::from_utf8(script)?)
}

const TUNNEL_HELP: &str = "\
The embedded engine by itself: a userspace WireGuard in the foreground, configured at its UAPI socket
(`wg set`, `wg syncconf`); docs/engine.md

Usage: wglab tunnel INTERFACE --mtu N [OPTIONS]

  --mtu N                  the device's MTU
  --bind ADDRESS           the address that outer packets are sent from
  --bind-device INTERFACE  the interface that outer packets take
  --queues N               queues of the device, and as many lanes
  --lifeline               end when standard input is closed
  --handicap SHARE         be slower, by a share of the time like 10%, to try a gate
";

/// The commands by which the program starts itself.
fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    let rest = || arguments.iter().skip(2).map(|argument| argument.to_string_lossy().into_owned());
    let result: Result<(), Box<dyn std::error::Error>> = match arguments.get(1)?.to_str()? {
        lab_init::INIT_COMMAND => lab_init::run().map_err(Into::into),
        lab_init::AGENT_COMMAND if arguments.len() == 2 => agent::serve().map_err(Into::into),
        lab::SUPERVISE => match lab::supervise(&arguments[2..]) {
            Ok(code) => return Some(code),
            Err(error) => {
                Output::new(args::Color::Auto, false, false).error(&error);
                return Some(ExitCode::from(2));
            }
        },
        "tunnel" if arguments[2..].iter().any(|argument| argument == "--help" || argument == "-h") => {
            // Who closed the pipe has seen enough.
            let _closed = io::stdout().write_all(TUNNEL_HELP.as_bytes());
            Ok(())
        }
        "tunnel" => {
            tunnel::ServeOptions::from_args(rest()).and_then(|options| tunnel::serve(&options)).map_err(Into::into)
        }
        _ => return None,
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(error.as_ref());
            ExitCode::from(2)
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
