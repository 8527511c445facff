//! By what `wglab exec` finds a lab that is up: a socket in the abstract namespace (unix(7)), which goes with its owner however
//! that ends. It tells the lab's nodes and their processes; who may enter those is the kernel's to decide.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

const PREFIX: &str = "wglab-lab-";
/// How long a lab may take to say what it holds: it answers from memory.
const ANSWER: Duration = Duration::from_secs(2);

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The process that keeps it.
    pub pid: u32,
    /// The topology's name.
    pub name: String,
    /// The process of each node's agent.
    pub nodes: BTreeMap<String, u32>,
}

/// Shows a lab while it is held.
pub struct Beacon {
    listener: tokio::net::UnixListener,
    answer: Vec<u8>,
}

impl Beacon {
    /// Shows the lab of this process.
    pub fn light(name: &str, nodes: &BTreeMap<String, u32>) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let nodes =
            nodes.iter().filter(|(name, _)| !name.starts_with('(')).map(|(name, pid)| (name.clone(), *pid)).collect();
        let answer = serde_json::to_vec(&Found { pid, name: name.to_owned(), nodes })?;
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("{PREFIX}{pid}"))?)
            .context("cannot open the socket by which `wglab exec` finds this lab")?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: tokio::net::UnixListener::from_std(listener)?, answer })
    }

    /// Answers whoever asks, for ever.
    pub async fn serve(&self) -> anyhow::Result<()> {
        loop {
            let (mut stream, _) = self.listener.accept().await?;
            // An asker that is gone before its answer wants none.
            let _gone = stream.write_all(&self.answer).await;
        }
    }
}

/// The labs that are up in this network namespace; only that of process `pid`, if it is given.
pub fn find(pid: Option<u32>) -> anyhow::Result<Vec<Found>> {
    let sockets = fs::read_to_string("/proc/net/unix").context("cannot list the sockets by which labs are found")?;
    let owners =
        sockets.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@')?.strip_prefix(PREFIX));
    let mut owners: Vec<u32> =
        owners.filter_map(|owner| owner.parse().ok()).filter(|owner| pid.is_none_or(|pid| pid == *owner)).collect();
    owners.sort_unstable();
    owners.dedup();
    // One that went down between the list and the question is not up.
    Ok(owners.into_iter().filter_map(|owner| ask(owner).ok()).collect())
}

fn ask(owner: u32) -> anyhow::Result<Found> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(format!("{PREFIX}{owner}"))?)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}
