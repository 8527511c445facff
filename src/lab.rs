//! What a local lab is made of: the init that holds it, and the provider between its nodes.

pub mod init;
pub mod provider;
