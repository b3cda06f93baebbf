//! A page of a transcript. Its parts are JSON already and are only put together.

use ken_types::id::SessionId;
use ken_types::{Error, Offset};

use crate::rules::record;

pub(crate) struct Page<'a> {
    pub(crate) id: &'a SessionId,
    pub(crate) name: Option<&'a str>,
    /// The offset from which a reader continues in the stream. `end` is the end of the stream.
    pub(crate) next: Offset,
    pub(crate) end: Offset,
    /// The exchanges, oldest first, each as JSON.
    pub(crate) exchanges: &'a [String],
    pub(crate) limit: u32,
    /// The cursor of the next page, which has older exchanges; `None` if there are none.
    pub(crate) cursor: Option<&'a str>,
    pub(crate) context_usage: Option<&'a str>,
}

impl Page<'_> {
    /// Returns the page as JSON text.
    pub(crate) fn render(&self) -> Result<String, Error> {
        let length: usize = self.exchanges.iter().map(|body| body.len() + 1).sum();
        let mut text = String::with_capacity(length + 512);
        text.push_str("{\"session\":{\"id\":");
        text.push_str(&record::write(self.id)?);
        if let Some(name) = self.name {
            text.push_str(",\"title\":");
            text.push_str(&record::write(&name)?);
        }
        text.push_str("},\"exchanges\":[");
        text.push_str(&self.exchanges.join(","));
        let (next, limit) = (self.next, self.limit);
        let (up_to_date, has_older) = (self.next == self.end, self.cursor.is_some());
        text.push_str(&format!(
            "],\"stream\":{{\"nextOffset\":\"{next}\",\"upToDate\":{up_to_date}}},\"page\":{{\"limit\":{limit},\"hasOlder\":{has_older}"
        ));
        if let Some(cursor) = self.cursor {
            text.push_str(",\"before\":");
            text.push_str(&record::write(&cursor)?);
        }
        text.push('}');
        if let Some(usage) = self.context_usage {
            text.push_str(",\"contextUsage\":");
            text.push_str(usage);
        }
        text.push('}');
        Ok(text)
    }
}
