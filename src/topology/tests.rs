use super::*;
#[test]
fn shipped_topologies_parse() {
    for (name, text) in SHIPPED {
        match Topology::parse(&format!("{name}.toml"), text) {
            Ok(topology) => {
                assert_eq!(topology.name, name);
                assert!(topology.question.is_some_and(|question| question.ends_with('?') && !question.contains(name)));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
