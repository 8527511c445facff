//! The stacks under real nodes at the beginning of a phase: verified, switched by a command, or left to a person.
//!
//! A stack's commands run on the conductor's own machine, since a node that is being switched may be down. They find the node
//! and the stack in `WGLAB_NODE` and `WGLAB_STACK`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::Watch;
use crate::plan::Plan;
use crate::sys::program;

/// How long a `switch` may take: stopping and starting a server is the slowest of it.
const SWITCH: Duration = Duration::from_secs(15 * 60);
/// How long a `verify` may take.
const VERIFY: Duration = Duration::from_secs(60);
/// How long the output of a command that has ended may still come.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// So much of a command's output is kept for the reason: its end.
const KEPT: usize = 2_000;

/// What came of entering a phase.
#[derive(Debug, Default)]
pub(super) struct Entered {
    /// Why nodes are not on their stack: by node.
    pub(super) failed: BTreeMap<String, String>,
    /// Nodes whose stack is what the topology says and nothing verified.
    pub(super) unverified: BTreeSet<String>,
    /// Whether a command has switched something.
    pub(super) switched: bool,
    /// What a person has to switch, node and stack, each with what a `verify` said against it. Nothing was switched then.
    pub(super) by_hand: Vec<(String, String, Option<String>)>,
}

/// Sees to it that the nodes are on the stacks of `phase`. Where nothing can verify a stack, `told` says that a person was
/// asked to switch to this phase and has come back.
pub(super) async fn enter(plan: &Plan, phase: usize, told: bool, watch: &mut dyn Watch) -> Entered {
    let mut entered = Entered::default();
    let Some(stacks) = plan.phases.get(phase).map(|phase| &phase.stacks) else { return entered };
    watch.stage(&format!("phase {}: looking at the stacks", phase + 1));
    let mut to_switch = Vec::new();
    for (node, name) in stacks {
        let Some(stack) = plan.stack(name) else { continue };
        let doubt = match &stack.verify {
            Some(argv) => match hook(argv, node, name, VERIFY).await {
                Ok(()) => continue,
                Err(why) => Some(why),
            },
            None => None,
        };
        match (&stack.switch, doubt) {
            (Some(argv), _) => to_switch.push((node, name, argv, stack.verify.as_ref())),
            (None, None) if phase == 0 || told => {
                entered.unverified.insert(node.clone());
            }
            (None, doubt) => entered.by_hand.push((node.clone(), name.clone(), doubt)),
        }
    }
    if !entered.by_hand.is_empty() {
        return entered;
    }
    for (node, name, argv, verify) in to_switch {
        watch.stage(&format!("switching {node} to {name}"));
        entered.switched = true;
        let mut went =
            hook(argv, node, name, SWITCH).await.map_err(|why| format!("cannot be switched to {name}: {why}"));
        match verify {
            Some(verify) if went.is_ok() => {
                let verified = hook(verify, node, name, VERIFY).await;
                went = verified.map_err(|why| format!("is not on {name} after it was switched: {why}"));
            }
            Some(_) => {}
            None => {
                entered.unverified.insert(node.clone());
            }
        }
        if let Err(why) = went {
            watch.note(&format!("node {node} {why}"));
            entered.failed.insert(node.clone(), why);
        }
    }
    entered
}

/// Who has to be put where, for a person: `a1, a2 on ebpf and b1, b2 on standard`.
pub(super) fn wanted(by_hand: &[(String, String, Option<String>)]) -> String {
    let mut stacks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, stack, _) in by_hand {
        stacks.entry(stack).or_default().push(node);
    }
    let parts: Vec<String> = stacks.iter().map(|(stack, nodes)| format!("{} on {stack}", nodes.join(", "))).collect();
    parts.join(" and ")
}

/// Ends whatever a command has started, unless it is told to let go.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Gone already: nothing is left to end.
            let _gone = killpg(leader, Signal::SIGKILL);
        }
    }
}

/// Runs a command to its end. The error says how it ended and what it said last.
async fn hook(argv: &[String], node: &str, stack: &str, limit: Duration) -> Result<(), String> {
    let shown = argv.join(" ");
    let (name, arguments) = argv.split_first().ok_or_else(|| "its command is empty".to_owned())?;
    let mut child = Command::new(name)
        .args(arguments)
        .env("WGLAB_NODE", node)
        .env("WGLAB_STACK", stack)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What it starts ends with it when it takes too long, or when the run is interrupted.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("`{shown}` cannot be started: {}", program::why_not(name.as_ref(), error)))?;
    let mut group = Group(child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw));
    let said = RefCell::new(Vec::new());
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::join!(keep(output, &said), keep(errors, &said)) }.fuse();
    tokio::pin!(reading);
    let ended = timeout(limit, async {
        tokio::select! {
            status = child.wait() => status,
            _ = &mut reading => child.wait().await,
        }
    });
    let ended = ended.await;
    if matches!(ended, Ok(Ok(_))) {
        // What it left running on purpose stays, and may hold its output open.
        group.0 = None;
        let _still_open = timeout(LAST_WORDS, &mut reading).await;
    }
    let said = said.borrow();
    let said = String::from_utf8_lossy(&said);
    let said = if said.trim().is_empty() { "nothing".to_owned() } else { said.trim().to_owned() };
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("`{shown}` ended with {status}; it said: {said}")),
        Ok(Err(error)) => Err(format!("`{shown}` cannot be awaited: {error}")),
        Err(_) => Err(format!("`{shown}` did not end within {} s; it said: {said}", limit.as_secs())),
    }
}

/// Keeps the end of what `from` gives.
async fn keep(from: Option<impl AsyncRead + Unpin>, kept: &RefCell<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let mut kept = kept.borrow_mut();
        kept.extend_from_slice(&buffer[..read]);
        let beyond = kept.len().saturating_sub(KEPT);
        kept.drain(..beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    async fn run(script: &str, limit: Duration) -> Result<(), String> {
        hook(&sh(script), "a1", "ebpf", limit).await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_command_knows_the_node_and_the_stack_and_its_words_are_kept() {
        run("test $WGLAB_NODE = a1 && test $WGLAB_STACK = ebpf", VERIFY).await.unwrap();
        let why = run("echo no such server; echo ask sales >&2; exit 3", VERIFY).await.unwrap_err();
        assert!(why.contains("exit status: 3") && why.contains("no such server") && why.contains("ask sales"), "{why}");
        let why = run("exit 1", VERIFY).await.unwrap_err();
        assert!(why.ends_with("it said: nothing"), "{why}");
        let why = hook(&["/no/such/program".to_owned()], "a1", "ebpf", VERIFY).await.unwrap_err();
        assert!(why.contains("cannot be started"), "{why}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_command_that_hangs_is_ended_with_all_that_it_started() {
        let begun = std::time::Instant::now();
        let why = run("echo waiting; sleep 60 & echo $!; wait", Duration::from_millis(300)).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5) && why.contains("did not end within"), "{why}");
        let sleeper: i32 = why.lines().last().unwrap().trim().parse().unwrap();
        // A killed child may still be a zombie of whoever adopts it: then it has no command line.
        std::thread::sleep(Duration::from_millis(100));
        assert!(std::fs::read(format!("/proc/{sleeper}/cmdline")).unwrap_or_default().is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_command_leaves_running_does_not_hold_the_run() {
        let begun = std::time::Instant::now();
        run("sleep 2 &", VERIFY).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_person_is_told_who_goes_where() {
        let by_hand = [("a1", "ebpf"), ("a2", "ebpf"), ("b1", "standard")];
        let by_hand = by_hand.map(|(node, stack)| (node.to_owned(), stack.to_owned(), None));
        assert_eq!(wanted(&by_hand), "a1, a2 on ebpf and b1 on standard");
    }
}
