//! How long and how often a profile measures, where neither file nor request says.

use std::time::Duration;

use crate::cell::TestKind;
use crate::topology::Profile;

/// Rounds of a profile whose file says nothing.
pub(super) const fn rounds(profile: Profile) -> u32 {
    match profile {
        Profile::Quick | Profile::Standard => 3,
        Profile::Thorough => 10,
    }
}

/// Window and warm-up of a test where neither file nor request says.
pub(super) const fn times(profile: Profile, kind: TestKind) -> (Duration, Duration) {
    let quick = match kind {
        TestKind::TcpStream | TestKind::UdpStream => (500, 100),
        TestKind::UdpSearch => (2_000, 100),
        TestKind::TcpRr | TestKind::UdpRr => (250, 50),
        TestKind::TcpCrr => (200, 50),
        TestKind::Ping => (500, 0),
        TestKind::Handshake | TestKind::Connections | TestKind::Mtu => (1_000, 0),
    };
    let long = match kind {
        TestKind::TcpStream | TestKind::UdpStream | TestKind::UdpSearch => (10_000, 1_000),
        TestKind::TcpRr | TestKind::UdpRr | TestKind::TcpCrr => (10_000, 200),
        TestKind::Ping | TestKind::Handshake | TestKind::Connections | TestKind::Mtu => (10_000, 0),
    };
    let (window, warmup) = match profile {
        Profile::Quick => quick,
        Profile::Standard | Profile::Thorough => long,
    };
    (Duration::from_millis(window), Duration::from_millis(warmup))
}
