//! The topology made definite: addresses, ports, names, order, seed. Nothing is left to decide at run time.

pub use crate::topology::{Delivery, EngineSpec, Pair, Profile, Rate, UnderlayKind};
pub use types::*;

mod types;
