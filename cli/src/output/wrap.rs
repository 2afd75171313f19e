//! Sentences that fit a terminal.

use super::table::MAX_WIDTH;

/// Breaks a text at blanks; lines after the first begin with `indent`. A word is never broken.
#[must_use]
pub fn wrap(text: &str, indent: &str) -> String {
    let (mut wrapped, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width == 0 {
            wrapped.push_str(word);
            width = length;
        } else if width + 1 + length <= MAX_WIDTH {
            wrapped.push(' ');
            wrapped.push_str(word);
            width += 1 + length;
        } else {
            wrapped.push('\n');
            wrapped.push_str(indent);
            wrapped.push_str(word);
            width = indent.chars().count() + length;
        }
    }
    wrapped.push('\n');
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_keep_every_word() {
        let text = wrap(&"seventeen letters ".repeat(20), "  ");
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  ")));
        assert_eq!(text.split_whitespace().count(), 40);
        assert_eq!(wrap("", "  "), "\n");
    }
}
