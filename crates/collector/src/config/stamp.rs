//! Whether a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// What tells that a file has changed. A ConfigMap's is another file then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: SystemTime,
    inode: u64,
    len: u64,
}

// === impl Stamp ===

impl Stamp {
    /// A file's; none where it cannot be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok()?, inode: metadata.ino(), len: metadata.len() })
    }
}
