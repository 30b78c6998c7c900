//! The wall clock of a server, which can drift and jump.
//!
//! A small C library, `clock/shim.c`, is preloaded into the server's process and reads the clock's
//! settings from a memory-mapped file. This module writes the file. A change takes effect when the
//! process reads its clock the next time, without cooperation of the process.

mod shim;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// File name of the preloaded library. The library and the control file are in the server's
/// directory, which is the working directory of the server's process. `LD_PRELOAD` therefore never
/// contains the path of a temporary directory, which may contain spaces or colons.
const LIBRARY: &str = "clock.so";
const CONTROL: &str = "clock";

/// The wall clock of a [`Server`](crate::Server) with
/// [`ServerBuilder::clock`](crate::ServerBuilder::clock). This clock determines the reply to `TIME`
/// and the expiry of keys.
///
/// The clock starts with the true time, and continues through [`kill`](crate::Server::kill) and
/// [`restart`](crate::Server::restart). Changes take effect immediately, even in a stopped process.
/// The monotonic clock of the process does not change. All methods can be called from any thread.
#[derive(Debug)]
pub struct Clock {
    control: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of writes to the file. Its lowest bit selects which of the file's two slots is
    /// active.
    version: u8,
    setting: Setting,
}

/// Settings of a clock. A running clock shows the true time + offset + (monotonic clock - since) *
/// `parts_per_million`. A stopped clock shows only the offset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Setting {
    offset: i64,
    since: i64,
    parts_per_million: i64,
    is_stopped: bool,
}

impl Setting {
    /// Returns the clock's difference from the true time, in nanoseconds, when the monotonic clock
    /// shows `monotonic`. The C library uses the same formula.
    fn offset_from_true_time(&self, monotonic: i64) -> i64 {
        let (passed, million) = (monotonic - self.since, 1_000_000);
        let drift = passed / million * self.parts_per_million
            + passed % million * self.parts_per_million / million;
        self.offset + drift
    }
}

impl Clock {
    /// Creates a clock with the true time for a server whose process will run in `dir`.
    #[track_caller]
    pub(crate) fn new(dir: &Path) -> Self {
        fs::write(dir.join(LIBRARY), shim::library()).expect("cannot write a library");
        let control = File::create(dir.join(CONTROL)).expect("cannot make a control file");
        let state = State { version: 0, setting: Setting::default() };
        let clock = Self { control, state: Mutex::new(state) };
        // The second write gives the file its full length before it is mapped.
        clock.set(|_| {});
        clock.set(|_| {});
        clock
    }

    pub(crate) fn environment() -> [(OsString, OsString); 2] {
        let library = format!("./{LIBRARY}");
        [("LD_PRELOAD".into(), library.into()), ("QUORLOCK_KIT_CLOCK".into(), CONTROL.into())]
    }

    /// Panics if the process does not use the clock. The loader ignores libraries that it cannot
    /// load, so a failure would otherwise not be noticed.
    #[track_caller]
    pub(crate) fn assert_followed_by(process: u32, dir: &Path) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        // The path is the last field of a mapping. If the control file is not mapped, or the
        // mappings cannot be read, no line matches.
        let control = format!("{}/{CONTROL}", dir.display());
        assert!(
            maps.lines().any(|line| line.ends_with(&control)),
            "the server does not use its clock: LD_PRELOAD of {} had no effect. Is it a static \
             program, or {} mounted noexec?",
            dir.join(LIBRARY).display(),
            dir.display()
        );
    }

    /// Sets the rate at which the clock gains time, in parts per million (10 000 are 1 %). A
    /// negative rate loses time, and 0 ends the drift. The difference accumulated so far remains.
    ///
    /// # Panics
    ///
    /// Panics if the clock would run backwards (-1 000 000 or less) or is stopped.
    #[track_caller]
    pub fn drift(&self, parts_per_million: i32) {
        assert!(parts_per_million > -1_000_000, "a drift must be greater than -1,000,000 ppm");
        self.set(|setting| {
            assert!(!setting.is_stopped, "a stopped clock cannot drift");
            setting.parts_per_million = parts_per_million.into();
        });
    }

    /// Sets the clock forward.
    pub fn jump(&self, forward: Duration) {
        self.set(|setting| setting.offset += nanos(forward));
    }

    /// Sets the clock back.
    pub fn jump_back(&self, back: Duration) {
        self.set(|setting| setting.offset -= nanos(back));
    }

    /// Sets the clock to `at` and stops it permanently, so that times in the server's replies are
    /// exact. Only jumps and another call of this method change a stopped clock.
    ///
    /// # Panics
    ///
    /// Panics if `at` is before 1970 or more than a hundred years later.
    #[track_caller]
    pub fn stop_at(&self, at: SystemTime) {
        let at = at.duration_since(UNIX_EPOCH).expect("a time after 1970");
        self.set(|setting| {
            *setting = Setting { offset: nanos(at), is_stopped: true, ..Setting::default() };
        });
    }

    /// Returns the current reading of the clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        let setting = self.state().setting;
        if setting.is_stopped {
            return UNIX_EPOCH + Duration::from_nanos(setting.offset.unsigned_abs());
        }
        let off = setting.offset_from_true_time(monotonic());
        let distance = Duration::from_nanos(off.unsigned_abs());
        if off < 0 { SystemTime::now() - distance } else { SystemTime::now() + distance }
    }

    /// Writes the new settings to the inactive slot of the file, then activates that slot with a
    /// single-byte write, which readers cannot observe half done. Readers never wait for this
    /// process.
    fn set(&self, change: impl FnOnce(&mut Setting)) {
        let mut state = self.state();
        let now = monotonic();
        let setting = &mut state.setting;
        if !setting.is_stopped {
            setting.offset = setting.offset_from_true_time(now);
            setting.since = now;
        }
        change(setting);
        let Setting { offset, since, parts_per_million, is_stopped } = *setting;
        let bytes =
            [offset, since, parts_per_million, is_stopped.into()].map(i64::to_ne_bytes).concat();
        state.version = state.version.wrapping_add(1);
        let place = 8 + 32 * u64::from(state.version % 2);
        self.control.write_all_at(&bytes, place).expect("cannot write a control file");
        self.control.write_all_at(&[state.version], 0).expect("cannot write a control file");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(duration: Duration) -> i64 {
    const MOST: Duration = Duration::from_hours(100 * 365 * 24);
    assert!(duration <= MOST, "a jump of {duration:?} exceeds a hundred years");
    i64::try_from(duration.as_nanos()).expect("a hundred years fit into an i64")
}

fn monotonic() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
