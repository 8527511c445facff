//! Values as wg and wg-quick read them (wireguard-tools, src/config.c and src/wg-quick/linux.bash). Pure.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Table;
use crate::tunnel::keys::KeyError;
use crate::units::Mtu;

/// What is wrong with a value, and what to do.
pub(super) type Wrong = (String, String);

fn wrong<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Wrong> {
    Err((message.into(), help.into()))
}

/// What is wrong where a quotation mark of any kind begins or ends a value: wg takes it for a part of that.
pub(super) fn quotes(text: &str) -> Option<Wrong> {
    let is_quote =
        |c: char| "\"'`\u{2018}\u{2019}\u{201a}\u{201b}\u{201c}\u{201d}\u{201e}\u{201f}\u{ab}\u{bb}".contains(c);
    let mark = [text.chars().next(), text.chars().next_back()].into_iter().flatten().find(|c| is_quote(*c))?;
    Some((format!("the value is in quotes (`{mark}`), which wg takes for a part of it"), "remove them".to_owned()))
}

/// A number in decimal digits, leading zeros and all; no sign, no unit. `None` where it is none or too large.
fn digits(text: &str) -> Option<u64> {
    let number = text.trim_start_matches('0');
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Twenty digits do not fit; the parse says so.
    if !is_number {
        None
    } else if number.is_empty() {
        Some(0)
    } else {
        number.parse().ok()
    }
}

/// A port; 0 lets the system choose, where that makes sense.
pub(super) fn port(text: &str, least: u64) -> Result<u16, Wrong> {
    let range = format!("{least} to 65535");
    match digits(text) {
        Some(port) if port >= least => match u16::try_from(port) {
            Ok(port) => Ok(port),
            Err(_) => wrong("the port is out of range", format!("a port is {range}")),
        },
        Some(_) => wrong("port 0 is no port to send to", format!("a port is {range}")),
        None if !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !text.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            wrong(
                "the port is a service's name, which each host may resolve to another number",
                format!("write the number, {range}"),
            )
        }
        None if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
            wrong("the port is out of range", format!("a port is {range}"))
        }
        None => wrong("the port is not a number", format!("a port is {range}, in decimal digits")),
    }
}

/// `off`, a decimal or a `0x` number of 32 bits. `None`: no mark.
pub(super) fn fwmark(text: &str) -> Result<Option<u32>, Wrong> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let number = match text.strip_prefix("0x") {
        Some(hex) if !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let significant = hex.trim_start_matches('0');
            if significant.len() > 8 { None } else { u64::from_str_radix(&format!("0{significant}"), 16).ok() }
        }
        Some(_) => None,
        None => digits(text),
    };
    match number.map(u32::try_from) {
        Some(Ok(mark)) => Ok((mark != 0).then_some(mark)),
        _ if text.starts_with("0X") => wrong("the mark begins with `0X`, which wg refuses", "write `0x` in lower case"),
        _ => wrong("this is no mark", "write off, or a number from 0 to 4294967295, decimal or with `0x`"),
    }
}

/// `off` or seconds. `None`: none.
pub(super) fn keepalive(text: &str) -> Result<Option<u16>, Wrong> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    match digits(text).map(u16::try_from) {
        Some(Ok(seconds)) => Ok((seconds != 0).then_some(seconds)),
        Some(Err(_)) => wrong("the interval is too long", "write off, or whole seconds from 0 to 65535"),
        None => wrong(
            "this is no interval",
            "write off, or whole seconds from 0 to 65535 in decimal digits, without sign or unit",
        ),
    }
}

/// A prefix that leads to a peer, and whether it had bits beyond its length.
pub(super) fn allowed_ip(text: &str) -> Result<(IpNet, bool), Wrong> {
    if let Some(sign @ ('+' | '-')) = text.chars().next() {
        return wrong(
            format!("`{sign}` before a prefix changes what a running device has; a file says what it shall have"),
            "write the prefixes that the peer shall have, without signs",
        );
    }
    let net = net(text)?;
    Ok((net.trunc(), net != net.trunc()))
}

/// An address with its prefix length; without one it stands alone.
pub(super) fn net(text: &str) -> Result<IpNet, Wrong> {
    if let Some(quoted) = quotes(text) {
        return Err(quoted);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    if address.contains('%') {
        return wrong("a zone does not belong here", "write the address without `%` and what follows it");
    }
    let Ok(address) = address.parse::<IpAddr>() else {
        return match octal_free(address) {
            Some(plain) => wrong(
                "a part of the address begins with 0, which some read as octal",
                format!("write it as it is meant, {plain} perhaps"),
            ),
            None => wrong("this is no address", "write addresses like 10.0.0.0/24 or fd00::/64, with commas between"),
        };
    };
    let most: u8 = if address.is_ipv4() { 32 } else { 128 };
    let Some(length) = length else {
        return IpNet::new(address, most).or_else(|_| wrong("this is no address", "write it like 10.0.0.1"));
    };
    let length = match digits(length) {
        Some(length) if length <= u64::from(most) => u8::try_from(length).unwrap_or(most),
        Some(_) => return wrong("the prefix length is out of range", format!("it is 0 to {most} here")),
        None if length.parse::<IpAddr>().is_ok() => {
            return wrong("this is a netmask, not a prefix length", "write the length, like /24 for 255.255.255.0");
        }
        None if length.is_empty() => {
            return wrong("the prefix length is missing", format!("write /0 to /{most} after the address, or no `/`"));
        }
        None => return wrong("the prefix length is not a number", format!("it is 0 to {most}, in decimal digits")),
    };
    IpNet::new(address, length).or_else(|_| wrong("the prefix length is out of range", format!("it is 0 to {most}")))
}

/// The address without leading zeros, where these are all that is wrong with it.
pub(super) fn octal_free(text: &str) -> Option<IpAddr> {
    let parts: Vec<&str> = text
        .split('.')
        .map(|part| if part.len() > 1 { part.trim_start_matches('0') } else { part })
        .map(|part| if part.is_empty() { "0" } else { part })
        .collect();
    let plain = parts.join(".");
    (plain != text).then(|| plain.parse().ok()).flatten()
}

/// The device's MTU.
pub(super) fn mtu(text: &str) -> Result<Mtu, Wrong> {
    let help = "an MTU is 68 to 65535 bytes, a whole number without unit; 1420 suits Ethernet";
    match digits(text) {
        Some(bytes) if bytes <= u64::from(u16::MAX) => {
            Mtu::new(bytes).or_else(|_| wrong(format!("no packet fits into an MTU of {bytes}"), help))
        }
        Some(_) => wrong("the MTU is more than a packet can have", help),
        None => wrong("this is no MTU", help),
    }
}

/// `off`, `auto` or a table's number.
pub(super) fn table(text: &str) -> Result<Table, Wrong> {
    const HELP: &str = "write off, auto, or the number of a routing table";
    match text {
        "off" => return Ok(Table::Off),
        "auto" => return Ok(Table::Auto),
        _ => {}
    }
    match digits(text).map(u32::try_from) {
        Some(Ok(number)) => Ok(Table::Number(number)),
        Some(Err(_)) => wrong("no routing table has that number", HELP),
        None if text.eq_ignore_ascii_case("off") || text.eq_ignore_ascii_case("auto") => {
            wrong("wg-quick reads this word in lower case only", format!("write {}", text.to_ascii_lowercase()))
        }
        None => wrong("this is no routing table that every host has", HELP),
    }
}

/// `true` or `false`; wg-quick takes them in any case.
pub(super) fn boolean(text: &str) -> Result<bool, Wrong> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        wrong("this is neither true nor false", "write true or false")
    }
}

/// A key's text, which is base64 in these files. The text itself is in no message.
pub(super) fn key<T: std::str::FromStr<Err = KeyError>>(text: &str) -> Result<T, Wrong> {
    const HELP: &str = "copy it again, whole: 43 characters of base64 and one `=`";
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong("the key is hexadecimal", "write it in base64, as `wg genkey` and `wg pubkey` do");
    }
    if let Some(quoted) = quotes(text) {
        return Err(quoted);
    }
    if text.starts_with(['/', '.', '~']) && text.len() != 44 {
        return wrong(
            "a file's name stands where a key should",
            "write the key itself; wg files hold keys, not names of files",
        );
    }
    match text.parse() {
        Ok(key) => Ok(key),
        Err(KeyError::Zero) => wrong("the key is all zeros, which is no key", "write the key that was generated"),
        Err(_) if text.len() != 44 => {
            wrong(format!("a key has 44 characters, and this has {}", text.chars().count()), HELP)
        }
        Err(_) if text.contains(['-', '_']) => {
            wrong("the key is spelled in the URL alphabet", "write `+` for `-` and `/` for `_`")
        }
        Err(_) => wrong("the key is damaged: no 32 bytes are spelled so", HELP),
    }
}
