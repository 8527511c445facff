//! How the conductor comes by agents: each is this program at the far end of a byte pipe.

pub mod local;
