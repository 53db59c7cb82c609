//! The library of `tests/shim`, built once and put in front of a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the library, if its sources changed; where it is.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/shim/Cargo.toml");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(sources);
        build.arg("--target-dir").arg(&target);
        // What was meant for the build of this test is not meant for it.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            build.env_remove(name);
        }
        let built = build.output().expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let library = target.join("release/libstrandline_shim.so");
        assert!(library.exists(), "expected {}", library.display());
        library
    })
}

/// What stands between a program and its files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shim {
    trace: Option<PathBuf>,
    rules: String,
    gate: Option<PathBuf>,
}

impl Shim {
    /// Records in `trace`.
    pub(crate) fn tracing(trace: &Path) -> Self {
        Self { trace: Some(trace.to_owned()), ..Self::default() }
    }

    /// Lets calls fail that `rules` names, in the words of `tests/shim/src/rules.rs`.
    pub(crate) fn with_rules(mut self, rules: impl Into<String>) -> Self {
        self.rules = rules.into();
        self
    }

    /// The rules count only while `gate` exists.
    pub(crate) fn only_while(mut self, gate: &Path) -> Self {
        self.gate = Some(gate.to_owned());
        self
    }

    /// The variables that put it before a program.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables =
            vec![("LD_PRELOAD", library().into()), ("STRANDLINE_SHIM_RULES", OsString::from(&self.rules))];
        for (name, path) in [("STRANDLINE_SHIM_TRACE", &self.trace), ("STRANDLINE_SHIM_WHILE", &self.gate)] {
            variables.extend(path.as_ref().map(|path| (name, path.into())));
        }
        variables
    }
}
