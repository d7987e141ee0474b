//! The demo's folder: for this user alone, and gone at the end.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::say;
use crate::witness::now;

/// A folder of its own among the temporary files, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> io::Result<Self> {
        let name = format!("tenure-demo-{}-{:x}", std::process::id(), now());
        let path = std::path::absolute(std::env::temp_dir().join(name))?;
        // Not one that is there already, which could be anybody's.
        let described =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        DirBuilder::new().mode(0o700).create(&path).map_err(described)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            say::line(format_args!("the demo's folder {} could not be removed: {error}", self.0.display()));
        }
    }
}
