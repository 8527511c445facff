//! Which program an engine is, as far as its arguments and counters differ: asked by `--version`.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::group::{kill_group, reap};
use crate::tunnel::TunnelError;
use crate::tunnel::status::CountersMean;

const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Which program it is, as far as its arguments and counters differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tunnel::engine) enum Kind {
    Embedded,
    WireguardGo,
    Boringtun,
    Gotatun,
    Other,
}

impl Kind {
    /// From what the program itself says, which a renamed file cannot falsify.
    pub(super) fn from_version(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        if text.contains("wireguard-go") {
            Self::WireguardGo
        } else if text.contains("gotatun") {
            Self::Gotatun
        } else if text.contains("boringtun") {
            Self::Boringtun
        } else if text.starts_with("wglab ") {
            Self::Embedded
        } else {
            Self::Other
        }
    }

    pub(in crate::tunnel::engine) fn counters_mean(self) -> CountersMean {
        match self {
            Self::Embedded | Self::WireguardGo | Self::Gotatun => CountersMean::UdpPayload,
            Self::Boringtun => CountersMean::InnerPackets,
            Self::Other => CountersMean::Unknown,
        }
    }

    pub(super) fn arguments(self, interface: &str) -> Vec<&str> {
        match self {
            // Without this it changes to the user who logged in, and cannot remove its socket.
            Self::Boringtun => {
                vec!["--foreground", "--disable-drop-privileges", "--verbosity", "info", interface]
            }
            Self::Gotatun => vec!["--foreground", "--disable-drop-privileges", interface],
            // The embedded engine has a command line of its own.
            Self::Embedded | Self::WireguardGo | Self::Other => vec!["-f", interface],
        }
    }
}

/// The first line that `--version` prints; `None` if it prints nothing.
pub(super) fn ask_version(program: &Path) -> Result<Option<String>, TunnelError> {
    let failed = |source| TunnelError::Start { program: program.to_owned(), source };
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let begin = Instant::now();
    while reap(&mut child).map_err(failed)?.is_none() {
        if begin.elapsed() > VERSION_TIMEOUT {
            kill_group(&child);
            child.wait().map_err(failed)?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let said = [child.stdout.take().map(at_hand), child.stderr.take().map(at_hand)];
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    };
    Ok(said.iter().flatten().find_map(|said| text(said)))
}

/// What a pipe holds, without waiting for its end: somebody who left the group may keep it open.
fn at_hand(mut pipe: impl Read + AsFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    if fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok() {
        // What was read before the pipe was empty is kept.
        let _would_block = pipe.read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_what_they_say() {
        assert_eq!(Kind::from_version("wireguard-go v0.0.20250522"), Kind::WireguardGo);
        assert_eq!(Kind::from_version("wglab 0.1.0"), Kind::Embedded);
        assert_eq!(Kind::from_version("boringtun 0.7.1"), Kind::Boringtun);
        assert_eq!(Kind::from_version("gotatun-cli 0.10.2"), Kind::Gotatun);
        assert_eq!(Kind::from_version(""), Kind::Other);
    }

    /// What it starts may hold its output open after it: the question does not wait for that.
    #[test]
    fn a_version_is_had_from_a_program_that_leaves_others_behind() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("daemon");
        std::fs::write(&program, "#!/bin/sh\nsetsid sleep 6 &\nsleep 67 &\necho mine 1.0\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let begin = Instant::now();
        assert_eq!(ask_version(&program).unwrap().as_deref(), Some("mine 1.0"));
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
}
