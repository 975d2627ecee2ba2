//! Names of storage media on the wire.

use warmroute_routing::Tier;

/// The tier of a medium's name; engines that name none have only the accelerator's memory.
///
/// A name that is not known is taken as the slowest tier: it may promise too little, never too much.
pub(crate) fn tier(medium: Option<&str>) -> Tier {
    let Some(medium) = medium else { return Tier::Gpu };
    match medium.to_ascii_uppercase().as_str() {
        "GPU" => Tier::Gpu,
        "CPU" | "CPU_PINNED" => Tier::Cpu,
        "STORAGE" | "DISK" | "FS" => Tier::Disk,
        _ => Tier::External,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_engine_have_their_tier() {
        assert_eq!(tier(None), Tier::Gpu);
        assert_eq!(tier(Some("GPU")), Tier::Gpu);
        for name in ["CPU", "cpu", "CPU_PINNED"] {
            assert_eq!(tier(Some(name)), Tier::Cpu, "{name}");
        }
        for name in ["STORAGE", "DISK", "FS"] {
            assert_eq!(tier(Some(name)), Tier::Disk, "{name}");
        }
        for name in ["OBJ", "EXTERNAL", "hologram", ""] {
            assert_eq!(tier(Some(name)), Tier::External, "{name}");
        }
    }
}
