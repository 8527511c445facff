//! wglab: a WireGuard tunnel performance lab.
//!
//! The modules stand in the order in which data flows:
//!
//! ```text
//! topology -> plan -> reach -> agents (tunnels, traffic, meters) -> record -> stats -> verdict -> report
//! packet:  TUN super-packet -> split -> encrypt -> UDP batch   and back:  UDP batch -> decrypt -> coalesce -> TUN
//! ```
//!
//! From [`text`] to [`packet`] everything is pure: no sockets, files, threads, clock or environment.
//! `tests/architecture.rs` holds the table of who may use whom.

pub mod text;
pub mod units;
pub mod cell;
pub mod topology;
pub mod plan;
pub mod record;
pub mod stats;
pub mod verdict;
pub mod report;
pub mod packet;
pub mod sys;
pub mod tunnel;
pub mod traffic;
pub mod host;
pub mod lab;
pub mod agent;
pub mod reach;
pub mod run;
pub mod cli;
