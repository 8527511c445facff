use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::agent::frame::{self, MAGIC};
use crate::agent::messages::{Hello, PROTOCOL};
use crate::plan::{Request, plan};
use crate::reach;
use crate::sys::proc::CpuTimes;
use crate::topology::Topology;

const LAB: &str = "nodes = [\"a\", \"b\"]\npairs = [\"a>b\"]\nengines = [\"raw\"]\n[underlay]\nprivate = { family = \"ipv4\" }\n\
    [[test]]\nkind = \"tcp-rr\"\n";

/// An agent that tells just this, whatever it is asked.
async fn agent(directory: &Path, node: &str, tells: &[Tell]) -> Link {
    let hello = || Tell::Hello(Hello { protocol: PROTOCOL, version: "1".to_owned(), pid: 1 });
    let mut told = MAGIC.to_vec();
    told.extend(frame::encode(&hello()).unwrap());
    for tell in tells {
        // Hellos are told as this one is.
        let tell = if matches!(tell, Tell::Hello(_)) { &hello() } else { tell };
        told.extend(frame::encode(tell).unwrap());
    }
    let file = directory.join(node).display().to_string();
    fs::write(&file, told).unwrap();
    let argv = ["sh", "-c", &format!("cat '{file}'; cat > /dev/null")].map(str::to_owned);
    Link::open(reach::command(node, &argv).unwrap()).await.unwrap().0
}

/// Both ends fail at once: the `Stop` that the first one's failure sends finds the other's job over, and is answered on its own.
#[tokio::test]
async fn a_stop_that_comes_too_late_leaves_both_agents_in_step() {
    let plan = plan(&Topology::parse("t.toml", LAB).unwrap(), &Request::default()).unwrap();
    let (client, server) = jobs::jobs(&plan, &plan.arrangements[0], &plan.tests[0], 1).unwrap();
    let hello = Tell::Hello(Hello { protocol: PROTOCOL, version: String::new(), pid: 1 });
    let failed = Tell::Failed { what: "nothing arrived".to_owned() };
    let tells = [Tell::Ready { ports: vec![1] }, failed, Tell::Done, hello, Tell::Status(BTreeMap::new())];
    let directory = tempfile::tempdir().unwrap();
    let conversation = async {
        let mut links = [agent(directory.path(), "a", &tells).await, agent(directory.path(), "b", &tells).await];
        let [at_client, at_server] = &mut links;
        let why = execute(at_client, at_server, client, server).await.unwrap().unwrap_err();
        assert_eq!(why, "node a: nothing arrived; node b: nothing arrived");
        for link in &mut links {
            let told = link.ask(&Ask::Status, PREPARE).await.unwrap();
            assert!(matches!(told, Tell::Status(_)), "{} answers another question: {told:?}", link.node());
        }
    };
    // What follows a command's errors is a local task.
    tokio::task::LocalSet::new().run_until(conversation).await;
}

#[test]
fn busy_processors_bind_what_fills_them_and_not_one_exchange_at_a_time() {
    let busy = |softirq_ns| CpuTimes { system_ns: 990 - softirq_ns, softirq_ns, idle_ns: 10, ..CpuTimes::default() };
    let is = |kind, softirq_ns| {
        let outcome = serde_json::from_value(serde_json::json!({
            "traffic": {"role": "client", "kind": "tcp-rr", "direction": "forward", "counts": {}, "conditions": {}},
            "meters": {"length_ns": 1_000, "cpus": {"0": busy(softirq_ns), "1": busy(0)}}, "tunnels": {},
        }))
        .unwrap();
        full(&outcome, kind, "this machine's").map(|bottleneck| bottleneck.is)
    };
    assert_eq!(is(TestKind::TcpStream, 0).as_deref(), Some("CPU"));
    for kind in [TestKind::TcpRr, TestKind::UdpRr, TestKind::TcpCrr, TestKind::Ping] {
        assert_eq!(is(kind, 0), None, "{kind}");
        assert_eq!(is(kind, 900).as_deref(), Some("receive path"), "{kind}");
    }
}
