//! A range of a text.

/// A half-open range of bytes of the text, on character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}
