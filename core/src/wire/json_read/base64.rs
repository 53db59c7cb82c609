//! Strict base64: one text for one value.

use super::Refusal;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

/// What the reference's decoder takes once line breaks are gone: padded, stray bits allowed.
const LOOSE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Reads standard padded base64.
///
/// # Errors
/// The text is not what a writer of some bytes gives. [`Refusal::LooseBase64`] if the reference
/// accepts it all the same, `None` if it does not.
pub fn decode(text: &str) -> Result<Vec<u8>, Option<Refusal>> {
    STANDARD.decode(text).map_err(|_| {
        let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        LOOSE.decode(joined).is_ok().then_some(Refusal::LooseBase64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_text_of_each_length() {
        for (text, bytes) in [("", &b""[..]), ("YQ==", b"a"), ("YWI=", b"ab"), ("+//+", b"\xfb\xff\xfe")] {
            assert_eq!(decode(text), Ok(bytes.to_vec()), "{text}");
        }
    }

    #[test]
    fn line_breaks_and_stray_bits_are_loose() {
        for text in ["YQ\n==", "YQ=\r=", "\n", "YR==", "YWJ="] {
            assert_eq!(decode(text), Err(Some(Refusal::LooseBase64)), "{text:?}");
        }
    }

    #[test]
    fn what_nobody_accepts_is_no_leniency() {
        for text in ["YQ", "YQ=", "YQ===", "Y Q=", "_-==", "YQ==YQ==", "\u{e9}", "A"] {
            assert_eq!(decode(text), Err(None), "{text:?}");
        }
    }
}
