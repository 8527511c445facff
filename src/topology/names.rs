//! What a name may be made of. A name reaches interfaces, text protocols, terminals and files, so it is checked once, here.

pub use crate::text::check_interface;
use crate::text::check_name as check_text;

/// The longest name of anything that is no interface.
const NAME_BYTES: usize = 32;

/// Prefixes that, followed by digits, name what a host or this lab itself makes.
const TAKEN_PREFIXES: [&str; 3] = ["eth", "wg", "wglab"];

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
    check_text(name, NAME_BYTES, "so that tables stay readable")
}
