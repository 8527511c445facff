//! Names that come from anywhere.

use super::*;

/// Names as an attacker would choose them.
const HOSTILE: &str = "\u{1b}[2J=cmd|'/c calc'!A1<script>alert(1)</script>`|\u{202e}\"";

fn hostile() -> Made {
    let mut made = upgrade(0.9, 0.01, 6);
    for run in &mut made.record.runs {
        let engine = run.factors.get(Factor::Engine).unwrap().replace("new", HOSTILE);
        run.factors = run.factors.clone().with(Factor::Engine, engine).with(Factor::Test, HOSTILE);
        run.bottleneck = Some(Bottleneck { is: HOSTILE.to_owned(), evidence: HOSTILE.to_owned() });
        run.cautions = vec![crate::record::Caution { kind: HOSTILE.to_owned(), text: HOSTILE.to_owned() }];
    }
    let mut failed = made.record.runs[0].clone();
    failed.status = Status::Failed;
    failed.reason = Some(HOSTILE.to_owned());
    failed.order = 1000;
    made.record.runs.push(failed);
    made.record.header.levels.insert(Factor::Engine, vec!["old".to_owned(), HOSTILE.to_owned()]);
    made.record.header.command.push(HOSTILE.to_owned());
    made
}

#[test]
fn hostile_names_are_harmless_in_every_format() {
    let made = hostile();
    let sources = [Source { name: HOSTILE, record: &made.record }];
    let comparison = compare(&sources, None, &Policy::gate()).unwrap();
    for detail in [false, true] {
        for comparison in [None, Some(&comparison)] {
            let report = Report { gate: true, detail, ..Report::new(&sources, comparison) };
            for format in Format::ALL {
                let text = render(&report, format);
                let breaks = |c: char| c == '\n' || (c == '\r' && format == Format::Csv);
                let bad = text.chars().find(|c| (c.is_control() && !breaks(*c)) || *c == '\u{202e}');
                assert_eq!(bad.filter(|c| format != Format::Json || c.is_control()), None, "{format}: {text}");
                match format {
                    Format::Markdown => {
                        let prose = text.lines().filter(|line| !line.starts_with("    "));
                        assert!(prose.clone().all(|line| !line.contains("<script")), "{text}");
                        let tables: Vec<&str> = prose.filter(|line| line.starts_with("| ")).collect();
                        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
                        assert!(tables.chunk_by(|a, b| bars(a) == bars(b)).count() <= 3, "{text}");
                    }
                    Format::Html => {
                        assert!(!text.contains("<script") && !text.contains("onerror"), "{text}");
                        assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
                        assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
                    }
                    Format::Junit => assert!(!text.contains("<script") && !text.contains("=\"\""), "{text}"),
                    Format::Csv => {
                        for field in text.split([',', '\n']).filter(|field| field.contains("cmd")) {
                            assert!(!field.trim_start_matches('"').starts_with(['=', '+', '@']), "{field}");
                        }
                    }
                    Format::Github => assert!(text.lines().all(|line| line.starts_with("::")), "{text}"),
                    Format::Table | Format::Json => {}
                }
            }
        }
    }
}

#[test]
fn escapes_keep_what_is_harmless() {
    assert_eq!(escape::plain("public-ipv4 µ a1>a2"), "public-ipv4 µ a1>a2");
    assert_eq!(escape::plain("a\u{1b}b\u{200b}"), "a\\u{1b}b\\u{200b}");
    assert_eq!(escape::markdown("a1>a2 | *b* <i> 5 %"), "a1>a2 \\| \\*b\\* &lt;i> 5 %");
    assert_eq!(escape::csv("a,b"), "\"a,b\"");
    assert_eq!(escape::csv("-3+1"), "\"'-3+1\"");
    assert_eq!(escape::csv("say \"x\""), "\"say \"\"x\"\"\"");
    assert_eq!(escape::csv("public-ipv4"), "public-ipv4");
    assert_eq!(escape::xml("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
    assert_eq!(escape::workflow_message("50 %\nx"), "50 %25\\nx");
    assert_eq!(escape::workflow_property("a: b, c"), "a%3A b%2C c");
}
