use super::*;
use crate::topology::SHIPPED;
#[test]
fn shipped_topologies_plan() {
    for (name, text) in SHIPPED {
        for profile in Profile::ALL {
            let topology = Topology::parse(&format!("{name}.toml"), text).unwrap();
            let plan = plan(&topology, &Request { profile, ..Request::default() }).unwrap();
            println!(
                "{name} {profile} {:?} visits {} arr {} {}",
                plan.forecast,
                plan.visits.len(),
                plan.arrangements.len(),
                plan.hash()
            );
        }
    }
}
