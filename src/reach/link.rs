//! A conversation with one agent: ask, and await what it tells, until a deadline. One question at a time.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::timeout;

use super::ReachError;
use super::tail::Tail;
use crate::agent::frame::{self, Decoder};
use crate::agent::messages::{Ask, Hello, PROTOCOL, Tell};

/// The agent's end of a byte pipe, as the conductor holds it.
pub(super) type Reader = Box<dyn AsyncRead + Unpin>;
/// The way to the agent.
pub(super) type Writer = Box<dyn AsyncWrite + Unpin>;

/// How long an agent may take to come up: an OpenSSH login with slow name resolution is the slowest way seen.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);

/// A byte pipe to what should be an agent.
pub struct Channel {
    node: String,
    reader: Reader,
    writer: Writer,
    stderr: Tail,
    command: Option<Child>,
}

impl Channel {
    pub(super) fn new(node: &str, reader: Reader, writer: Writer, stderr: Tail) -> Self {
        Self { node: node.to_owned(), reader, writer, stderr, command: None }
    }

    pub(super) fn of_command(self, child: Child) -> Self {
        Self { command: Some(child), ..self }
    }
}

/// How long a command may take to end once its pipe is closed: the agent ends its engines first.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One agent and the pipe to it.
pub struct Link {
    channel: Channel,
    decoder: Decoder,
}

impl Link {
    /// Awaits the agent's hello and checks that both speak the same protocol.
    ///
    /// # Errors
    /// Nobody answers within the deadline, or not an agent, or one of another protocol version.
    pub async fn open(channel: Channel) -> Result<(Self, Hello), ReachError> {
        let mut link = Self { channel, decoder: Decoder::after_banner() };
        link.send(&Ask::Hello { protocol: PROTOCOL }).await?;
        let told = link.tell(HELLO_DEADLINE).await?;
        let Tell::Hello(hello) = &told else { return Err(link.unexpected(&told)) };
        if hello.protocol != PROTOCOL {
            return Err(ReachError::OtherVersion {
                node: link.channel.node,
                version: hello.version.clone(),
                protocol: hello.protocol,
                ours: PROTOCOL,
            });
        }
        Ok((link, hello.clone()))
    }

    /// Whether a command of ours is between us and the agent.
    pub fn is_command(&self) -> bool {
        self.channel.command.is_some()
    }

    /// Closes the pipe, which ends the agent, and waits a moment for its command to end too.
    ///
    /// # Errors
    /// The command says that it failed, or does not end.
    pub async fn close(self) -> Result<(), ReachError> {
        let Channel { node, reader, writer, mut stderr, command } = self.channel;
        drop((reader, writer));
        let Some(mut child) = command else { return Ok(()) };
        match timeout(LAST_WORDS, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(_)) => {
                stderr.settle().await;
                Err(ReachError::Gone { node, said: stderr.text_or("") })
            }
            Ok(Err(source)) => Err(ReachError::Pipe { node, source }),
            // It is killed when it is dropped here.
            Err(_) => Err(ReachError::Silent { node, seconds: LAST_WORDS.as_secs_f64(), said: stderr.text_or("") }),
        }
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.channel.node
    }

    /// Asks, and awaits the answer. An agent's `Failed` is an error here.
    ///
    /// # Errors
    /// The pipe ends, the deadline passes, or the agent says that it could not.
    pub async fn ask(&mut self, ask: &Ask, deadline: Duration) -> Result<Tell, ReachError> {
        self.send(ask).await?;
        self.tell(deadline).await
    }

    /// Sends without awaiting an answer.
    ///
    /// # Errors
    /// The pipe is gone.
    pub async fn send(&mut self, ask: &Ask) -> Result<(), ReachError> {
        let frame =
            frame::encode(ask).map_err(|source| ReachError::Frame { node: self.channel.node.clone(), source })?;
        let written = async {
            self.channel.writer.write_all(&frame).await?;
            self.channel.writer.flush().await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone().await),
        }
    }

    /// Awaits the next thing that the agent tells.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub async fn tell(&mut self, deadline: Duration) -> Result<Tell, ReachError> {
        match timeout(deadline, self.next()).await {
            Ok(Ok(Tell::Failed { what })) => Err(ReachError::Failed { node: self.channel.node.clone(), what }),
            Ok(told) => told,
            Err(_) => Err(ReachError::Silent {
                node: self.channel.node.clone(),
                seconds: deadline.as_secs_f64(),
                said: self.channel.stderr.text_or(&self.decoder.banner()),
            }),
        }
    }

    /// Reads off the answer to a question that the agent's own news had overtaken, if there is one: `Done` to a `Stop` that came when
    /// the job was over.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub async fn in_step(&mut self, deadline: Duration) -> Result<(), ReachError> {
        let mut told = self.ask(&Ask::Hello { protocol: PROTOCOL }, deadline).await?;
        if matches!(told, Tell::Done) {
            told = self.tell(deadline).await?;
        }
        if matches!(told, Tell::Hello(_)) { Ok(()) } else { Err(self.unexpected(&told)) }
    }

    /// Resolves when the agent is gone, or says what it was not asked.
    pub async fn ended(&mut self) -> ReachError {
        match self.next().await {
            Ok(told) => self.unexpected(&told),
            Err(error) => error,
        }
    }

    async fn next(&mut self) -> Result<Tell, ReachError> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let node = &self.channel.node;
            let message = self.decoder.message().map_err(|source| ReachError::Frame { node: node.clone(), source })?;
            if let Some(message) = message {
                return Ok(message);
            }
            match self.channel.reader.read(&mut buffer).await {
                Ok(0) | Err(_) => return Err(self.gone().await),
                Ok(read) => self.decoder.push(&buffer[..read]),
            }
        }
    }

    /// The pipe has ended: what the agent said last tells why.
    async fn gone(&mut self) -> ReachError {
        self.channel.stderr.settle().await;
        ReachError::Gone { node: self.channel.node.clone(), said: self.channel.stderr.text_or(&self.decoder.banner()) }
    }

    /// An answer to another question.
    pub fn unexpected(&self, told: &Tell) -> ReachError {
        ReachError::Unexpected { node: self.channel.node.clone(), told: told.kind() }
    }
}
