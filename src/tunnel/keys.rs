//! WireGuard keys: strict to read, erased when dropped, never shown by accident.
//!
//! Text is base64 (wg, wg-quick) or hexadecimal (UAPI). Both are read strictly: a base64 key is 44 characters of the
//! one canonical spelling, since lenient readers turn a damaged key into another key, or into zeros.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// Length of every WireGuard key (whitepaper section 5.4: Curve25519 points and scalars, 256-bit preshared keys).
pub(super) const KEY_LEN: usize = 32;

/// Canonical base64 only: padding demanded, no stray bits in the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(false),
);

/// Text or bytes that are not a key. The text itself is never part of the message: it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither 44 characters (base64) nor 64 (hexadecimal).
    #[error("a key is 44 characters of base64 (or 64 hexadecimal digits), this has {0}")]
    Length(usize),
    /// Right length, wrong characters, or bits set that no 32 bytes encode to.
    #[error("not a key: the {0} is damaged; copy it again, whole")]
    Encoding(&'static str),
    /// All zeros: no key, and as a public key a point that makes every shared secret zero.
    #[error("the all-zero key is not a key")]
    Zero,
}

/// Reads base64 or hexadecimal into erasable bytes.
fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
    let mut key = Zeroizing::new([0_u8; KEY_LEN]);
    match text.len() {
        44 => {
            // The decoder wants room for its estimate (33), not for the true length.
            let mut wide = Zeroizing::new([0_u8; KEY_LEN + 1]);
            let length =
                BASE64.decode_slice(text, wide.as_mut_slice()).map_err(|_| KeyError::Encoding("base64 text"))?;
            if length != KEY_LEN {
                return Err(KeyError::Encoding("base64 text"));
            }
            key.copy_from_slice(&wide[..KEY_LEN]);
        }
        64 => {
            for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                let (high, low) = (hex_digit(pair[0])?, hex_digit(pair[1])?);
                *byte = high << 4 | low;
            }
        }
        length => return Err(KeyError::Length(length)),
    }
    Ok(key)
}

fn hex_digit(character: u8) -> Result<u8, KeyError> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'a'..=b'f' => Ok(character - b'a' + 10),
        b'A'..=b'F' => Ok(character - b'A' + 10),
        _ => Err(KeyError::Encoding("hexadecimal text")),
    }
}

fn hex(bytes: &[u8; KEY_LEN]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// A private key. It lives in memory only: it has no serialisation, its `Debug` shows nothing, and it is erased on drop.
#[derive(Clone)]
pub struct PrivateKey(StaticSecret);

impl PrivateKey {
    /// A fresh key from the kernel's random numbers.
    #[must_use]
    pub fn generate() -> Self {
        Self(StaticSecret::random())
    }

    /// The key with these bytes.
    ///
    /// # Errors
    /// [`KeyError::Zero`].
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(bytes);
        if *bytes == [0; KEY_LEN] {
            return Err(KeyError::Zero);
        }
        Ok(Self(StaticSecret::from(*bytes)))
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// The UAPI's spelling, erased when dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0.to_bytes()))
    }

    pub(crate) fn secret(&self) -> StaticSecret {
        self.0.clone()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(hidden)")
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(*decode(text)?)
    }
}

/// A preshared key: as secret as a private key, and handled alike.
#[derive(Clone, PartialEq, Eq)]
pub struct PresharedKey(Zeroizing<[u8; KEY_LEN]>);

impl PresharedKey {
    /// The key with these bytes; all zeros mean that there is none (wg's convention).
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Option<Self> {
        let bytes = Zeroizing::new(bytes);
        (*bytes != [0; KEY_LEN]).then_some(Self(bytes))
    }

    /// The UAPI's spelling, erased when dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0))
    }

    pub(crate) fn bytes(&self) -> [u8; KEY_LEN] {
        *self.0
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(hidden)")
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(*decode(text)?).ok_or(KeyError::Zero)
    }
}

/// A public key: shown and serialised as base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`KeyError::Zero`].
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Result<Self, KeyError> {
        if bytes == [0; KEY_LEN] {
            return Err(KeyError::Zero);
        }
        Ok(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The UAPI's spelling.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(*decode(text)?)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn base64_and_hexadecimal_name_the_same_key() {
        let key: PublicKey = K1.parse().unwrap();
        assert_eq!(key.as_bytes(), &[1; 32]);
        assert_eq!(key.to_string(), K1);
        assert_eq!(key.to_hex(), "01".repeat(32));
        assert_eq!(key.to_hex().parse::<PublicKey>().unwrap(), key);
        assert_eq!(key.to_hex().to_uppercase().parse::<PublicKey>().unwrap(), key);
    }

    #[test]
    fn damaged_text_is_refused() {
        // Unpadded, a digit too many, stray bits in the last character, foreign characters, URL alphabet, white space.
        for (text, error) in [
            (&K1[..43], KeyError::Length(43)),
            ("", KeyError::Length(0)),
            (&format!("{K1}=")[..], KeyError::Length(45)),
            ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQF=", KeyError::Encoding("base64 text")),
            ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB", KeyError::Encoding("base64 text")),
            ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ==", KeyError::Encoding("base64 text")),
            ("AQEBAQEBAQEBAQEBAQEBAQEBAQEB-QEBAQEBAQEBAQE=", KeyError::Encoding("base64 text")),
            ("AQEBAQEBAQEBAQEBAQEBAQEBAQEB QEBAQEBAQEBAQE=", KeyError::Encoding("base64 text")),
            (&"0g".repeat(32)[..], KeyError::Encoding("hexadecimal text")),
            (&"é".repeat(22)[..], KeyError::Encoding("base64 text")),
        ] {
            assert_eq!(text.parse::<PublicKey>().unwrap_err(), error, "{text}");
            assert_eq!(text.parse::<PrivateKey>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn zero_is_no_key() {
        let zero = "A".repeat(43) + "=";
        assert_eq!(zero.parse::<PublicKey>().unwrap_err(), KeyError::Zero);
        assert_eq!(zero.parse::<PrivateKey>().unwrap_err(), KeyError::Zero);
        assert_eq!("0".repeat(64).parse::<PresharedKey>().unwrap_err(), KeyError::Zero);
    }

    #[test]
    fn secrets_do_not_show() {
        let private: PrivateKey = K1.parse().unwrap();
        let preshared: PresharedKey = K1.parse().unwrap();
        let shown = format!("{private:?} {preshared:?} {:?}", Some((&private, &preshared)));
        assert!(!shown.contains("AQE") && !shown.contains("0101") && !shown.contains("1, 1"), "{shown}");
    }

    #[test]
    fn public_key_is_the_one_that_wg_derives() {
        let private: PrivateKey = K1.parse().unwrap();
        assert_eq!(private.public().to_string(), "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=");
        assert_ne!(PrivateKey::generate().public(), PrivateKey::generate().public());
    }
}
