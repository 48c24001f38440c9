#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    Word(&'a str),
    Number(u32),
    Symbol(char),
}

#[derive(Clone)]
pub struct Tokens<'a> {
    rest: &'a str,
}

pub fn tokens(text: &str) -> Tokens<'_> {
    Tokens { rest: text }
}

impl<'a> Tokens<'a> {
    /// The text behind the tokens that were taken so far, without white space at its start.
    pub fn rest(&self) -> &'a str {
        self.rest.trim_start()
    }

    /// Takes the characters at the start that are part of a token.
    fn take(&mut self, part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        Some(if first.is_ascii_digit() {
            // Only digits: the one error is a number that is too large.
            Token::Number(self.take(|c| c.is_ascii_digit()).parse().unwrap_or(u32::MAX))
        } else if first.is_ascii_alphabetic() || first == '_' {
            Token::Word(self.take(|c| c.is_ascii_alphanumeric() || c == '_'))
        } else {
            self.rest = &self.rest[first.len_utf8()..];
            Token::Symbol(first)
        })
    }
}
