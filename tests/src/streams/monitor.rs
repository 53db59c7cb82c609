//! What servers see: the commands that reach them, and those inside scripts, as `MONITOR` tells.

use redis::{Cmd, Connection};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;

const END: &str = "the watch ends";

/// One command that a server saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// It came from inside a script.
    pub inside: bool,
    /// Its words.
    pub words: Vec<String>,
}

/// A watch on one server.
#[derive(Debug)]
pub struct Watch(JoinHandle<Vec<Seen>>);

impl Watch {
    /// Begins to watch the server at a port of this machine.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn begin(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(b"MONITOR\r\n").expect("asked");
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut String::new()).expect("+OK");
        Self(std::thread::spawn(move || {
            let mut seen = Vec::new();
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 0) && !line.contains(END) {
                seen.push(Seen { inside: line.contains(" lua] "), words: words(&line) });
                line.clear();
            }
            seen
        }))
    }

    /// Ends the watch; the connection must be to the same server.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn end(self, connection: &mut Connection) -> Vec<Seen> {
        let mut echo = Cmd::new();
        echo.arg("ECHO").arg(END).exec(connection).expect("an echo");
        self.0.join().expect("watched")
    }
}

/// The commands inside the scripts that a server runs meanwhile.
///
/// # Panics
/// If it does not answer.
pub fn inside<T>(port: u16, meanwhile: impl FnOnce() -> T) -> (Vec<String>, T) {
    let watch = Watch::begin(port);
    let told = meanwhile();
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
    let seen = watch.end(&mut client.get_connection().expect("connected"));
    (seen.into_iter().filter(|seen| seen.inside).map(|seen| seen.words[0].clone()).collect(), told)
}

/// The quoted words of one line.
fn words(line: &str) -> Vec<String> {
    let (mut out, mut word, mut inside, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match (inside, escaped, c) {
            (true, false, '\\') => escaped = true,
            (true, false, '"') => {
                inside = false;
                out.push(std::mem::take(&mut word));
            }
            (true, _, c) => {
                escaped = false;
                word.push(c);
            }
            (false, _, '"') => inside = true,
            (false, _, _) => {}
        }
    }
    out
}

/// The keys that a command inside a script touches.
fn touched(words: &[String]) -> Vec<&str> {
    let command = words[0].to_ascii_uppercase();
    let all: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    match command.as_str() {
        "TIME" => Vec::new(),
        "UNLINK" => all,
        "XGROUP" | "XINFO" => vec![all[1]],
        "XREADGROUP" => {
            let at = all.iter().position(|word| word.eq_ignore_ascii_case("STREAMS")).expect("STREAMS");
            vec![all[at + 1]]
        }
        _ => vec![all[0]],
    }
}

/// What the scripts of one server were held to.
#[derive(Debug, Default)]
pub struct Declared {
    /// Which scripts ran.
    pub scripts: BTreeSet<String>,
    /// How often a script touched a key.
    pub touches: usize,
    /// The tags of all declared keys.
    pub tags: BTreeSet<String>,
}

/// Holds every script to its declared keys, which must share a slot.
///
/// # Panics
/// With the first key that was touched and not declared.
#[must_use]
pub fn declared(seen: &[Seen]) -> Declared {
    let mut found = Declared::default();
    let mut declared = BTreeSet::new();
    for Seen { inside, words } in seen {
        if *inside {
            for key in touched(words) {
                assert!(declared.contains(key), "{key} was touched and not declared: {words:?}");
                found.touches += 1;
            }
        } else if words[0] == "EVALSHA" || words[0] == "EVAL" {
            found.scripts.insert(words[1].clone());
            let count: usize = words[2].parse().expect("a number of keys");
            declared = words[3..3 + count].iter().cloned().collect();
            let tags: BTreeSet<&str> =
                declared.iter().filter_map(|key| key.split(['{', '}']).nth(1)).collect();
            assert_eq!(tags.len(), 1, "all keys of a step share a slot: {declared:?}");
            found.tags.extend(tags.into_iter().map(String::from));
        }
    }
    found
}
