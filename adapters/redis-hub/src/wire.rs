//! What the scripts put on a channel.
//!
//! `p <incarnation> <sequence>` is a position; `e <incarnation> <sequence> <ms> <length of the kind> ` is
//! followed by the kind and the payload, whatever their bytes.

use strandline_core::coverage::{Mark, Message, Position, Upstream};
use strandline_core::error::{Classified, Family};
use strandline_core::id::Incarnation;
use strandline_core::time::WallTime;

/// A message that no script of ours sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected a position or an event of our scripts, found {bytes} other bytes")]
pub struct Malformed {
    /// Its length.
    pub bytes: usize,
}

impl Classified for Malformed {
    const FAMILY: Family = Family::Peer;
}

/// Reads a message of a channel.
///
/// # Errors
/// [`Malformed`]; what it carried is lost, and the hub must be told so.
pub fn decode(bytes: &[u8]) -> Result<Upstream, Malformed> {
    read(bytes).ok_or(Malformed { bytes: bytes.len() })
}

/// Reads an event that was kept; a position is none.
pub(crate) fn kept(bytes: &[u8]) -> Option<Message> {
    match read(bytes) {
        Some(Upstream::Message(message)) => Some(message),
        Some(
            Upstream::Confirmed
            | Upstream::Position { .. }
            | Upstream::Undecodable
            | Upstream::Resubscribed
            | Upstream::Lost,
        )
        | None => None,
    }
}

fn read(bytes: &[u8]) -> Option<Upstream> {
    let mut rest = bytes;
    match word(&mut rest)? {
        "p" => {
            let incarnation = Incarnation::parse(word(&mut rest)?)?;
            let minted = Position::sequence(number(std::str::from_utf8(rest).ok()?)?);
            Some(Upstream::Position { incarnation, minted })
        }
        "e" => {
            let incarnation = Incarnation::parse(word(&mut rest)?)?;
            let position = Position::sequence(number(word(&mut rest)?)?);
            let at = WallTime(number(word(&mut rest)?)?);
            let kind_bytes = usize::try_from(number(word(&mut rest)?)?).ok()?;
            let (kind, payload) = rest.split_at_checked(kind_bytes)?;
            let kind = std::str::from_utf8(kind).ok().filter(|k| !k.chars().any(char::is_control))?;
            let mark = Mark { incarnation, position };
            Some(Upstream::Message(Message { mark, at, kind: kind.into(), payload: payload.into() }))
        }
        _ => None,
    }
}

/// Takes what stands before the next space.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|b| *b == b' ')?;
    let (word, behind) = rest.split_at(end);
    *rest = &behind[1..];
    std::str::from_utf8(word).ok()
}

/// A number in its shortest form.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCARNATION: &str = "00000001aabbccddeeff0011";

    #[test]
    fn a_position() {
        let Ok(Upstream::Position { minted, .. }) = decode(format!("p {INCARNATION} 7").as_bytes()) else {
            panic!("a position")
        };
        assert_eq!(minted, Position::sequence(7));
    }

    #[test]
    fn an_event_of_any_bytes() {
        let mut bytes = format!("e {INCARNATION} 7 12 4 kind").into_bytes();
        bytes.extend_from_slice(b"\xff \n");
        let Ok(Upstream::Message(message)) = decode(&bytes) else { panic!("an event") };
        assert_eq!((&*message.kind, &*message.payload, message.at), ("kind", &b"\xff \n"[..], WallTime(12)));
    }

    #[test]
    fn everything_else_is_malformed() {
        for text in
            ["", "p", "p x 7", "p 00000001aabbccddeeff0011 -7", "p 00000001aabbccddeeff0011 07", "q a b"]
        {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
        let event = |rest: &str| format!("e {INCARNATION} {rest}");
        for rest in ["7 12", "7 12 9 kind", "7 x 0 ", "7 12 1 \n"] {
            assert!(decode(event(rest).as_bytes()).is_err(), "{rest}");
        }
    }
}
