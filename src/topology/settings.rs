//! `[settings]`: what is changed inside the nodes.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::Settings;
use super::diagnostic::Problems;
use super::names::check_name;
use super::reader::{Table, kind, parse_text, parse_whole};
use crate::cell::printable;
use crate::units::Mtu;

pub(super) const KEYS: [&str; 4] = ["sysctl", "features", "rps_cpus", "mtu"];
const EXAMPLE: &str = "[settings.gro] features = { gro = true }";

/// `[settings.NAME]`. `here`: the nodes are made here, and whatever is not their own is the host's.
pub(super) fn settings(root: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> Vec<Settings> {
    let mut all = Vec::new();
    for (name, table) in root.tables("settings", EXAMPLE, problems) {
        table.only(&KEYS, problems);
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name settings: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        let mut settings = Settings { name: name.into_inner(), ..Settings::default() };
        if let Some(inner) =
            inner_table(&table, "sysctl", "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 6291456\" }", problems)
        {
            settings.sysctl = sysctl(&inner, here, problems);
        }
        if let Some(inner) = inner_table(&table, "features", "features = { gro = true }", problems) {
            settings.features = features(&inner, problems);
        }
        settings.rps_cpus = table
            .one_or_many("rps_cpus", problems, |value, problems| parse_whole(value, "rps_cpus", 0..=1023, problems))
            .map(|cpus| cpus.into_iter().map(|cpu| cpu.into_inner() as u32).collect());
        settings.mtu = table.whole("mtu", 576..=65_535, problems).and_then(|mtu| Mtu::new(mtu.into_inner()).ok());
        all.push(settings);
    }
    all
}

fn inner_table<'a>(table: &Table<'a>, key: &str, example: &str, problems: &mut Problems<'_>) -> Option<Table<'a>> {
    let value = table.get(key)?;
    Table::of(value, table.key_span(key), &format!("`{key}` of {}", table.what()), example, problems)
}

fn sysctl(table: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> BTreeMap<String, String> {
    let mut sysctl = BTreeMap::new();
    for (key, value) in table.fields() {
        let name = key.get_ref();
        // A name becomes a path under /proc/sys.
        let plain =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if !name.contains('.') || !name.split('.').all(plain) {
            let help = "write it with dots and in quotes, like \"net.ipv4.tcp_rmem\"";
            problems.push(key.span(), format!("`{}` is not the name of a sysctl", printable(name)), help);
            continue;
        }
        // A node made here has a network namespace of its own and nothing else: a lab that is killed would leave the rest changed.
        if here && !name.starts_with("net.") {
            let help = "remove it: a lab changes nothing of its host; what lies under net. is a node's own";
            problems.push(key.span(), format!("`{name}` is the whole machine's, and the nodes are made here"), help);
            continue;
        }
        let Some(text) = parse_text::<String>(value, name, problems) else { continue };
        if text.get_ref().is_empty() || text.get_ref().chars().any(|c| c.is_control() && c != '\t') {
            problems.push(
                text.span(),
                format!("`{name}` has no value of one line"),
                "write its value as `sysctl` prints it",
            );
            continue;
        }
        sysctl.insert(name.clone().into_owned(), text.into_inner());
    }
    sysctl
}

fn features(table: &Table<'_>, problems: &mut Problems<'_>) -> BTreeMap<String, bool> {
    let mut features = BTreeMap::new();
    for (key, value) in table.fields() {
        if let Err(why) = check_name(key.get_ref()) {
            let message = format!("`{}` is not a feature: {why}", printable(key.get_ref()));
            problems.push(key.span(), message, "write it as `ethtool -k` does, like gro or tx-udp-segmentation");
            continue;
        }
        match value.get_ref() {
            DeValue::Boolean(on) => {
                features.insert(key.get_ref().clone().into_owned(), *on);
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                let message = format!("`{}` is {}, not true or false", key.get_ref(), kind(value));
                problems.push(value.span(), message, "write true or false, without quotes");
            }
        }
    }
    features
}
