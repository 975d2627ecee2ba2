//! Snapshots on disk: whole, or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use bytes::Bytes;

use super::format::SnapshotError;

/// More is not read: some thirty million blocks.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a file; none where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Bytes>, SnapshotError> {
    let size = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if size > MAX_BYTES {
        return Err(SnapshotError::TooLarge(size, MAX_BYTES));
    }
    Ok(Some(fs::read(path)?.into()))
}

/// Puts bytes in the place of a file in one step, so that whoever reads it finds the old ones or the new ones, also after
/// the machine has lost its power in between.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let new = path.with_extension("snapshot.new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_one_that_is_absent_is_none() {
        let directory = std::env::temp_dir().join(format!("warmroute-snapshots-{}", std::process::id()));
        let path = directory.join("deep").join("llama.snapshot");
        assert!(read(&path).unwrap().is_none());
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), "two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
        assert!(read(Path::new("/dev/null/x")).is_err());
    }
}
