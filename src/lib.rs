//! wglab: a WireGuard tunnel performance lab.
//!
//! The modules stand in the order in which data flows:
//!
//! ```text
//! topology -> plan -> reach -> agents (tunnels, traffic, meters) -> record -> stats -> verdict -> report
//! packet:  TUN super-packet -> split -> encrypt -> UDP batch   and back:  UDP batch -> decrypt -> coalesce -> TUN
//! ```
//!
//! * pure, without sockets, files, threads, clock or environment: [`text`] and [`units`], words and quantities · [`cell`], what is compared and
//!   measured · [`topology`], the file as it was written · [`plan`], nothing left to decide · [`record`], what a run leaves · [`stats`] ·
//!   [`verdict`], what changed and whether that is good · [`report`], for people and other tools · [`packet`], bytes of IP
//! * effects: [`sys`], the kernel · [`tunnel`], the engines · [`traffic`], the generator and the meters · [`host`], a node and its settings ·
//!   [`lab`], nodes out of namespaces · [`agent`], the far end · [`reach`], the pipe to it · [`run`], the conductor · [`cli`]
//!
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
