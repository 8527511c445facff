//! Links, addresses, routes and neighbours: rtnetlink(7), in blocking verbs.
//!
//! A [`Netlink`] is a socket in the network namespace of the thread that opened it, and stays there. It drives a
//! current-thread runtime of its own, so it is not for use inside another one.

use std::io;

use rtnetlink::packet_core::ErrorMessage;

mod address;
mod link;
mod neighbour;
mod route;

pub use address::Address;
pub use link::{Counters, Link, LinkKind};
pub use route::Route;

/// What a request failed at.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct NetlinkError {
    /// The request in words: `add 10.0.0.1/24 to eth0`.
    pub what: String,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

impl NetlinkError {
    /// The system's reason as a number.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

/// An rtnetlink socket.
#[derive(Debug)]
pub struct Netlink {
    runtime: tokio::runtime::Runtime,
    handle: rtnetlink::Handle,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        let failed = |source| NetlinkError { what: "open a netlink socket".to_owned(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let handle = {
            let _inside = runtime.enter();
            let (connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
            // It ends with the runtime, which this value owns.
            runtime.spawn(connection);
            handle
        };
        Ok(Self { runtime, handle })
    }

    fn wait<T>(
        &self,
        what: impl FnOnce() -> String,
        request: impl Future<Output = Result<T, rtnetlink::Error>>,
    ) -> Result<T, NetlinkError> {
        self.runtime.block_on(request).map_err(|error| NetlinkError { what: what(), source: reason(error) })
    }
}

/// The errno in an answer, or the answer in words.
fn reason(error: rtnetlink::Error) -> io::Error {
    if let rtnetlink::Error::NetlinkError(ErrorMessage { code: Some(code), .. }) = error {
        io::Error::from_raw_os_error(code.get().saturating_abs())
    } else {
        io::Error::other(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_a_missing_link_is_named() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap().unwrap();
        assert_eq!(lo.index, 1);
        assert_eq!(lo.mtu, 65_536);
        assert_eq!(netlink.link("no-such-link").unwrap(), None);
        assert!(netlink.links().unwrap().iter().any(|link| link.name == "lo"));
    }

    #[test]
    fn loopback_counts_what_crosses_it() {
        let netlink = Netlink::open().unwrap();
        let before = netlink.link("lo").unwrap().unwrap().counters.unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = netlink.link("lo").unwrap().unwrap().counters.unwrap();
        assert!(after.rx_packets > before.rx_packets);
        assert!(after.rx_bytes >= before.rx_bytes + 1028);
    }

    #[test]
    fn what_the_kernel_refuses_comes_with_its_reason() {
        let netlink = Netlink::open().unwrap();
        let error = netlink.delete_link(0x7fff_fff0, "a link that is not there").unwrap_err();
        assert!(matches!(error.errno(), Some(libc::ENODEV | libc::EPERM)), "{error:?}");
        assert!(error.to_string().contains("a link that is not there"));
    }
}
