//! The kernel: raw system calls and kernel interfaces, each behind safe types that own what they hold.
//!
//! This is the only place with `unsafe`. One file wraps one kernel interface and knows nothing of nodes,
//! plans or tests.

pub mod cgroup;
pub mod channel;
pub mod clock;
pub mod descriptors;
pub mod ethtool;
pub mod genetlink;
pub mod inherit;
pub mod mmsg;
pub mod namespaces;
pub mod netlink;
pub mod pidfd;
pub mod proc;
pub mod program;
pub mod signals;
pub mod socket;
pub mod spawn;
pub mod supervise;
pub mod sysctl;
pub mod tcp_info;
pub mod terminal;
pub mod tun;
pub mod udp;
