//! The files of a store: where they are, whether they may be used, whether they still are the same.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tenure_store::StoreError;

use crate::error::file_error;
use crate::options::SqliteOptions;

/// The path of a database with its symbolic links followed, so that whoever comes through another link
/// meets the same -wal, -shm and liveness files.
pub(crate) fn locate(options: &SqliteOptions) -> Result<PathBuf, StoreError> {
    let path = &options.path;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if options.create_folders {
        create_folder(folder)?;
    }
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => {
            path.canonicalize().map_err(|error| file_error(path, "can't follow the link", &error))
        }
        _ => {
            let folder = folder
                .canonicalize()
                .map_err(|error| file_error(folder, "can't find the folder of the store", &error))?;
            Ok(folder.join(path.file_name().unwrap_or_default()))
        }
    }
}

/// Creates a folder and those above it, for this user alone.
pub(crate) fn create_folder(folder: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| file_error(folder, "can't create the folder", &error))
}

/// Makes sure that the database may be used, and creates it empty if it is missing.
///
/// It must be called under the lock that all openings of this process share: creating a file and closing it
/// again would end the locks that another handle of this process had taken on it in between.
pub(crate) fn prepare(path: &Path, options: &SqliteOptions) -> Result<FileId, StoreError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    check_file_system(folder, options)?;
    if let Err(error) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(file_error(path, "can't create the store", &error));
    }
    let meta = path.metadata().map_err(|error| file_error(path, "can't look at the store", &error))?;
    if !meta.is_file() {
        let what = if meta.is_dir() { "a folder" } else { "not a regular file" };
        return Err(StoreError::rejected(format!("{}: it is {what}; choose another path", path.display())));
    }
    if meta.nlink() > 1 {
        return Err(StoreError::rejected(format!(
            "{}: the file has {} names (hard links), and programs that use different ones would destroy it; \
             remove all names but one",
            path.display(),
            meta.nlink()
        )));
    }
    check_file_system(path, options)?;
    check_mount(folder, path)?;
    Ok(FileId::of(&meta))
}

/// Refuses a file that was mounted without its folder, for example into a container: its log and its locks would
/// lie in another folder than those of other containers, and each would give the lease to somebody.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_mount(folder: &Path, path: &Path) -> Result<(), StoreError> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| {
        // Older kernels, and some sandboxes, don't tell.
        let said = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (said.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(said.stx_mnt_id)
    };
    if mount(folder).zip(mount(path)).is_none_or(|(folder, file)| folder == file) {
        return Ok(());
    }
    Err(StoreError::rejected(format!(
        "{}: the file is mounted without its folder, but those who use it must also share its -wal, -shm and .live \
         beside it; mount the folder instead",
        path.display()
    )))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn check_mount(_folder: &Path, _path: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// The three files of an open database. As long as this process has them open, each must stay what it was, and
/// the path that the user gave must lead to them: with a file that was replaced, or a link that was turned to
/// another one, two processes could work on different databases under one name.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    files: [(PathBuf, FileId); 4],
}

impl Identity {
    /// Of a database that is open, in WAL mode, and was read or written. `path` has its links followed, `given`
    /// is as the user gave it.
    pub(crate) fn of(path: &Path, given: &Path) -> io::Result<Self> {
        let id = |path: &Path, suffix: &str| -> io::Result<(PathBuf, FileId)> {
            let mut path = path.as_os_str().to_owned();
            path.push(suffix);
            let path = PathBuf::from(path);
            let id = FileId::of(&path.metadata()?);
            Ok((path, id))
        };
        let database = id(path, "")?;
        let given = (given.to_owned(), database.1);
        Ok(Self { files: [database, id(path, "-wal")?, id(path, "-shm")?, given] })
    }

    /// The database itself.
    pub(crate) const fn database(&self) -> FileId {
        self.files[0].1
    }

    /// Whether the paths still lead to these files.
    ///
    /// # Errors
    /// When it can't be told.
    pub(crate) fn still_there(&self) -> io::Result<bool> {
        for (path, id) in &self.files {
            match path.metadata() {
                Ok(meta) if FileId::of(&meta) == *id => {}
                Ok(_) => return Ok(false),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Makes a folder accessible to this user alone if it is not yet there. A link in its place is refused.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => File::open(path)?.set_permissions(Permissions::from_mode(0o700)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if path.symlink_metadata()?.is_dir() {
                Ok(())
            } else {
                Err(error)
            }
        }
        Err(error) => Err(error),
    }
}

/// For opening a file of the folder that [`private_folder`] makes: a link in its place is not followed, a pipe is
/// not waited for.
pub(crate) const AS_IT_IS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_file_system(path: &Path, options: &SqliteOptions) -> Result<(), StoreError> {
    if options.any_filesystem {
        return Ok(());
    }
    let kind = rustix::fs::statfs(path)
        .map_err(|error| file_error(path, "can't tell the file system", &error.into()))?
        .f_type;
    // The field is of another width and sign on each architecture; the magic numbers have 32 bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the low 32 bits are meant")]
    let magic = kind as u32;
    if LOCAL.iter().any(|(local, _)| *local == magic) {
        return Ok(());
    }
    Err(refused(path, &format!("of type {magic:#x}")))
}

/// The local file systems on which locks and shared memory work between processes. The numbers are from
/// Linux's `include/uapi/linux/magic.h`, those of ZFS and bcachefs from their own sources.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: [(u32, &str); 13] = [
    (0xef53, "ext2, ext3, ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x3434, "nilfs"),
    (0x2405_1905, "ubifs"),
];

#[cfg(target_vendor = "apple")]
fn check_file_system(path: &Path, options: &SqliteOptions) -> Result<(), StoreError> {
    if options.any_filesystem {
        return Ok(());
    }
    let kind = rustix::fs::statfs(path)
        .map_err(|error| file_error(path, "can't tell the file system", &error.into()))?
        .f_fstypename;
    // C characters are signed here and unsigned there; the names are ASCII.
    let name: String =
        kind.iter().map_while(|&c| u8::try_from(c).ok().filter(|&c| c != 0)).map(char::from).collect();
    if ["apfs", "hfs", "ufs", "zfs", "tmpfs"].contains(&name.as_str()) {
        return Ok(());
    }
    Err(refused(path, &format!("{name:?}")))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn check_file_system(path: &Path, options: &SqliteOptions) -> Result<(), StoreError> {
    if options.any_filesystem { Ok(()) } else { Err(refused(path, "that can't be told on this platform")) }
}

fn refused(path: &Path, kind: &str) -> StoreError {
    StoreError::rejected(format!(
        "{}: it lies on a file system {kind}, which is not known to be local; leases are on one machine's \
         clock, and locks often don't work over a network. Choose a path on a local disk, or, if no other \
         machine uses this one, allow it with fs=any",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_holds_until_a_file_is_removed_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let create = || {
            for suffix in ["", "-wal", "-shm"] {
                std::fs::write(folder.path().join(format!("a.db{suffix}")), "x").unwrap();
            }
        };
        create();
        let identity = Identity::of(&path, &path).unwrap();
        assert!(identity.still_there().unwrap());
        std::fs::rename(folder.path().join("a.db-wal"), folder.path().join("b")).unwrap();
        assert!(!identity.still_there().unwrap(), "the log was moved away");
        create();
        assert!(!identity.still_there().unwrap(), "another log is in its place");
        std::fs::rename(folder.path().join("b"), folder.path().join("a.db-wal")).unwrap();
        assert!(identity.still_there().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!identity.still_there().unwrap());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_that_is_not_known_to_be_local_is_refused_unless_that_is_wanted() {
        let options = SqliteOptions::new("/proc/a.db").unwrap();
        let error = check_file_system(Path::new("/proc"), &options).unwrap_err().to_string();
        assert!(error.contains("0x9fa0") && error.contains("fs=any"), "{error}");
        assert!(check_file_system(Path::new("/proc"), &options.any_filesystem(true)).is_ok());
    }
}
