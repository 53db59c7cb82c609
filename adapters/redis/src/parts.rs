//! Scripts of only what they use. A server makes every function of a script anew with each call, used or
//! not, which costs it more than most of our operations do.

use std::collections::{BTreeMap, BTreeSet};

/// A piece of a library: what begins at the left margin, up to the next that does.
struct Part<'a> {
    /// The one thing that it defines.
    name: &'a str,
    text: String,
}

/// Texts that are run in their order, each with a library, behind those parts of the libraries that it uses and
/// no earlier one did: who stops at the first pays for nothing of the second. A text uses no library behind its
/// own. Comments of the libraries are left out.
///
/// A part is used if its name stands anywhere in what is taken, be it as the name of a field: rather one
/// too many is taken than one too few.
pub(crate) fn with_what_they_use<const N: usize>(texts: [(&str, &str); N]) -> String {
    let libraries = texts.map(|(library, _)| parts(library));
    let mut by_name: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (of, library) in libraries.iter().enumerate() {
        for (at, part) in library.iter().enumerate() {
            by_name.entry(part.name).or_default().push((of, at));
        }
    }
    let mut script = String::new();
    for (at, (_, text)) in texts.iter().enumerate() {
        let mut taken = BTreeSet::new();
        let mut unread: Vec<&str> = vec![text];
        while let Some(text) = unread.pop() {
            for word in words(text) {
                let Some(named) = by_name.get_mut(word) else { continue };
                let reached = named.iter().take_while(|(of, _)| *of <= at).count();
                for (of, part) in named.drain(..reached) {
                    taken.insert((of, part));
                    unread.push(&libraries[of][part].text);
                }
            }
        }
        taken.into_iter().for_each(|(of, part)| script.push_str(&libraries[of][part].text));
        script.push_str(text);
    }
    script
}

fn parts(library: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for line in library.lines().filter(|line| !line.is_empty() && !line.starts_with("--")) {
        let goes_on = line.starts_with(char::is_whitespace) || ["end", "}", ")"].contains(&line);
        if !goes_on {
            parts.push(Part { name: name(line), text: String::new() });
        }
        let part = parts.last_mut().expect("a library begins at the left margin");
        part.text.push_str(line);
        part.text.push('\n');
    }
    parts
}

/// What the first line of a part defines.
fn name(line: &str) -> &str {
    let line = line.strip_prefix("local ").unwrap_or(line);
    let line = line.strip_prefix("function ").unwrap_or(line);
    words(line).next().unwrap_or_default()
}

/// All names in a text; those of the storage together with what it is, and apart.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    text.split(move |c| !is_word(c)).flat_map(|word| {
        let whole = word.starts_with("S.").then_some(word);
        whole.into_iter().chain(word.split('.').filter(|word| !word.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "\
local S = {}
local one = 1

-- Never used.
local function unused() return one end

local later

local function asks(text)
  return later(text)
end

later = function(text)
  return {
    text = text,
  }
end

function S.stores(text)
  asks(text)
end

function S.stores_not()
end
";

    #[test]
    fn what_is_used_is_taken_with_what_it_uses_and_nothing_else() {
        let script = with_what_they_use([(LIBRARY, "return S.stores('x')\n")]);
        let expected = "\
local S = {}
local later
local function asks(text)
  return later(text)
end
later = function(text)
  return {
    text = text,
  }
end
function S.stores(text)
  asks(text)
end
return S.stores('x')
";
        assert_eq!(script, expected);
    }

    #[test]
    fn a_name_is_found_wherever_it_stands() {
        for body in ["return two", "return'x'..two", "return(two)", "return {two=two}", "return plan.two"] {
            let script = with_what_they_use([("local one = 1\nlocal two = 2\n", body)]);
            assert_eq!(script, format!("local two = 2\n{body}"));
        }
    }

    #[test]
    fn what_only_a_later_text_uses_stands_behind_the_earlier_one() {
        let first = ("local clock = 1\nlocal unused = 2\nlocal shared = 3\n", "quick(clock)\n");
        let second = ("local mine = shared\n", "return mine\n");
        let expected = "local clock = 1\nquick(clock)\nlocal shared = 3\nlocal mine = shared\nreturn mine\n";
        assert_eq!(with_what_they_use([first, second]), expected);
    }
}
