//! Arguments as typed. Help, completions and the man page come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::plan::{MOST_ROUNDS, Precision, Profile};
use crate::report::Format;
use crate::units::{BitRate, Span};

/// A WireGuard tunnel performance lab.
///
/// Builds WireGuard tunnels between nodes (its own userspace engine, other ones, the kernel's), pins each to one underlay, drives them with its own traffic engine, and says
/// how fast they are, what binds them, and whether a change made them better or worse.
#[derive(Debug, Parser)]
#[command(name = "wglab", version, max_term_width = 110, propagate_version = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Say less: no progress
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Say more: every run as it ends
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(super) verbose: bool,
    /// When to colour what is printed; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(super) color: Color,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Raise a lab, measure it, say how good its tunnels are
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Compare two levels of a factor within a record, or two records, or find where a series of records changed
    ///
    /// One record: its levels of a factor. Two: the second against the first. Three or more: a series in time; the record where a
    /// change began is named. With --by record each is compared with the first instead, with --by FACTOR the runs of all are taken
    /// together.
    #[command(after_help = EXIT_CODES)]
    Compare(CompareArgs),
    /// Say which underlay each pair should use, and what it can safely carry
    ///
    /// The exit code is 2 where the record lacks something that a pick needs, and 1 where nothing carries --need.
    Pick(PickArgs),
    /// Print what a record holds
    Report(ReportArgs),
    /// Write a topology from hosts, from files of wg or wg-quick, or from interfaces of this host
    #[command(after_help = INIT_HELP)]
    Init(InitArgs),
    /// Print what would run: nodes, addresses, arrangements, order, time, bytes per underlay
    Plan(PlanArgs),
    /// Keep a lab up in the foreground, for any tool
    ///
    /// An engine that dies is told at once, and the lab goes on; an agent that ends takes the lab down. Exit codes: 0, or that of CMD; 2 where
    /// the lab did not come up, or an engine or an agent of it ended; 130 where it was interrupted before CMD ended.
    Up(UpArgs),
    /// Run a command on a node of a lab that is up
    Exec(ExecArgs),
    /// The other end of the protocol: started by a conductor, speaks on standard input and output
    Agent,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

const EXIT_CODES: &str = "Exit codes: 0 done, and no gate failed; 1 a gate failed; 2 could not measure, or invalid; \
3 inconclusive under --gate; 130 interrupted (what was measured is kept, marked partial).";

const INIT_HELP: &str = "The topology goes to standard output, remarks to standard error:
  wglab init ssh:root@fra ssh:root@hel > fleet.toml && wglab run fleet.toml
  wglab init /etc/wireguard/wg0.conf > wg0.toml
  wglab init fra/wg0.conf hel/wg0.conf > pair.toml
  wglab init wg0 > wg0.toml
No key of a file or an interface is copied, and no hook is run. Exit codes: 0 the topology loads, and all that was named is in it; \
2 it does not, or something is left to be filled in.";

/// What to write a topology from.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// A host (`ssh:[USER@]HOST[:PORT]`, or `NAME=COMMAND` for any command that gives a pipe to `wglab agent`; either may have
    /// `NAME=` before it), a file of wg or wg-quick, or an interface of this host
    #[arg(required = true, value_name = "HOST|CONF|INTERFACE")]
    pub(super) sources: Vec<String>,
}

/// What to measure, and how much of it.
#[derive(Debug, Clone, Args)]
pub(super) struct Selection {
    /// A topology file, or the name of a shipped one: two-stacks, pair, four-nodes, cross-directions, parallel, datagrams
    #[arg(default_value = "two-stacks")]
    pub(super) topology: String,
    /// Only these levels of a factor (repeatable; `test` counts): --only underlay=private,public-ipv4
    #[arg(long, value_name = "FACTOR=LEVEL[,LEVEL]")]
    pub(super) only: Vec<String>,
    /// An engine to measure instead of the topology's (repeatable): raw, embedded, direct (embedded without a TUN device: datagrams
    /// only), kernel (its own WireGuard), an interface (interface:NAME where the name is like another engine's), or the path of a daemon
    #[arg(long, value_name = "NAME[=SPEC]")]
    pub(super) engine: Vec<String>,
    /// Visits to each arrangement; the most of them with --precision
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    pub(super) rounds: Option<u32>,
    /// End as soon as every judged change is known to within this, like 3%; or off
    #[arg(long, value_name = "RATIO")]
    pub(super) precision: Option<Precision>,
    /// The measured window of every test, like 2s
    #[arg(long, value_name = "TIME")]
    pub(super) duration: Option<Span>,
    /// How long and how often: quick, standard, thorough
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<Profile>,
    /// What the order is drawn from
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
}

/// What is said of a change, and how far down.
#[derive(Debug, Args)]
pub(super) struct Judging {
    /// Every pair and underlay side by side
    #[arg(long)]
    pub(super) detail: bool,
    /// Judge the change: exit 1 where something got worse, 3 where it cannot be said
    #[arg(long)]
    pub(super) gate: bool,
    /// What to judge and from which size on: a TOML file with metrics, min-effect, min-effects
    #[arg(long, value_name = "FILE")]
    pub(super) policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// The record's directory; otherwise a new one under ./wglab-records
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Go on with a record that is partial: what is missing of its plan is measured and appended to it
    #[arg(long, value_name = "RECORD", conflicts_with_all = [
        "topology", "only", "engine", "rounds", "precision", "duration", "profile", "seed", "out",
    ])]
    pub(super) resume: Option<PathBuf>,
    /// What was changed on purpose since the record was begun: --changed kernel,memory
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', requires = "resume")]
    pub(super) changed: Vec<String>,
    #[command(flatten)]
    pub(super) judging: Judging,
    /// Succeed although some cells could not be measured here (not where a node lacks an engine's interface: leave that one out with --only)
    #[arg(long)]
    pub(super) allow_partial: bool,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The record, or the baseline's and the new one, or a series; otherwise the last run
    #[arg(value_name = "RECORD")]
    pub(super) records: Vec<PathBuf>,
    /// The factor, and the levels to compare: --by stack=standard,ebpf; or `record`
    #[arg(long, value_name = "FACTOR[=BASE,NEW]")]
    pub(super) by: Option<String>,
    /// Conditions that were changed on purpose and may differ between records: --changed kernel,mtu
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(super) changed: Vec<String>,
    #[command(flatten)]
    pub(super) judging: Judging,
    /// What to print: table, markdown, json, csv, html, junit, github
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct PickArgs {
    /// The record; otherwise the last run
    #[arg(value_name = "RECORD")]
    pub(super) record: Option<PathBuf>,
    /// What the pair must be able to carry, like 1Gbit/s
    #[arg(long, value_name = "RATE")]
    pub(super) need: Option<BitRate>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Records; otherwise the last run
    #[arg(value_name = "RECORD")]
    pub(super) records: Vec<PathBuf>,
    /// What to print: table, markdown, json, csv, html, junit, github
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub(super) format: Format,
    /// Every pair and underlay side by side (table and markdown)
    #[arg(long)]
    pub(super) detail: bool,
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// What to print
    #[arg(long, default_value = "text")]
    pub(super) format: PlanFormat,
}

/// What a plan is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    /// For a terminal
    Text,
    /// All of it
    Json,
}

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// A topology file, or the name of a shipped one
    #[arg(default_value = "two-stacks")]
    pub(super) topology: String,
    /// An engine to raise instead of the topology's (repeatable): embedded, direct, kernel, an interface, or the path of a daemon
    #[arg(long, value_name = "NAME[=SPEC]")]
    pub(super) engine: Vec<String>,
    /// Keep the lab up although some of its tunnels are not there
    #[arg(long)]
    pub(super) allow_partial: bool,
    /// A command to run while the lab is up; the lab ends with it, and it with the lab
    #[arg(last = true, value_name = "CMD")]
    pub(super) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    /// The node
    pub(super) node: String,
    /// Which lab, where several are up: the process id of its `wglab up`
    #[arg(long, value_name = "PID")]
    pub(super) lab: Option<u32>,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
