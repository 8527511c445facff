//! The `wglab` binary.

use std::process::ExitCode;

use wglab::tunnel;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("tunnel") => {
            let result = tunnel::ServeOptions::from_args(args).and_then(|options| tunnel::serve(&options));
            match result {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    #[expect(clippy::print_stderr, reason = "a hidden command reports to its parent's log")]
                    {
                        eprintln!("{error}");
                    }
                    ExitCode::from(2)
                }
            }
        }
        _ => ExitCode::from(2),
    }
}
