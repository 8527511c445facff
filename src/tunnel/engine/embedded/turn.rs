//! What a lane's thread learns from one turn of a direction.

/// Packets of one turn from which on a direction counts as loaded.
pub(super) const MANY: usize = 5;

/// One turn of a direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    /// Packets that were carried.
    pub(super) packets: usize,
    /// There may be more, or something that waits to be sent with what comes next.
    pub(super) more: bool,
    /// It could not go on: a full socket, or a read that failed. Nothing that was in hand is lost.
    pub(super) blocked: bool,
}

impl Turn {
    /// Whether the direction needs a thread of its own.
    pub(super) fn loaded(self) -> bool {
        self.packets >= MANY || self.more || self.blocked
    }
}
