//! Handshake messages, judged as a listener and as a dialer would, and written again.

use super::Trouble;
use super::input::Input;
use super::judge::{Refused, Report};
use strandline_core::compat::streamhive::Rule;
use strandline_core::compat::streamhive::handshake::{AdmissionError, accept, admit};
use strandline_core::wire::auth::{Auth, AuthOk, encode_reject};
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::identity::PeerIdentity;
use strandline_core::wire::json_read::Refusal;

pub(super) use strandline_core::wire::auth::AUTH_PAYLOAD_BYTES_MAX as PAYLOAD_BYTES_MAX;

/// Identity (empty if none) and capabilities.
type Who = (String, Vec<String>);

fn who(identity: Option<&PeerIdentity>, capabilities: &Capabilities) -> Who {
    (identity.map(|identity| identity.as_str().to_owned()).unwrap_or_default(), capabilities.texts())
}

fn expected(answer: Input<'_>) -> Result<Who, Trouble> {
    let capabilities = answer.texts("capabilities")?.into_iter().map(String::from).collect();
    Ok((answer.text("identity")?.to_owned(), capabilities))
}

fn refused(error: &AdmissionError) -> Refused {
    Refused::new(error, error.rule())
}

pub(super) fn handshake(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let admitted = admit(bytes, &file.bytes("token_hex")?, &file.texts("allowed")?);
    let found = admitted.as_ref().map(|auth| who(auth.identity.as_ref(), &auth.capabilities));
    let answer = file.field("validate_auth").outcome(expected)?;
    report.answer(&format!("{name} validate_auth"), &answer, &found.map_err(refused), None);

    let accepted = accept(bytes);
    let found = accepted.as_ref().map(|ok| who(ok.identity.as_ref(), &ok.capabilities));
    let answer = file.field("validate_ack").outcome(expected)?;
    report.answer(&format!("{name} validate_ack"), &answer, &found.map_err(refused), None);

    let mut written = Vec::new();
    let rewritten = match (&admitted, &accepted) {
        (Ok(auth), _) => Some(auth.encode(&mut written)),
        (Err(_), Ok(ok)) => Some(ok.encode(&mut written)),
        (Err(_), Err(_)) => None,
    };
    if let (Some(Ok(())), false) = (rewritten, file.field("reencode_identical").is_null()) {
        let identical = file.flag("reencode_identical")?;
        report.same(&format!("{name} re-encoded"), &identical, &(written == bytes));
    }
    let encode = file.field("encode");
    if encode.is_null() { Ok(()) } else { write(encode, name, bytes, report) }
}

/// Writes the message from its parts.
fn write(encode: Input<'_>, name: &str, bytes: &[u8], report: &mut Report) -> Result<(), Trouble> {
    let what = format!("{name} encode");
    let identity = match encode.text("identity")? {
        "" => None,
        text => Some(PeerIdentity::parse(text).map_err(|error| error.to_string())?),
    };
    let capabilities =
        Capabilities::parse(encode.texts("capabilities")?).map_err(|error| error.to_string())?;
    let mut written = Vec::new();
    match encode.text("fn")? {
        "encodePeerAuth" => {
            // A token is a text for us: bytes that are none cannot be handed in, where the reference
            // writes a replacement and then fails to authenticate.
            let Ok(token) = String::from_utf8(encode.bytes("token_hex")?) else {
                report.difference(&what, Rule::Refusal(Refusal::InvalidUtf8));
                return Ok(());
            };
            Auth { token, identity, capabilities }.encode(&mut written).map_err(|error| error.to_string())?;
        }
        "encodePeerAuthOK" => {
            AuthOk { identity, capabilities }.encode(&mut written).map_err(|error| error.to_string())?;
        }
        "encodePeerAuthReject" => encode_reject(&mut written),
        other => return Err(format!("encoder {other:?} is unknown to this runner")),
    }
    report.same(&what, &String::from_utf8_lossy(bytes), &String::from_utf8_lossy(&written));
    Ok(())
}
