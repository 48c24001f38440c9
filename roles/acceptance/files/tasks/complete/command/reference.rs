/// Words of a command line.
pub fn words(line: &str) -> Result<Vec<String>, usize> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.char_indices().peekable();
    while let Some((offset, character)) = characters.next() {
        if character == ' ' || character == '\t' {
            found.extend(word.take());
            continue;
        }
        let current = word.get_or_insert_with(String::new);
        match character {
            '\\' => current.push(characters.next().ok_or(offset)?.1),
            '\'' => loop {
                match characters.next().ok_or(offset)?.1 {
                    '\'' => break,
                    inner => current.push(inner),
                }
            },
            '"' => loop {
                match characters.next().ok_or(offset)?.1 {
                    '"' => break,
                    '\\' => {
                        let escaped = characters.next_if(|&(_, next)| next == '"' || next == '\\');
                        current.push(escaped.map_or('\\', |(_, next)| next));
                    }
                    inner => current.push(inner),
                }
            },
            plain => current.push(plain),
        }
    }
    found.extend(word);
    Ok(found)
}
