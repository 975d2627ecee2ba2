//! The proxy's random number: the collector tells by it whose load a report is, whichever VM sends it.

use super::PROXY_KEY;
use crate::host::{Host, WriteIf};

/// The proxy's number. Where it has none yet, `random` becomes it. None: shared data refuses.
pub fn proxy_number(host: &impl Host, random: u64) -> Option<u64> {
    let read = || {
        let bytes = host.shared(PROXY_KEY)?.bytes;
        let number = u64::from_le_bytes(bytes.try_into().ok()?);
        (number != 0).then_some(number)
    };
    read().or_else(|| {
        let condition = host.shared(PROXY_KEY).map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
        // Whoever comes second takes the number of the first.
        let _ = host.set_shared(PROXY_KEY, &random.max(1).to_le_bytes(), condition);
        read()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn all_vms_of_a_proxy_have_the_number_of_the_first() {
        let host = FakeHost::default();
        assert_eq!([5, 6, 0].map(|random| proxy_number(&host, random)), [Some(5); 3]);
        host.put(PROXY_KEY, b"rubbish");
        assert_eq!(proxy_number(&host, 7), Some(7));
        host.put(PROXY_KEY, &[0; 8]);
        assert_eq!(proxy_number(&host, 0), Some(1));
    }
}
