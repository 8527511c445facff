//! A node: what it is, its interfaces, and its settings.

pub mod facts;
pub mod interfaces;
pub mod queues;
pub mod settings;

/// PLACEHOLDER
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Facts { /// k
 pub kernel: String, /// c
 pub cpus: u32, /// t
 pub tun: Result<(), String> }
impl Facts { /// x
 pub fn interface_of(&self, _a: std::net::IpAddr) -> Option<String> { None } }
/// f
pub fn facts() -> Facts { Facts { kernel: "x".into(), cpus: 2, tun: std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(|_| ()).map_err(|e| e.to_string()) } }
