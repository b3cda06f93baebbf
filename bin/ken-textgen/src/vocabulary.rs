//! Encodes text to tokens with the `tokenizers` crate, and decodes tokens to bytes with a table.
//!
//! In GPT-2's byte-level BPE, the bytes of a token do not depend on its neighbours. A table made once is therefore enough for
//! streaming, and with int8 weights the twenty megabytes of the tokenizer can be freed before the weights are mapped.

use std::path::Path;
use std::str::FromStr;

use ken_types::{Code, Error};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, TokenizerImpl};

/// A tokenizer with fixed component types, which reads its fifty thousand words directly. The crate's own `Tokenizer` builds two
/// trees of values first.
type Tokenizer = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// Turns text into tokens.
pub struct Encoder {
    tokenizer: Tokenizer,
    name: String,
}

/// Turns tokens into bytes.
pub struct Vocabulary {
    bytes: Vec<u8>,
    /// Where the bytes of each token end; a token begins where the previous one ends.
    ends: Vec<u32>,
}

impl Encoder {
    /// Reads `tokenizer.json`, or `vocab.json` and `merges.txt`, from a model directory.
    pub fn read(folder: &Path) -> Result<Encoder, Error> {
        let whole = folder.join("tokenizer.json");
        if whole.exists() {
            let text = read_text(&whole)?;
            let tokenizer = Tokenizer::from_str(&text).map_err(|error| malformed(&whole, &*error))?;
            return Encoder { tokenizer, name: whole.display().to_string() }.checked();
        }
        let (vocab, merges) = (folder.join("vocab.json"), folder.join("merges.txt"));
        if !vocab.exists() && !merges.exists() {
            let folder = folder.display();
            let fault = format!("{folder} has neither tokenizer.json nor vocab.json and merges.txt");
            return Err(Error::not_found(fault));
        }
        Encoder { tokenizer: byte_level(&vocab, &merges)?, name: vocab.display().to_string() }.checked()
    }

    fn checked(self) -> Result<Encoder, Error> {
        match self.tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => Ok(self),
            _ => Err(Error::invalid("/decoder", format!("{}: only byte-level BPE is supported", self.name))),
        }
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self.tokenizer.encode(text, true);
        let encoding = encoding.map_err(|error| Error::internal(format!("{}: {error}", self.name)))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes of each of the model's `size` tokens. Returns an error if the vocabulary does not match the model; the model's size
    /// may be rounded up to a multiple of eight, which some models do for speed.
    pub fn vocabulary(&self, size: usize) -> Result<Vocabulary, Error> {
        let own = self.tokenizer.get_vocab_size(true);
        let padded = size.is_multiple_of(8) && own < size && size - own < 128;
        if own != size && !padded {
            let fault = format!("{} has {own} tokens; the model's vocab_size is {size}", self.name);
            return Err(
                Error::invalid("/vocab_size", fault).hint("use the tokenizer that was published with the model")
            );
        }
        let added = self.tokenizer.get_added_tokens_decoder();
        let table = bytes_of_characters();
        let mut vocabulary = Vocabulary { bytes: Vec::new(), ends: Vec::with_capacity(size) };
        for id in 0..size as u32 {
            match (added.get(&id), self.tokenizer.id_to_token(id)) {
                (Some(token), _) if token.special => {}
                (Some(token), _) => vocabulary.bytes.extend_from_slice(token.content.as_bytes()),
                (None, Some(token)) => token.chars().for_each(|c| push_byte(&table, c, &mut vocabulary.bytes)),
                (None, None) if padded => {}
                (None, None) => {
                    let fault = format!("{} has no token {id} of the model's {size}", self.name);
                    return Err(Error::invalid("/vocab_size", fault));
                }
            }
            vocabulary.ends.push(vocabulary.bytes.len() as u32);
        }
        vocabulary.bytes.shrink_to_fit();
        Ok(vocabulary)
    }
}

impl Vocabulary {
    /// The bytes of a token; empty for a special token, which is not part of the text.
    pub fn bytes(&self, token: u32) -> &[u8] {
        let end = |token: usize| self.ends.get(token).map_or(0, |end| *end as usize);
        let start = (token as usize).checked_sub(1).map_or(0, end);
        self.bytes.get(start..end(token as usize)).unwrap_or_default()
    }
}

/// Reads GPT-2's tokenizer from its two files.
fn byte_level(vocab: &Path, merges: &Path) -> Result<Tokenizer, Error> {
    let words: Vocab = serde_json::from_str(&read_text(vocab)?).map_err(|error| malformed(vocab, &error))?;
    let pairs = read_text(merges)?;
    let pairs = pairs.lines().filter(|line| !line.is_empty() && !line.starts_with("#version"));
    let pairs = pairs.map(|line| line.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())));
    let pairs: Option<Vec<(String, String)>> = pairs.collect();
    let pairs = pairs.ok_or_else(|| {
        Error::invalid("", format!("{} is not a list of merges: a line has no blank", merges.display()))
    })?;
    let bpe = BPE::builder().vocab_and_merges(words, pairs).build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|error| malformed(merges, &*error))?);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    const END: &str = "<|endoftext|>";
    if tokenizer.token_to_id(END).is_some() {
        let added = tokenizer.add_special_tokens([AddedToken::from(END, true)]);
        added.map_err(|error| malformed(vocab, &*error))?;
    }
    Ok(tokenizer)
}

fn read_text(path: &Path) -> Result<String, Error> {
    let bytes = crate::config::read_file(path)?;
    String::from_utf8(bytes).map_err(|error| malformed(path, &error))
}

fn malformed(path: &Path, error: &(dyn std::error::Error + 'static)) -> Error {
    let text = error.to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Error::new(Code::Invalid, format!("{} is not a tokenizer file: {text}", path.display()))
}

/// The byte that each character stands for. Byte-level BPE writes a byte as a visible character: printable Latin-1 as itself, and
/// the others as the characters from U+0100 on (Radford et al. 2019, encoder.py).
fn bytes_of_characters() -> [Option<u8>; 0x144] {
    let mut table = [None; 0x144];
    let mut next = 0x100;
    for byte in 0..=255u8 {
        let visible = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let place = if visible { usize::from(byte) } else { next };
        next += usize::from(!visible);
        if let Some(entry) = table.get_mut(place) {
            *entry = Some(byte);
        }
    }
    table
}

/// Adds the byte that a character stands for, or the character's own UTF-8 if it stands for none.
fn push_byte(table: &[Option<u8>], character: char, bytes: &mut Vec<u8>) {
    match table.get(character as usize).copied().flatten() {
        Some(byte) => bytes.push(byte),
        None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_character() {
        let table = bytes_of_characters();
        let mut bytes: Vec<u8> = table.iter().copied().flatten().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        // From GPT-2's own vocabulary: Ġ is a blank, Ċ a line feed, Ã© the two bytes of é.
        let mut text = Vec::new();
        "ĠCafÃ©Ċ".chars().for_each(|c| push_byte(&table, c, &mut text));
        assert_eq!(text, " Café\n".as_bytes());
    }
}
