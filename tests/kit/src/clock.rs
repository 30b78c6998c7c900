//! The wall clock of one server, which can be made to drift and to jump.
//!
//! A small library in C, `clock/shim.c`, is preloaded into the server's process. It reads from a
//! file, which it maps into memory, how far off the clock is. This side writes that file, so a
//! change takes effect with the next reading, and needs no help from the process.

mod shim;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Both lie in the server's directory, in which its process runs: so no path of a temporary
/// directory, with a space or a colon in it, has to pass through `LD_PRELOAD`.
const LIBRARY: &str = "clock.so";
const CONTROL: &str = "clock";

/// The wall clock of a [`Server`](crate::Server) that was set up with
/// [`ServerBuilder::clock`](crate::ServerBuilder::clock): what `TIME` tells, and what keys expire
/// by.
///
/// It starts as the true one, and goes on through [`kill`](crate::Server::kill) and
/// [`restart`](crate::Server::restart). Changes take effect at once, also in a stopped process. The
/// monotonic clock of the process stays true. All methods may be called from any thread.
#[derive(Debug)]
pub struct Clock {
    control: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How often the setting was written. The parity tells which of two places of the file holds.
    version: u8,
    setting: Setting,
}

/// The clock shows the true time + offset + (monotonic clock - since) * `parts_per_million`; or, if it
/// stands, the offset alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Setting {
    offset: i64,
    since: i64,
    parts_per_million: i64,
    stands: bool,
}

impl Setting {
    /// How far off the clock is, in nanoseconds. The same steps as in the library.
    fn off(&self, monotonic: i64) -> i64 {
        let (passed, million) = (monotonic - self.since, 1_000_000);
        let drift = passed / million * self.parts_per_million
            + passed % million * self.parts_per_million / million;
        self.offset + drift
    }
}

impl Clock {
    /// A true clock, for a server whose process will run in `dir`.
    #[track_caller]
    pub(crate) fn new(dir: &Path) -> Self {
        fs::write(dir.join(LIBRARY), shim::library()).expect("cannot write a library");
        let control = File::create(dir.join(CONTROL)).expect("cannot make a control file");
        let state = State { version: 0, setting: Setting::default() };
        let clock = Self { control, state: Mutex::new(state) };
        // Twice, so that the file has its whole length before it is mapped.
        clock.set(|_| {});
        clock.set(|_| {});
        clock
    }

    /// What the process needs in its environment.
    pub(crate) fn environment() -> [(OsString, OsString); 2] {
        let library = format!("./{LIBRARY}");
        [("LD_PRELOAD".into(), library.into()), ("QUORLOCK_KIT_CLOCK".into(), CONTROL.into())]
    }

    /// Panics if the process took no notice of the library: the loader ignores what it cannot load.
    #[track_caller]
    pub(crate) fn assert_followed_by(process: u32, dir: &Path) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        // The path is the last field; a deleted file or an unreadable list are no mapping.
        let control = format!("{}/{CONTROL}", dir.display());
        assert!(
            maps.lines().any(|line| line.ends_with(&control)),
            "the server does not follow its clock: LD_PRELOAD of {} had no effect. Is it a static \
             program, or {} mounted noexec?",
            dir.join(LIBRARY).display(),
            dir.display()
        );
    }

    /// Makes the clock gain so many parts per million from now on (10 000 are 1 %), or lose them
    /// where negative; 0 ends the drift. What was gained or lost before stays: the clock does not
    /// jump.
    ///
    /// # Panics
    ///
    /// When the clock would run backwards, at -1 000 000 or less; when it stands.
    #[track_caller]
    pub fn drift(&self, parts_per_million: i32) {
        assert!(parts_per_million > -1_000_000, "a clock that drifts still runs forward");
        self.set(|setting| {
            assert!(!setting.stands, "a clock that stands does not drift");
            setting.parts_per_million = parts_per_million.into();
        });
    }

    /// Puts the clock forward.
    pub fn jump(&self, forward: Duration) {
        self.set(|setting| setting.offset += nanos(forward));
    }

    /// Puts the clock back.
    pub fn jump_back(&self, back: Duration) {
        self.set(|setting| setting.offset -= nanos(back));
    }

    /// Puts the clock to `at`, where it stands still for good: only jumps, and another call of this,
    /// move it. So what the server says of times is known exactly.
    ///
    /// # Panics
    ///
    /// When `at` is before 1970, or more than a hundred years after it.
    #[track_caller]
    pub fn stand(&self, at: SystemTime) {
        let at = at.duration_since(UNIX_EPOCH).expect("a time after 1970");
        self.set(|setting| {
            *setting = Setting { offset: nanos(at), stands: true, ..Setting::default() };
        });
    }

    /// What the clock shows.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        let setting = self.state().setting;
        if setting.stands {
            return UNIX_EPOCH + Duration::from_nanos(setting.offset.unsigned_abs());
        }
        let off = setting.off(monotonic());
        let distance = Duration::from_nanos(off.unsigned_abs());
        if off < 0 { SystemTime::now() - distance } else { SystemTime::now() + distance }
    }

    /// Writes a changed setting to the place that does not hold, then says that it does: with one
    /// byte, which nobody can read half written. A reader never waits for this process.
    fn set(&self, change: impl FnOnce(&mut Setting)) {
        let mut state = self.state();
        let now = monotonic();
        let setting = &mut state.setting;
        if !setting.stands {
            setting.offset = setting.off(now);
            setting.since = now;
        }
        change(setting);
        let Setting { offset, since, parts_per_million, stands } = *setting;
        let bytes =
            [offset, since, parts_per_million, stands.into()].map(i64::to_ne_bytes).concat();
        state.version = state.version.wrapping_add(1);
        let place = 8 + 32 * u64::from(state.version % 2);
        self.control.write_all_at(&bytes, place).expect("cannot write a control file");
        self.control.write_all_at(&[state.version], 0).expect("cannot write a control file");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nanoseconds of a jump, up to a hundred years.
fn nanos(duration: Duration) -> i64 {
    const MOST: Duration = Duration::from_hours(100 * 365 * 24);
    assert!(duration <= MOST, "a jump of {duration:?} is too far");
    i64::try_from(duration.as_nanos()).expect("a hundred years fit")
}

fn monotonic() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
