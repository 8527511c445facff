//! The file that a person writes, read: what was asked, nothing resolved yet.

pub use words::{BadEngine, Delivery, EngineSpec, Profile, Rate, UnderlayKind, UnknownWord};

mod names;
mod words;
