//! A clock for a server that stands still until the test moves it.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where it begins: microseconds since 1970.
const BEGIN_US: u64 = 1_800_000_000_000_000;

static CLOCKS: AtomicU64 = AtomicU64::new(0);

/// The clock: a file that the server has mapped.
#[derive(Debug)]
pub struct Clock {
    directory: PathBuf,
    file: File,
    us: u64,
}

impl Clock {
    /// Builds the library and sets the clock to its beginning.
    ///
    /// # Panics
    /// Without a C compiler: a test that needs it fails.
    #[must_use]
    pub fn new() -> Self {
        let number = CLOCKS.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("strandline-clock-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/streams/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(directory.join("clock.so"))
            .arg(&source)
            .arg("-ldl")
            .status()
            .unwrap_or_else(|error| panic!("expected a C compiler `cc`: {error}"));
        assert!(built.success(), "cc did not build {}", source.display());
        let file = File::create(directory.join("now")).expect("a file");
        let mut clock = Self { directory, file, us: BEGIN_US };
        clock.advance_us(0);
        clock
    }

    /// Moves it.
    pub fn advance_us(&mut self, us: u64) {
        self.us += us;
        self.file.seek(SeekFrom::Start(0)).expect("a file");
        self.file.write_all(&self.us.to_ne_bytes()).expect("written");
    }

    /// What a server must be started with.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.directory.join("clock.so")), ("STRANDLINE_CLOCK", self.directory.join("now"))]
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        for name in ["clock.so", "now"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
