//! A plain-text table that is also valid Markdown.

use std::fmt;

/// A table of text cells with a row of headings. The first columns are left-aligned, the others right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left_columns: usize,
}

impl Table {
    /// Creates a table without data rows. The first `left_columns` columns contain text, and the others numbers.
    pub(crate) fn new(headings: &[&str], left_columns: usize) -> Self {
        let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
        Self { rows: vec![headings], left_columns }
    }

    /// Appends a row. Panics if the row does not have one cell per heading.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.rows[0].len(), "one cell per heading");
        self.rows.push(row);
    }

    fn width(&self, column: usize) -> usize {
        let widths = self.rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default().max(2)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.rows[0].len()).map(|column| self.width(column)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column < self.left_columns {
                    write!(f, "| {cell:<width$} ")?;
                } else {
                    write!(f, "| {cell:>width$} ")?;
                }
            }
            writeln!(f, "|")?;
            if index == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let end = if column < self.left_columns { '-' } else { ':' };
                    write!(f, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn text_is_aligned_left_and_figures_right() {
        let mut table = Table::new(&["name", "per second"], 1);
        table.push(vec!["a".to_owned(), "12".to_owned()]);
        let expected = "\
| name | per second |
|------|-----------:|
| a    |         12 |
";
        assert_eq!(table.to_string(), expected);
    }
}
