//! One direction of imports: which module may use which other, as a table. A `crate::other` that the table does not
//! allow fails the test, and so does a room that the table does not know.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The table of docs/architecture.md: a room, and the rooms that it may use.
const MAY_USE: &[(&str, &str)] = &[
    ("text", ""),
    ("units", "text"),
    ("cell", "text units"),
    ("topology", "text cell units"),
    ("plan", "text topology cell stats units"),
    ("record", "text cell units"),
    ("stats", "text cell units"),
    ("verdict", "text record stats cell units"),
    ("report", "text verdict stats record cell units"),
    ("packet", "text units"),
    ("sys", "text units"),
    ("tunnel", "text packet sys units"),
    ("traffic", "text packet sys units"),
    ("host", "text sys units"),
    ("lab", "text packet sys units"),
    ("agent", "text tunnel traffic host lab sys record cell units"),
    // A made-here node is reached through the init of its lab, so `reach` starts what `lab` holds.
    ("reach", "text agent lab sys units"),
    ("run", "text reach agent plan record stats verdict cell sys units"),
    ("cli", "text topology plan record verdict report cell units run reach agent tunnel lab host sys"),
];

/// The pure rooms: nothing of the outside world may be named in them.
const PURE: &[&str] = &["text", "units", "cell", "topology", "plan", "record", "stats", "verdict", "report", "packet"];
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::env",
    "std::process",
    "Instant::now",
    "SystemTime::now",
    "tokio::",
    "libc::",
    "nix::",
    "socket2::",
];

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The room that a file belongs to: the first path component under `src`, without `.rs`.
fn room(path: &str) -> String {
    path.trim_start_matches("src/").split('/').next().unwrap().trim_end_matches(".rs").to_owned()
}

/// The code of a file without comments and without the tests at its end.
fn code(text: &str) -> String {
    let body = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    body.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Every module named right after `crate::`, also inside `use crate::{a, b::c}`.
fn crate_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(rest.to_owned());
            continue;
        };
        let (mut depth, mut item) = (0usize, String::new());
        for c in group.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => found.push(std::mem::take(&mut item)),
                c if depth == 0 => item.push(c),
                _ => {}
            }
        }
        found.push(item);
    }
    let name = |path: &String| path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    found.iter().map(name).filter(|name| !name.is_empty()).collect()
}

fn violations(files: &[(String, String)]) -> Vec<String> {
    let table: BTreeMap<&str, Vec<&str>> =
        MAY_USE.iter().map(|(room, others)| (*room, others.split(' ').collect())).collect();
    let mut wrong = Vec::new();
    for (path, text) in files {
        let room = room(path);
        // A room's tests are not the room: they may take the time of what they call.
        if room == "lib" || room == "main" || path.ends_with("/tests.rs") || path.contains("/tests/") {
            continue;
        }
        let Some(allowed) = table.get(room.as_str()) else {
            wrong.push(format!("{path}: the room `{room}` is not in the table"));
            continue;
        };
        let code = code(text);
        for used in crate_paths(&code) {
            if used != room && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{path}: `{room}` may not use `crate::{used}`"));
            }
        }
        if PURE.contains(&room.as_str()) {
            for effect in EFFECTS.iter().filter(|effect| code.contains(**effect)) {
                wrong.push(format!("{path}: `{room}` is pure and may not name `{effect}`"));
            }
        }
        if room != "sys" && ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word)) {
            wrong.push(format!("{path}: `unsafe` lives in `sys` only"));
        }
        if path.ends_with("/mod.rs") {
            wrong.push(format!("{path}: a room's door is `{room}.rs`, not `mod.rs`"));
        }
    }
    wrong
}

#[test]
fn imports_go_one_way() {
    let mut files = Vec::new();
    rust_files(Path::new("src"), &mut files);
    let texts: Vec<_> =
        files.iter().map(|path| (path.to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())).collect();
    assert!(texts.len() > 2, "the sources were not found");
    let wrong = violations(&texts);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The rows of the table in docs/architecture.md.
fn documented(text: &str) -> Vec<(String, String)> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let (_, table) = text.split_once("| module | holds | may use |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.map(|cells| (cells[0].trim_matches('`').to_owned(), cells[2].replace("nothing", ""))).collect()
}

#[test]
fn the_document_has_the_same_table() {
    let text = fs::read_to_string("docs/architecture.md").unwrap();
    let own: Vec<_> = MAY_USE.iter().map(|(room, others)| ((*room).to_owned(), (*others).to_owned())).collect();
    assert_eq!(documented(&text), own);
}

#[test]
fn the_program_uses_what_its_row_says() {
    let mut files = Vec::new();
    rust_files(Path::new("src/cli"), &mut files);
    files.push(PathBuf::from("src/cli.rs"));
    let used: BTreeSet<String> =
        files.iter().flat_map(|path| crate_paths(&code(&fs::read_to_string(path).unwrap()))).collect();
    let (_, row) = MAY_USE.iter().find(|(room, _)| *room == "cli").unwrap();
    let unused: Vec<&str> = row.split(' ').filter(|room| !used.contains(*room)).collect();
    assert!(unused.is_empty(), "the table lets `cli` use {unused:?}, and it does not");
}

#[test]
fn the_check_itself_sees_what_is_wrong() {
    let seen = |path: &str, text: &str| violations(&[(path.to_owned(), text.to_owned())]).len();
    assert_eq!(seen("src/units.rs", "use crate::plan::Plan;"), 1);
    assert_eq!(seen("src/stats/t.rs", "use crate::{cell::Cell, run};"), 1);
    assert_eq!(seen("src/plan.rs", "let t = std::time::Instant::now();"), 1);
    assert_eq!(seen("src/agent.rs", "unsafe { x() }"), 1);
    assert_eq!(seen("src/nowhere.rs", ""), 1);
    assert_eq!(seen("src/plan/tests.rs", "let t = std::time::Instant::now();"), 0);
    assert_eq!(seen("src/plan/tests/limits.rs", "let t = std::time::Instant::now();"), 0);
    assert_eq!(seen("src/cell.rs", "// use crate::run;\nuse crate::units::Mtu;"), 0);
}
