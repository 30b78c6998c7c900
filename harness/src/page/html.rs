//! An HTML writer that escapes text from the run.

use std::fmt::{self, Display, Write};

#[derive(Default)]
pub(super) struct Html(String);

/// Escapes the special characters of the text when it is written.
pub(super) struct Text<T>(pub(super) T);

struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Html {
    /// Appends formatted HTML. Text from the run must be wrapped in [`Text`].
    pub(super) fn put(&mut self, part: fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = self.0.write_fmt(part);
    }

    /// Appends HTML without escaping it.
    pub(super) fn raw(&mut self, part: &str) {
        self.0.push_str(part);
    }

    pub(super) fn define(&mut self, term: &str, what: impl Display) {
        self.put(format_args!("<div><dt>{}</dt><dd>{}</dd></div>", Text(term), Text(what)));
    }

    /// Begins a table that scrolls if it is too wide. The first `texts` columns contain text, and
    /// the others contain numbers.
    pub(super) fn begin_table(&mut self, caption: &str, texts: usize, columns: &[&str]) {
        self.put(format_args!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\
             <table><caption>{caption}</caption><thead><tr>",
            caption = Text(caption)
        ));
        for (nth, column) in columns.iter().enumerate() {
            let class = if nth < texts { "" } else { " class=\"n\"" };
            self.put(format_args!("<th scope=\"col\"{class}>{}</th>", Text(column)));
        }
        self.raw("</tr></thead><tbody>");
    }

    pub(super) fn end_table(&mut self) {
        self.raw("</tbody></table></div>\n");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            match char {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                // HTML does not allow control characters, and direction marks would reorder the surrounding text.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    self.0.write_char('\u{fffd}')?;
                }
                char if char.is_control() && !char.is_whitespace() => {
                    self.0.write_char('\u{fffd}')?;
                }
                char => self.0.write_char(char)?,
            }
        }
        Ok(())
    }
}
