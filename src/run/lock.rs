//! One measurement at a time on a machine: labs do not touch each other, but they share the CPUs.
//!
//! The lock is a listening socket in the abstract namespace (unix(7)): it goes with its holder however that ends, leaves no
//! file, and tells who holds it. It reaches as far as one network namespace does; docs/limits.md says so.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use anyhow::Context;
use tokio::io::AsyncReadExt;

const NAME: &str = "wglab-run-lock";

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _listener: UnixListener,
}

/// Takes the lock; where another run holds it, says so once by `on_wait` (with the holder's process id) and waits for its end.
pub(super) async fn take(on_wait: impl FnMut(i32)) -> anyhow::Result<Lock> {
    take_named(NAME, on_wait).await
}

async fn take_named(name: &str, mut on_wait: impl FnMut(i32)) -> anyhow::Result<Lock> {
    let address = SocketAddr::from_abstract_name(name)?;
    let mut told = None;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Lock { _listener: listener }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).context("cannot take the machine-wide lock for measurements"),
        }
        // The holder may end between the two calls: then the connection is refused, and the next turn takes the lock.
        let Ok(stream) = UnixStream::connect_addr(&address) else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let holder = stream.peer_cred()?.pid().unwrap_or(0);
        if told != Some(holder) {
            on_wait(holder);
            told = Some(holder);
        }
        // Nobody accepts: the read ends, well or in error, when the holder does.
        let _ended = stream.read(&mut [0]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_second_waits_for_the_first_and_knows_it() {
        let name = format!("wglab-lock-test-{}", std::process::id());
        let first = take_named(&name, |_| panic!("nobody holds it")).await.unwrap();
        let mut holders = Vec::new();
        let second = take_named(&name, |pid| holders.push(pid));
        let release = async {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second, release);
        second.unwrap();
        assert_eq!(holders, [i32::try_from(std::process::id()).unwrap()]);
    }
}
