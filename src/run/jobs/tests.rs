use super::*;
use crate::plan::{Request, plan};
use crate::topology::Topology;

const LAB: &str = "nodes = [\"a\", \"b\"]\npairs = [\"a>b\"]\nengines = [\"raw\", \"embedded\"]\ntunnels = [1, 3]\n\
    [underlay]\nprivate = { family = \"ipv4\" }\npublic-ipv6 = { family = \"ipv6\" }\n\
    [[test]]\nkind = \"tcp-stream\"\nstreams = 4\n";

fn of(tunnels: Option<u32>, change: impl Fn(&mut Plan)) -> anyhow::Result<(Job, Job)> {
    let mut plan = plan(&Topology::parse("t.toml", LAB).unwrap(), &Request::default()).unwrap();
    change(&mut plan);
    let wanted = |arrangement: &&Arrangement| arrangement.tunnels == tunnels && arrangement.underlay == "public-ipv6";
    let arrangement = plan.arrangements.iter().find(wanted).unwrap().clone();
    jobs(&plan, &arrangement, &plan.tests[0], 1)
}

#[test]
fn a_job_has_a_path_for_each_tunnel_and_both_ends_agree() {
    for (tunnels, more) in [(None, 0), (Some(1), 0), (Some(3), 2)] {
        let (client, server) = of(tunnels, |_| {}).unwrap();
        assert_eq!((client.more_paths.len(), server.more_paths.len()), (more, more));
        let mut interfaces = vec![client.local_interface.clone().unwrap()];
        for (here, there) in client.more_paths.iter().zip(&server.more_paths) {
            assert_eq!((here.local, here.peer), (there.peer, there.local));
            assert_eq!(here.local_interface, there.local_interface, "one name on both nodes");
            interfaces.extend(here.local_interface.clone());
        }
        assert_eq!(client.local, server.peer.as_ref().unwrap().0);
        // Every second device is the other underlay's.
        let expected = match tunnels {
            None => &["public-ipv6"][..],
            Some(1) => &["wg1"],
            Some(_) => &["wg1", "wg3", "wg5"],
        };
        assert_eq!(interfaces, expected);
    }
}

#[test]
fn a_tunnel_that_the_plan_lacks_is_an_error_and_no_narrower_level() {
    let error = of(Some(3), |plan| plan.tunnels.retain(|tunnel| tunnel.number != 1)).unwrap_err();
    assert_eq!(error.to_string(), "the plan has 2 of the 3 tunnels between a>b");
}
