//! Proof that a process has died: a file that each handle keeps locked for as long as it lives.
//!
//! A record of a lease names its holder's handle by 128 random bits. In the folder `<database>.live` there is
//! a file of that name, created and locked (flock(2), exclusive) *before* any record names it. The kernel ends
//! the lock when the last descriptor is closed, that is when the process and everybody whom it gave a copy
//! have ended. So:
//!
//! | the file is | it means |
//! |---|---|
//! | locked | alive |
//! | not locked, still has its name, and says that it is this very file | dead |
//! | absent, unreadable, a copy, or was removed meanwhile | unknown: the TTL decides |
//!
//! The file says which file it is, since a copy of it is not locked. It also says which boot id its process read:
//! where each container has one of its own, a process must not take the others' boot for one that is over.
//!
//! A handle that is closed in order removes its file *before* it ends the lock, so that a process that goes
//! on living is never taken for dead. Names are never used twice.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tenure_store::StoreError;

use crate::file;

/// What all names of one handle begin with: 64 random bits. A handle opens its database anew when the file
/// was replaced, and takes a new name then; by this it knows its earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lineage([u8; 8]);

impl Lineage {
    pub(crate) fn draw() -> Result<Self, StoreError> {
        random().map(Self)
    }
}

fn random() -> Result<[u8; 8], StoreError> {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| {
        StoreError::transient(format!("the system gives no random numbers ({error}); try again"))
    })?;
    Ok(bits)
}

/// The name of a handle: 128 random bits, the second half drawn whenever it opens its database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HandleId([u8; 16]);

impl HandleId {
    fn draw(lineage: Lineage) -> Result<Self, StoreError> {
        let mut bits = [0; 16];
        let (first, second) = bits.split_at_mut(8);
        first.copy_from_slice(&lineage.0);
        second.copy_from_slice(&random()?);
        Ok(Self(bits))
    }

    /// Whether it is another name of the same handle: an earlier one, of a file that is gone.
    pub(crate) fn is_earlier_than(self, now: Self) -> bool {
        self != now && self.0[..8] == now.0[..8]
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// As it stands in a record; `None` if it is not the name of a handle.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// As it names a file; `None` for other files.
    pub(crate) fn from_file_name(name: &[u8]) -> Option<Self> {
        let name = str::from_utf8(name).ok()?;
        let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (name.len() == 32 && name.chars().all(lower))
            .then(|| u128::from_str_radix(name, 16).ok())
            .flatten()
            .map(|bits| Self(bits.to_be_bytes()))
    }

    fn file_name(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for HandleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file_name())
    }
}

/// What is known of another handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Dead,
    Unknown,
}

/// The folder of the liveness files of one database.
#[derive(Clone, Debug)]
pub(crate) struct LiveFolder {
    path: PathBuf,
}

impl LiveFolder {
    /// Beside this database.
    pub(crate) fn of(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push(".live");
        Self { path: path.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder, for this user alone, if it is missing.
    pub(crate) fn create(&self) -> io::Result<()> {
        file::private_folder(&self.path)
    }

    pub(crate) fn file(&self, handle: HandleId) -> PathBuf {
        self.path.join(handle.file_name())
    }

    /// Opens the file of a handle. Never creates it: a file that is made now would be unlocked and speak of death.
    fn open(&self, handle: HandleId) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(file::AS_IT_IS).open(self.file(handle))
    }

    /// The file of a handle under a shared lock, or what is known of the handle if there is none to be had.
    fn lock(&self, handle: HandleId) -> Result<File, Life> {
        let file = self.open(handle).map_err(|_| Life::Unknown)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Life::Alive),
            Err(TryLockError::Error(_)) => Err(Life::Unknown),
        }
    }

    /// Whether the process behind this handle still lives.
    pub(crate) fn probe(&self, handle: HandleId) -> Life {
        match self.lock(handle) {
            Ok(file) => match file.metadata() {
                Ok(meta) if meta.nlink() > 0 && Said::of(&file).is_by(&meta) => Life::Dead,
                // Closed in order, its process may live on: it removed the file before it let go. Or it is a copy.
                _ => Life::Unknown,
            },
            Err(life) => life,
        }
    }

    /// Whether the process behind this handle still lives, for `me` to know.
    pub(crate) fn life(&self, handle: HandleId, me: &Liveness) -> Life {
        if handle == me.handle() {
            Life::Alive
        } else if me.is_visible() {
            self.probe(handle)
        } else {
            // Who offers no proof asks for none.
            Life::Unknown
        }
    }

    /// The handles that have files in the folder.
    fn handles(&self) -> impl Iterator<Item = HandleId> {
        let entries = self.path.read_dir().into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| HandleId::from_file_name(entry.file_name().as_bytes()))
    }

    /// The handles whose files nobody has locked, of at most `most` that have files.
    pub(crate) fn abandoned(&self, most: usize) -> Vec<HandleId> {
        self.handles().take(most).filter(|handle| self.lock(*handle).is_ok()).collect()
    }

    /// Whether a process lives that has this boot: then that boot is not over.
    pub(crate) fn lives_in(&self, boot: &str) -> bool {
        let is_of_it = |handle| self.open(handle).is_ok_and(|file| Said::of(&file).boot() == Some(boot));
        self.handles().any(|handle| self.probe(handle) == Life::Alive && is_of_it(handle))
    }

    /// Removes the file of a handle that nobody has locked.
    ///
    /// It does so under the shared lock. A handle that has created its file and not yet locked it can't get
    /// its lock then, or finds its file removed afterwards; it takes another name in both cases.
    pub(crate) fn bury(&self, handle: HandleId) {
        if let Ok(_locked) = self.lock(handle) {
            // If it can't be removed it stays for the next who looks.
            let _ = std::fs::remove_file(self.file(handle));
        }
    }
}

/// What a liveness file says: the boot of its process, and which file it is.
struct Said(String);

impl Said {
    fn new(boot: &str, file: &Metadata) -> Self {
        Self(format!("{boot}\n{} {}\n", file.dev(), file.ino()))
    }

    /// As it stands in the file: nothing or less on a disk that was full, anything in a file of somebody else.
    fn of(file: &File) -> Self {
        /// More than a boot id and two numbers have.
        const LONGEST: u64 = 1024;
        let mut said = String::new();
        match file.take(LONGEST).read_to_string(&mut said) {
            Ok(_) => Self(said),
            Err(_) => Self(String::new()),
        }
    }

    fn boot(&self) -> Option<&str> {
        self.0.split_once('\n').map(|(boot, _)| boot)
    }

    /// Whether this file itself was written by its process. A copy was not, and nobody has locked it.
    fn is_by(&self, file: &Metadata) -> bool {
        self.boot().is_some_and(|boot| self.0 == Self::new(boot, file).0)
    }
}

/// What the file of a process of this boot says.
#[cfg(fuzzing)]
pub(crate) fn said_of(boot: &str, file: &Metadata) -> String {
    Said::new(boot, file).0
}

/// This handle's own life.
#[derive(Debug)]
pub(crate) struct Liveness {
    handle: HandleId,
    /// `None`: nobody can tell whether this handle lives.
    file: Option<(File, PathBuf)>,
}

impl Liveness {
    /// A new name without a file: nobody can tell whether this handle lives.
    pub(crate) fn hidden(lineage: Lineage) -> Result<Self, StoreError> {
        Ok(Self { handle: HandleId::draw(lineage)?, file: None })
    }

    /// A new name, with a file that is locked and says which boot this process has.
    pub(crate) fn begin(folder: &LiveFolder, lineage: Lineage, boot: &str) -> Result<Self, StoreError> {
        // Twice in a row somebody who cleans up came between the creation and the lock: chance.
        const ATTEMPTS: u32 = 16;
        let failed = |doing: &str, error: &io::Error| crate::error::file_error(folder.path(), doing, error);
        folder.create().map_err(|error| failed("can't create the folder", &error))?;
        for _ in 0..ATTEMPTS {
            let handle = HandleId::draw(lineage)?;
            let path = folder.file(handle);
            // Open for writing, so that its end raises an event for those who watch the folder.
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|error| failed("can't create this process's file", &error))?;
            match file.try_lock() {
                Ok(()) => {
                    let meta = file
                        .metadata()
                        .map_err(|error| failed("can't look at this process's file", &error))?;
                    if meta.nlink() > 0 {
                        // If the disk is full nothing but the proof is lost.
                        let _ = (&file).write_all(Said::new(boot, &meta).0.as_bytes());
                        return Ok(Self { handle, file: Some((file, path)) });
                    }
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    let _ = std::fs::remove_file(&path);
                    return Err(failed("can't lock this process's file", &error));
                }
            }
        }
        Err(StoreError::transient(format!("{}: somebody keeps removing files here", folder.path().display())))
    }

    pub(crate) const fn handle(&self) -> HandleId {
        self.handle
    }

    /// Whether others can tell that this handle has died.
    pub(crate) const fn is_visible(&self) -> bool {
        self.file.is_some()
    }

    /// Another descriptor of the same lock: as long as it is open anywhere, this handle counts as alive.
    pub(crate) fn share(&self) -> io::Result<Option<File>> {
        self.file.as_ref().map(|(file, _)| file.try_clone()).transpose()
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        if let Some((file, path)) = self.file.take() {
            // First the name, then the lock: this process lives on, and nobody must take it for dead.
            let _ = std::fs::remove_file(&path);
            if file.metadata().map_or(1, |meta| meta.nlink()) > 0 {
                // It can't be removed, or was moved together with its folder: the lock stays until the process
                // ends.
                std::mem::forget(file);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, LiveFolder) {
        let temporary = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(&temporary.path().join("a.db"));
        (temporary, folder)
    }

    /// Leaves what a handle of this name leaves when its process dies.
    pub(crate) fn dies(folder: &LiveFolder, handle: HandleId) {
        let mut file = File::create_new(folder.file(handle)).unwrap();
        let meta = file.metadata().unwrap();
        file.write_all(Said::new("boot", &meta).0.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_that_says_less_or_was_copied_proves_no_death_and_is_removed_all_the_same() {
        let (_temporary, folder) = folder();
        folder.create().unwrap();
        let [dead, copy, empty] = [(); 3].map(|()| HandleId::draw(Lineage::draw().unwrap()).unwrap());
        dies(&folder, dead);
        std::fs::copy(folder.file(dead), folder.file(copy)).unwrap();
        File::create(folder.file(empty)).unwrap();
        assert_eq!(
            [dead, copy, empty].map(|handle| folder.probe(handle)),
            [Life::Dead, Life::Unknown, Life::Unknown]
        );
        for handle in folder.abandoned(100) {
            folder.bury(handle);
        }
        assert_eq!(folder.handles().count(), 0);
    }

    #[test]
    fn a_handle_is_alive_while_any_copy_of_its_lock_is_open_and_unknown_once_it_ended_in_order() {
        let (_temporary, folder) = folder();
        let life = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        assert_eq!(folder.probe(life.handle()), Life::Alive);
        let (handle, copy) = (life.handle(), life.share().unwrap().unwrap());
        drop(life);
        assert_eq!(folder.probe(handle), Life::Unknown, "the file is gone, the process lives");
        drop(copy);
        assert_eq!(folder.probe(handle), Life::Unknown);
    }

    #[test]
    fn a_file_without_a_lock_proves_a_death_and_is_removed_by_whoever_finds_it() {
        let (_temporary, folder) = folder();
        folder.create().unwrap();
        let handle = HandleId::draw(Lineage::draw().unwrap()).unwrap();
        assert_eq!(folder.probe(handle), Life::Unknown, "no file, no proof");
        assert!(!folder.file(handle).exists(), "looking creates nothing");
        dies(&folder, handle);
        assert_eq!(folder.probe(handle), Life::Dead);

        let living = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        std::fs::write(folder.path().join("bell"), "").unwrap();
        assert_eq!(folder.abandoned(100), [handle]);
        folder.bury(handle);
        folder.bury(living.handle());
        assert_eq!(folder.probe(handle), Life::Unknown);
        assert_eq!(folder.probe(living.handle()), Life::Alive, "the living can't be buried");
    }

    #[test]
    fn a_boot_goes_on_as_long_as_one_of_its_processes_lives() {
        let (_temporary, folder) = folder();
        assert!(!folder.lives_in("boot"), "there is no folder yet");
        let life = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        assert!(folder.lives_in("boot"));
        assert!(!folder.lives_in("earlier") && !folder.lives_in(""));
        let handle = life.handle();
        drop(life);
        dies(&folder, handle);
        assert!(!folder.lives_in("boot"), "one that has died");
    }

    #[test]
    fn somebody_who_opened_the_file_before_it_was_removed_learns_nothing_from_its_lock() {
        let (_temporary, folder) = folder();
        let life = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        let early = File::open(folder.file(life.handle())).unwrap();
        drop(life);
        assert!(early.try_lock_shared().is_ok(), "the lock is free");
        assert_eq!(early.metadata().unwrap().nlink(), 0, "and this is what tells");
    }

    #[test]
    fn a_handle_that_ends_while_its_file_is_elsewhere_is_not_taken_for_dead() {
        let (temporary, folder) = folder();
        let life = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        let elsewhere = LiveFolder { path: temporary.path().join("elsewhere") };
        std::fs::rename(folder.path(), elsewhere.path()).unwrap();
        let handle = life.handle();
        drop(life);
        assert_eq!(elsewhere.probe(handle), Life::Alive, "its process lives");
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_a_file_is_nobodys_life_and_keeps_nobody_waiting() {
        let (temporary, folder) = folder();
        folder.create().unwrap();
        let [link, pipe] = [(); 2].map(|()| HandleId::draw(Lineage::draw().unwrap()).unwrap());
        let target = temporary.path().join("target");
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, folder.file(link)).unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.file(pipe)).status().unwrap();
        assert!(made.success());
        assert_eq!([link, pipe].map(|handle| folder.probe(handle)), [Life::Unknown; 2]);
        for handle in folder.abandoned(100) {
            folder.bury(handle);
        }
        assert!(folder.file(link).symlink_metadata().is_ok() && target.exists());
    }

    #[test]
    fn only_names_of_32_small_hexadecimal_digits_are_handles() {
        let handle = HandleId::draw(Lineage::draw().unwrap()).unwrap();
        assert_eq!(HandleId::from_file_name(handle.file_name().as_bytes()), Some(handle));
        assert_eq!(HandleId::from_bytes(handle.as_bytes()), Some(handle));
        for other in ["bell", "", "../../../../../../../../etc/passwd", &"A".repeat(32), &"+".repeat(32)] {
            assert_eq!(HandleId::from_file_name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(HandleId::from_bytes(&[1; 15]), None);
    }
}
