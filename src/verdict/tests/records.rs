//! Two records, and levels that are or are not there.

use super::*;

#[test]
fn what_moved_with_the_raw_underlay_is_the_environment() {
    // Raw and tunnel both lose a quarter.
    let (old, new) = two_records(0.75, 0.75);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    for row in &comparison.rows {
        assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
        assert!(row.why.contains("environment: the raw underlay moved by -25 %"), "{}", row.why);
    }
    let why = |engine: &str| {
        let row = comparison.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some(engine)).unwrap();
        assert!(row.environment.is_some_and(|moved| (moved + 0.25).abs() < 0.01), "{engine}: {:?}", row.environment);
        row.why.clone()
    };
    assert!(why("embedded").contains("and the tunnel no more than that"), "{}", why("embedded"));
    assert!(!why("raw").contains("the tunnel"), "{}", why("raw"));
    // The tunnel alone lost it.
    let (old, new) = two_records(1.0, 0.75);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    let worse: Vec<_> = comparison.rows.iter().filter(|row| row.verdict == Some(Verdict::Worse)).collect();
    assert_eq!(worse.len(), 1);
    assert_eq!(worse[0].cell.get(Factor::Engine), Some("embedded"));
    assert!(comparison.cautions.iter().any(|caution| caution.contains("not interleaved")));
    // A kernel moves the raw path too: there it excuses nothing.
    let (old, new) = two_records(0.75, 0.75);
    let policy = Policy { changed: ["kernel".to_owned()].into(), ..Policy::gate() };
    let comparison = between(&old, &new, &policy).unwrap();
    assert!(comparison.rows.iter().all(|row| row.verdict == Some(Verdict::Worse)));
}

#[test]
fn a_small_change_between_records_is_not_called() {
    let (old, new) = two_records(1.0, 0.92);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    assert!(comparison.rows.iter().all(|row| row.verdict == Some(Verdict::NoConsistentChange)));
}

#[test]
fn a_metric_that_the_new_record_lacks_is_invalid() {
    let (old, mut new) = two_records(1.0, 1.0);
    new.record.runs.retain(|run| run.factors.get(Factor::Engine) != Some("embedded"));
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    let row = comparison.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some("embedded")).unwrap();
    assert_eq!(row.verdict, Some(Verdict::Invalid), "{}", row.why);
    assert_eq!(gate(&comparison).result, GateResult::Invalid);
}

#[test]
fn another_machine_is_refused_with_the_fields() {
    let (old, mut new) = two_records(1.0, 0.5);
    for facts in new.record.header.nodes.values_mut() {
        facts["kernel"] = "6.19.0".into();
        facts.as_object_mut().unwrap().remove("cpu_model");
    }
    for run in &mut new.record.runs {
        run.conditions.insert("tunnel_mtu".to_owned(), 1380.into());
        run.conditions.insert("steal_ratio".to_owned(), 0.25.into());
        run.conditions.insert("client.local".to_owned(), format!("10.0.0.1:{}", 40_000 + run.order).into());
        run.conditions.insert("client.send_buffer".to_owned(), serde_json::json!({"granted": 87_040 + run.order}));
    }
    let error = between(&old, &new, &Policy::gate()).unwrap_err().to_string();
    for part in
        ["node a1 kernel (\"6.18.0\" / \"6.19.0\")", "cpu_model (\"Milan\" / missing)", "tunnel_mtu", "(1420 / 1380)"]
    {
        assert!(error.contains(part), "no {part} in: {error}");
    }
    for part in ["steal", "local", "granted"] {
        assert!(!error.contains(part), "{part} is no condition of two records: {error}");
    }
    assert!(error.contains("--changed cpu_model,kernel,tunnel_mtu"), "{error}");
    let policy = |changed: &[&str]| Policy {
        changed: changed.iter().map(|field| (*field).to_owned()).collect(),
        ..Policy::gate()
    };
    assert!(between(&old, &new, &policy(&["kernel", "mtu"])).unwrap_err().to_string().contains("cpu_model"));
    assert!(between(&old, &new, &policy(&["kernel", "mtu", "cpu-model"])).is_ok());
}

#[test]
fn records_of_other_nodes_differ_in_one_thing() {
    let (old, mut new) = two_records(1.0, 1.0);
    let facts = new.record.header.nodes.remove("a2").unwrap();
    new.record.header.nodes.insert("b1".to_owned(), facts.clone());
    new.record.header.nodes.insert("b2".to_owned(), facts);
    let error = between(&old, &new, &Policy::gate()).unwrap_err().to_string();
    assert!(
        error
            .contains("since 1 condition differs: which nodes (a1, a2 / a1, b1, b2); they are of different topologies"),
        "{error}"
    );
    assert!(!error.contains("--changed") && !error.contains("cpu_model"), "{error}");
    for facts in new.record.header.nodes.values_mut() {
        facts["kernel"] = "6.19.0".into();
    }
    let error = between(&old, &new, &Policy::gate()).unwrap_err().to_string();
    assert!(
        error.contains("since conditions differ") && error.ends_with("on purpose with --changed kernel"),
        "{error}"
    );
}

#[test]
fn each_row_is_repeated_by_the_record_that_has_it() {
    let record = |engines: [&str; 2], file: &str| {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &engines)]);
        made.record.header.command = ["wglab", "run", file].map(str::to_owned).to_vec();
        for round in 0..4 {
            for engine in engines {
                let rate = 1e9 * made.noise(0.01);
                made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(RATE, rate)]);
            }
        }
        made
    };
    let (one, two) = (record(["old", "both"], "one.toml"), record(["both", "new"], "two.toml"));
    let comparison = between(&one, &two, &Policy::default()).unwrap();
    let command = |engine: &str| {
        let row = comparison.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some(engine)).unwrap();
        row.command.clone()
    };
    assert_eq!(command("old"), "wglab run one.toml --only engine=old");
    assert_eq!(command("both"), "wglab run two.toml --only engine=both");
    assert_eq!(command("new"), "wglab run two.toml --only engine=new");
    let sources = [Source { name: "one", record: &one.record }, Source { name: "two", record: &two.record }];
    let by =
        |levels: &str| compare(&sources, Some(&levels.parse().unwrap()), &Policy::default()).unwrap().rows.remove(0);
    assert_eq!(by("engine=old,new").command, "wglab run two.toml --only engine=new");
    assert_eq!(by("engine=both,new").command, "wglab run two.toml");
}

#[test]
fn a_changed_condition_that_there_is_not_is_refused_with_those_that_are() {
    let (old, new) = two_records(1.0, 1.0);
    let changed = |name: &str| Policy { changed: [name.to_owned()].into(), ..Policy::gate() };
    for name in ["kernel", "mtu", "tunnel-mtu", "class", "nodes", "cpu_model"] {
        assert!(between(&old, &new, &changed(name)).is_ok(), "{name}");
    }
    let error = between(&old, &new, &changed("kernal")).unwrap_err().to_string();
    assert!(error.contains("`kernal` names no condition") && error.contains("did you mean `kernel`?"), "{error}");
    assert!(error.contains("known are class, cpu_model, cpus, kernel, nodes, tunnel_mtu, wglab"), "{error}");
    assert!(between(&old, &new, &changed("")).is_err());
    // One record has nothing to excuse.
    let source = [Source { name: "run", record: &old.record }];
    assert!(compare(&source, None, &changed("nonsense")).is_ok());
    assert!(check_changed(&source, &["nonsense".to_owned()]).is_err());
}

#[test]
fn an_empty_level_is_refused() {
    for text in ["stack=", "engine=old,", "engine=,new", "engine=old,,new"] {
        assert!(text.parse::<By>().unwrap_err().to_string().contains("is empty; write"), "{text}");
    }
    assert_eq!("engine".parse::<By>(), Ok(By::factor(Factor::Engine)));
    assert!("engin=a,b".parse::<By>().unwrap_err().to_string().contains("did you mean `engine`?"));
}

#[test]
fn a_record_of_a_header_alone_says_so() {
    let (old, mut new) = two_records(1.0, 1.0);
    new.record.runs.clear();
    new.record.end.as_mut().unwrap().reason = Some("interrupted by SIGINT".to_owned());
    let error = between(&old, &new, &Policy::gate()).unwrap_err().to_string();
    assert_eq!(error, "new holds only its header, and no run; it ended so: interrupted by SIGINT");
}

#[test]
fn runs_without_a_proof_are_not_judged() {
    let mut made = engines(&[1e9; 4], &[5e8; 4], RATE);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.proof.clear();
    }
    let comparison = within(&made, &Policy::gate());
    assert_eq!(comparison.rows[0].verdict, Some(Verdict::Invalid));
    assert!(comparison.unmeasured[0].why.contains("no proof"), "{}", comparison.unmeasured[0].why);
}

#[test]
fn facts_that_nobody_wrote_are_not_equal() {
    let (mut old, mut new) = two_records(1.0, 1.0);
    old.record.header.nodes.clear();
    new.record.header.nodes.clear();
    assert!(
        between(&old, &new, &Policy::gate())
            .unwrap_err()
            .to_string()
            .contains("facts of the nodes (missing / missing)")
    );
}

#[test]
fn levels_and_factors_that_are_not_there_are_named() {
    let made = engines(&[1e9; 3], &[1e9; 3], RATE);
    let source = [Source { name: "run", record: &made.record }];
    let by = |text: &str| compare(&source, Some(&text.parse().unwrap()), &Policy::default()).unwrap_err().to_string();
    assert_eq!(by("engine=old,fresh"), "no run has engine `fresh`; its levels are old, new");
    assert!(by("pair").contains("pair has one level only, `a1>a2`") && by("pair").contains("--by engine"));
    assert!(by("stack").contains("one level only, `none`"));
    assert!(by("record").contains("one level only"));
    assert_eq!(compare(&[], None, &Policy::default()), Err(VerdictError::NoRecord));
    let mut unnamed = made.record.clone();
    unnamed.header.compare = None;
    let error = compare(&[Source { name: "run", record: &unnamed }], None, &Policy::default()).unwrap_err();
    assert!(error.to_string().contains("one of engine"), "{error}");
}

#[test]
fn the_first_level_named_is_the_baseline() {
    let made = engines(&[1e9; 3], &[2e9; 3], RATE);
    let source = [Source { name: "run", record: &made.record }];
    let by: By = "engine=new,old".parse().unwrap();
    let comparison = compare(&source, Some(&by), &Policy::default()).unwrap();
    assert_eq!((comparison.base.as_str(), comparison.new.as_slice()), ("new", &["old".to_owned()][..]));
    assert_eq!(comparison.rows[0].verdict, Some(Verdict::Worse));
}

#[test]
fn raw_is_no_baseline_where_two_engines_are() {
    let mut made = engines(&[1e9; 3], &[1e9; 3], RATE);
    for round in 0..3 {
        made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, "raw")], &[(RATE, 9e9)]);
    }
    made.record.header.levels.insert(Factor::Engine, ["raw", "old", "new"].map(str::to_owned).to_vec());
    let comparison = within(&made, &Policy::default());
    assert_eq!((comparison.base.as_str(), comparison.new.len()), ("old", 1));
}
