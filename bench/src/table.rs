//! A table for people, and the same rows as JSON for whatever compares runs.

use std::{fs, io, path::PathBuf};

use serde_json::{Map, Value, json};

/// The result of a measurement.
#[derive(Debug)]
pub struct Table {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Table {
    /// An empty one; `name` is that of the program.
    pub fn new(name: &'static str, columns: &[&'static str]) -> Self {
        Self { name, columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, a value for each column.
    pub fn row(&mut self, values: impl IntoIterator<Item = Value>) {
        self.rows.push(values.into_iter().collect());
    }

    /// Prints it and writes it to `target/bench/NAME.json`.
    ///
    /// # Errors
    /// When the file can't be written.
    #[allow(clippy::print_stdout, reason = "what was measured is what the program is for")]
    pub fn tell(&self) -> io::Result<()> {
        print!("{}", self.text());
        let folder = folder()?;
        let rows: Vec<Value> = self.rows.iter().map(|row| self.object(row)).collect();
        fs::write(
            folder.join(self.name).with_extension("json"),
            format!("{:#}\n", json!({"name": self.name, "rows": rows})),
        )
    }

    fn object(&self, row: &[Value]) -> Value {
        let fields = self.columns.iter().zip(row).map(|(column, value)| ((*column).to_owned(), value.clone()));
        Value::Object(fields.collect::<Map<_, _>>())
    }

    fn text(&self) -> String {
        let cells = |row: &[Value]| row.iter().map(cell).collect::<Vec<_>>();
        let head: Vec<_> = self.columns.iter().map(|&column| column.to_owned()).collect();
        let lines: Vec<_> = std::iter::once(head).chain(self.rows.iter().map(|row| cells(row))).collect();
        let width = |at: usize| lines.iter().map(|line| line.get(at).map_or(0, String::len)).max().unwrap_or(0);
        // Words begin at the left, numbers end at the right.
        let is_words = |at: usize| self.rows.iter().all(|row| row.get(at).is_some_and(Value::is_string));
        let pad = |(at, cell): (usize, &String)| match is_words(at) {
            true => format!("{cell:<0$}", width(at)),
            false => format!("{cell:>0$}", width(at)),
        };
        let line = |cells: &Vec<String>| {
            let padded: Vec<_> = cells.iter().enumerate().map(pad).collect();
            format!("{}\n", padded.join("  ").trim_end())
        };
        lines.iter().map(line).collect()
    }
}

/// The folder of what was measured, `target/bench`; made where it is not there.
pub(crate) fn folder() -> io::Result<PathBuf> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let folder = target.join("bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => format!("{number:.3}"),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_rows_are_objects() {
        let mut table = Table::new("x", &["shards", "ratio"]);
        table.row([json!(3), json!(1.0625)]);
        table.row([json!("all"), json!(12.5)]);
        assert_eq!(table.text(), "shards   ratio\n     3   1.062\n   all  12.500\n");
        assert_eq!(table.object(&table.rows[0]), json!({"shards": 3, "ratio": 1.0625}));
    }
}
