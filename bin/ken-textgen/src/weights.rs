//! A mapped safetensors file. Tensors are read from the page cache and never copied.

#![allow(unsafe_code)] // the call that maps the file

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_tool::unreadable;
use ken_types::{Code, Error};
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::Mmap;
use safetensors::tensor::{Metadata, SafeTensors};
use safetensors::{Dtype, SafeTensorError};

use crate::simd::Float;

/// An open weights file.
pub struct Weights {
    path: PathBuf,
    map: Arc<Mmap>,
    metadata: Metadata,
    /// Where the tensors begin.
    start: usize,
    pub identity: Identity,
}

/// The length and the modification time of a file. If both are unchanged, it need not be hashed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub length: u64,
    pub modified_ns: i128,
}

/// A tensor, or a part of one, within the mapping. Cheap to clone.
#[derive(Clone)]
pub struct Slice {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Weights {
    /// Maps the file and checks its header. Returns an error if the file is truncated or has bytes that belong to no tensor.
    pub fn open(path: &Path) -> Result<Weights, Error> {
        let cannot = |error| unreadable(path, &error);
        let file = File::open(path).map_err(cannot)?;
        let about = file.metadata().map_err(cannot)?;
        if about.is_dir() {
            return Err(Error::invalid("", format!("{} is a directory, not a weights file", path.display())));
        }
        // SAFETY: the mapping is read-only, and its bytes are read as bytes or floats, for which all bit patterns are valid. A file
        // that is truncated while it is mapped ends the process with SIGBUS, as ken-textgen(1) says.
        let map = unsafe { Mmap::map(&file) }.map_err(cannot)?;
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|error| malformed(path, &error))?;
        let modified = about.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(Weights {
            path: path.to_owned(),
            start: header + 8, // the file begins with the length of the header
            map: Arc::new(map),
            metadata,
            identity: Identity {
                length: about.len(),
                modified_ns: modified.map_or(-1, |since| since.as_nanos() as i128),
            },
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The size of all tensors in bytes.
    pub fn data_len(&self) -> usize {
        self.metadata.data_len()
    }

    /// A text from the metadata in the header.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.metadata.info(name).is_some()
    }

    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// The tensor of this name. Returns an error unless it has this type and shape.
    pub fn tensor(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<Slice, Error> {
        let path = self.path.display();
        let info = self.metadata.info(name);
        let info = info.ok_or_else(|| Error::invalid(name, format!("{path} has no tensor {name}")))?;
        if info.shape != shape {
            let fault = format!("{path}: {name} has the shape {:?}; config.json asks for {shape:?}", info.shape);
            return Err(Error::invalid(name, fault));
        }
        if info.dtype != dtype {
            let fault = format!("{path}: {name} holds {:?}; only {dtype:?} is read", info.dtype);
            return Err(Error::invalid(name, fault));
        }
        let (from, to) = info.data_offsets;
        Ok(Slice { map: Arc::clone(&self.map), range: self.start + from..self.start + to })
    }

    /// Asks the kernel to map all pages except those of `except` now, instead of by many page faults. This is done in pieces,
    /// because a thread that allocates memory waits until a piece is mapped. This is only a hint to the kernel.
    pub fn prefetch(&self, except: &Slice) {
        const PIECE: usize = 4 << 20;
        for part in [0..except.range.start, except.range.end..self.map.len()] {
            for start in part.clone().step_by(PIECE) {
                self.prefetch_piece(start, PIECE.min(part.end - start));
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn prefetch_piece(&self, start: usize, length: usize) {
        let _ = self.map.advise_range(Advice::PopulateRead, start, length);
    }

    #[cfg(not(target_os = "linux"))]
    fn prefetch_piece(&self, _start: usize, _length: usize) {}

    /// The first f32 tensor with a value that is not finite, for an error that names it.
    pub fn first_not_finite(&self) -> Option<String> {
        let names = self.metadata.offset_keys();
        names.into_iter().find(|name| {
            let info = self.metadata.info(name).filter(|info| info.dtype == Dtype::F32);
            let range = info.map(|info| self.start + info.data_offsets.0..self.start + info.data_offsets.1);
            let floats = range.map(|range| self.map[range].as_chunks::<4>().0).unwrap_or_default();
            floats.iter().any(|value| !f32::from_le_bytes(*value).is_finite())
        })
    }
}

impl Slice {
    pub fn bytes(&self) -> &[u8] {
        // The range was checked against the file when the header was read.
        &self.map[self.range.clone()]
    }

    /// A sub-slice, as a range of bytes.
    pub fn part(&self, range: Range<usize>) -> Slice {
        let start = self.range.start;
        let range = (start + range.start).min(self.range.end)..(start + range.end).min(self.range.end);
        Slice { map: Arc::clone(&self.map), range }
    }

    pub fn floats(&self) -> &[Float] {
        self.bytes().as_chunks::<4>().0
    }

    /// A copy of the values, for small tensors and for devices with their own memory.
    pub fn to_vec(&self) -> Vec<f32> {
        self.floats().iter().map(|value| f32::from_le_bytes(*value)).collect()
    }
}

fn malformed(path: &Path, error: &SafeTensorError) -> Error {
    let path = path.display();
    let fault = match error {
        SafeTensorError::MetadataIncompleteBuffer | SafeTensorError::InvalidHeaderLength => {
            format!("{path} is truncated: its header does not match its length")
        }
        SafeTensorError::HeaderTooSmall => format!("{path} is truncated: its header is incomplete"),
        error => format!("{path} is not a safetensors file: {error}"),
    };
    Error::new(Code::Invalid, fault).hint("download or copy the file again")
}
