//! The `wglab` binary.

fn main() {}
