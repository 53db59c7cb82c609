//! Keys as relative paths, and which of them are none.

use std::fmt;

/// Longest name the usual file systems hold.
const NAME_BYTES_MAX: usize = 255;

/// A relative path that stays below its root whatever the root is. A key ending in `/` names a
/// directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RelPath {
    names: Vec<Vec<u8>>,
    directory: bool,
}

/// Why a key is no path to write to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unsafe {
    /// It has no bytes.
    Empty,
    /// It starts with `/`.
    Absolute,
    /// Two `/` follow one another.
    EmptyName,
    /// A name is `.` or `..`.
    Dots,
    /// It contains a zero byte.
    Zero,
    /// A name has more than 255 bytes.
    LongName,
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::Absolute => "it starts with /",
            Self::EmptyName => "a name in it is empty",
            Self::Dots => "a name in it is . or ..",
            Self::Zero => "it contains a zero byte",
            Self::LongName => "a name in it has more than 255 bytes",
        })
    }
}

impl RelPath {
    /// Reads a key.
    pub(crate) fn parse(key: &[u8]) -> Result<Self, Unsafe> {
        if key.is_empty() {
            return Err(Unsafe::Empty);
        }
        if key.starts_with(b"/") {
            return Err(Unsafe::Absolute);
        }
        let directory = key.ends_with(b"/");
        let path = key.strip_suffix(b"/").unwrap_or(key);
        let names = path.split(|b| *b == b'/').map(name).collect::<Result<_, _>>()?;
        Ok(Self { names, directory })
    }

    /// Whether the key names a directory.
    pub(crate) const fn is_directory(&self) -> bool {
        self.directory
    }

    /// All names, at least one.
    pub(crate) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// The names of the directory it lies in, and its own.
    pub(crate) fn split(&self) -> (&[Vec<u8>], &[u8]) {
        let (own, parents) = self.names.split_last().expect("a path has at least one name");
        (parents, own)
    }
}

fn name(bytes: &[u8]) -> Result<Vec<u8>, Unsafe> {
    match bytes {
        b"" => Err(Unsafe::EmptyName),
        b"." | b".." => Err(Unsafe::Dots),
        _ if bytes.contains(&0) => Err(Unsafe::Zero),
        _ if bytes.len() > NAME_BYTES_MAX => Err(Unsafe::LongName),
        _ => Ok(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_out_of_the_root_is_refused() {
        for (key, why) in [
            (&b""[..], Unsafe::Empty),
            (b"/", Unsafe::Absolute),
            (b"/etc/passwd", Unsafe::Absolute),
            (b"a//b", Unsafe::EmptyName),
            (b"a//", Unsafe::EmptyName),
            (b"..", Unsafe::Dots),
            (b"../", Unsafe::Dots),
            (b"a/../b", Unsafe::Dots),
            (b"a/..", Unsafe::Dots),
            (b"./a", Unsafe::Dots),
            (b"a\0b", Unsafe::Zero),
            (&[b'n'; 256], Unsafe::LongName),
        ] {
            assert_eq!(RelPath::parse(key), Err(why), "{:?}", key.escape_ascii().to_string());
        }
    }

    #[test]
    fn names_that_only_look_like_dots_are_paths() {
        let path = RelPath::parse(b"...a/..b/\xff/").expect("a path");
        assert!(path.is_directory());
        assert_eq!(path.names().len(), 3);
        let file = RelPath::parse(b"x/y").expect("a path");
        assert_eq!((file.is_directory(), file.split()), (false, (&[b"x".to_vec()][..], &b"y"[..])));
    }
}
