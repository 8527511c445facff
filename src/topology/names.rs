//! What a name may be made of. A name reaches interfaces, text protocols, terminals and files, so it is checked once, here.

/// The longest interface name that Linux takes, in bytes (`IFNAMSIZ` 16, with its NUL; include/uapi/linux/if.h).
pub(super) const INTERFACE_NAME_BYTES: usize = 15;

/// The longest name of anything that is no interface.
const NAME_BYTES: usize = 32;

/// Names that are no interface's: directories in sysfs, and wildcards in /proc/sys/net/*/conf and in nftables.
const RESERVED: [&str; 4] = [".", "..", "all", "default"];

/// Whether `name` can be an interface's: wg-quick's character set (`[a-zA-Z0-9_=+.-]`), at most 15 bytes.
pub(super) fn check_interface(name: &str) -> Result<(), String> {
    check(name, INTERFACE_NAME_BYTES, "as it names an interface")
}

/// Whether `name` can be a node's, a stack's, a set of settings', an engine's or a test's.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    check(name, NAME_BYTES, "so that tables stay readable")
}

fn check(name: &str, longest: usize, why: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("it is empty".to_owned());
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` is reserved by the kernel"));
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_=+.-".contains(*c))) {
        return Err(format!("`{}` is not one of a-z A-Z 0-9 _ = + . -", odd.escape_debug()));
    }
    if name.starts_with('-') {
        return Err("it begins with `-`, which reads as an option".to_owned());
    }
    if name.len() > longest {
        return Err(format!("it has {} characters, and {longest} is the limit, {why}", name.len()));
    }
    Ok(())
}
