use std::collections::HashMap;

#[derive(Debug, PartialEq, Eq)]
pub enum EvalError {
    /// A character that cannot stand here, with its byte offset.
    Unexpected(usize),
    /// The text ends too early.
    End,
    Unknown(String),
    DivideByZero,
    Overflow,
}

#[derive(Debug, PartialEq, Eq)]
enum Token<'t> {
    Sign(u8),
    Number(i64),
    Name(&'t str),
}

/// The tokens of a text, each with its byte offset.
fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, EvalError> {
    let bytes = text.as_bytes();
    let run = |from: usize, holds: fn(&u8) -> bool| from + bytes[from..].iter().take_while(|byte| holds(byte)).count();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            sign @ (b'+' | b'-' | b'*' | b'/' | b'(' | b')') => {
                at += 1;
                found.push((start, Token::Sign(sign)));
            }
            byte if byte.is_ascii_digit() => {
                at = run(at, u8::is_ascii_digit);
                let digits: i64 = text[start..at].parse().map_err(|_| EvalError::Overflow)?;
                let shift = match bytes.get(at) {
                    Some(b'K') => 10,
                    Some(b'M') => 20,
                    Some(b'G') => 30,
                    _ => 0,
                };
                at += usize::from(shift > 0);
                found.push((start, Token::Number(digits.checked_mul(1 << shift).ok_or(EvalError::Overflow)?)));
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                at = run(at, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
                found.push((start, Token::Name(&text[start..at])));
            }
            _ => return Err(EvalError::Unexpected(start)),
        }
    }
    Ok(found)
}

struct Evaluator<'t> {
    tokens: Vec<(usize, Token<'t>)>,
    next: usize,
    variables: &'t HashMap<String, i64>,
}

impl<'t> Evaluator<'t> {
    /// Takes the next token if it is one of these signs.
    fn sign(&mut self, wanted: &[u8]) -> Option<u8> {
        match self.tokens.get(self.next) {
            Some((_, Token::Sign(sign))) if wanted.contains(sign) => {
                self.next += 1;
                Some(*sign)
            }
            _ => None,
        }
    }

    fn unexpected(&self) -> EvalError {
        self.tokens.get(self.next).map_or(EvalError::End, |(at, _)| EvalError::Unexpected(*at))
    }

    fn sum(&mut self) -> Result<i64, EvalError> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(b"+-") {
            let other = if sign == b'-' { self.sum()? } else { self.product()? };
            let result = if sign == b'+' { value.checked_add(other) } else { value.checked_sub(other) };
            value = result.ok_or(EvalError::Overflow)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i64, EvalError> {
        let mut value = self.factor()?;
        while let Some(sign) = self.sign(b"*/") {
            let other = self.factor()?;
            if sign == b'/' && other == 0 {
                return Err(EvalError::DivideByZero);
            }
            let result = if sign == b'*' { value.checked_mul(other) } else { value.checked_div(other) };
            value = result.ok_or(EvalError::Overflow)?;
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<i64, EvalError> {
        if self.sign(b"-").is_some() {
            return self.factor()?.checked_neg().ok_or(EvalError::Overflow);
        }
        if self.sign(b"(").is_some() {
            let value = self.sum()?;
            return self.sign(b")").map(|_| value).ok_or_else(|| self.unexpected());
        }
        let value = match self.tokens.get(self.next) {
            Some((_, Token::Number(value))) => *value,
            Some((_, Token::Name(name))) => {
                *self.variables.get(*name).ok_or_else(|| EvalError::Unknown(name.to_string()))?
            }
            _ => return Err(self.unexpected()),
        };
        self.next += 1;
        Ok(value)
    }
}

pub fn evaluate(text: &str, variables: &HashMap<String, i64>) -> Result<i64, EvalError> {
    let mut evaluator = Evaluator { tokens: tokens(text)?, next: 0, variables };
    let value = evaluator.sum()?;
    if evaluator.next < evaluator.tokens.len() {
        return Err(evaluator.unexpected());
    }
    Ok(value)
}
