//! The body of the hidden `wglab tunnel` command: one device, run in the foreground.

use std::net::IpAddr;

use crate::tunnel::{TunnelError, check_interface_name};
use crate::units::Mtu;

/// Arguments of the `tunnel` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// The device to make.
    pub interface: String,
    /// Its MTU.
    pub mtu: Mtu,
    /// The local address of the outer socket; `None`: any, of both families.
    pub bind: Option<IpAddr>,
    /// The interface of the outer socket; `None`: any.
    pub bind_device: Option<String>,
    /// End when standard input ends.
    pub lifeline: bool,
}

impl ServeOptions {
    /// Reads `INTERFACE --mtu N [--bind ADDR] [--bind-device IF] [--lifeline]`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, TunnelError> {
        let wrong = |text: String| TunnelError::Arguments(text);
        let (mut interface, mut mtu, mut bind, mut bind_device, mut lifeline) = (None, None, None, None, false);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| wrong(format!("{arg} wants a value")));
            match arg.as_str() {
                "--mtu" => {
                    let text = value()?;
                    let bytes = text.parse().map_err(|_| wrong(format!("`{text}` is not an MTU")))?;
                    mtu = Some(Mtu::new(bytes).map_err(|error| wrong(error.to_string()))?);
                }
                "--bind" => {
                    let text = value()?;
                    bind = Some(text.parse().map_err(|_| wrong(format!("`{text}` is not an address")))?);
                }
                "--bind-device" => {
                    let text = value()?;
                    check_interface_name(&text).map_err(|reason| wrong(format!("`{text}`: {reason}")))?;
                    bind_device = Some(text);
                }
                "--lifeline" => lifeline = true,
                _ if arg.starts_with('-') || interface.is_some() => {
                    return Err(wrong(format!("unknown argument {arg}")));
                }
                _ => {
                    check_interface_name(&arg).map_err(|reason| wrong(format!("`{arg}`: {reason}")))?;
                    interface = Some(arg);
                }
            }
        }
        Ok(Self {
            interface: interface.ok_or_else(|| wrong("no interface named".to_owned()))?,
            mtu: mtu.ok_or_else(|| wrong("--mtu is missing".to_owned()))?,
            bind,
            bind_device,
            lifeline,
        })
    }
}

/// Runs the embedded engine until SIGTERM, SIGINT, or the end of its lifeline.
///
/// # Errors
/// The device, the socket or a thread failed.
pub fn serve(options: &ServeOptions) -> Result<(), TunnelError> {
    let _ = options;
    Err(TunnelError::Unavailable {
        engine: "embedded".to_owned(),
        reason: "not yet".to_owned(),
        remedy: "use a daemon by path".to_owned(),
    })
}
