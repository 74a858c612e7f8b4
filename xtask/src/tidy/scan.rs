//! Splits Rust source into code and comments, line by line, without parsing it.
//!
//! Algorithm: one pass over the characters with a small state machine.
//!
//! 1. Line comments and (nested) block comments go to `comments`; spaces take their place in `code`.
//! 2. The contents of string, byte-string, raw-string and character literals become spaces in `code`. Their quotes
//!    stay, so that `"a { b"` does not count as a brace but is still visibly a literal.
//! 3. Everything else goes to `code` unchanged.
//!
//! Invariants: `code` and `comments` have one entry per source line; columns in `code` equal columns in the source.

/// Source text with code and comments apart.
pub(super) struct Scanned {
    /// Code per line: comments and the insides of literals are blanks.
    pub(super) code: Vec<String>,
    /// Comment text per line, with its `//` or `/*`; empty where there is none.
    pub(super) comments: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Block comment with its nesting depth.
    BlockComment(usize),
    /// Ordinary or byte string.
    Text,
    /// Raw string closed by a quote and this many hashes.
    RawText(usize),
}

impl Scanned {
    pub(super) fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut scanner = Scanner { characters: &characters, at: 0, code: String::new(), comments: String::new() };
        let mut state = State::Code;
        while scanner.at < characters.len() {
            state = scanner.step(state);
        }
        let lines = |all: &str| all.lines().map(|line| line.trim_end().to_owned()).collect();
        Self { code: lines(&scanner.code), comments: lines(&scanner.comments) }
    }
}

struct Scanner<'a> {
    characters: &'a [char],
    at: usize,
    code: String,
    comments: String,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.characters.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, wanted)| self.peek(ahead) == wanted)
    }

    /// Moves `count` characters to the code (or, `visible` false, blanks in their place).
    fn take_code(&mut self, count: usize, visible: bool) {
        for _ in 0..count {
            let character = self.peek(0);
            let blank = if character == '\n' { '\n' } else { ' ' };
            self.code.push(if visible { character } else { blank });
            self.comments.push(blank);
            self.at += 1;
        }
    }

    fn take_comment(&mut self, count: usize) {
        for _ in 0..count {
            let character = self.peek(0);
            self.code.push(if character == '\n' { '\n' } else { ' ' });
            self.comments.push(character);
            self.at += 1;
        }
    }

    /// Consumes at least one character and returns the next state.
    fn step(&mut self, state: State) -> State {
        match state {
            State::Code => self.step_code(),
            State::LineComment => {
                let ended = self.peek(0) == '\n';
                self.take_comment(1);
                if ended { State::Code } else { state }
            }
            State::BlockComment(depth) => self.step_block_comment(depth),
            State::Text => self.step_text(),
            State::RawText(hashes) => {
                let closed = self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#');
                self.take_code(if closed { 1 + hashes } else { 1 }, closed);
                if closed { State::Code } else { state }
            }
        }
    }

    fn step_code(&mut self) -> State {
        if self.starts_with("//") {
            self.take_comment(2);
            return State::LineComment;
        }
        if self.starts_with("/*") {
            self.take_comment(2);
            return State::BlockComment(1);
        }
        if let Some((prefix, hashes)) = self.raw_string_opening() {
            self.take_code(prefix, true);
            return State::RawText(hashes);
        }
        match self.peek(0) {
            '"' => {
                self.take_code(1, true);
                State::Text
            }
            '\'' => {
                self.step_quote();
                State::Code
            }
            _ => {
                self.take_code(1, true);
                State::Code
            }
        }
    }

    fn step_block_comment(&mut self, depth: usize) -> State {
        if self.starts_with("*/") {
            self.take_comment(2);
            return if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
        }
        if self.starts_with("/*") {
            self.take_comment(2);
            return State::BlockComment(depth + 1);
        }
        self.take_comment(1);
        State::BlockComment(depth)
    }

    fn step_text(&mut self) -> State {
        match self.peek(0) {
            '\\' => {
                self.take_code(2.min(self.characters.len() - self.at), false);
                State::Text
            }
            '"' => {
                self.take_code(1, true);
                State::Code
            }
            _ => {
                self.take_code(1, false);
                State::Text
            }
        }
    }

    /// A character literal is blanked; a lifetime is code.
    fn step_quote(&mut self) {
        if self.peek(1) == '\\' {
            let mut length = 3;
            while self.peek(length) != '\'' && self.peek(length) != '\0' && self.peek(length) != '\n' {
                length += 1;
            }
            self.take_code(1, true);
            self.take_code(length - 1, false);
            self.take_code(1.min(self.characters.len() - self.at), true);
        } else if self.peek(2) == '\'' && self.peek(1) != '\'' {
            self.take_code(1, true);
            self.take_code(1, false);
            self.take_code(1, true);
        } else {
            self.take_code(1, true);
        }
    }

    /// Length of `r#"`, `br"`, ... at this place and its number of hashes, unless it is the tail of a longer word.
    fn raw_string_opening(&self) -> Option<(usize, usize)> {
        let before = self.at.checked_sub(1).and_then(|index| self.characters.get(index));
        if before.is_some_and(|character| character.is_alphanumeric() || *character == '_') {
            return None;
        }
        let prefix = if self.starts_with("br") || self.starts_with("cr") {
            2
        } else if self.peek(0) == 'r' {
            1
        } else {
            return None;
        };
        let mut hashes = 0;
        while self.peek(prefix + hashes) == '#' {
            hashes += 1;
        }
        (self.peek(prefix + hashes) == '"').then_some((prefix + hashes + 1, hashes))
    }
}

/// Is `code` at byte `start` the whole word `word`?
pub(super) fn is_word_at(code: &str, start: usize, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    let (before, rest) = code.split_at(start);
    rest.starts_with(word)
        && !before.chars().next_back().is_some_and(part_of_word)
        && !rest.get(word.len()..).and_then(|after| after.chars().next()).is_some_and(part_of_word)
}

/// Byte positions of the whole word `word` in `code`.
pub(super) fn word_positions(code: &str, word: &str) -> Vec<usize> {
    code.match_indices(word).map(|(start, _)| start).filter(|start| is_word_at(code, *start, word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> String {
        Scanned::new(text).code.join("\n")
    }

    #[test]
    fn strings_are_blank_but_keep_their_columns() {
        assert_eq!(code_of("f(\"a { // b\", 1)"), "f(\"        \", 1)");
        assert_eq!(code_of(r##"f(r#"a " { b"#, 1)"##), "f(r#\"       \"#, 1)");
        assert_eq!(code_of(r#"f("a\"{", b"}")"#), "f(\"    \", b\" \")");
    }

    #[test]
    fn comments_go_to_their_own_lines() {
        let scanned = Scanned::new("a; // one\n/* two\n/* nested */ three */ b;\n");
        assert_eq!(scanned.code, ["a;", "", "                      b;"]);
        assert_eq!(
            scanned.comments.iter().map(|line| line.trim()).collect::<Vec<_>>(),
            ["// one", "/* two", "/* nested */ three */"]
        );
    }

    #[test]
    fn character_literals_are_blank_and_lifetimes_are_code() {
        assert_eq!(code_of("x('{', '\\'', '\\u{7d}', &'a str)"), "x(' ', '  ', '      ', &'a str)");
        assert_eq!(code_of("match c { '\"' => 1, _ => 2 }"), "match c { ' ' => 1, _ => 2 }");
    }

    #[test]
    fn raw_prefix_inside_a_word_is_not_a_raw_string() {
        assert_eq!(code_of("var\"x\""), "var\" \"");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(word_positions("unsafe_code unsafe { not_unsafe }", "unsafe"), [12]);
    }
}
