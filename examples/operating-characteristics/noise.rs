//! What one run differs by from its level: made-up noise of a few kinds, standard deviation one.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A kind of noise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Independent and normal.
    Gaussian,
    /// Each run remembers 0.6 of the one before it, over both levels.
    Autoregressive,
    /// Two modes, four deviations of either apart, each run in either.
    Bimodal,
    /// Student's t with three degrees of freedom.
    HeavyTailed,
}

impl Noise {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Gaussian, "Gaussian"),
        (Self::Autoregressive, "AR(1), 0.6"),
        (Self::Bimodal, "two modes"),
        (Self::HeavyTailed, "heavy tails"),
    ];
}

/// Splits one seed into many that have nothing to do with each other: the finaliser of SplitMix64 (Steele, Lea & Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014).
pub(crate) fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9E37_79B9_7F4A_7C15, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// A stream of noise.
pub(crate) struct Source {
    noise: Noise,
    rng: ChaCha8Rng,
    last: Option<f64>,
    spare: Option<f64>,
}

impl Source {
    pub(crate) fn new(noise: Noise, seed: u64) -> Self {
        Self { noise, rng: ChaCha8Rng::seed_from_u64(seed), last: None, spare: None }
    }

    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal, by Box & Muller (1958).
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }

    /// A series begins anew: what it remembers is forgotten.
    pub(crate) fn restart(&mut self) {
        self.last = None;
    }

    pub(crate) fn next(&mut self) -> f64 {
        match self.noise {
            Noise::Gaussian => self.normal(),
            Noise::Autoregressive => {
                let next = match self.last {
                    Some(last) => 0.6 * last + 0.8 * self.normal(),
                    None => self.normal(),
                };
                self.last = Some(next);
                next
            }
            Noise::Bimodal => {
                let mode = if self.uniform() < 0.5 { -2.0 } else { 2.0 };
                (mode + self.normal()) / 5.0_f64.sqrt()
            }
            Noise::HeavyTailed => {
                let chi: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                // The variance of t with three degrees of freedom is three.
                self.normal() / (chi / 3.0).sqrt() / 3.0_f64.sqrt()
            }
        }
    }
}
