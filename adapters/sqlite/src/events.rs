//! Files that change in the folder of the liveness files: the bell is rung, a process ends.

use crate::liveness::{HandleId, LiveFolder};

/// What was noticed since the last time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// Somebody has changed something that others wait for, or events were lost.
    pub(crate) rung: bool,
    /// These handles ended, just now or in a moment: the event comes before the lock is free.
    pub(crate) ended: Vec<HandleId>,
    /// There will be no further events: the folder is gone.
    pub(crate) over: bool,
}

pub(crate) use platform::Events;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use std::io;
    use std::mem::MaybeUninit;

    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::{HandleId, LiveFolder, Noticed};
    use crate::database::BELL;

    /// File events by inotify(7).
    #[derive(Debug)]
    pub(crate) struct Events(OwnedFd);

    impl Events {
        pub(crate) fn watch(folder: &LiveFolder) -> io::Result<Self> {
            let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            // Those who only look open the files for reading, which raises another event on closing.
            let kinds = WatchFlags::MODIFY
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            inotify::add_watch(&events, folder.path(), kinds)?;
            Ok(Self(events))
        }

        pub(crate) fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        pub(crate) fn take(&mut self) -> Noticed {
            let mut noticed = Noticed::default();
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(rustix::io::Errno::AGAIN) => return noticed,
                    Err(_) => {
                        noticed.over = true;
                        return noticed;
                    }
                };
                let kinds = event.events();
                let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
                noticed.over |= kinds.intersects(gone | ReadFlags::UNMOUNT);
                noticed.rung |= kinds.contains(ReadFlags::QUEUE_OVERFLOW);
                let Some(name) = event.file_name().map(|name| name.to_bytes()) else { continue };
                noticed.rung |= name == BELL.as_bytes();
                if kinds.contains(ReadFlags::CLOSE_WRITE)
                    && let Some(handle) = HandleId::from_file_name(name)
                {
                    noticed.ended.push(handle);
                }
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    use std::io;

    use rustix::fd::BorrowedFd;

    use super::{LiveFolder, Noticed};

    /// No file events here: the watcher looks more often instead.
    #[derive(Debug)]
    pub(crate) enum Events {}

    impl Events {
        pub(crate) fn watch(_folder: &LiveFolder) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }

        pub(crate) fn take(&mut self) -> Noticed {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::liveness::{Lineage, Liveness};

    #[test]
    fn the_bell_and_the_end_of_a_handle_are_noticed_and_looking_at_it_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(&temporary.path().join("a.db"));
        let life = Liveness::begin(&folder, Lineage::draw().unwrap(), "boot").unwrap();
        let mut events = Events::watch(&folder).unwrap();
        folder.probe(life.handle());
        folder.abandoned(10);
        assert_eq!(events.take(), Noticed::default());
        let handle = life.handle();
        drop(life);
        std::fs::write(folder.path().join(crate::database::BELL), "!").unwrap();
        let noticed = events.take();
        assert!(noticed.rung && !noticed.over);
        assert_eq!(noticed.ended, [handle]);
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(events.take().over);
    }
}
