//! Rust source as tokens: enough for the rules, not a parser.

/// What the rules look at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Word(String),
    Text(String),
    Mark(char),
}

/// One piece of a source file.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// Splits a source file. Comments and lifetimes vanish; numbers come out as words.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < chars.len() {
        let start = i;
        let kind = match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
                None
            }
            '/' if at(i + 1) == '*' => {
                i = block_comment_end(&chars, i);
                None
            }
            '"' => {
                i = string_end(&chars, i);
                Some(Kind::Text(chars[start + 1..i - 1].iter().collect()))
            }
            '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => {
                i += if at(i + 1) == '\\' { 3 } else { 2 };
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
                None
            }
            '\'' => {
                i += 1;
                while at(i).is_alphanumeric() || at(i) == '_' {
                    i += 1;
                }
                None
            }
            c if c.is_alphanumeric() || c == '_' => {
                while at(i).is_alphanumeric() || at(i) == '_' {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let raw_prefix = matches!(word.as_str(), "r" | "br" | "cr");
                match raw_prefix.then(|| raw_string_end(&chars, i)).flatten() {
                    Some(end) => {
                        i = end;
                        Some(Kind::Text(chars[start..i].iter().collect()))
                    }
                    None => Some(Kind::Word(word)),
                }
            }
            c => {
                i += 1;
                (!c.is_whitespace()).then_some(Kind::Mark(c))
            }
        };
        i = i.min(chars.len());
        out.extend(kind.map(|kind| Token { line, kind }));
        line += chars[start..i].iter().filter(|c| **c == '\n').count();
    }
    out
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0_usize);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    i
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// `None` if what follows the prefix is not a raw string, as in the raw identifier `r#type`.
fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start..].iter().take_while(|c| **c == '#').count();
    let body = start + hashes;
    if chars.get(body) != Some(&'"') {
        return None;
    }
    (body + 1..chars.len())
        .find(|i| {
            chars[*i] == '"'
                && chars[i + 1..].len() >= hashes
                && chars[i + 1..i + 1 + hashes].iter().all(|c| *c == '#')
        })
        .map(|i| i + 1 + hashes)
}

/// The index behind the bracket that closes the one at `open`.
pub(crate) fn closed(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            Kind::Mark(_) | Kind::Word(_) | Kind::Text(_) => {}
        }
    }
    tokens.len()
}

/// Whether `::` stands at `at`.
pub(crate) fn path_goes_on(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).is_some_and(|t| t.is_mark(':')) && tokens.get(at + 1).is_some_and(|t| t.is_mark(':'))
}
