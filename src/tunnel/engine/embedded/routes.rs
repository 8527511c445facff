//! Allowed IPs: which peer owns an inner address, by the longest prefix over all peers.
//!
//! The table never changes; a new one is made when the configuration does. Prefixes are flattened into intervals that do
//! not overlap, so a look-up is one binary search, however deep prefixes nest.

use std::net::IpAddr;

use ipnet::IpNet;

/// Peers by address. `T` says which peer.
#[derive(Debug, Clone)]
pub struct Routes<T> {
    v4: Vec<Interval<T>>,
    v6: Vec<Interval<T>>,
}

/// From `start` to where the next interval starts.
#[derive(Debug, Clone)]
struct Interval<T> {
    start: u128,
    owner: Option<T>,
}

impl<T: Copy> Routes<T> {
    /// Builds the table. Of two equal prefixes, the last one wins, as in the kernel.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (net, owner) in prefixes {
            let (start, end) = (number(net.network()), number(net.broadcast()));
            let list = if net.addr().is_ipv4() { &mut v4 } else { &mut v6 };
            list.push((start, end, owner));
        }
        Self { v4: flatten(v4, u128::from(u32::MAX)), v6: flatten(v6, u128::MAX) }
    }

    /// Who owns `address`.
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<T> {
        let intervals = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let wanted = number(address);
        let after = intervals.partition_point(|interval| interval.start <= wanted);
        intervals.get(after.checked_sub(1)?)?.owner
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// Prefixes either nest or are disjoint, so a walk in order of their starts with a stack of open ones finds, for every
/// address, the innermost.
fn flatten<T: Copy>(mut prefixes: Vec<(u128, u128, T)>, max: u128) -> Vec<Interval<T>> {
    // Outer before inner; the sort is stable, so that the last of equals is on top of the stack.
    prefixes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut out: Vec<Interval<T>> = Vec::with_capacity(prefixes.len() * 2 + 1);
    let mut open: Vec<(u128, T)> = Vec::new();
    let mut put = |start: u128, owner: Option<T>| match out.last_mut() {
        Some(last) if last.start == start => last.owner = owner,
        _ => out.push(Interval { start, owner }),
    };
    for (start, end, owner) in prefixes {
        while let Some(&(closes, _)) = open.last()
            && closes < start
        {
            open.pop();
            put(closes + 1, open.last().map(|&(_, owner)| owner));
        }
        put(start, Some(owner));
        open.push((end, owner));
    }
    while let Some((closes, _)) = open.pop() {
        if closes < max {
            put(closes + 1, open.last().map(|&(_, owner)| owner));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn routes(prefixes: &[(&str, u32)]) -> Routes<u32> {
        Routes::new(prefixes.iter().map(|(net, owner)| (net.parse().unwrap(), *owner)))
    }

    #[test]
    fn the_longest_prefix_wins_over_all_peers() {
        let table = routes(&[
            ("10.9.0.0/24", 1),
            ("10.9.0.5/32", 2),
            ("0.0.0.0/0", 3),
            ("fd00::/8", 1),
            ("fd00::5/128", 2),
            ("255.255.255.255/32", 4),
        ]);
        let at = |address: &str| table.lookup(address.parse().unwrap());
        assert_eq!(at("10.9.0.5"), Some(2));
        assert_eq!(at("10.9.0.6"), Some(1));
        assert_eq!(at("10.9.0.4"), Some(1));
        assert_eq!(at("10.9.1.0"), Some(3));
        assert_eq!(at("255.255.255.255"), Some(4));
        assert_eq!(at("255.255.255.254"), Some(3));
        assert_eq!(at("fd00::5"), Some(2));
        assert_eq!(at("fd00::6"), Some(1));
        assert_eq!(at("2001:db8::1"), None);
    }

    #[test]
    fn the_whole_of_ipv6_ends_without_overflow() {
        let table = routes(&[("::/0", 1), ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", 2)]);
        assert_eq!(table.lookup("::".parse().unwrap()), Some(1));
        assert_eq!(table.lookup("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()), Some(2));
        assert_eq!(table.lookup("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe".parse().unwrap()), Some(1));
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(
            prefixes in proptest::collection::vec((any::<u32>(), 0_u8..=32, 0_u32..20), 0..60),
            near in proptest::collection::vec((0_usize..60, -2_i64..3), 0..20),
            anywhere: u32,
        ) {
            let nets: Vec<(IpNet, u32)> = prefixes
                .iter()
                // Few distinct high bits, so that prefixes nest.
                .map(|(bits, length, owner)| {
                    let address = std::net::Ipv4Addr::from(bits & 0x0300_ffff);
                    (IpNet::new(address.into(), *length).unwrap().trunc(), *owner)
                })
                .collect();
            let table = Routes::new(nets.iter().copied());
            let mut addresses = vec![anywhere, 0, u32::MAX];
            for (index, offset) in near {
                if let Some((net, _)) = nets.get(index) {
                    for edge in [net.network(), net.broadcast()] {
                        let IpAddr::V4(edge) = edge else { unreachable!() };
                        addresses.push((i64::from(u32::from(edge)) + offset).clamp(0, i64::from(u32::MAX)) as u32);
                    }
                }
            }
            for address in addresses {
                let address = IpAddr::V4(address.into());
                let expected = nets
                    .iter()
                    .filter(|(net, _)| net.contains(&address))
                    .max_by_key(|(net, _)| net.prefix_len())
                    .map(|(_, owner)| *owner);
                prop_assert_eq!(table.lookup(address), expected);
            }
        }
    }
}
