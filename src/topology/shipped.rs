//! The topologies that come with the program, by name.

/// Name and text of each.
pub const SHIPPED: [(&str, &str); 6] = [
    ("two-stacks", include_str!("../../topologies/two-stacks.toml")),
    ("pair", include_str!("../../topologies/pair.toml")),
    ("four-nodes", include_str!("../../topologies/four-nodes.toml")),
    ("cross-directions", include_str!("../../topologies/cross-directions.toml")),
    ("parallel", include_str!("../../topologies/parallel.toml")),
    ("datagrams", include_str!("../../topologies/datagrams.toml")),
];

/// The text of the shipped topology called `name`.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
