//! `wglab init`: a topology from hosts, files and interfaces.
//!
//! ```text
//! HOST       its agent's facts ----------\
//! CONF       read, never copied ----------> draft -> text, which is loaded before it is printed
//! INTERFACE  its UAPI socket and facts --/
//! ```

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use super::Exit;
use super::args::InitArgs;
use super::measure::block_on;
use super::output::Output;
use crate::agent::messages::{Ask, Facts, Tell};
use crate::cell::{did_you_mean, printable};
use crate::host;
use crate::reach::{self, Link};
use crate::text::with_causes;
use crate::topology::{Topology, check_name, ssh_argv};
use crate::tunnel::conf::{Conf, ConfError, Endpoint, Host, MOST_BYTES, mode_warning};
use crate::tunnel::{self, check_interface_name};
use conf::{Peer, Source};
use draft::{Draft, Node, Reach};

mod conf;
mod draft;
mod write;

/// How long a host's agent may take to tell what the host is.
const PROBE: Duration = Duration::from_secs(10);

/// Files that cannot be used: shown with their snippets.
#[derive(Debug, thiserror::Error)]
#[error("{} of the files cannot be used", .0.len())]
pub(super) struct Refused(pub(super) Vec<ConfError>);

/// What an argument is.
#[derive(Debug, PartialEq, Eq)]
enum Argument {
    Host { name: String, reach: Reach, argv: Vec<String> },
    Conf(String),
    Interface(String),
}

pub(super) fn init(args: &InitArgs, output: &Output) -> anyhow::Result<Exit> {
    let arguments: Vec<Argument> = args.sources.iter().map(|text| argument(text)).collect::<Result<_, _>>()?;
    let mut draft = Draft::default();
    draft.sources.extend(args.sources.iter().cloned());
    let mut complete = hosts(&arguments, &mut draft, output)?;
    let sources = sources(&arguments, output)?;
    let notes = conf::add(&mut draft, &sources, &resolve);
    notes.iter().for_each(|note| output.note(note));
    draft.leave_out_lonely();
    let (text, missing) = write::topology(&draft);
    for missing in &missing {
        output.reason(&missing.what);
        complete &= !missing.named;
    }
    output.data(&text)?;
    if let Err(error) = Topology::parse("the topology", &text) {
        complete = false;
        if missing.is_empty() {
            output.rendered_error(&error.render(output.colors_stderr()));
        }
    }
    Ok(if complete { Exit::Done } else { Exit::NotMeasured })
}

fn argument(text: &str) -> anyhow::Result<Argument> {
    let host = |name: Option<&str>, rest: &str| {
        let argv = ssh_argv(rest).map_err(|why| anyhow::anyhow!("{}: {why}; write ssh:root@fra", printable(text)))?;
        let name = name.map_or_else(|| host_of(rest), str::to_owned);
        Ok(Argument::Host { name, reach: Reach::Text(rest.to_owned()), argv })
    };
    if text.starts_with("ssh:") {
        return host(None, text);
    }
    if let Some((name, rest)) = text.split_once('=').filter(|(name, _)| check_name(name).is_ok()) {
        if rest.starts_with("ssh:") {
            return host(Some(name), rest);
        }
        let argv: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        if argv.len() > 1 {
            return Ok(Argument::Host { name: name.to_owned(), reach: Reach::Command(argv.clone()), argv });
        }
    }
    if text.contains('/') || text.ends_with(".conf") || Path::new(text).is_file() {
        return Ok(Argument::Conf(text.to_owned()));
    }
    if let Err(why) = check_interface_name(text) {
        let help = if text.contains('@') {
            format!("for a host, write ssh:{text}")
        } else {
            "see `wglab init --help`".to_owned()
        };
        bail!("`{}` is no host, no file, and no interface: {why}; {help}", printable(text));
    }
    Ok(Argument::Interface(text.to_owned()))
}

/// What to call the host of `ssh:[USER@]HOST[:PORT]`.
fn host_of(reach: &str) -> String {
    let host = reach.trim_start_matches("ssh:").rsplit('@').next().unwrap_or_default();
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address.replace(':', "-"),
        None => {
            let host = host.split(':').next().unwrap_or(host);
            let is_address = host.parse::<IpAddr>().is_ok();
            if is_address { host.to_owned() } else { host.split('.').next().unwrap_or(host).to_owned() }
        }
    }
}

/// Adds the hosts that are named, asking each what it is. Returns whether all answered.
fn hosts(arguments: &[Argument], draft: &mut Draft, output: &Output) -> anyhow::Result<bool> {
    let named = arguments.iter().filter_map(|argument| match argument {
        Argument::Host { name, reach, argv } => Some((name, reach, argv)),
        Argument::Conf(_) | Argument::Interface(_) => None,
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return Ok(true);
    }
    draft.mesh = true;
    let probes = named.iter().map(|(name, _, argv)| probe(name, argv));
    let told = block_on(async { Ok(futures_util::future::join_all(probes).await) })?;
    let mut complete = true;
    for ((name, reach, _), told) in named.into_iter().zip(told) {
        let mut node = Node { name: name.clone(), named: true, reach: Some(reach.clone()), ..Node::default() };
        match told {
            Ok(facts) => node.take(&facts),
            Err(error) => {
                complete = false;
                output.reason(&with_causes(error.as_ref()));
                node.remarks.push("it did not answer, so its addresses are not known".to_owned());
            }
        }
        draft.add(node);
    }
    Ok(complete)
}

async fn probe(name: &str, argv: &[String]) -> anyhow::Result<Facts> {
    let (mut link, _) = Link::open(reach::command(name, argv)?).await?;
    let told = link.ask(&Ask::Probe, PROBE).await?;
    let unexpected = link.unexpected(&told);
    let Tell::Facts(facts) = told else { return Err(unexpected.into()) };
    link.close().await?;
    Ok(*facts)
}

/// Reads the files and interfaces that are named. All files' faults are told at once.
fn sources(arguments: &[Argument], output: &Output) -> anyhow::Result<Vec<Source>> {
    let files: Vec<&str> = arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::Conf(file) => Some(file.as_str()),
            Argument::Host { .. } | Argument::Interface(_) => None,
        })
        .collect();
    let any = arguments.iter().any(|argument| !matches!(argument, Argument::Host { .. }));
    let facts = any.then(host::facts);
    let mut refused = Vec::new();
    let mut sources = Vec::new();
    for argument in arguments {
        match argument {
            Argument::Host { .. } => {}
            Argument::Conf(file) => match read(file, output)? {
                Ok(conf) => sources.push(of_conf(file, &files, &conf, facts.as_ref())),
                Err(error) => refused.push(*error),
            },
            Argument::Interface(name) => sources.push(of_interface(name, facts.as_ref())?),
        }
    }
    if refused.is_empty() { Ok(sources) } else { Err(Refused(refused).into()) }
}

/// Reads a file, and tells what is odd about it.
fn read(file: &str, output: &Output) -> anyhow::Result<Result<Conf, Box<ConfError>>> {
    let failed = || format!("cannot read {}", printable(file));
    let metadata = fs::metadata(file).with_context(failed)?;
    if metadata.is_dir() {
        bail!("{} is a directory: name the files in it", printable(file));
    }
    // Not more than shows that it is too much: a device or a pipe may have no end.
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    let opened = fs::File::open(file).with_context(failed)?;
    opened.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(failed)?;
    let conf = match Conf::parse_any(file, &bytes) {
        Ok(conf) => conf,
        Err(error) => return Ok(Err(error)),
    };
    let file = printable(file);
    for warning in &conf.warnings {
        output.note(&format!("{file}:{}:{}: {}; {}", warning.line, warning.column, warning.message, warning.help));
    }
    if conf.holds_secrets()
        && let Some(warning) = mode_warning(metadata.permissions().mode())
    {
        output.note(&format!("{file}: {warning}"));
    }
    output.note(&format!("{file}: read as {} reads it; its keys are not copied", conf.dialect));
    Ok(Ok(conf))
}

/// The end that a file describes. One file alone is this host's; of several, that whose interface is up here.
fn of_conf(file: &str, files: &[&str], conf: &Conf, facts: Option<&Facts>) -> Source {
    let stem =
        |file: &str| Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let own = stem(file);
    // fra/wg0.conf and hel/wg0.conf: the folder names the host. fra.conf and hel.conf: the file does.
    let alike = files.iter().filter(|other| stem(other) == own).count() > 1;
    let folder = Path::new(file).parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let is_interface = (alike || files.len() == 1) && check_interface_name(&own).is_ok();
    let here = facts.filter(|facts| files.len() == 1 || is_up_here(&own, conf, facts));
    let name = match (&here, folder) {
        (Some(_), _) => hostname(),
        (None, Some(folder)) if alike => folder,
        (None, _) => own.clone(),
    };
    Source::of_conf(name, file, is_interface.then_some(own), conf, here.cloned())
}

fn is_up_here(interface: &str, conf: &Conf, facts: &Facts) -> bool {
    let there = facts.interfaces.as_ref().and_then(|all| all.get(interface));
    there.is_some_and(|there| conf.addresses.iter().any(|address| there.addresses.contains(address)))
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().split('.').next().unwrap_or_default().to_owned();
    if name.is_empty() || name == "localhost" { "here".to_owned() } else { name }
}

/// The end that an interface of this host is.
fn of_interface(name: &str, facts: Option<&Facts>) -> anyhow::Result<Source> {
    let Some(interfaces) = facts.and_then(|facts| facts.interfaces.as_ref()) else {
        bail!(
            "whether there is an interface {name} on this host is not known: its interfaces could not be listed; name its file or a host"
        );
    };
    let Some(interface) = interfaces.get(name) else {
        let tunnels: Vec<&str> =
            interfaces.iter().filter(|(_, facts)| facts.is_wireguard()).map(|(name, _)| name.as_str()).collect();
        let file = format!("/etc/wireguard/{name}.conf");
        let help = if Path::new(&file).exists() {
            format!("name its file, {file}, or bring it up")
        } else if tunnels.is_empty() {
            "no WireGuard interface is up here; name a file or a host".to_owned()
        } else {
            format!(
                "{}WireGuard interfaces here are {}",
                did_you_mean(name, tunnels.iter().copied()),
                tunnels.join(", ")
            )
        };
        bail!("there is no interface {name} on this host, and no file of that name; {help}");
    };
    if !interface.is_wireguard() {
        bail!("interface {name} is no WireGuard device, as far as can be seen; name a file or a host instead");
    }
    let status = tunnel::read_interface(name).with_context(|| format!("interface {name}"))?;
    let peers = status.peers.into_iter().map(|peer| Peer {
        public_key: peer.public_key,
        name: None,
        endpoint: peer.endpoint.map(|at| Endpoint { host: Host::Address(at.ip()), port: at.port() }),
        allowed_ips: peer.allowed_ips,
        keepalive: peer.keepalive.and_then(|interval| u16::try_from(interval.as_secs()).ok()),
        has_preshared_key: false,
        place: name.to_owned(),
    });
    let port = status.listen_port.map_or_else(String::new, |port| format!(", port {port}"));
    Ok(Source {
        says: format!("{name}: MTU {}{port}", interface.mtu),
        name: hostname(),
        interface: None,
        public_key: status.public_key,
        peers: peers.collect(),
        here: facts.cloned(),
    })
}

/// Every address of a name, once each.
fn resolve(name: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> =
        (name, 0).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect()).unwrap_or_default();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests;
