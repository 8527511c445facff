//! Why a handshake does not come up, from what both ends counted.

use crate::tunnel::keys::PublicKey;

use super::{HandshakeCounters, PeerStatus, Status};

/// One end of the pair: its key, and what it says.
struct End<'a> {
    key: PublicKey,
    status: &'a Status,
    peer: Option<&'a PeerStatus>,
}

impl End<'_> {
    fn handshakes(&self) -> HandshakeCounters {
        self.peer.and_then(|peer| peer.handshakes).unwrap_or_default()
    }

    fn counts(&self) -> bool {
        self.status.engine.is_some()
    }

    fn counter(&self, name: &str) -> u64 {
        self.status.engine.as_ref().and_then(|engine| engine.counters.get(name)).copied().unwrap_or(0)
    }
}

/// Explains in one sentence, with the counters that it rests on, why `local` and `remote` have no session.
///
/// Both ends are named by their keys, as each one was configured. Where an engine does not count handshakes, the sentence
/// says so instead of guessing.
#[must_use]
pub fn why_no_handshake(local: (PublicKey, &Status), remote: (PublicKey, &Status)) -> String {
    let find = |status: &Status, key: PublicKey| status.peers.iter().position(|peer| peer.public_key == key);
    let local_end =
        End { key: local.0, status: local.1, peer: find(local.1, remote.0).map(|index| &local.1.peers[index]) };
    let remote_end =
        End { key: remote.0, status: remote.1, peer: find(remote.1, local.0).map(|index| &remote.1.peers[index]) };
    let (caller, callee) = if calls(&local_end) { (&local_end, &remote_end) } else { (&remote_end, &local_end) };
    explain(caller, callee)
}

fn calls(end: &End<'_>) -> bool {
    end.peer.is_some_and(|peer| peer.endpoint.is_some())
}

fn explain(caller: &End<'_>, callee: &End<'_>) -> String {
    if caller.peer.and_then(|peer| peer.last_handshake).is_some()
        && callee.peer.and_then(|peer| peer.last_handshake).is_some()
    {
        return "both ends have completed a handshake".to_owned();
    }
    let (Some(called), true) = (caller.peer, calls(caller)) else {
        if caller.peer.is_none() && callee.peer.is_none() {
            return format!("wrong key: neither end knows the other ({} and {})", caller.key, callee.key);
        }
        return "nobody can initiate: neither end has an endpoint for the other".to_owned();
    };
    let endpoint = called.endpoint.map_or_else(|| "nowhere".to_owned(), |endpoint| endpoint.to_string());
    if !caller.counts() || !callee.counts() {
        return format!(
            "not explained: no answer from {endpoint}, and {} does not count handshakes",
            if caller.counts() { "the other end's engine" } else { "this engine" }
        );
    }
    let sent = caller.handshakes();
    let seen = callee.handshakes();
    if sent.initiations_sent == 0 {
        let errors = &caller.status.engine.as_ref().map(|engine| engine.udp_send_errors.clone()).unwrap_or_default();
        return match errors.iter().next_back() {
            Some((errno, count)) => {
                format!("unreachable: no initiation to {endpoint} could be sent ({count} sends failed with {errno})")
            }
            None => "nothing was sent: no initiation was started yet".to_owned(),
        };
    }
    let initiations = format!("{} initiations sent to {endpoint}", sent.initiations_sent);
    if seen.initiations_received == 0 {
        if sent.icmp_errors > 0 {
            return format!("unreachable: {initiations}, answered by {} ICMP errors", sent.icmp_errors);
        }
        if let Some(stranger) = callee.status.engine.as_ref().and_then(|engine| engine.unknown_caller)
            && callee.peer.is_none()
        {
            return format!("wrong key: {initiations} arrived, but the other end has no peer {stranger}");
        }
        let bad_mac = callee.counter("drop.handshake-mac1");
        if bad_mac > 0 {
            return format!(
                "wrong public key: {initiations}, {bad_mac} arrived whose MAC1 is not for {}: the caller knows another key for it",
                callee.key
            );
        }
        if seen.initiations_stale > 0 {
            return format!(
                "clock: {initiations}, {} arrived with a timestamp that is not newer than the last one: the caller's clock went back, or they are replays",
                seen.initiations_stale
            );
        }
        if callee.counter("drop.handshake-aead") > 0 {
            return format!("wrong key: {initiations} arrived, but do not decrypt");
        }
        return format!(
            "blocked: {initiations}, none arrived and no ICMP error came back: the UDP port is filtered on the way, or the address is not the other end's"
        );
    }
    let arrived = format!("{initiations}, {} arrived", seen.initiations_received);
    if sent.responses_rejected > 0 {
        return format!(
            "wrong preshared key: {arrived}, {} responses came back, {} did not decrypt",
            sent.responses_received, sent.responses_rejected
        );
    }
    if sent.responses_received == 0 && seen.responses_sent > 0 {
        let errors = seen.icmp_errors;
        if errors > 0 {
            return format!(
                "unreachable in reverse: {arrived}, {} responses were sent, answered by {errors} ICMP errors",
                seen.responses_sent
            );
        }
        return format!(
            "blocked in reverse: {arrived}, {} responses were sent and none came back: the UDP port is filtered on the way back",
            seen.responses_sent
        );
    }
    if sent.cookies_received > 0 {
        return format!("under load: {arrived}, the other end answered with {} cookies", sent.cookies_received);
    }
    format!("not explained: {arrived}, {} responses sent, {} received", seen.responses_sent, sent.responses_received)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tunnel::status::{CountersMean, EngineStatus};

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32]).unwrap()
    }

    fn status(other: Option<u8>, endpoint: bool, handshakes: HandshakeCounters, counters: &[(&str, u64)]) -> Status {
        let peer = |byte| PeerStatus {
            public_key: key(byte),
            endpoint: endpoint.then(|| "192.0.2.2:51820".parse().unwrap()),
            allowed_ips: Vec::new(),
            rx_bytes: 0,
            tx_bytes: 0,
            last_handshake: None,
            keepalive: None,
            handshakes: Some(handshakes),
        };
        Status {
            version: None,
            listen_port: Some(51820),
            fwmark: None,
            peers: other.map(peer).into_iter().collect(),
            counters_mean: CountersMean::UdpPayload,
            process: None,
            granted: None,
            engine: Some(EngineStatus {
                counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
                ..EngineStatus::default()
            }),
        }
    }

    fn why(caller: HandshakeCounters, callee: HandshakeCounters, counters: &[(&str, u64)]) -> String {
        let (a, b) = (status(Some(2), true, caller, &[]), status(Some(1), false, callee, counters));
        why_no_handshake((key(1), &a), (key(2), &b))
    }

    const SENT: HandshakeCounters = HandshakeCounters {
        initiations_sent: 3,
        initiations_received: 0,
        responses_sent: 0,
        responses_received: 0,
        responses_rejected: 0,
        initiations_stale: 0,
        cookies_received: 0,
        icmp_errors: 0,
        completed: 0,
    };

    #[test]
    fn each_fault_has_its_own_sentence() {
        let none = HandshakeCounters::default();
        let seen = HandshakeCounters { initiations_received: 3, responses_sent: 3, ..none };
        let told = [
            why(SENT, none, &[]),
            why(SENT, none, &[("drop.handshake-mac1", 3)]),
            why(SENT, HandshakeCounters { initiations_stale: 3, ..none }, &[]),
            why(HandshakeCounters { icmp_errors: 3, ..SENT }, none, &[]),
            why(SENT, seen, &[]),
            why(HandshakeCounters { responses_received: 3, responses_rejected: 3, ..SENT }, seen, &[]),
            why(HandshakeCounters { cookies_received: 1, responses_received: 1, ..SENT }, seen, &[]),
            why(none, none, &[]),
        ];
        let begins = [
            "blocked: 3 initiations",
            "wrong public key: ",
            "clock: ",
            "unreachable: ",
            "blocked in reverse: ",
            "wrong preshared key: ",
            "under load: ",
            "nothing was sent",
        ];
        for (told, begin) in told.iter().zip(begins) {
            assert!(told.starts_with(begin), "{told}");
        }
        assert!(told[0].contains("192.0.2.2:51820"), "{}", told[0]);
    }

    #[test]
    fn an_unknown_caller_is_named() {
        let a = status(Some(2), true, SENT, &[]);
        let mut b = status(None, false, SENT, &[("drop.handshake-unknown-peer", 3)]);
        if let Some(engine) = &mut b.engine {
            engine.unknown_caller = Some(key(1));
        }
        let told = why_no_handshake((key(1), &a), (key(2), &b));
        assert!(told.starts_with("wrong key: ") && told.contains(&key(1).to_string()), "{told}");
        // Seen from the other end it is the same fault.
        assert_eq!(why_no_handshake((key(2), &b), (key(1), &a)), told);
    }

    #[test]
    fn engines_that_do_not_count_are_not_guessed_about() {
        let a = status(Some(2), true, SENT, &[]);
        let mut b = status(Some(1), false, SENT, &[]);
        b.engine = None;
        assert!(why_no_handshake((key(1), &a), (key(2), &b)).starts_with("not explained: "));
    }

    #[test]
    fn without_endpoints_nobody_calls() {
        let a = status(Some(2), false, HandshakeCounters::default(), &[]);
        let b = status(Some(1), false, HandshakeCounters::default(), &[]);
        assert!(why_no_handshake((key(1), &a), (key(2), &b)).starts_with("nobody can initiate"));
        let unreachable = EngineStatus {
            udp_send_errors: BTreeMap::from([("ENETUNREACH".to_owned(), 4)]),
            ..EngineStatus::default()
        };
        let mut a = status(Some(2), true, HandshakeCounters::default(), &[]);
        a.engine = Some(unreachable);
        let told = why_no_handshake((key(1), &a), (key(2), &b));
        assert!(told.starts_with("unreachable: ") && told.contains("ENETUNREACH"), "{told}");
    }
}
