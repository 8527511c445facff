//! The generator's own ceiling: both ends of a test in this process, over the loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::super::messages::{Buffers, Calibration, Job, JobKind, Role};
use crate::traffic::{self, TrafficError};
use crate::units::Direction;

const STREAMS: u16 = 4;
const WARMUP: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(3);

/// What four TCP streams move with nothing between the ends.
pub(super) fn calibrate() -> Result<Calibration, TrafficError> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let job = |role, ports| Job {
        role,
        direction: Direction::Forward,
        kind: JobKind::TcpStream { streams: STREAMS, buffers: Buffers::default() },
        local: here,
        local_interface: None,
        peer: Some((here, ports)),
        more_paths: Vec::new(),
        // In every kernel, and it does not pace: the host alone binds.
        congestion_control: Some("reno".to_owned()),
        warmup: WARMUP,
        duration: WINDOW,
        deadline: DEADLINE,
        probe: None,
        seed: 0,
    };
    let server = traffic::prepare(&job(Role::Server, Vec::new()))?;
    let client = traffic::prepare(&job(Role::Client, server.ports()))?;
    let (server, client) = (server.start(), client.start());
    let received = server.wait()?;
    client.wait()?;
    let rate = received.received_rate().zip(received.window).ok_or_else(|| TrafficError::NothingArrived {
        what: "a byte over the loopback".to_owned(),
        waited: DEADLINE,
    })?;
    Ok(Calibration { tcp_bits_per_second: rate.0.bits_per_second(), window_ns: rate.1.length_ns })
}
