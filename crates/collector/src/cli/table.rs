//! Tables for people.

/// Rows of the same number of cells, of which the first are the heads.
#[derive(Debug)]
pub(super) struct Table(Vec<Vec<String>>);

// === impl Table ===

impl Table {
    pub(super) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self(vec![heads.map(str::to_owned).to_vec()])
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.into());
    }

    /// The rows as lines, each column as wide as its widest cell.
    pub(super) fn render(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|i| self.0.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max())
            .map(Option::unwrap_or_default)
            .collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            format!("{}\n", cells.join("  ").trim_end())
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["worker", "n"]);
        table.row(["a".to_owned(), "100".to_owned()]);
        table.row(["longer-name".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "worker       n\na            100\nlonger-name  1\n");
    }
}
