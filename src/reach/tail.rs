//! The last lines that an agent wrote to its standard error, read as they come so that its pipe never fills.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::task::JoinHandle;

const LINES: usize = 12;
const LINE_BYTES: usize = 400;

/// What was said last. Dropping it ends the reading.
pub(super) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
    task: JoinHandle<()>,
}

impl Tail {
    /// Reads `source` to its end in the background. Needs a local task set around it.
    pub(super) fn follow(source: impl AsyncRead + Unpin + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let sink = Arc::clone(&lines);
        let task = tokio::task::spawn_local(async move {
            let mut reader = BufReader::new(source).split(b'\n');
            while let Ok(Some(line)) = reader.next_segment().await {
                let mut line = String::from_utf8_lossy(&line).trim_end().escape_debug().to_string();
                line.truncate(line.floor_char_boundary(LINE_BYTES));
                let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Self { lines, task }
    }

    /// Waits a moment for the rest of what a process that has just ended wrote.
    pub(super) async fn settle(&mut self) {
        if !self.task.is_finished() {
            let _late = tokio::time::timeout(Duration::from_millis(200), &mut self.task).await;
        }
    }

    /// The last lines, or `other` where there is none; `nothing` if that is empty too.
    pub(super) fn text_or(&self, other: &str) -> String {
        let kept = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = kept.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let text = if text.is_empty() { other.to_owned() } else { text };
        if text.is_empty() { "nothing".to_owned() } else { text }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.task.abort();
    }
}
