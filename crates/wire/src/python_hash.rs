//! CPython's hash of a tuple of small whole numbers, as every release since 3.8 computes it (it is xxHash's mixing, and
//! knows no seed).
//!
//! It is needed to recognise engines that name a block by it: see [`super::sglang`].

const PRIME_1: u64 = 11_400_714_785_074_694_791;
const PRIME_2: u64 = 14_029_467_366_897_019_727;
const PRIME_5: u64 = 2_870_177_450_012_600_261;

/// The hash of a tuple by the hashes of its items; a whole number from 0 to 2^61 - 2 is its own hash.
pub(crate) fn tuple(items: impl ExactSizeIterator<Item = u64>) -> u64 {
    let len = items.len() as u64;
    let mixed = items.fold(PRIME_5, |hash, item| {
        hash.wrapping_add(item.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
    });
    match mixed.wrapping_add(len ^ (PRIME_5 ^ 3_527_539)) {
        // -1 tells of an error in CPython.
        u64::MAX => 1_546_275_796,
        hash => hash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_what_python_says() {
        // python3 -c 'print(hash((1, 2, 3)), hash(tuple(range(16))), hash(((1, 2), (2, 3))))'
        assert_eq!(tuple([1, 2, 3].into_iter()), 529_344_067_295_497_451);
        assert_eq!(tuple((0..16_u32).map(u64::from)), 2_828_489_712_818_767_170);
        let pairs = [[1, 2], [2, 3]].map(|pair| tuple(pair.into_iter()));
        assert_eq!(tuple(pairs.into_iter()), 8_374_439_192_799_522_889);
    }
}
