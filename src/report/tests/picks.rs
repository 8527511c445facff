//! Picks, as they are printed.

use super::*;

/// Three underlays in both directions, with what a pick needs.
fn mesh(rates: [f64; 3], noise: f64, udp: bool) -> Made {
    let underlays = ["public-ipv4", "public-ipv6", "private"];
    let mut made = Made::new(
        Factor::Underlay,
        &[(Factor::Pair, &["fra>hel"]), (Factor::Underlay, &underlays), (Factor::Engine, &["raw", "embedded"])],
    );
    made.record.header.command = ["wglab", "run", "fleet.toml", "--profile", "quick"].map(str::to_owned).to_vec();
    for round in 0..5 {
        for (underlay, rate) in underlays.iter().zip(rates) {
            let levels = |test, direction| {
                vec![
                    (Factor::Pair, "fra>hel"),
                    (Factor::Underlay, *underlay),
                    (Factor::Engine, "embedded"),
                    (Factor::Test, test),
                    (Factor::Direction, direction),
                ]
            };
            for (direction, factor) in [("forward", 1.0), ("reverse", 0.9)] {
                for (streams, share) in [("1", 0.5), ("4", 1.0)] {
                    let mut stream = levels("tcp-stream", direction);
                    stream.push((Factor::Streams, streams));
                    let noise = made.noise(noise);
                    made.run(round, &stream, &[(RATE, rate * factor * share * noise), ("probe_p99_ns", 900e3)]);
                }
                if udp {
                    for (offered, loss) in [("1Gbit/s", 0.0), ("5Gbit/s", 0.3)] {
                        let mut datagrams = levels("udp-stream", direction);
                        datagrams.push((Factor::Rate, offered));
                        let got = if offered == "1Gbit/s" { 1e9 } else { 3.5e9 };
                        made.run(round, &datagrams, &[(RATE, got), ("loss_ratio", loss)]);
                    }
                }
            }
        }
    }
    made
}

fn picked(made: &Made, need: Option<&str>) -> crate::verdict::Picks {
    let options = crate::verdict::PickOptions { need: need.map(|need| need.parse().unwrap()), ..Default::default() };
    crate::verdict::pick(&Source { name: "run", record: &made.record }, &options, &Policy::default())
}

#[test]
fn a_pick_names_the_underlay_and_what_it_safely_carries() {
    let picks = picked(&mesh([2e9, 2.02e9, 3e9], 0.01, true), Some("1Gbit/s"));
    insta::assert_snapshot!(pick_table(&picks, None, None), @r#"
    Use private for fra>hel, embedded tunnel: 2.69 Gbit/s in the weaker direction (reverse, 4 streams), +47 % against public-ipv6; safe are 1.89 Gbit/s over TCP and 600 Mbit/s over UDP; 1 Gbit/s fits with 4 streams or more.

    fra>hel, embedded tunnel
    underlay     rank            weaker          rate     safe TCP    safe UDP  p99 under load  loss  MTU
    private      first           reverse  2.69 Gbit/s  1.89 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv4  behind private  reverse  1.79 Gbit/s  1.25 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv6  behind private  reverse  1.81 Gbit/s  1.27 Gbit/s  600 Mbit/s          900 µs  0 %   1420
      public-ipv4 against public-ipv6: -1.6 % (-5.4 % to +2.3 %), no difference worth choosing for
      public-ipv4 against private: -33 % (-35 % to -32 %), decided
      public-ipv6 against private: -32 % (-34 % to -30 %), decided
    "#);
    assert_eq!(picks.picks[0].tiers[0][0].underlay, "private");
}

#[test]
fn an_undecided_order_is_a_tie() {
    let picks = picked(&mesh([2e9, 2.3e9, 2.4e9], 0.2, true), Some("3Gbit/s"));
    insta::assert_snapshot!(pick_table(&picks, None, None), @r#"
    public-ipv4, public-ipv6 and private are a tie for fra>hel, embedded tunnel: about 256 rounds would break it; 1.59 Gbit/s in the weaker direction (reverse, 4 streams); safe are 1.11 Gbit/s over TCP and 600 Mbit/s over UDP; 3 Gbit/s does not fit safely.

    fra>hel, embedded tunnel
    underlay     rank  weaker          rate     safe TCP    safe UDP  p99 under load  loss  MTU
    public-ipv4  tie   reverse  1.59 Gbit/s  1.11 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    public-ipv6  tie   forward  1.88 Gbit/s  1.31 Gbit/s  600 Mbit/s          900 µs  0 %   1420
    private      tie   reverse  2.05 Gbit/s  1.44 Gbit/s  600 Mbit/s          900 µs  0 %   1420
      public-ipv4 against public-ipv6: -12 % (-55 % to +71 %), undecided, about 256 rounds would decide
      public-ipv4 against private: -15 % (-48 % to +39 %), undecided, about 138 rounds would decide
      public-ipv6 against private: -2.9 % (-26 % to +28 %), undecided, about 46 rounds would decide

    Next: wglab run fleet.toml --profile quick --only engine=embedded --only underlay=public-ipv4,public-ipv6,private --rounds 256
    "#);
    let order: Vec<&str> = picks.picks[0].tiers[0].iter().map(|candidate| candidate.underlay.as_str()).collect();
    assert_eq!(order, ["public-ipv4", "public-ipv6", "private"], "a tie keeps the topology's order");
}

#[test]
fn a_pick_without_what_it_needs_says_which_run_supplies_it() {
    let mut made = mesh([2e9, 2e9, 3e9], 0.01, false);
    made.record.runs.retain(|run| run.factors.get(Factor::Direction) == Some("forward"));
    let picks = picked(&made, None);
    insta::assert_snapshot!(pick_table(&picks, None, None), @r#"
    No pick for fra>hel, embedded tunnel yet: the record lacks loss and the direction opposite to forward.

    fra>hel, embedded tunnel
    underlay     rank     weaker      rate  safe TCP  safe UDP  p99 under load  loss     MTU
    public-ipv4  not yet  missing  missing   missing   missing          900 µs  missing  1420
    public-ipv6  not yet  missing  missing   missing   missing          900 µs  missing  1420
    private      not yet  missing  missing   missing   missing          900 µs  missing  1420

    Next: wglab run fleet.toml --only engine=embedded --profile standard
    "#);
}

#[test]
fn a_lossy_underlay_is_not_picked() {
    let mut made = mesh([2e9, 2e9, 3e9], 0.01, true);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Underlay) == Some("private")) {
        if let Some(loss) = run.metrics.get_mut("loss_ratio") {
            *loss += 0.02;
        }
    }
    let picks = picked(&made, None);
    assert_eq!(picks.picks[0].unfit[0].0.underlay, "private");
    assert_eq!(picks.picks[0].unfit[0].1, "it loses 2.0 %");
    let read: serde_json::Value = serde_json::from_str(&pick_json(&picks)).unwrap();
    assert_eq!(read["picks"][0]["unfit"][0][0]["underlay"], "private");
}
