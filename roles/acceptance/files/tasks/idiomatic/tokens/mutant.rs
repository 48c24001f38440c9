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
    Tokens { rest: text.trim() }
}

impl<'a> Tokens<'a> {
    pub fn rest(&self) -> &'a str {
        self.rest
    }

    fn take(&mut self, part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        taken
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let first = self.rest.chars().next()?;
        Some(if first.is_numeric() {
            Token::Number(self.take(char::is_numeric).parse().unwrap_or(u32::MAX))
        } else if first.is_alphabetic() || first == '_' {
            Token::Word(self.take(|c| c.is_alphanumeric() || c == '_'))
        } else {
            self.rest = self.rest[first.len_utf8()..].trim_start();
            Token::Symbol(first)
        })
    }
}
