use super::*;

#[test]
fn factors_are_kebab_case_in_text_and_json() {
    for factor in Factor::ALL {
        assert_eq!(serde_json::to_value(factor).unwrap(), factor.name());
        assert_eq!(factor.name().parse(), Ok(factor));
    }
    for kind in TestKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(kind.name().parse(), Ok(kind));
    }
}

#[test]
fn an_unknown_word_is_refused_with_the_likely_one() {
    let error = "underlays".parse::<Factor>().unwrap_err().to_string();
    assert!(error.contains("did you mean `underlay`?"), "{error}");
    let error = "colour".parse::<Factor>().unwrap_err().to_string();
    assert!(!error.contains("did you mean") && error.contains("congestion-control"), "{error}");
    let error = "tcp_stream".parse::<TestKind>().unwrap_err().to_string();
    assert!(error.contains("did you mean `tcp-stream`?"), "{error}");
    let error = "tcp".parse::<TestKind>().unwrap_err().to_string();
    assert!(!error.contains("did you mean `udp"), "{error}");
    assert_eq!(nearest("c", ["a", "b"]), None);
    assert_eq!(nearest("a3", ["a1", "frankfurt"]), Some("a1"));
    assert_eq!(nearest("frank", ["a1", "frankfurt"]), Some("frankfurt"));
}

#[test]
fn a_cell_is_a_map_and_its_identity() {
    let cell = Cell::new().with(Factor::Stack, "standard>ebpf").with(Factor::Pair, "a1>a2");
    let same = Cell::new().with(Factor::Pair, "a1>a2").with(Factor::Stack, "standard>ebpf");
    assert_eq!(cell, same);
    assert_eq!(cell.to_string(), "pair=a1>a2 stack=standard>ebpf");
    assert_eq!(serde_json::to_string(&cell).unwrap(), r#"{"pair":"a1>a2","stack":"standard>ebpf"}"#);
    assert_eq!(serde_json::from_str::<Cell>(&serde_json::to_string(&cell).unwrap()).unwrap(), cell);
    assert_eq!(cell.get(Factor::Engine), None);
    assert_eq!(ends(cell.get(Factor::Stack).unwrap()), ("standard", "ebpf"));
    assert_eq!(ends("raw"), ("raw", "raw"));
}

#[test]
fn a_hostile_level_is_escaped_on_screens() {
    let cell = Cell::new().with(Factor::Engine, "a\u{1b}[31m\nb\u{9b}");
    let text = cell.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[test]
fn every_metric_is_found_by_its_name_and_carries_its_unit() {
    for line in METRICS {
        assert_eq!(metric(line.name), Some(line));
        let suffix = match line.quantity {
            Quantity::BitRate => "_bits_per_second",
            Quantity::Frequency => "_per_second",
            Quantity::Time => "_ns",
            Quantity::Ratio => "_ratio",
            Quantity::Bytes => "bytes",
            Quantity::Count => "",
            Quantity::CpuPerGigabit => "_seconds_per_gigabit",
            Quantity::CpuTime => "_seconds",
        };
        assert!(line.name.contains(suffix), "{}", line.name);
        assert!(line.floor > 0.0, "{} has no floor", line.name);
        assert!(!(line.gated && line.better == Better::Neither), "{} is judged without a direction", line.name);
    }
    assert_eq!(METRICS.iter().map(|line| line.name).collect::<std::collections::BTreeSet<_>>().len(), METRICS.len());
    let gated: Vec<_> = METRICS.iter().filter(|line| line.gated).map(|line| line.name).collect();
    assert_eq!(
        gated,
        ["throughput_bits_per_second", "rr_p50_ns", "crr_per_second", "probe_p99_ns", "cpu_seconds_per_gigabit"]
    );
}

#[test]
fn the_floors_are_above_changes_of_almost_nothing() {
    // Field case S-13: loss 0.001 % -> 0.003 % and jitter 4 us -> 7 us are nothing, loss 0 -> 2 % is something.
    assert!(metric("loss_ratio").unwrap().floor > 0.00002 && metric("loss_ratio").unwrap().floor < 0.02);
    assert!(metric("jitter_ns").unwrap().floor > 3_000.0);
}

#[test]
fn values_read_as_people_write_them() {
    let show = |name: &str, value: f64| metric(name).unwrap().format(value);
    assert_eq!(show("throughput_bits_per_second", 3.36e9), "3.36 Gbit/s");
    assert_eq!(show("rr_p99_ns", 172_000.0), "172 µs");
    assert_eq!(show("crr_per_second", 14_260.4), "14,260/s");
    assert_eq!(show("crr_per_second", 1_234_567.0), "1,234,567/s");
    assert_eq!(show("loss_ratio", 0.003), "0.3 %");
    assert_eq!(show("loss_ratio", 0.0), "0 %");
    assert_eq!(show("bytes_per_packet", 1514.0), "1,514 B");
    assert_eq!(show("cpu_seconds_per_gigabit", 0.4215), "0.421 s/Gbit");
    assert_eq!(show("rr_p50_ns", f64::NAN), "n/a");
    assert_eq!(show("rr_p50_ns", -4_000.0), "-4 µs");
}
