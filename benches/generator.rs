//! The generator against iperf3 and netperf on a bare veth pair between two network namespaces, interleaved: ours, theirs,
//! theirs, ours. Prints the ratio of each metric with its 95 % interval.
//!
//! ```text
//! cargo bench --bench generator -- [--peers DIRECTORY] [--rounds 6] [--seconds 2] [--only NAME]
//! ```
//!
//! `DIRECTORY`, or the `bin` in it, holds `iperf3` (3.18 or newer: older ones have one thread), `netperf` and `netserver`;
//! `benches/fetch-peers DIRECTORY iperf3 netperf` fetches them. Without it they are looked for in the PATH. Needs root. Each end
//! of ours is a process of its own, as an agent is, and congestion control is cubic on every side.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wglab::stats::paired;
use wglab::sys::netlink::Netlink;
use wglab::traffic::{self, Buffers, Job, JobKind, Outcome, Role};
use wglab::units::{Bytes, Direction, Mtu};

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 199, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 199, 0, 2));
const WARMUP: Duration = Duration::from_millis(300);
const DATAGRAM: u64 = 1372;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "end") {
        return end();
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` starts benches, too.
        eprintln!("generator: a measurement, not a test: run it with cargo bench");
        return Ok(());
    }
    let option = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).cloned()
    };
    let number = |name: &str, default: u32| {
        option(name).map_or(Ok(default), |text| text.parse().with_context(|| format!("{name} {text}")))
    };
    let peers = Peers { directory: option("--peers"), seconds: number("--seconds", 2)? };
    let rounds = number("--rounds", 6)?;
    ensure!(rounds >= 2, "an interval needs two rounds");
    let only = option("--only");

    // Children inherit the namespace of the thread that starts them.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).context("making a network namespace (root only)")?;
    let far = Far::new()?;
    connect(&far)?;
    println!("{:<16} {:>14} {:>14} {:>8}   95 % interval", "", "ours", "theirs", "ratio");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            for first in [true, false] {
                if (round % 2 == 0) == first {
                    ours.push((case.ours)(&far, peers.seconds).with_context(|| format!("{}: ours", case.name))?);
                } else {
                    theirs.push((case.theirs)(&far, &peers).with_context(|| format!("{}: theirs", case.name))?);
                }
            }
        }
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours / theirs).ln()).collect();
        let estimate = paired::within_blocks(&[ratios]).context("an interval")?;
        let (low, high) = estimate.interval(0.95);
        let median = |values: &[f64]| wglab::stats::summary::median(values).unwrap_or(f64::NAN);
        println!(
            "{:<16} {:>14.4} {:>14.4} {:>8.3}   {:.3} to {:.3}   {}",
            case.name,
            median(&ours),
            median(&theirs),
            estimate.mean.exp(),
            low.exp(),
            high.exp(),
            case.unit
        );
    }
    Ok(())
}

struct Case {
    name: &'static str,
    unit: &'static str,
    ours: fn(&Far, u32) -> Result<f64>,
    theirs: fn(&Far, &Peers) -> Result<f64>,
}

const CASES: &[Case] = &[
    Case { name: "tcp-1", unit: "Gbit/s", ours: |far, s| stream(far, s, 1), theirs: |far, p| p.iperf3(far, 1) },
    Case { name: "tcp-4", unit: "Gbit/s", ours: |far, s| stream(far, s, 4), theirs: |far, p| p.iperf3(far, 4) },
    Case { name: "tcp-8", unit: "Gbit/s", ours: |far, s| stream(far, s, 8), theirs: |far, p| p.iperf3(far, 8) },
    Case { name: "udp-packets", unit: "k/s received", ours: udp, theirs: |far, p| p.iperf3_udp(far) },
    Case {
        name: "rr-p50",
        unit: "us (less is better)",
        ours: |far, s| {
            let outcome = ours(far, s, JobKind::TcpRr { request: Bytes::new(1), response: Bytes::new(1) })?.0;
            let latency = outcome.latency.context("latency")?;
            Ok(latency.histogram.quantile_ns(0.5).context("a median")? as f64 / 1000.0)
        },
        theirs: |far, p| p.netperf(far, "TCP_RR", "P50_LATENCY"),
    },
    Case {
        name: "rr-rate",
        unit: "/s",
        ours: |far, s| rate(far, s, JobKind::TcpRr { request: Bytes::new(1), response: Bytes::new(1) }),
        theirs: |far, p| p.netperf(far, "TCP_RR", "TRANSACTION_RATE"),
    },
    Case {
        name: "crr-rate",
        unit: "/s",
        ours: |far, s| rate(far, s, JobKind::TcpCrr { request: Bytes::new(1), response: Bytes::new(1) }),
        theirs: |far, p| p.netperf(far, "TCP_CRR", "TRANSACTION_RATE"),
    },
];

fn stream(far: &Far, seconds: u32, streams: u16) -> Result<f64> {
    let (_, server) = ours(far, seconds, JobKind::TcpStream { streams, buffers: Buffers::default() })?;
    Ok(server.received_rate().context("a rate")?.bits_per_second() as f64 / 1e9)
}

fn udp(far: &Far, seconds: u32) -> Result<f64> {
    let payload = Bytes::new(DATAGRAM);
    let kind = JobKind::UdpStream { rate: None, payload, flows: 1, buffers: Buffers::default() };
    let (client, server) = ours(far, seconds, kind)?;
    if std::env::var_os("GENERATOR_VERBOSE").is_some() {
        eprintln!("sent {:?}\nreceived {:?}", client.counts, server.counts);
    }
    let packets = server.counts.received_packets.context("packets")? as f64;
    Ok(packets / (server.window.context("a window")?.length_ns as f64 / 1e6))
}

fn rate(far: &Far, seconds: u32, kind: JobKind) -> Result<f64> {
    ours(far, seconds, kind)?.0.transactions_per_second().context("a rate")
}

/// Both ends' outcomes.
fn ours(far: &Far, seconds: u32, kind: JobKind) -> Result<(Outcome, Outcome)> {
    let server = Job {
        role: Role::Server,
        direction: Direction::Forward,
        kind,
        local: FAR,
        local_interface: None,
        peer: Some((NEAR, Vec::new())),
        more_paths: Vec::new(),
        congestion_control: Some("cubic".to_owned()),
        warmup: WARMUP,
        duration: Duration::from_secs(u64::from(seconds)),
        deadline: Duration::from_secs(u64::from(seconds) + 10),
        probe: None,
        seed: 42,
    };
    let me = std::env::current_exe()?;
    let spawn = |command: &mut Command| command.arg("end").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut far_end = End::new(far.run({
        let me = me.clone();
        move || spawn(&mut Command::new(me))
    })?)?;
    let ports = far_end.prepare(&server)?;
    let client = Job { role: Role::Client, local: NEAR, peer: Some((FAR, ports)), ..server };
    let mut near_end = End::new(spawn(&mut Command::new(me))?)?;
    near_end.prepare(&client)?;
    near_end.start()?;
    far_end.start()?;
    Ok((near_end.outcome()?, far_end.outcome()?))
}

/// One end of a test, in a process of its own: a job and "start" in, ports and the outcome out.
struct End {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl End {
    fn new(mut child: Child) -> Result<Self> {
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines })
    }

    fn say(&mut self, text: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("its input")?;
        writeln!(input, "{text}")?;
        Ok(input.flush()?)
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("an end died")??)
    }

    fn prepare(&mut self, job: &Job) -> Result<Vec<u16>> {
        self.say(&serde_json::to_string(job)?)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn start(&mut self) -> Result<()> {
        self.say("start")
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let outcome = self.line()?;
        self.child.wait()?;
        Ok(serde_json::from_str(&outcome)?)
    }
}

fn end() -> Result<()> {
    let mut lines = std::io::stdin().lines();
    let job: Job = serde_json::from_str(&lines.next().context("a job")??)?;
    let prepared = traffic::prepare(&job)?;
    println!("{}", serde_json::to_string(&prepared.ports())?);
    lines.next().context("the start")??;
    println!("{}", serde_json::to_string(&prepared.start().wait()?)?);
    Ok(())
}

struct Peers {
    directory: Option<String>,
    seconds: u32,
}

impl Peers {
    fn program(&self, name: &str) -> Command {
        let Some(directory) = &self.directory else { return Command::new(name) };
        let fetched = format!("{directory}/bin/{name}");
        Command::new(if std::path::Path::new(&fetched).is_file() { fetched } else { format!("{directory}/{name}") })
    }

    fn iperf3(&self, far: &Far, streams: u16) -> Result<f64> {
        let report = self.run_iperf3(far, &["-P", &streams.to_string(), "-C", "cubic"])?;
        Ok(report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3's rate")? / 1e9)
    }

    fn iperf3_udp(&self, far: &Far) -> Result<f64> {
        let report = self.run_iperf3(far, &["-u", "-b", "0", "-l", &DATAGRAM.to_string()])?;
        if std::env::var_os("GENERATOR_VERBOSE").is_some() {
            eprintln!("iperf3 {}", report["end"]);
        }
        let sum = &report["end"]["sum_received"];
        let packets = sum["packets"].as_f64().context("iperf3's packets")?;
        let lost = sum["lost_packets"].as_f64().context("iperf3's lost packets")?;
        let seconds = sum["seconds"].as_f64().context("iperf3's seconds")?;
        Ok((packets - lost) / seconds / 1e3)
    }

    fn run_iperf3(&self, far: &Far, arguments: &[&str]) -> Result<serde_json::Value> {
        let mut server = self.program("iperf3");
        server.args(["-s", "-1", "-p", "5201"]).stdout(Stdio::null());
        let mut server = far.run(move || server.spawn())?;
        wait_for_listener(far, 5201)?;
        let mut client = self.program("iperf3");
        client.args(["-c", &FAR.to_string(), "-p", "5201", "-J", "-O", "0.3", "-t", &self.seconds.to_string()]);
        let output = client.args(arguments).output().context("iperf3")?;
        server.wait()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).context("iperf3's report")?;
        if let Some(error) = report["error"].as_str() {
            bail!("iperf3: {error}");
        }
        Ok(report)
    }

    fn netperf(&self, far: &Far, test: &str, metric: &str) -> Result<f64> {
        let mut server = self.program("netserver");
        server.args(["-D", "-4", "-p", "12865"]).stdout(Stdio::null());
        let mut server = far.run(move || server.spawn())?;
        wait_for_listener(far, 12865)?;
        let mut client = self.program("netperf");
        client.args(["-H", &FAR.to_string(), "-p", "12865", "-t", test, "-l", &self.seconds.to_string(), "-P", "0"]);
        client.args(["-j", "--", "-r", "1,1", "-K", "cubic,cubic", "-o", metric]);
        let output = client.output().context("netperf")?;
        server.kill()?;
        server.wait()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let value = text.lines().last().unwrap_or_default().trim().trim_matches(',').to_owned();
        value.parse().with_context(|| format!("netperf said `{text}` {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Waits until somebody listens on a port of the other namespace, by its list of sockets.
fn wait_for_listener(far: &Far, port: u16) -> Result<()> {
    let wanted = format!(":{port:04X} ");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let wanted = wanted.clone();
        let found = far.run(move || {
            let mut listens = false;
            for path in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
                let sockets = std::fs::read_to_string(path)?;
                listens |= sockets.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "));
            }
            Ok(listens)
        })?;
        if found {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("nobody listens on port {port}")
}

type Task = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own, which starts what is to run there.
struct Far {
    tasks: Sender<Task>,
    thread: u32,
}

impl Far {
    fn new() -> Result<Self> {
        let (tasks, queue) = channel::<Task>();
        let (ready, made) = channel();
        std::thread::Builder::new().name("far".to_owned()).spawn(move || {
            let made = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
            if ready.send(made.map(|()| nix::unistd::gettid())).is_ok() {
                queue.iter().for_each(|task| task());
            }
        })?;
        let thread = made.recv()?.context("making a network namespace")?;
        Ok(Self { tasks, thread: thread.as_raw() as u32 })
    }

    fn run<T: Send + 'static>(&self, task: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T> {
        let (answer, answers) = channel();
        let task = Box::new(move || drop(answer.send(task())));
        self.tasks.send(task).ok().context("the far thread is gone")?;
        Ok(answers.recv()??)
    }
}

/// Joins this thread's namespace and the far one's by a veth pair.
fn connect(far: &Far) -> Result<()> {
    let near = Netlink::open()?;
    near.add_veth("bench0", Mtu::new(1500)?, "bench0", far.thread)?;
    address(&near, NEAR)?;
    far.run(|| Ok(Netlink::open().map_err(anyhow::Error::from).and_then(|far| address(&far, FAR))))?
}

fn address(netlink: &Netlink, address: IpAddr) -> Result<()> {
    let link = netlink.link("bench0")?.context("bench0")?;
    netlink.add_address(link.index, "bench0", ipnet::IpNet::new(address, 24)?)?;
    Ok(netlink.set_up(link.index, "bench0")?)
}
