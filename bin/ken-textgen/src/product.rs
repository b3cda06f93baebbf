//! A linear layer as a candle operation over mapped weights.
//!
//! candle copies every tensor into its own memory and multiplies a single row by a matrix on one thread. Decoding consists of
//! such products, and its speed is limited by how fast the weights can be read. Here all threads together read the weights once,
//! strictly forward, and only the activations are candle tensors.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape};
use parking_lot::Mutex;

use crate::plain;
use crate::simd::{self, ByteRows, ByteToken, CHUNKS, Float, GROUP, Isa, Tile};
use crate::threads::ThreadPool;
use crate::weights::Slice;

/// The state that all operations of a process share.
pub struct Engine {
    pub threads: ThreadPool,
    pub isa: Isa,
    scratch: Mutex<Scratch>,
}

impl Engine {
    pub fn new(threads: usize, isa: Isa) -> Arc<Engine> {
        Arc::new(Engine { threads: ThreadPool::new(threads), isa, scratch: Mutex::default() })
    }
}

/// A buffer for partial sums. It is reused, because allocating new memory for each product would take as long as the product.
#[derive(Default)]
struct Scratch(Vec<f32>);

impl Scratch {
    /// Returns `length` numbers of arbitrary value. They begin at a cache line, because a store across two lines takes twice as long.
    fn aligned(&mut self, length: usize) -> &mut [f32] {
        if self.0.len() < length + 16 {
            self.0.resize(length + 16, 0.0);
        }
        let skip = self.0.as_ptr().align_offset(64).min(16);
        &mut self.0[skip..skip + length]
    }
}

/// The weights of a layer, by their layout.
pub enum Matrix {
    /// `[in, out]`, as in GPT-2's Conv1D.
    Columns(Slice),
    /// `[out, in]`, as in word embeddings that serve as output head.
    Rows(Slice),
    /// `[out, in]` as int8 plus 128, with rows padded to whole groups and one scale per group.
    Bytes { weights: Slice, scales: Slice },
}

/// The operation `x W + b`, optionally followed by GELU.
pub struct Product {
    pub engine: Arc<Engine>,
    pub matrix: Matrix,
    pub bias: Option<Slice>,
    pub gelu: bool,
    pub inputs: usize,
    pub outputs: usize,
}

impl CustomOp1 for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let out = self.apply(x);
        let shape = Shape::from((x.len() / self.inputs, self.outputs));
        Ok((CpuStorage::F32(out), shape))
    }
}

/// The numbers of a contiguous tensor.
pub fn contiguous<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let all = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&all[start..end]),
        None => candle_core::bail!("a custom operation needs a contiguous tensor"),
    }
}

impl Product {
    pub fn plain(&self, device: &Device) -> Result<plain::Linear> {
        match (&self.matrix, &self.bias) {
            (Matrix::Columns(weights), Some(bias)) => {
                plain::Linear::new(weights, bias, (self.inputs, self.outputs), device)
            }
            _ => candle_core::bail!("only f32 weights can go to a device"),
        }
    }

    /// Divides the rows into `parts` parts and multiplies with the one at index `part`. Returns the time in seconds.
    pub fn read_part(&self, part: usize, parts: usize) -> f64 {
        let outputs = self.outputs / parts;
        let cut = |slice: &Slice| {
            let length = slice.bytes().len() / self.outputs * outputs;
            slice.part(part * length..(part + 1) * length)
        };
        let matrix = match &self.matrix {
            Matrix::Columns(_) => return f64::INFINITY, // its rows belong to inputs, not outputs
            Matrix::Rows(weights) => Matrix::Rows(cut(weights)),
            Matrix::Bytes { weights, scales } => Matrix::Bytes { weights: cut(weights), scales: cut(scales) },
        };
        let engine = Arc::clone(&self.engine);
        let product = Product { engine, matrix, bias: None, gelu: false, inputs: self.inputs, outputs };
        let start = Instant::now();
        std::hint::black_box(product.apply(&vec![1.0; self.inputs]));
        start.elapsed().as_secs_f64()
    }

    /// Applies the layer to tokens that are stored one after the other: `[tokens, in]` to `[tokens, out]`.
    pub fn apply(&self, x: &[f32]) -> Vec<f32> {
        let tokens = x.len() / self.inputs;
        match &self.matrix {
            Matrix::Columns(weights) if tokens == 1 => self.finished(self.stream_rows(weights.floats(), x)),
            Matrix::Columns(weights) => self.finished(self.by_columns(weights.floats(), x, tokens)),
            Matrix::Rows(weights) => self.by_rows(x, tokens, |rows, x, into| {
                let weights = &weights.floats()[rows.start * self.inputs..rows.end * self.inputs];
                for (x, into) in x.chunks_exact(self.inputs).zip(into) {
                    simd::row_dots(self.engine.isa, weights, x, into);
                }
            }),
            Matrix::Bytes { weights, scales } => self.bytes(weights.bytes(), scales.floats(), x, tokens),
        }
    }

    /// One token: reads whole rows of the matrix, forward. The rows are divided into chunks with separate sums, which are added in the
    /// order of the chunks, whichever thread computed them.
    fn stream_rows(&self, weights: &[Float], x: &[f32]) -> Vec<f32> {
        let (width, rows) = (self.outputs, self.chunk());
        let count = self.inputs.div_ceil(rows);
        let mut scratch = self.engine.scratch.lock();
        let scratch = scratch.aligned(count * width);
        let parts = scratch.chunks_exact_mut(width).zip(weights.chunks(rows * width)).zip(x.chunks(rows));
        self.engine.threads.each(parts, |_, ((sums, weights), x)| {
            sums.fill(0.0);
            simd::stream(self.engine.isa.for_stream(), weights, x, sums);
        });
        let mut sums = scratch.chunks_exact(width);
        let mut out = sums.next().map(<[f32]>::to_vec).unwrap_or_default();
        sums.for_each(|sums| simd::add(self.engine.isa, sums, &mut out));
        out
    }

    /// Many tokens: each task computes some columns for all tokens over all rows. The additions have the order of
    /// `stream_rows`, so the result of a token does not depend on the other tokens.
    fn by_columns(&self, weights: &[Float], x: &[f32], tokens: usize) -> Vec<f32> {
        const COLUMNS: usize = 48;
        let mut scratch = self.engine.scratch.lock();
        let sums = scratch.aligned(tokens * self.outputs);
        self.engine.threads.each(sums.chunks_mut(tokens * COLUMNS), |index, sums| {
            let start = index * COLUMNS;
            let columns = start..start + sums.len() / tokens;
            let (width, inputs, chunk) = (self.outputs, self.inputs, self.chunk());
            simd::multiply(self.engine.isa, &Tile { weights, width, columns, x, inputs, chunk }, sums);
        });
        self.gather(sums, COLUMNS, tokens)
    }

    /// Divides the rows of weights into blocks and computes each block for all tokens.
    fn by_rows(
        &self,
        x: &[f32],
        tokens: usize,
        dots: impl Fn(Range<usize>, &[f32], &mut [&mut [f32]]) + Sync,
    ) -> Vec<f32> {
        let block = self.row_block();
        let mut out = vec![0.0; tokens * self.outputs];
        self.engine.threads.each(out.chunks_mut(tokens * block), |index, part| {
            let count = part.len() / tokens;
            let rows = index * block..index * block + count;
            let mut each: Vec<&mut [f32]> = part.chunks_exact_mut(count).collect();
            dots(rows.clone(), x, &mut each);
            each.iter_mut().for_each(|part| self.finish(rows.clone(), part));
        });
        if tokens == 1 { out } else { self.gather(&out, block, tokens) }
    }

    fn bytes(&self, weights: &[u8], scales: &[Float], x: &[f32], tokens: usize) -> Vec<f32> {
        let groups = self.inputs.div_ceil(GROUP);
        let quantised: Vec<ByteToken> = x.chunks_exact(self.inputs).map(|x| self.quantise(x)).collect();
        self.by_rows(x, tokens, |rows, _, into| {
            let groups_of = rows.start * groups..rows.end * groups;
            let weights = &weights[groups_of.start * GROUP..groups_of.end * GROUP];
            let rows = ByteRows { weights, scales: &scales[groups_of], groups };
            simd::byte_dots(self.engine.isa, &rows, &quantised, into);
        })
    }

    fn quantise(&self, x: &[f32]) -> ByteToken {
        let mut token = ByteToken::default();
        simd::quantise(self.engine.isa, x, &mut token);
        token
    }

    /// Applies bias and GELU to whole tokens.
    fn finished(&self, mut tokens: Vec<f32>) -> Vec<f32> {
        let each = tokens.chunks_exact_mut(self.outputs);
        self.engine.threads.each(each, |_, token| self.finish(0..self.outputs, token));
        tokens
    }

    /// Applies bias and GELU to some outputs of a token.
    fn finish(&self, outputs: Range<usize>, part: &mut [f32]) {
        if let Some(bias) = &self.bias {
            simd::add_weights(self.engine.isa, &bias.floats()[outputs], part);
        }
        if self.gelu {
            simd::gelu(self.engine.isa, part);
        }
    }

    /// The number of rows in a chunk of an `[in, out]` matrix, so that there are at most `CHUNKS` chunks. It depends only on the size
    /// of the matrix.
    fn chunk(&self) -> usize {
        self.inputs.div_ceil(CHUNKS)
    }

    /// The number of rows in a block: about 256 KiB, or fewer so that there are at least 16 blocks.
    fn row_block(&self) -> usize {
        let row = match self.matrix {
            Matrix::Bytes { .. } => self.inputs,
            _ => self.inputs * 4,
        };
        (256 * 1024 / row).min(self.outputs.div_ceil(16)).max(1)
    }

    /// Rearranges blocks of columns, each for all tokens, into whole tokens.
    fn gather(&self, blocks: &[f32], block: usize, tokens: usize) -> Vec<f32> {
        let mut out = vec![0.0; tokens * self.outputs];
        for (index, part) in blocks.chunks(tokens * block).enumerate() {
            let count = part.len() / tokens;
            for (row, from) in out.chunks_exact_mut(self.outputs).zip(part.chunks_exact(count)) {
                row[index * block..index * block + count].copy_from_slice(from);
            }
        }
        out
    }
}
