//! What a name may be made of. A name reaches interfaces, text protocols, terminals and files, so it is checked once, here.

/// The longest interface name that Linux takes, in bytes (`IFNAMSIZ` 16, with its NUL; include/uapi/linux/if.h).
const INTERFACE_NAME_BYTES: usize = 15;

/// The longest name of anything that is no interface.
const NAME_BYTES: usize = 32;

/// Names that no interface can have: directories of sysfs, a file in /sys/class/net, and the wildcards of
/// /proc/sys/net/*/conf.
const RESERVED: [&str; 5] = [".", "..", "all", "default", "bonding_masters"];

/// Prefixes that, followed by digits, name what a host or this lab itself makes.
const TAKEN_PREFIXES: [&str; 3] = ["eth", "wg", "wglab"];

/// Whether `name` can be an interface's: wg-quick's character set (`[a-zA-Z0-9_=+.-]`), at most 15 bytes.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn check_interface(name: &str) -> Result<(), String> {
    check(name, INTERFACE_NAME_BYTES, "as it names an interface")
}

/// Whether `name` can be an underlay's: an interface of every node is called so, beside `lo` and the tunnels.
///
/// # Errors
/// The reason, as the end of a sentence.
pub(super) fn check_underlay(name: &str) -> Result<(), String> {
    check_interface(name)?;
    let taken = TAKEN_PREFIXES.iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
    });
    if taken || name == "lo" {
        return Err(
            "hosts and tunnels have interfaces of that name; name the network instead, like `private`".to_owned()
        );
    }
    Ok(())
}

/// Whether `name` can be a node's, a stack's, a set of settings', an engine's or a test's.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn check_name(name: &str) -> Result<(), String> {
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
