//! The engine that is neither a daemon nor a device: `direct`, which needs no privilege.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::Value;
use wglab::cell::Factor;
use wglab::record::{Record, Run, Status};

use crate::left_over::Holdings;
use crate::product::{record, text, wglab, with_closed_tun};

pub(crate) const TESTS: &[super::Test] = &[
    ("direct_carries_datagrams_and_accounts_for_each", direct),
    ("direct_and_embedded_carry_each_other", mixed),
    ("a_closed_tun_leaves_raw_and_direct", closed_tun),
];

/// Two nodes with these engine levels and settings, over both families.
pub(crate) fn topology(directory: &Path, levels: &str, about: &str) -> Result<(), Failed> {
    let file = format!(
        "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [{levels}]\n{about}\
         [underlay]\nprivate = {{ family = \"ipv4\", mtu = 1450 }}\npublic-ipv6 = {{ family = \"ipv6\" }}\n\
         [[test]]\nkind = \"udp-stream\"\nrate = [\"2k/s\", \"max\"]\npayload = \"1200B\"\ndirection = \"both\"\nstreams = 2\n\
         [[test]]\nkind = \"udp-rr\"\n\
         [[test]]\nkind = \"tcp-rr\"\ncongestion_control = \"cubic\"\n\
         [[test]]\nkind = \"handshake\"\n\
         [profile.quick]\nrounds = 1\nduration = \"300ms\"\nwarmup = \"50ms\"\n"
    );
    Ok(fs::write(directory.join("lab.toml"), file)?)
}

pub(crate) fn of<'r>(record: &'r Record, engine: &str) -> Vec<&'r Run> {
    record.runs.iter().filter(|run| run.factors.get(Factor::Engine) == Some(engine)).collect()
}

pub(crate) fn check_ok(run: &Run) {
    assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
    assert!(!run.proof.is_empty() && run.proof.iter().all(|check| check.holds), "{:?}", run.proof);
}

/// Where nothing was lost, every datagram that the sender counted arrived once and in order, and the tunnel carried it.
fn check_accounts(run: &Run) -> Result<(), Failed> {
    let meters = run.meters.as_ref().ok_or("a run has meters")?;
    let reverse = run.factors.get(Factor::Direction) == Some("reverse");
    let (sender, receiver) = if reverse { (&meters.server, &meters.client) } else { (&meters.client, &meters.server) };
    let count = |end: &Value, name: &str| end["sockets"]["counts"][name].as_u64();
    let sent = count(sender, "sent_packets").ok_or("the sender counts")?;
    assert!(sent > 0);
    assert_eq!(count(receiver, "peer_sent_packets"), Some(sent), "{}", run.factors);
    for none in ["lost_packets", "reordered_packets", "duplicate_packets", "stale_packets", "socket_drops"] {
        assert_eq!(count(receiver, none), Some(0), "{none} of {}: {receiver}", run.factors);
    }
    let events = |end: &Value, name: &str| {
        let tunnels = end["tunnels"].as_object()?;
        tunnels.values().filter_map(|tunnel| tunnel["events"][name].as_u64()).max()
    };
    assert!(events(sender, "tun.read-packets").is_some_and(|packets| packets >= sent), "{sender}");
    assert!(events(receiver, "tun.write-packets").is_some_and(|packets| packets >= sent), "{receiver}");
    assert_eq!(events(sender, "drop.udp-send"), None, "{sender}");
    Ok(())
}

fn direct() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    topology(directory.path(), "\"raw\", \"direct\"", "[settings.narrow]\nmtu = 1400\n")?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("direct is measured with handshake, udp-rr, udp-stream and not with tcp-rr"), "{said}");
    let record = record(&directory.path().join("r"))?;
    let runs = of(&record, "direct");
    assert_eq!((runs.len(), of(&record, "raw").len()), (2 * 6, 2 * 6), "underlays x tests");
    for run in runs {
        check_ok(run);
        assert!(run.proof.iter().any(|check| check.seen.contains("it has no device")), "{:?}", run.proof);
        let figure = ["rr_p50_ns", "packets_per_second", "handshakes_per_second"];
        assert!(figure.iter().any(|name| run.metrics.contains_key(*name)), "{:?}", run.metrics);
        let granted = run.conditions.get("client.engine_granted").ok_or("the kernel says what it granted")?;
        assert!(granted["udp_receive_buffer"].as_u64().is_some_and(|bytes| bytes > 0), "{granted}");
        // It is the agent's own work, and cannot be told from the generator's.
        assert!(!run.metrics.contains_key("engine_cpu_seconds"));
        if run.factors.get(Factor::Rate) == Some("2k/s") {
            check_accounts(run)?;
        }
    }
    before.restored()
}

/// The wire is the same: one end may have a device, and the other none.
fn mixed() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    topology(directory.path(), "\"direct>embedded\", \"embedded>direct\"", "")?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = record(&directory.path().join("r"))?;
    assert_eq!(record.runs.len(), 2 * 2 * 6, "levels x underlays x tests");
    for run in &record.runs {
        check_ok(run);
        let device =
            if run.metrics.contains_key("handshakes_per_second") { "cross its device" } else { "by its device" };
        assert!(run.proof.iter().any(|check| check.seen.contains(device)), "{:?}", run.proof);
        assert!(run.proof.iter().any(|check| check.seen.contains("it has no device")), "{:?}", run.proof);
        if run.factors.get(Factor::Rate) == Some("2k/s") {
            check_accounts(run)?;
        }
    }
    Ok(())
}

/// As a user who may not open the device: what needs none is measured, and what needs it is listed.
fn closed_tun() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let output = with_closed_tun(directory.path(), "run datagrams --out r --rounds 1 --duration 200ms")?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let record = record(&directory.path().join("r"))?;
    for engine in ["raw", "direct"] {
        let runs = of(&record, engine);
        assert_eq!(runs.len(), 3, "{engine}");
        runs.into_iter().for_each(check_ok);
    }
    for run in of(&record, "embedded") {
        assert_eq!(run.status, Status::Invalid);
        assert!(run.reason.as_ref().is_some_and(|reason| reason.contains("/dev/net/tun")), "{:?}", run.reason);
    }
    Ok(())
}
