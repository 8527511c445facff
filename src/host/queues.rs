//! Which CPUs take an interface's packets: receive packet steering (Linux, Documentation/networking/scaling.rst),
//! `/sys/class/net/<interface>/queues/rx-<n>/rps_cpus`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// CPUs by receive queue (`rx-0`). No CPU: the one that got the interrupt.
pub type ReceiveCpus = BTreeMap<String, Vec<u32>>;

/// Why steering was not read or not set.
#[derive(Debug, thiserror::Error)]
pub enum QueuesError {
    /// `/sys` does not show it.
    #[error("/sys/class/net/{interface} is not there: /sys shows another network namespace, or the interface is gone")]
    NotShown {
        /// The interface.
        interface: String,
    },
    /// Only root of the machine may (Linux, net/core/net-sysfs.c, `store_rps_map`).
    #[error("receive packet steering of {interface} needs root outside of any user namespace; run this as root")]
    NotRoot {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {what} receive packet steering of {interface}")]
    System {
        /// `read` or `set`.
        what: &'static str,
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel took the CPUs and shows others.
    #[error("queue {queue} of {interface} was to use CPUs {asked:?} and uses {is:?}")]
    NotGranted {
        /// The interface.
        interface: String,
        /// The queue.
        queue: String,
        /// What was asked.
        asked: Vec<u32>,
        /// What it is.
        is: Vec<u32>,
    },
}

/// The CPUs of each receive queue.
pub fn receive_cpus(interface: &str) -> Result<ReceiveCpus, QueuesError> {
    let mut cpus = ReceiveCpus::new();
    for queue in queues(interface)? {
        let text = fs::read_to_string(file(interface, &queue)).map_err(|source| system("read", interface, source))?;
        let mask = parse_mask(&text).ok_or_else(|| {
            system(
                "read",
                interface,
                io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is no mask", text.trim())),
            )
        })?;
        cpus.insert(queue, mask);
    }
    Ok(cpus)
}

/// Lets every receive queue use `cpus`, and says what they used before.
pub fn spread(interface: &str, cpus: &[u32]) -> Result<ReceiveCpus, QueuesError> {
    let before = receive_cpus(interface)?;
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    set_receive_cpus(interface, &before.keys().map(|queue| (queue.clone(), sorted.clone())).collect())?;
    Ok(before)
}

/// Sets the CPUs of each queue, and reads them back.
pub fn set_receive_cpus(interface: &str, cpus: &ReceiveCpus) -> Result<(), QueuesError> {
    let before = receive_cpus(interface)?;
    for (queue, cpus) in cpus.iter().filter(|(queue, cpus)| before.get(*queue) != Some(*cpus)) {
        fs::write(file(interface, queue), mask(cpus)).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => {
                QueuesError::NotRoot { interface: interface.to_owned(), source }
            }
            _ => system("set", interface, source),
        })?;
    }
    let after = receive_cpus(interface)?;
    for (queue, asked) in cpus {
        let is = after.get(queue).cloned().unwrap_or_default();
        if is != *asked {
            let (interface, queue, asked) = (interface.to_owned(), queue.clone(), asked.clone());
            return Err(QueuesError::NotGranted { interface, queue, asked, is });
        }
    }
    Ok(())
}

fn system(what: &'static str, interface: &str, source: io::Error) -> QueuesError {
    QueuesError::System { what, interface: interface.to_owned(), source }
}

fn directory(interface: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join("queues")
}

fn file(interface: &str, queue: &str) -> PathBuf {
    directory(interface).join(queue).join("rps_cpus")
}

fn queues(interface: &str) -> Result<Vec<String>, QueuesError> {
    let entries = fs::read_dir(directory(interface)).map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            QueuesError::NotShown { interface: interface.to_owned() }
        } else {
            system("read", interface, source)
        }
    })?;
    let mut queues = Vec::new();
    for entry in entries {
        let name = entry.map_err(|source| system("read", interface, source))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("rx-") {
            queues.push(name);
        }
    }
    queues.sort();
    Ok(queues)
}

/// CPUs as the kernel writes them: hexadecimal words of 32 bits, the highest first, with commas between.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word =
        |index: u32| cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0_u32, |word, cpu| word | 1 << (cpu % 32));
    (0..words).rev().map(|index| format!("{:08x}", word(index))).collect::<Vec<_>>().join(",")
}

fn parse_mask(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for (index, word) in text.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let base = u32::try_from(index).ok()? * 32;
        cpus.extend((0..32).filter(|bit| word & (1 << bit) != 0).map(|bit| base + bit));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(&[]), "00000000");
        assert_eq!(mask(&[0, 1]), "00000003");
        assert_eq!(mask(&[0, 35]), "00000008,00000001");
        assert_eq!(parse_mask("00000008,00000001\n").unwrap(), [0, 35]);
        assert_eq!(parse_mask("3").unwrap(), [0, 1]);
        assert_eq!(parse_mask("0").unwrap(), [] as [u32; 0]);
        assert!(parse_mask("x").is_none());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = receive_cpus("no-such-one").unwrap_err().to_string();
        assert!(error.contains("no-such-one"), "{error}");
    }
}
