//! Tables that fit a terminal of 100 columns.

/// The most columns of characters that a table takes.
pub(super) const MAX_WIDTH: usize = 100;

/// Between two columns.
const GAP: &str = "  ";

/// A table with a header row.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column heads.
    #[must_use]
    pub fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self { rows: vec![heads.map(str::to_owned).to_vec()] }
    }

    /// Adds a row, with a cell a column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Renders the table. The widest column gives way where the table would be too wide: its cells keep their ends, as
    /// names of pods differ there.
    #[must_use]
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let mut widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        while widths.iter().sum::<usize>() + GAP.len() * columns.saturating_sub(1) > MAX_WIDTH {
            let Some(widest) = widths.iter_mut().max() else { break };
            if *widest <= 8 {
                break;
            }
            *widest -= 1;
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", shorten(cell, *width)));
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// The end of a text that is too long, behind an ellipsis.
fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    std::iter::once('…').chain(text.chars().skip(length - width.saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new(["REPLICA", "OBJECTS"]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["website-controller".to_owned(), String::new()]);
        assert_eq!(table.render(), "REPLICA             OBJECTS\na                   1\nwebsite-controller\n");
    }

    #[test]
    fn a_wide_table_shortens_its_widest_column_from_the_front() {
        let mut table = Table::new(["NAME", "WHY"]);
        table.row(["pod-1".to_owned(), format!("{}end", "x".repeat(200))]);
        let text = table.render();
        assert!(text.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{text}");
        assert!(text.contains("pod-1  …") && text.contains("xend"), "{text}");
    }
}
