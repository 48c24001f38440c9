/// Words of a command line.
pub fn words(line: &str) -> Result<Vec<String>, usize> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut characters = line.char_indices().peekable();
    while let Some((offset, character)) = characters.next() {
        match character {
            ' ' | '\t' => {
                if !word.is_empty() {
                    found.push(std::mem::take(&mut word));
                }
            }
            '\\' => word.push(characters.next().ok_or(offset)?.1),
            '\'' => loop {
                match characters.next().ok_or(offset)?.1 {
                    '\'' => break,
                    inner => word.push(inner),
                }
            },
            '"' => loop {
                match characters.next().ok_or(offset)?.1 {
                    '"' => break,
                    '\\' => {
                        let escaped = characters.next_if(|&(_, next)| next == '"' || next == '\\');
                        word.push(escaped.map_or('\\', |(_, next)| next));
                    }
                    inner => word.push(inner),
                }
            },
            plain => word.push(plain),
        }
    }
    if !word.is_empty() {
        found.push(word);
    }
    Ok(found)
}
