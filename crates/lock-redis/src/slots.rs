//! Hash slots: in which of a cluster's 16,384 parts a key is. See the "Redis cluster specification".

use std::sync::LazyLock;

pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn slot(key: &str) -> u16 {
    checksum(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// The part in braces by which a key hashes, if it has one; else it hashes as a whole.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// A short number that hashes to this slot: in braces it puts any key there.
pub(crate) fn number_in(slot: u16) -> u32 {
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = vec![None; SLOTS.into()];
        let mut missing = SLOTS;
        for number in 0.. {
            let known = &mut numbers[usize::from(checksum(number.to_string().as_bytes()) % SLOTS)];
            if known.is_none() {
                *known = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        numbers.into_iter().flatten().collect()
    });
    NUMBERS[usize::from(slot % SLOTS)]
}

/// CRC-16/XMODEM.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, &byte| {
        (0..8).fold(sum ^ (u16::from(byte) << 8), |sum, _| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(checksum(b"123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(tag("foo{}{bar}"), None);
        assert_eq!(tag("foo{{bar}}zap"), Some("{bar"));
        assert_eq!(tag("foo{bar}{zap}"), Some("bar"));
    }

    #[test]
    fn each_slot_has_a_number() {
        for wanted in 0..SLOTS {
            assert_eq!(slot(&format!("oarlock-client:x{{{}}}", number_in(wanted))), wanted);
        }
    }
}
