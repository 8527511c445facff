use serde_json::json;

use super::*;

const GOLDEN: &str = include_str!("golden/v1.jsonl");

fn header() -> Header {
    Header {
        plan: json!({"arrangements": 2}),
        nodes: BTreeMap::from([("a1".to_owned(), json!({"kernel": "6.18.0"}))]),
        ..fixture::Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]).record.header
    }
}

fn run(order: u32) -> Run {
    Run {
        round: 0,
        session: None,
        order,
        status: Status::Ok,
        reason: None,
        at_ms: Some(1200),
        factors: Cell::new().with(Factor::Pair, "a1>a2").with(Factor::Engine, "embedded"),
        metrics: BTreeMap::from([("throughput_bits_per_second".to_owned(), 9.125e8)]),
        conditions: BTreeMap::from([("tunnel_mtu".to_owned(), json!(1420))]),
        proof: vec![Check {
            check: "tunnel bytes carry the generator's bytes".to_owned(),
            expected: "at least 68437500 bytes".to_owned(),
            seen: "70912340 bytes".to_owned(),
            holds: true,
        }],
        bottleneck: None,
        cautions: Vec::new(),
        meters: Some(Meters { client: json!({"cpu": []}), server: json!({"cpu": []}) }),
        histograms: BTreeMap::from([(
            "probe".to_owned(),
            Histogram { unit: "ns".to_owned(), counts: vec![(150_000, 40), (310_000, 2)] },
        )]),
        series: BTreeMap::from([(
            "received".to_owned(),
            Series { unit: "bytes".to_owned(), step_ms: 100, values: vec![Some(11_406_250.0), None] },
        )]),
    }
}

fn end(runs: u32) -> End {
    End { status: EndStatus::Complete, reason: None, runs, duration_ms: 8000, precision: None, awaits_phase: None }
}

fn whole() -> String {
    [header().to_line(), run(0).to_line(), run(1).to_line(), end(2).to_line()].map(Result::unwrap).concat()
}

#[test]
fn the_golden_record_of_version_1_is_read() {
    let record = Record::parse(GOLDEN).unwrap();
    assert_eq!(record.header.version, 1);
    assert_eq!(record.header.compare, Some(Factor::Stack));
    assert_eq!(record.header.levels[&Factor::Stack], ["standard", "ebpf"]);
    assert!(record.is_complete());
    assert_eq!(record.runs.len(), 4);
    assert_eq!(record.usable().count(), 2, "one run failed, one has an unproved path");
    assert_eq!(record.runs[0].metrics["throughput_bits_per_second"], 3_360_000_000.0);
    assert_eq!(record.runs[0].bottleneck.as_ref().unwrap().is, "receiver cpu");
    assert_eq!(record.runs[0].cautions[0].kind, "offload-fallback");
    assert_eq!(record.runs[3].reason.as_deref(), Some("no handshake within 5 s"));
}

#[test]
fn the_golden_record_is_what_this_version_writes() {
    let record = Record::parse(GOLDEN).unwrap();
    let mut written = record.header.to_line().unwrap();
    for run in &record.runs {
        written += &run.to_line().unwrap();
    }
    written += &record.end.unwrap().to_line().unwrap();
    assert_eq!(written, GOLDEN);
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let record = Record::parse(whole()).unwrap();
    assert_eq!(record.header, header());
    assert_eq!(record.runs, [run(0), run(1)]);
    assert_eq!(record.end, Some(end(2)));
    assert_eq!((record.cut, record.whole_bytes), (None, whole().len()));
}

#[test]
fn a_number_that_is_not_finite_is_refused_when_written() {
    let mut bad = run(0);
    bad.metrics.insert("loss_ratio".to_owned(), f64::NAN);
    assert_eq!(
        bad.to_line(),
        Err(RecordError::NotFinite { field: "metrics.loss_ratio".to_owned(), value: "NaN".to_owned() })
    );
    let mut bad = run(0);
    bad.series.get_mut("received").unwrap().values.push(Some(f64::INFINITY));
    assert!(bad.to_line().unwrap_err().to_string().contains("series.received.values[2]"));
    let mut bad = run(0);
    bad.conditions.insert("udp".to_owned(), json!({"rcvbuf": f64::NAN}));
    assert_eq!(bad.to_line(), Err(RecordError::Null { field: "conditions.udp.rcvbuf".to_owned() }));
    let mut bad = header();
    bad.min_effect = Some(f64::NAN);
    assert!(bad.to_line().is_err());
}

#[test]
fn what_no_number_is_is_refused_when_read_with_its_place() {
    for (text, byte) in [("-nan", 2), ("nan", 2), ("1e999", 5), ("null", 4), ("\"7\"", 3), ("-", 2)] {
        let line = run(0).to_line().unwrap().replace("912500000.0", text);
        let at = line.find(text).unwrap();
        let error = Record::parse(header().to_line().unwrap() + &line).unwrap_err();
        let RecordError::Line { line: 2, byte: seen, .. } = &error else { panic!("{text}: {error}") };
        assert!(seen.abs_diff(at + byte) <= 1, "{text}: byte {seen}, it stands at {at}: {error}");
    }
}

#[test]
fn what_is_below_zero_is_no_metric() {
    let text = whole().replacen("912500000.0", "-912500000.0", 1);
    let why = Record::parse(text).unwrap_err().to_string();
    assert!(why.contains("throughput_bits_per_second is -912500000") && why.contains("line 2"), "{why}");
}

#[test]
fn a_record_cut_at_any_byte_of_its_last_line_is_partial_and_keeps_the_rest() {
    let text = whole();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    for cut in last + 1..text.len() - 1 {
        let record = Record::parse(&text[..cut]).unwrap();
        assert_eq!(record.runs.len(), 2);
        assert_eq!(record.cut, Some(Cut { line: 4, bytes: cut - last }));
        assert_eq!(record.whole_bytes, last);
        assert!(!record.is_complete());
    }
    let record = Record::parse(&text[..text.len() - 1]).unwrap();
    assert!(record.is_complete(), "only the line feed is missing");
    let record = Record::parse(&text[..last]).unwrap();
    assert!(record.cut.is_none() && !record.is_complete(), "no end line");
}

#[test]
fn a_cut_inside_a_letter_is_a_cut_too() {
    let mut named = run(0);
    named.reason = Some("µ".to_owned());
    let text = header().to_line().unwrap() + &named.to_line().unwrap();
    let inside = text.find('µ').unwrap() + 1;
    assert!(Record::parse(&text.as_bytes()[..inside]).unwrap().cut.is_some());
}

#[test]
fn a_broken_line_in_the_middle_is_an_error_with_line_and_byte() {
    let text = whole().replacen("\"round\":0", "\"round\":x", 1);
    let error = Record::parse(&text).unwrap_err().to_string();
    assert!(error.starts_with("line 2, byte ") && error.contains("expected value"), "{error}");
    assert!(!error.contains("column"), "{error}");
}

#[test]
fn a_key_twice_is_an_error_at_any_depth() {
    for (from, to) in [
        ("\"metrics\":{", "\"metrics\":{\"throughput_bits_per_second\":1.0,"),
        ("\"conditions\":{", "\"conditions\":{\"tunnel_mtu\":1280,"),
        ("\"client\":{", "\"client\":{\"cpu\":1,"),
        ("\"round\":", "\"round\":1,\"round\":"),
    ] {
        let text = whole().replacen(from, to, 1);
        let error = Record::parse(&text).unwrap_err().to_string();
        assert!(error.contains("is there twice"), "{from}: {error}");
    }
}

#[test]
fn unknown_keys_and_unknown_lines_are_ignored() {
    let text = whole().replacen("\"round\":0", "\"round\":0,\"colour\":{\"deep\":[1,null]}", 1).replacen(
        "{\"line\":\"end\"",
        "{\"line\":\"remark\",\"text\":\"later\"}\n{\"line\":\"end\"",
        1,
    );
    assert_eq!(Record::parse(&text).unwrap().runs, [run(0), run(1)]);
}

#[test]
fn what_is_no_record_says_what_it_is() {
    assert_eq!(Record::parse(""), Err(RecordError::Empty));
    assert_eq!(Record::parse(" \n\n"), Err(RecordError::Empty));
    let of = |text: &str| Record::parse(text).unwrap_err().to_string();
    assert!(of("{\"start\":{}}\n").contains("no `format`"));
    assert!(of("{\"format\":\"flent\",\"version\":1}\n").contains("its format is `flent`"));
    assert!(of("hello\n").contains("line 1"));
    assert!(of("{\"format\":\"wglab-record\"}\n").contains("no version"));
    assert!(of("{\"format\":\"wglab-record\",\"version\":2}\n").contains("newer wglab"));
    assert!(of("{\"format\":\"wglab-record\",\"version\":1}\n").contains("missing field"));
}

#[test]
fn the_same_record_twice_in_one_file_is_one_and_two_are_an_error() {
    let record = Record::parse(whole() + &whole()).unwrap();
    assert_eq!((record.runs.len(), record.notes.len(), record.is_complete()), (2, 1, true));
    let other = whole().replace("912500000.0", "1.0");
    let error = Record::parse(whole() + &other).unwrap_err().to_string();
    assert!(error.contains("line 6") && error.contains("order 0"), "{error}");
    let other = whole().replace("5b6c", "77aa");
    assert!(Record::parse(whole() + &other).unwrap_err().to_string().contains("two records in one file"));
}

#[test]
fn a_resumed_record_goes_on_under_a_second_header() {
    let mut later = header();
    later.started = "2026-08-22T18:00:00Z".to_owned();
    let mut text = whole() + &later.to_line().unwrap() + &run(2).to_line().unwrap();
    let record = Record::parse(&text).unwrap();
    assert_eq!((record.resumed.len(), record.runs.len(), record.end), (1, 3, None));
    text += &end(3).to_line().unwrap();
    assert!(Record::parse(&text).unwrap().is_complete());
}

#[test]
fn a_visit_that_is_measured_again_takes_the_place_of_the_one_that_was_cut() {
    let mut later = header();
    later.started = "2026-08-22T18:00:00Z".to_owned();
    let ended = "interrupted by SIGINT".to_owned();
    later.resumes = Some(Resumes { ended, superseded: vec![1], changed: vec!["kernel".to_owned()] });
    let cut = [header().to_line(), run(0).to_line(), run(1).to_line()].map(Result::unwrap).concat();
    let again = Run { session: Some(1), metrics: run(1).metrics, ..run(2) };
    let text = cut + &later.to_line().unwrap() + &again.to_line().unwrap() + &end(3).to_line().unwrap();
    let record = Record::parse(&text).unwrap();
    assert_eq!((&record.runs[..], &record.superseded[..]), (&[run(0), again][..], &[run(1)][..]));
    assert_eq!(record.resumed, [later]);
    assert!(record.is_complete() && record.notes[0].contains("1 run of a visit"), "{:?}", record.notes);
    // The file appended to itself is still the same record.
    assert_eq!(Record::parse(text.clone() + &text).unwrap().runs, record.runs);
}

#[test]
fn a_run_knows_its_sitting_though_its_line_does_not_say() {
    let mut later = header();
    later.started = "2026-08-22T18:00:00Z".to_owned();
    let text = whole() + &later.to_line().unwrap() + &run(2).to_line().unwrap();
    let sessions: Vec<Option<u32>> = Record::parse(&text).unwrap().runs.iter().map(|run| run.session).collect();
    assert_eq!(sessions, [None, None, Some(1)]);
}

#[test]
fn the_golden_record_in_two_sittings_is_read_and_written() {
    let golden = include_str!("golden/v1-resumed.jsonl");
    let record = Record::parse(golden).unwrap();
    assert_eq!((record.resumed.len(), record.runs.len(), record.superseded.len()), (1, 2, 1));
    assert_eq!(record.runs[1].session, Some(1));
    let precision = record.end.as_ref().and_then(|end| end.precision.as_ref()).unwrap();
    assert_eq!((precision.asked, precision.reached, precision.rounds), (0.03, false, 4));
    let resumes = record.resumed[0].resumes.as_ref().unwrap();
    assert_eq!((resumes.ended.as_str(), &resumes.superseded[..]), ("interrupted by SIGINT", &[1][..]));
    let lines = [
        record.header.to_line(),
        record.runs[0].to_line(),
        record.superseded[0].to_line(),
        record.resumed[0].to_line(),
        record.runs[1].to_line(),
        record.end.unwrap().to_line(),
    ];
    // The end of the first sitting is in the file alone.
    let kept = golden.lines().filter(|line| !line.contains("\"status\":\"partial\""));
    assert_eq!(lines.map(Result::unwrap).concat(), kept.map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn a_precision_that_is_no_number_is_refused_when_written() {
    let precision = Precision { asked: 0.03, reached: false, rounds: 4, half_width: Some(f64::NAN), of: None };
    assert!(End { precision: Some(precision), ..end(1) }.to_line().is_err());
}

#[test]
fn a_least_change_that_is_no_part_is_refused() {
    let with = |effect: f64| Header { min_effect: Some(effect), ..header() }.to_line().unwrap();
    for effect in [-0.1, 1.0, 3.0] {
        let error = Record::parse(with(effect)).unwrap_err().to_string();
        assert!(error.starts_with("line 1: the header's min_effect is"), "{error}");
    }
    for effect in [0.0, 0.1, 0.999] {
        assert!(Record::parse(with(effect)).is_ok(), "{effect}");
    }
    let judged = |effect: f64| Judged {
        min_effects: [("rr_p50_ns".to_owned(), crate::units::Ratio::from_fraction(effect))].into(),
        ..Judged::default()
    };
    let line = |effect: f64| Header { policy: Some(judged(effect)), ..header() }.to_line().unwrap();
    assert!(Record::parse(line(2.0)).unwrap_err().to_string().contains("policy.min_effects.rr_p50_ns is 2"));
    assert!(Record::parse(line(0.2)).is_ok());
}
