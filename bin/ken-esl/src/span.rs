//! A range of a text.

/// A half-open range of bytes of the text, on character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}
