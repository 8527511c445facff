//! The `wglab` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    wglab::cli::main()
}
