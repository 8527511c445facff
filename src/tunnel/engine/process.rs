//! An engine's process: started in the foreground, its log kept, metered, ended by its own process id.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::tunnel::status::ProcessStatus;
use crate::tunnel::uapi::client;
use crate::tunnel::{TunnelError, TunnelSpec};

mod group;
mod log;
mod program;

use group::{kill_group, reap};
use log::Log;
pub(super) use program::Kind;
use program::ask_version;

/// What an answer may take that is asked for at the very end of that time.
const LAST_CHANCE: Duration = Duration::from_millis(200);
/// How long an engine may take until its socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// A polite end takes this long at most; then SIGKILL.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last lines of a process that has ended may take to be read.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(in crate::tunnel) struct Process {
    kind: Kind,
    version: Option<String>,
    program: PathBuf,
    interface: String,
    child: Child,
    /// How it ended, once it did.
    ended: Option<ExitStatus>,
    log: Log,
    readers: Vec<JoinHandle<()>>,
    /// The embedded engine ends when this closes, so it cannot outlive a process that was killed.
    lifeline: Option<ChildStdin>,
}

/// Starts the embedded engine: `program tunnel INTERFACE ...`.
pub(super) fn embedded(program: &Path, spec: &TunnelSpec) -> Result<Process, TunnelError> {
    start_embedded(env!("CARGO_PKG_VERSION").to_owned(), program, spec)
}

/// The same of a program that may be another build of this one.
fn start_embedded(version: String, program: &Path, spec: &TunnelSpec) -> Result<Process, TunnelError> {
    let mut command = Command::new(program);
    command.arg("tunnel").arg(&spec.interface).arg("--mtu").arg(spec.mtu.to_string()).arg("--lifeline");
    if let Some(pin) = &spec.pin {
        command.arg("--bind").arg(pin.address.to_string()).arg("--bind-device").arg(&pin.interface);
    }
    command.stdin(Stdio::piped());
    start(Kind::Embedded, Some(version), program, command, spec)
}

/// Starts a daemon by path.
pub(super) fn daemon(program: &Path, spec: &TunnelSpec) -> Result<Process, TunnelError> {
    let version = ask_version(program)?;
    let kind = Kind::from_version(version.as_deref().unwrap_or_default());
    if let (Kind::Embedded, Some(version)) = (kind, &version) {
        return start_embedded(version.clone(), program, spec);
    }
    let mut command = Command::new(program);
    command.args(kind.arguments(&spec.interface)).stdin(Stdio::null());
    // wireguard-go: say what happens, so that the end of the log explains a failure.
    command.env("LOG_LEVEL", "verbose");
    // no-color.org: the log is quoted in errors.
    command.env("NO_COLOR", "1");
    start(kind, version, program, command, spec)
}

fn start(
    kind: Kind,
    version: Option<String>,
    program: &Path,
    command: Command,
    spec: &TunnelSpec,
) -> Result<Process, TunnelError> {
    if client::is_listening(&spec.interface) {
        return Err(TunnelError::InUse { interface: spec.interface.clone(), what: "the UAPI socket".to_owned() });
    }
    // A socket that nobody listens at is what a killed daemon left.
    remove_stale_socket(&spec.interface)?;
    let mut process = spawn(kind, version, program, command, &spec.interface)?;
    process.wait_for_socket(&spec.engine.to_string())?;
    Ok(process)
}

/// Starts it, whatever is at its socket's path.
fn spawn(
    kind: Kind,
    version: Option<String>,
    program: &Path,
    mut command: Command,
    interface: &str,
) -> Result<Process, TunnelError> {
    // A group of its own: what a script starts ends with it.
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| TunnelError::Start { program: program.to_owned(), source })?;
    let log = Log::default();
    let lifeline = child.stdin.take();
    let mut readers = Vec::new();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    let mut process = Process {
        kind,
        version,
        program: program.to_owned(),
        interface: interface.to_owned(),
        child,
        ended: None,
        log: log.clone(),
        readers: Vec::new(),
        lifeline,
    };
    for stream in streams.into_iter().flatten() {
        let log = log.clone();
        let spawned = thread::Builder::new().name("wg-log".to_owned()).spawn(move || log.keep(stream));
        match spawned {
            Ok(reader) => readers.push(reader),
            Err(source) => {
                process.end();
                return Err(TunnelError::Start { program: program.to_owned(), source });
            }
        }
    }
    process.readers = readers;
    Ok(process)
}

fn remove_stale_socket(interface: &str) -> Result<(), TunnelError> {
    match std::fs::remove_file(client::socket_path(interface)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => {
            Err(TunnelError::Socket { action: "remove the stale socket of", interface: interface.to_owned(), source })
        }
    }
}

impl Process {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The end of its log, or a word that there is none.
    pub(in crate::tunnel) fn last_lines(&self) -> String {
        self.log.last_lines()
    }

    fn wait_for_socket(&mut self, label: &str) -> Result<(), TunnelError> {
        let begin = Instant::now();
        let interface = self.interface.clone();
        loop {
            self.check_alive(label, &interface).map_err(|error| self.never_answered(error))?;
            let left = START_TIMEOUT.saturating_sub(begin.elapsed()).max(LAST_CHANCE);
            match client::answers(&interface, left) {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > START_TIMEOUT => {
                    return Err(self.never_answered(TunnelError::Died {
                        engine: label.to_owned(),
                        interface,
                        how: format!("did not answer within {} s ({error})", START_TIMEOUT.as_secs()),
                        log: self.last_lines(),
                    }));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Of a program that is not known, the likeliest reason why it never answered.
    fn never_answered(&self, mut error: TunnelError) -> TunnelError {
        if let (Kind::Other, TunnelError::Died { how, .. }) = (self.kind, &mut error) {
            how.push_str(
                " and never had a UAPI socket (is it a WireGuard daemon that has one, and takes `-f INTERFACE`?)",
            );
        }
        error
    }

    pub(super) fn check_alive(&mut self, label: &str, interface: &str) -> Result<(), TunnelError> {
        if self.ended.is_none() {
            self.ended =
                reap(&mut self.child).map_err(|source| TunnelError::Start { program: self.program.clone(), source })?;
        }
        let Some(status) = self.ended else { return Ok(()) };
        // Its output is complete once the readers saw the end of it.
        let begin = Instant::now();
        while self.readers.iter().any(|reader| !reader.is_finished()) && begin.elapsed() < Duration::from_millis(200) {
            thread::sleep(Duration::from_millis(2));
        }
        Err(TunnelError::Died {
            engine: label.to_owned(),
            interface: interface.to_owned(),
            how: format!("ended ({status})"),
            log: self.last_lines(),
        })
    }

    /// CPU time and memory of the process, from `/proc`.
    pub(super) fn usage(&self) -> Result<ProcessStatus, TunnelError> {
        let pid = self.child.id();
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|source| TunnelError::System {
                action: format!("read /proc/{pid}/{file}"),
                source,
                hint: "/proc must be of the PID namespace that started the engine",
            })
        };
        parse_usage(pid, &read("stat")?, &read("status")?).ok_or_else(|| TunnelError::System {
            action: format!("understand /proc/{pid}/stat"),
            source: io::ErrorKind::InvalidData.into(),
            hint: "",
        })
    }

    /// Ends the process, politely first, and what it started; waits for it and its log.
    pub(super) fn end(&mut self) {
        drop(self.lifeline.take());
        if self.ended.is_none() {
            let pid = Pid::from_raw(self.child.id().cast_signed());
            // It is our child and not waited for, so this process id is its own still.
            let _already_gone = kill(pid, Signal::SIGTERM);
            let begin = Instant::now();
            self.ended = loop {
                match reap(&mut self.child) {
                    Ok(None) if begin.elapsed() > END_TIMEOUT => {
                        kill_group(&self.child);
                        break self.child.wait().ok();
                    }
                    Ok(None) => thread::sleep(Duration::from_millis(1)),
                    Ok(ended) => break ended,
                    Err(_) => break None,
                }
            };
        }
        // A descendant that left the group may hold the log open: then its reader ends with that one.
        let begin = Instant::now();
        while self.readers.iter().any(|reader| !reader.is_finished()) && begin.elapsed() < LOG_TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
        for reader in self.readers.drain(..).filter(JoinHandle::is_finished) {
            let _panicked = reader.join();
        }
        // One that was killed left its socket behind.
        let _nothing_left = remove_stale_socket(&self.interface);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// proc_pid_stat(5): fields 14 and 15 in clock ticks; the second field is a name that may contain anything.
fn parse_usage(pid: u32, stat: &str, status: &str) -> Option<ProcessStatus> {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok())?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let time = |index: usize| -> Option<Duration> {
        let value: u64 = fields.get(index)?.parse().ok()?;
        Some(Duration::from_nanos(value.checked_mul(1_000_000_000)? / ticks))
    };
    let peak: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(ProcessStatus { pid, cpu_user: time(11)?, cpu_system: time(12)?, peak_rss_bytes: peak * 1024 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a script starts holds its output open after it: its end does not wait for that.
    #[test]
    fn a_process_ends_with_what_it_started() {
        for script in
            ["sleep 61", "sleep 62 & sleep 63", "trap '' TERM; sleep 64 & sleep 65", "setsid sleep 6 & sleep 66"]
        {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("echo up; {script}; true")]);
            let mut process = spawn(Kind::Other, None, Path::new("/bin/sh"), command, "nosuch0").unwrap();
            let begin = Instant::now();
            while !process.last_lines().contains("up") {
                assert!(begin.elapsed() < Duration::from_secs(5), "{script}");
                thread::sleep(Duration::from_millis(1));
            }
            let begin = Instant::now();
            process.end();
            assert!(begin.elapsed() < Duration::from_secs(4), "{script}: {:?}", begin.elapsed());
            assert!(process.ended.is_some(), "{script}");
        }
    }

    #[test]
    fn usage_survives_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a) b (c) S 1 1 1 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 1 1 1";
        let usage = parse_usage(12, stat, "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n").unwrap();
        assert_eq!(usage.cpu_user, Duration::from_millis(1500));
        assert_eq!(usage.cpu_time(), Duration::from_secs(2));
        assert_eq!(usage.peak_rss_bytes, 2 << 20);
    }
}
