//! What befalls a lab that is kept up: agents that end, engines that die.

use std::time::Duration;

use futures_util::future::select_all;
use tokio::time::timeout;

use super::{ANSWER, Lab};
use crate::agent::messages::{Ask, Tell};
use crate::reach::{Link, ReachError};

/// How often agents are asked for their engines.
const LOOK: Duration = Duration::from_secs(1);
/// A host that is cut off for a while is not gone: its pipe says when it is.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// An engine that ended, which nobody asked it to.
#[derive(Debug)]
pub struct Death {
    /// The node.
    pub node: String,
    /// The engine's device there.
    pub interface: String,
    /// How it ended, with its last lines.
    pub why: String,
}

impl Lab {
    /// Resolves when an agent ends, which nobody asked it to. Engines that are dead are told to `died`, with every look anew.
    pub async fn watch(&mut self, died: impl Fn(Death)) -> anyhow::Error {
        let died = &died;
        let links = self.nodes.values_mut().chain(&mut self.provider);
        let (error, _, _) = select_all(links.map(|link| Box::pin(watch(link, died)))).await;
        self.explain(error.into())
    }

    /// The engines that are dead by now; not to be asked in the middle of anything but [`Lab::watch`].
    ///
    /// # Errors
    /// An agent is gone, or silent.
    pub async fn deaths(&mut self) -> anyhow::Result<Vec<Death>> {
        let mut all = Vec::new();
        for link in self.nodes.values_mut() {
            // What a watch that was given up asked for last answers this too.
            all.extend(deaths(link, ANSWER).await?);
        }
        Ok(all)
    }
}

async fn watch(link: &mut Link, died: &impl Fn(Death)) -> ReachError {
    loop {
        if let Ok(error) = timeout(LOOK, link.ended()).await {
            return error;
        }
        match deaths(link, PATIENCE).await {
            Ok(deaths) => deaths.into_iter().for_each(died),
            Err(error) => return error,
        }
    }
}

async fn deaths(link: &mut Link, deadline: Duration) -> Result<Vec<Death>, ReachError> {
    let told = link.ask(&Ask::Deaths, deadline).await?;
    let Tell::Deaths(deaths) = told else { return Err(link.unexpected(&told)) };
    let node = link.node();
    Ok(deaths.into_iter().map(|(interface, why)| Death { node: node.to_owned(), interface, why }).collect())
}
