//! Settings as a factor of a run: applied, read back, restored; refused ones leave their cells invalid.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::{Value, json};
use wglab::cell::Factor;
use wglab::record::{Run, Status};

use crate::product::{record, text, tun_is_open, wglab};

pub(crate) const TESTS: &[super::Test] =
    &[("settings_are_a_factor", are_a_factor), ("settings_of_reached_hosts_are_restored", are_restored)];

const LAB: &str = r#"
nodes   = ["a1", "a2"]
pairs   = ["a1>a2"]
compare = "settings"
engines = ["raw", "embedded"]
[underlay]
private = { family = "ipv4", mtu = 1450 }
[settings.base]
[settings.gro]
features = { gro = true }
sysctl = { "net.ipv4.tcp_slow_start_after_idle" = "0" }
[settings.small]
mtu = 1400
[settings.refused]
sysctl = { "net.core.netdev_max_backlog" = "5000" }
[[test]]
kind = "tcp-stream"
streams = 1
congestion_control = "cubic"
[profile.quick]
rounds = 2
duration = "100ms"
warmup = "20ms"
"#;

fn are_a_factor() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("lab.toml"), LAB)?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    assert_eq!(output.status.code(), Some(2), "some cells are invalid: {}", text(&output));
    assert_eq!(record.runs.len(), 2 * 4 * 2);
    for run in &record.runs {
        let raw = run.factors.get(Factor::Engine) == Some("raw");
        if !raw && !tun_is_open() {
            continue;
        }
        check(run, raw)?;
    }
    Ok(())
}

fn check(run: &Run, raw: bool) -> Result<(), Failed> {
    let level = run.factors.get(Factor::Settings).ok_or("a level")?;
    if level == "refused" {
        assert_eq!(run.status, Status::Invalid, "{level}");
        assert!(run.reason.as_ref().is_some_and(|reason| reason.contains("netdev_max_backlog")), "{:?}", run.reason);
        return Ok(());
    }
    assert_eq!(run.status, Status::Ok, "{level}: {:?}", run.reason);
    let mtu = if level == "small" { 1400 } else { 1450 };
    // 60 bytes go to a tunnel over IPv4.
    let mtu = if raw { mtu } else { mtu - 60 };
    let wanted = match level {
        "gro" => json!({"net.ipv4.tcp_slow_start_after_idle": "0", "private rx-gro": "on"}),
        "small" if raw => json!({"private mtu": "1400"}),
        "small" => json!({"private mtu": "1400", "wg0 mtu": "1340"}),
        _ => Value::Null,
    };
    for end in ["client", "server"] {
        assert_eq!(run.conditions.get(&format!("{end}.interface_mtu")), Some(&json!(mtu)), "{}", run.factors);
        assert_eq!(run.conditions.get(&format!("{end}.settings")).unwrap_or(&Value::Null), &wanted, "{}", run.factors);
    }
    Ok(())
}

/// Agents on a loopback of their own stand for two services of one real host.
fn are_restored() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("host.sh");
    let state = |node: &str| directory.path().join(format!("state-{node}"));
    // What the setting was all the time, and what is left at the end.
    fs::write(
        &script,
        format!(
            "setting=/proc/sys/net/ipv4/tcp_slow_start_after_idle; ip link set lo up\n\
             while cat $setting; do sleep 0.01; done >{state}$1.seen & seer=$!\n\
             {wglab} agent; code=$?; kill $seer\n\
             cat $setting /sys/class/net/lo/mtu >{state}$1; exit $code\n",
            wglab = env!("CARGO_BIN_EXE_wglab"),
            state = state("").display()
        ),
    )?;
    let reach = |node: &str| {
        format!("reach = [\"unshare\", \"--user\", \"--map-root-user\", \"--net\", \"sh\", {script:?}, {node:?}]")
    };
    // Each host answers itself: there is no network between the two.
    let lab = format!(
        "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [\"raw\"]\n[node.a1]\n{}\n\
         address = {{ private = \"127.0.0.1\" }}\n[node.a2]\n{}\naddress = {{ private = \"127.0.0.2\" }}\n\
         [underlay]\nprivate = {{ family = \"ipv4\", mtu = 1500 }}\n\
         [settings.s]\nmtu = 1400\nsysctl = {{ \"net.ipv4.tcp_slow_start_after_idle\" = \"0\" }}\n\
         [[test]]\nkind = \"ping\"\n[profile.quick]\nrounds = 1\nduration = \"400ms\"\n",
        reach("a1"),
        reach("a2")
    );
    fs::write(directory.path().join("lab.toml"), lab)?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let run = first(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    assert_eq!(run.conditions["client.settings"]["lo mtu"], json!("1400"), "{:?}", run.reason);
    for node in ["a1", "a2"] {
        assert_eq!(fs::read_to_string(state(node))?, "1\n65536\n", "{}", text(&output));
        let seen = fs::read_to_string(state(&format!("{node}.seen")))?;
        assert!(seen.starts_with('1') && seen.contains("0\n"), "it was never set at {node}: {}", text(&output));
    }
    Ok(())
}

fn first(directory: &Path) -> Result<Run, Failed> {
    record(directory)?.runs.into_iter().next().ok_or_else(|| "no run".into())
}
