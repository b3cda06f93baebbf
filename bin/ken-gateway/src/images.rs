//! Images of prompts, as the routes of ken take them and as the protocol of OpenAI does.

use ken_types::Error;
use ken_types::limits::{IMAGE_CHARACTERS, IMAGES};
use ken_types::ops::store::Image;
use serde_json::Value;

const KIND: &str = "image";
pub(crate) const TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Reads an image of a body. `at` is its place.
pub(crate) fn read(image: Value, at: &str) -> Result<Image, Error> {
    let placed = |error: Error| {
        let at = format!("{at}{}", error.at.as_deref().unwrap_or_default());
        error.at(at)
    };
    let image: Image = ken_types::json::from_value(image).map_err(placed)?;
    if image.kind != KIND {
        return Err(Error::invalid(format!("{at}/type"), "type must be image"));
    }
    check(&image).map_err(placed)?;
    Ok(image)
}

/// Reads the image of a `data:` URL. None is loaded from elsewhere: to do so would tell its server that somebody asks here.
pub(crate) fn of_url(url: &str, at: &str) -> Result<Image, Error> {
    let other =
        || Error::invalid(at, "the URL of an image must be data:TYPE;base64,DATA; ken loads none from elsewhere");
    let (kind, data) = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).ok_or_else(other)?;
    let image = Image { kind: KIND.to_owned(), data: data.to_owned(), mime_type: kind.to_ascii_lowercase() };
    check(&image).map_err(|error| error.at(at))?;
    Ok(image)
}

pub(crate) fn check_count(images: usize, at: &str) -> Result<(), Error> {
    let text = || format!("{images} images, at most {IMAGES} are allowed");
    if images > IMAGES { Err(Error::invalid(at, text())) } else { Ok(()) }
}

fn check(image: &Image) -> Result<(), Error> {
    if !TYPES.contains(&image.mime_type.as_str()) {
        return Err(Error::invalid("/mimeType", format!("the type of an image must be {}", TYPES.join(", "))));
    }
    if image.data.len() > IMAGE_CHARACTERS {
        let text = format!("an image has {} characters, at most {IMAGE_CHARACTERS} are allowed", image.data.len());
        return Err(Error::too_large(text).at("/data"));
    }
    if image.data.is_empty() || !is_base64(image.data.as_bytes()) {
        return Err(Error::invalid("/data", "data is not base64"));
    }
    Ok(())
}

/// Whether a text is base64 with padding (RFC 4648, section 4).
fn is_base64(text: &[u8]) -> bool {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = text.get(..text.len() - padding).unwrap_or_default();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4) && padding <= 2 && digits.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64() {
        for good in ["QQ==", "QUI=", "QUJD", "+/+/"] {
            assert!(is_base64(good.as_bytes()), "{good}");
        }
        for bad in ["Q", "QQ=", "Q===", "Q Q=", "QQ=A", "-_-_"] {
            assert!(!is_base64(bad.as_bytes()), "{bad}");
        }
    }
}
