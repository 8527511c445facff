//! Kernel settings: `/proc/sys` (sysctl(8)), read, written and read back.

use std::fs;
use std::io;

/// Why a setting was not read or not set.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// Not a name: it would leave `/proc/sys`.
    #[error("`{name}` is not the name of a kernel setting")]
    BadName {
        /// What was given.
        name: String,
    },
    /// The kernel, or this network namespace, does not have it.
    #[error("kernel setting {name} does not exist here")]
    Missing {
        /// Its name.
        name: String,
    },
    /// It may not be read or written here.
    #[error("kernel setting {name} cannot be {what}")]
    Refused {
        /// Its name.
        name: String,
        /// `read`, or `set to` and the value.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel took the value and holds another.
    #[error("kernel setting {name} was set to `{asked}` and is `{is}`")]
    NotGranted {
        /// Its name.
        name: String,
        /// What was written.
        asked: String,
        /// What it reads as.
        is: String,
    },
}

/// What a write changed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SysctlChange {
    /// The setting's name.
    pub name: String,
    /// Its value before.
    pub before: String,
    /// Its value, read back.
    pub after: String,
}

/// The value of a setting, its white space made single.
pub fn read(name: &str) -> Result<String, SysctlError> {
    fs::read_to_string(path(name)?).map(|text| normal(&text)).map_err(|source| refusal(name, "read".to_owned(), source))
}

/// Sets a setting and reads it back. A value that it has already is not written.
pub fn write(name: &str, value: &str) -> Result<SysctlChange, SysctlError> {
    let before = read(name)?;
    let asked = normal(value);
    if before == asked {
        return Ok(SysctlChange { name: name.to_owned(), after: before.clone(), before });
    }
    fs::write(path(name)?, value).map_err(|source| refusal(name, format!("set to `{asked}`"), source))?;
    let after = read(name)?;
    if after == asked {
        Ok(SysctlChange { name: name.to_owned(), before, after })
    } else {
        Err(SysctlError::NotGranted { name: name.to_owned(), asked, is: after })
    }
}

fn refusal(name: &str, what: String, source: io::Error) -> SysctlError {
    let name = name.to_owned();
    if source.kind() == io::ErrorKind::NotFound {
        SysctlError::Missing { name }
    } else {
        SysctlError::Refused { name, what, source }
    }
}

/// The file of a setting. As in sysctl(8), the first separator decides: in `net/ipv4/conf/eth0.5/rp_filter` a dot is
/// part of a name; in `net.ipv4.conf.eth0/5.rp_filter` a slash stands for it.
fn path(name: &str) -> Result<String, SysctlError> {
    let bad = || SysctlError::BadName { name: name.to_owned() };
    let dots_first = name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('.'));
    let parts: Vec<String> = if dots_first {
        name.split('.').map(|part| part.replace('/', ".")).collect()
    } else {
        name.split('/').map(str::to_owned).collect()
    };
    let good = |part: &String| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\n']);
    if parts.len() < 2 || !parts.iter().all(good) {
        return Err(bad());
    }
    Ok(format!("/proc/sys/{}", parts.join("/")))
}

fn normal(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_and_nothing_else() {
        assert_eq!(path("net.ipv4.ip_forward").unwrap(), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(path("net.ipv4.conf.eth0/5.rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.5/rp_filter");
        assert_eq!(path("net/ipv4/conf/eth0.5/rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.5/rp_filter");
        for bad in ["", "net", "net/../../../etc/passwd", "net...x", "/etc/passwd", "net..x"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_read_and_missing_ones_named() {
        assert!(read("net.ipv4.tcp_rmem").unwrap().split(' ').count() == 3);
        let error = read("net.ipv4.no_such_setting").unwrap_err();
        assert!(matches!(error, SysctlError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_value_that_is_there_needs_no_right_to_write() {
        let value = read("kernel.ostype").unwrap();
        let change = write("kernel.ostype", &value).unwrap();
        assert_eq!(change.before, change.after);
        assert!(matches!(write("kernel.ostype", "Other"), Err(SysctlError::Refused { .. })));
    }
}
