//! Tables for the terminal and for Markdown, and numbers that people can read.

/// Rows of as many cells as there are heads. The first columns are text, the others line up right.
pub struct Table {
    text_columns: usize,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: AsRef<str>>(text_columns: usize, heads: &[S]) -> Self {
        let heads = heads.iter().map(|head| head.as_ref().into()).collect();
        Self { text_columns, heads, rows: Vec::new() }
    }

    /// A row that is short is filled with empty cells.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.heads.len(), String::new());
        self.rows.push(cells);
    }

    pub fn to_terminal(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let cells = row.iter().zip(&widths).enumerate();
            let line: Vec<_> =
                cells.map(|(column, (cell, &width))| self.pad(column, cell, width)).collect();
            text += line.join("  ").trim_end();
            text += "\n";
        }
        text
    }

    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<_> = (0..self.heads.len())
            .map(|column| if column < self.text_columns { "---" } else { "---:" }.to_owned())
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.heads) + &line(&rule) + &rows
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.heads.len()];
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn pad(&self, column: usize, cell: &str, width: usize) -> String {
        match column < self.text_columns {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        }
    }
}

/// `1.4 MB`, by thousands as links are counted.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// Three digits of seconds.
pub fn seconds(secs: f64) -> String {
    match secs {
        0.0..10.0 => format!("{secs:.2} s"),
        10.0..100.0 => format!("{secs:.1} s"),
        _ => format!("{secs:.0} s"),
    }
}

/// How many times as much; empty where there is nothing to compare with.
pub fn ratio(of: f64, to: f64) -> String {
    match of / to {
        ratio if !ratio.is_finite() => String::new(),
        ratio if ratio < 9.95 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(1, &["phase", "time"]);
        table.row(["make", "1.50 s"]);
        table.row(["x"]);
        table
    }

    #[test]
    fn columns_line_up_in_the_terminal() {
        assert_eq!(table().to_terminal(), "phase    time\nmake   1.50 s\nx\n");
    }

    #[test]
    fn the_same_table_is_markdown() {
        let expected = "| phase | time |\n| --- | ---: |\n| make | 1.50 s |\n| x |  |\n";
        assert_eq!(table().to_markdown(), expected);
    }

    #[test]
    fn numbers_have_a_few_digits_and_a_unit() {
        let counts = [999, 12_345, 1_400_000, 64_000_000_000];
        assert_eq!(counts.map(bytes), ["999 B", "12 kB", "1.4 MB", "64.00 GB"]);
        assert_eq!([0.1234, 12.34, 1234.5].map(seconds), ["0.12 s", "12.3 s", "1234 s"]);
        assert_eq!(ratio(1.0, 3.0), "0.33");
        assert_eq!(ratio(120.0, 3.0), "40");
        assert_eq!(ratio(1.0, 0.0), "");
    }
}
