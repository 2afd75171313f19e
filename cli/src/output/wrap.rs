//! Sentences that fit a terminal.

use super::table::MAX_WIDTH;

/// Breaks a text at blanks, behind a beginning; further lines are indented by as much. A word is never broken.
#[must_use]
pub fn wrap(begin: &str, text: &str) -> String {
    let indent = " ".repeat(begin.chars().count());
    let (mut wrapped, mut line, mut gap) = (String::new(), begin.to_owned(), "");
    for word in text.split_whitespace() {
        if !gap.is_empty() && line.chars().count() + 1 + word.chars().count() > MAX_WIDTH {
            wrapped += &line;
            wrapped.push('\n');
            line.clone_from(&indent);
            gap = "";
        }
        line += gap;
        line += word;
        gap = " ";
    }
    wrapped + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_keep_every_word() {
        let text = wrap("x ", &"seventeen letters ".repeat(20));
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  seventeen") || line.starts_with("  letters")));
        assert_eq!(text.split_whitespace().count(), 41);
        assert_eq!(wrap("", ""), "\n");
    }

    #[test]
    fn lines_go_on_below_their_text_after_signs_of_several_bytes() {
        let text = wrap("× R05 ", &"word ".repeat(40));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")), "{text}");
    }
}
