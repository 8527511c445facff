//! A node: what it is, its interfaces, and its settings.

pub mod facts;
pub mod interfaces;
pub mod queues;
pub mod settings;
pub mod sockets;

pub use facts::{Facts, facts};
