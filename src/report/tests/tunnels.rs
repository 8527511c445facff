//! How levels of tunnels read.

use super::*;

fn spread() -> Made {
    let mut made = Made::new(
        Factor::Tunnels,
        &[
            (Factor::Pair, &["a1>a2"]),
            (Factor::Engine, &["raw", "embedded"]),
            (Factor::Tunnels, &["1", "2"]),
            (Factor::Test, &["tcp-stream"]),
            (Factor::Streams, &["4"]),
        ],
    );
    for round in 0..4 {
        for (engine, tunnels, rate) in [("raw", None, 9.0), ("embedded", Some("1"), 3.0), ("embedded", Some("2"), 4.5)]
        {
            let mut levels = vec![
                (Factor::Pair, "a1>a2"),
                (Factor::Engine, engine),
                (Factor::Test, "tcp-stream"),
                (Factor::Streams, "4"),
            ];
            levels.extend(tunnels.map(|tunnels| (Factor::Tunnels, tunnels)));
            let rate = rate * 1e9 * made.noise(0.01);
            made.run(round, &levels, &[(RATE, rate)]);
        }
    }
    made
}

#[test]
fn levels_say_that_they_are_tunnels() {
    let made = spread();
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    let report = Report { detail: true, ..Report::new(&sources, Some(&comparison)) };
    insta::assert_snapshot!(render(&report, Format::Table), @r#"
    2 tunnels are better than 1 tunnel in throughput (embedded tunnel, tcp-stream, 4 streams): +51 % (95 % interval +47 % to +56 %).
    12 runs in 4 rounds; one machine, namespaces: mechanisms, not a provider's figures; started 2026-08-22T12:00:00Z

    metric                                                 1 tunnel    2 tunnels  change (95 % interval)  verdict
    embedded tunnel, tcp-stream, 4 streams: throughput  2.99 Gbit/s  4.52 Gbit/s  +51 % (+47 % to +56 %)  better

    throughput, tcp-stream, 4 streams
                   raw  embedded 1 tunnel  of raw  embedded 2 tunnels  of raw
    a1>a2  9.07 Gbit/s        2.99 Gbit/s    0.33         4.52 Gbit/s    0.50

    Every row:
      embedded tunnel, tcp-stream, 4 streams: throughput, 2 tunnels: better
          +51 % (+47 % to +56 %) over 4 paired runs, p 1.82e-5, adjusted 2.41e-5; minimum 10 %, noise floor 2.4 %; 1 of 1 pair agree
          a1>a2: 2.99 Gbit/s (2.97-3.01 Gbit/s) -> 4.52 Gbit/s (4.45-4.62 Gbit/s), +51 % (+47 % to +56 %)
          more than the minimum of 10 %, and beyond chance
          wglab run pair --seed 7 --only engine=embedded

    Record: runs/2026-08-22
    Repeat: wglab run pair --seed 7
    Repeat: wglab run pair --seed 7 --only engine=embedded
    "#);
}

#[test]
fn engines_stand_beside_raw_with_their_tunnels() {
    let mut made = spread();
    made.record.header.compare = Some(Factor::Engine);
    let sources = sources(&made);
    let comparison = compare(&sources, None, &Policy::default()).unwrap();
    insta::assert_snapshot!(render(&Report::new(&sources, Some(&comparison)), Format::Table), @r#"
    One embedded tunnel: 2.99 Gbit/s (tcp-stream, 4 streams), 33 % of the raw underlay's 9.07 Gbit/s. 2 embedded tunnels: 4.52 Gbit/s (tcp-stream, 4 streams), 50 % of the raw underlay's 9.07 Gbit/s.
    12 runs in 4 rounds; one machine, namespaces: mechanisms, not a provider's figures; started 2026-08-22T12:00:00Z

    metric                                                raw     embedded  against raw (95 % interval)
    1 tunnel, tcp-stream, 4 streams: throughput   9.07 Gbit/s  2.99 Gbit/s  -67 % (-68 % to -66 %)
    2 tunnels, tcp-stream, 4 streams: throughput  9.07 Gbit/s  4.52 Gbit/s  -50 % (-52 % to -49 %)

    Record: runs/2026-08-22
    Repeat: wglab run pair --seed 7
    "#);
}
