use super::*;

/// An end whose devices are served by these processes, each with its CPU nanoseconds and peak memory.
fn end(devices: &[(&str, u32)], processes: &[(u32, u64, Option<u64>)]) -> JobOutcome {
    let status = |pid: u32| {
        serde_json::json!({
            "version": null, "listen_port": null, "fwmark": null, "peers": [], "counters_mean": "unknown", "engine": null,
            "process": {"pid": pid, "cpu_user_ns": 0, "cpu_system_ns": 0, "peak_rss_bytes": 0},
        })
    };
    let tunnels: BTreeMap<&str, Value> =
        devices.iter().map(|(name, pid)| (*name, json!({"before": status(*pid), "after": status(*pid)}))).collect();
    let used: BTreeMap<String, Value> = processes
        .iter()
        .map(|(pid, cpu_ns, memory)| {
            let used = json!({
                "user_ns": 0, "system_ns": 0, "cpu_ns": cpu_ns, "peak_memory_bytes": memory, "threads": 1,
            });
            (pid.to_string(), used)
        })
        .collect();
    serde_json::from_value(json!({
        "traffic": {"role": "client", "kind": "tcp-stream", "direction": "forward", "counts": {}, "conditions": {}},
        "meters": {"processes": used}, "tunnels": tunnels,
    }))
    .unwrap()
}

fn engine_of(client: &JobOutcome, server: &JobOutcome, devices: &[[&str; 2]]) -> BTreeMap<String, f64> {
    let mut out = Measured::default();
    let direction = Direction::Forward;
    engine(&mut out, Both { client, server, one_machine: true, pinned: None, direction, devices });
    out.metrics
}

#[test]
fn an_ends_engines_are_those_of_its_tunnels_together_and_of_no_other() {
    let processes = [(10, 1_000_000_000, Some(30)), (11, 500_000_000, Some(20)), (12, 9_000_000_000, Some(900))];
    let client = end(&[("wg0", 10), ("wg1", 11), ("wg2", 12)], &processes);
    let server = end(&[("wg0", 10), ("wg1", 11)], &[(10, 250_000_000, Some(60)), (11, 250_000_000, Some(1))]);
    let two = engine_of(&client, &server, &[["wg0", "wg0"], ["wg1", "wg1"]]);
    assert_eq!(two["engine_cpu_seconds"], 2.0);
    // The larger end: 60 + 1.
    assert_eq!(two["engine_peak_memory_bytes"], 61.0);
    let one = engine_of(&client, &server, &[["wg0", "wg0"]]);
    assert_eq!((one["engine_cpu_seconds"], one["engine_peak_memory_bytes"]), (1.25, 60.0));
    assert!(engine_of(&client, &server, &[]).is_empty(), "raw has no engine");
}

#[test]
fn a_process_of_two_devices_counts_once_and_one_without_figures_leaves_none() {
    let both = end(&[("wg0", 10), ("wg1", 10)], &[(10, 1_000_000_000, Some(30))]);
    let devices = [["wg0", "wg0"], ["wg1", "wg1"]];
    let shared = engine_of(&both, &both, &devices);
    assert_eq!((shared["engine_cpu_seconds"], shared["engine_peak_memory_bytes"]), (2.0, 30.0));
    let half = end(&[("wg0", 10), ("wg1", 11)], &[(10, 1_000_000_000, Some(30))]);
    assert!(engine_of(&both, &half, &devices).is_empty(), "the second tunnel's engine was not metered");
    let no_memory = end(&[("wg0", 10), ("wg1", 11)], &[(10, 1, Some(30)), (11, 1, None)]);
    let metrics = engine_of(&no_memory, &no_memory, &devices);
    assert!(metrics.contains_key("engine_cpu_seconds") && !metrics.contains_key("engine_peak_memory_bytes"));
}
