//! The little of a shell that pages show: words, quotes, pipes.

/// The commands of a line, each by its words. Redirections and comments are left out.
#[must_use]
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut skips = false;
    let push = |word: &mut Option<String>, words: &mut Vec<String>, skips: &mut bool| {
        if let Some(word) = word.take()
            && !std::mem::take(skips)
        {
            words.push(word);
        }
    };
    for one in line.chars() {
        match (quote, one) {
            (Some(open), one) if one == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(one);
                word.get_or_insert_default();
            }
            (Some(_), one) => word.get_or_insert_default().push(one),
            (None, '#') if word.is_none() => break,
            (None, ' ') => push(&mut word, &mut words, &mut skips),
            (None, '|' | '&' | ';') => {
                push(&mut word, &mut words, &mut skips);
                commands.push(std::mem::take(&mut words));
            }
            (None, '>' | '<') => {
                // The number of a stream stands before it, a file behind.
                if word.as_deref() != Some("2") {
                    push(&mut word, &mut words, &mut skips);
                }
                word = None;
                skips = true;
            }
            (None, one) => word.get_or_insert_default().push(one),
        }
    }
    push(&mut word, &mut words, &mut skips);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// A command of `ringside`, by its arguments; of others none. What is set in the environment before it is left out.
#[must_use]
pub fn of_ringside(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<_> = words.iter().skip_while(|word| word.contains('=')).cloned().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ringside", ..] => Some(words),
        ["kubectl", "ringside", ..] => Some(words[1..].to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let split = |line| commands(line).into_iter().map(|words| words.join("+")).collect::<Vec<_>>();
        assert_eq!(
            split("ringside rbac websites | kubectl apply -f -"),
            ["ringside+rbac+websites", "kubectl+apply+-f+-"]
        );
        assert_eq!(split("a 'b c' > file # why"), ["a+b c"]);
        assert_eq!(split("a -o 'x{.y==\"z\"}' && b 2>/dev/null"), ["a+-o+x{.y==\"z\"}", "b"]);
    }
}
