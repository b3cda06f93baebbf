//! A list that is filtered by typing: the palette, the sessions.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The value that choosing the row yields, such as a session id.
    pub(crate) value: String,
    pub(crate) text: String,
    pub(crate) remark: String,
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) title: &'static str,
    rows: Vec<Row>,
    pub(crate) filter: String,
    selected: usize,
    /// The cursor of the next page, if there is one.
    pub(crate) more: Option<String>,
}

impl List {
    pub(crate) fn new(title: &'static str, rows: Vec<Row>) -> List {
        List { title, rows, ..List::default() }
    }

    pub(crate) fn add(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows);
    }

    /// Returns the rows that contain every word of the filter.
    pub(crate) fn matching(&self) -> Vec<&Row> {
        let filter = self.filter.to_lowercase();
        let holds = |row: &&Row| {
            let text = format!("{} {} {}", row.text, row.remark, row.value).to_lowercase();
            filter.split_whitespace().all(|word| text.contains(word))
        };
        self.rows.iter().filter(holds).collect()
    }

    pub(crate) fn selected(&self) -> usize {
        self.selected.min(self.matching().len().saturating_sub(1))
    }

    pub(crate) fn chosen(&self) -> Option<String> {
        self.matching().get(self.selected()).map(|row| row.value.clone())
    }

    /// Moves the selection.
    pub(crate) fn move_by(&mut self, rows: isize) {
        let last = self.matching().len().saturating_sub(1);
        self.selected = self.selected().saturating_add_signed(rows).min(last);
    }

    pub(crate) fn type_char(&mut self, c: char) {
        self.filter.push(c);
        self.selected = 0;
    }

    pub(crate) fn erase(&mut self) {
        self.filter.pop();
        self.selected = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let row =
            |value: &str, text: &str| Row { value: value.to_owned(), text: text.to_owned(), remark: String::new() };
        List::new("t", vec![row("1", "Nightly build"), row("2", "Deploy the site"), row("3", "Build the site")])
    }

    #[test]
    fn typing_narrows_a_list_and_the_choice_stays_in_it() {
        let mut list = list();
        list.move_by(5);
        assert_eq!(list.chosen().as_deref(), Some("3"));
        "site build".chars().for_each(|c| list.type_char(c));
        assert_eq!(list.chosen().as_deref(), Some("3"));
        list.type_char('x');
        assert_eq!(list.chosen(), None);
        list.erase();
        assert_eq!(list.matching().len(), 1);
    }
}
