//! Tests that need namespaces. Where the system refuses them, or a tool that a test uses is missing, the test is listed as
//! ignored with the reason in its name; with `WGLAB_REQUIRE_NETNS=1` that is a failure.
//!
//! A lab's init and agents are the program that raises the lab. Tests of the library raise labs themselves, so this
//! program is also an init, and an agent that does single things on request (`agent.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test, though with a main of its own"
)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use wglab::lab::init::{AGENT_COMMAND, INIT_COMMAND};
use wglab::reach::local::raise;

mod agent;
mod bytes;
mod engines;
mod found;
mod interop;
mod kernel;
mod lab;
mod left_over;
mod network;
mod product;
mod resume;
mod settings;
mod spread;
mod tamper;
mod traffic;
mod trouble;
mod up;

/// A test: its name and what it does.
type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    if command == INIT_COMMAND {
        return if wglab::lab::init::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if command == AGENT_COMMAND {
        return agent::serve();
    }
    if tamper::ALL.contains(&command.as_str()) {
        return tamper::main(&command, &std::env::args().nth(2).unwrap());
    }
    if command == lab::HOLD_COMMAND {
        return lab::hold();
    }
    if command == lab::REFUSE_COMMAND {
        return lab::refuse();
    }
    if command == traffic::FEW_PORTS_COMMAND {
        return traffic::few_ports();
    }
    if [bytes::TAKE_COMMAND, bytes::GIVE_COMMAND].contains(&command.as_str()) {
        return bytes::main(&command, &std::env::args().skip(2).collect::<Vec<_>>());
    }
    if command == interop::STATUS_COMMAND {
        interop::print_status(&std::env::args().nth(2).unwrap());
        return ExitCode::SUCCESS;
    }
    if [trouble::ASK_COMMAND, trouble::FLOOD_COMMAND].contains(&command.as_str()) {
        return trouble::main(&command, &std::env::args().skip(2).collect::<Vec<_>>());
    }
    if command == kernel::MANY_COMMAND {
        kernel::set_and_read_many();
        return ExitCode::SUCCESS;
    }
    if command == lab::ENTER_COMMAND {
        return lab::enter();
    }
    if std::env::var_os(left_over::MARK).is_none() {
        let this = std::env::current_exe().unwrap();
        let error = Command::new(this).args(std::env::args_os().skip(1)).env(left_over::MARK, "1").exec();
        eprintln!("cannot mark this program: {error}");
        return ExitCode::FAILURE;
    }
    let tests: Vec<Test> = [
        lab::TESTS,
        network::TESTS,
        product::TESTS,
        up::TESTS,
        engines::TESTS,
        kernel::TESTS,
        resume::TESTS,
        settings::TESTS,
        spread::TESTS,
        interop::TESTS,
        found::TESTS,
        traffic::TESTS,
        trouble::TESTS,
    ]
    .concat();
    let mut arguments = Arguments::from_args();
    // They count what the machine holds, and time what it does: one after the other.
    arguments.test_threads = Some(1);
    let refused = raise(&lab::spec(&["probe"])).and_then(|lab| lab.down()).err().map(|error| error.to_string());
    let required = std::env::var_os("WGLAB_REQUIRE_NETNS").is_some_and(|value| value == "1");
    let closed_on_purpose = std::env::var_os("WGLAB_TUN").is_some_and(|value| value == "closed");
    let trials = tests.into_iter().map(|(name, test)| {
        if let (None, Some((reason, wanted))) = (&refused, interop::unmet(name).or_else(|| kernel::unmet(name))) {
            if wanted {
                return Trial::test(name, move || Err(Failed::from(reason)));
            }
            return Trial::test(format!("{name} ({reason})"), test).with_ignored_flag(true);
        }
        let Some(reason) = refused.clone().or_else(|| product::unmet(name)) else { return Trial::test(name, test) };
        let accepted = closed_on_purpose && reason == product::TUN_IS_CLOSED;
        if (required && !accepted) || kernel::requires(name) {
            return Trial::test(name, move || Err(Failed::from(reason)));
        }
        Trial::test(format!("{name} ({reason})"), test).with_ignored_flag(true)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
