//! Cases of authority, membership and watermarks.

use super::Trouble;
use super::input::{Input, Limits, sha256, unhex};
use super::judge::{Refused, Report};
use std::num::NonZeroU64;
use strandline_core::compat::streamhive::authority::{Authority, AuthorityLimits};
use strandline_core::compat::streamhive::membership::{self, Membership, MembershipLimits};
use strandline_core::compat::streamhive::watermarks::{
    AcknowledgeError, Changed, WatermarkLimits, Watermarks, check_acknowledged,
};
use strandline_core::record::{AuthorityId, Version};

type Play = fn(&Input<'_>, &str, &mut Report) -> Result<(), Trouble>;

/// Sections that are one sequence of operations on one book.
pub(super) const BOOKS: [(&str, Play); 2] =
    [("coordinator_ops", coordinator_ops), ("watermark_ops", watermark_ops)];

fn node_a(current: Version) -> Result<Authority, Trouble> {
    Authority::new(AuthorityId::from_text("node-a"), current).map_err(|error| error.to_string())
}

pub(super) fn authority_create(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    const DRAWN: NonZeroU64 = NonZeroU64::new(0x5eed).expect("not zero");
    let identity = AuthorityId::from_text("node-a");
    let found = Authority::create(identity, case.version("observed")?, DRAWN).current();
    let expected = match case.text("current") {
        Ok("random non-zero epoch, sequence 0") => Version::new(DRAWN.get(), 0),
        Ok(other) => return Err(format!("expected a version, found {other:?}")),
        Err(_) => case.version("current")?,
    };
    report.same(name, &expected, &found);
    Ok(())
}

pub(super) fn authority_next(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = AuthorityLimits::default();
    let observed = case.version("observed")?;
    let mut authority = node_a(case.version("current")?)?;
    let mut stored = authority.clone();
    for (field, after) in [("next", true), ("next_again", false)] {
        let expected = case.field(field).outcome(Input::as_version)?;
        let found = authority.next(observed).map_err(|error| Refused::plain(&error));
        report.answer(name, &expected, &found, None);
        if found.is_ok() {
            stored = authority.clone();
        }
        if after {
            report.same(name, &case.version("current_after")?, &authority.current());
            let written = stored.encode(&limits).map_err(|error| error.to_string())?;
            report.same(name, &case.text("file_sha256_after")?.to_owned(), &sha256(&written));
        }
    }
    report.same(name, &case.version("reopened_current")?, &stored.current());
    Ok(())
}

/// Members, marks and target of a case; members of null were never written.
fn fence(case: &Input<'_>) -> Result<(Option<Membership>, Watermarks, Version), Trouble> {
    let input = case.field("input");
    let limits = WatermarkLimits::default();
    let mut marks = Watermarks::default();
    for name in input.field("watermarks").object()?.keys() {
        let peer = limits.peer(name.as_bytes()).map_err(|error| error.to_string())?;
        let mark = input.field("watermarks").version(name)?;
        let _: Changed = marks.acknowledge(&peer, mark, &limits).map_err(|error| error.to_string())?;
    }
    let members = if input.field("members").is_null() {
        None
    } else {
        let names = input.texts("members")?;
        Some(Membership::new(&names, &MembershipLimits::default()).map_err(|error| error.to_string())?)
    };
    Ok((members, marks, input.version("target")?))
}

pub(super) fn membership_progress(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let (members, marks, target) = fence(case)?;
    let result = case.field("result");
    let expected = membership::Progress {
        configured: result.flag("configured")?,
        members: usize::try_from(result.number("members")?).map_err(|error| error.to_string())?,
        acknowledged: usize::try_from(result.number("acknowledged")?).map_err(|error| error.to_string())?,
        minimum: result.version("minimum")?,
        target: result.version("target")?,
    };
    report.same(name, &expected, &membership::progress(members.as_ref(), &marks, target));
    Ok(())
}

pub(super) fn watermarks_at(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let (members, marks, target) = fence(case)?;
    let expected = case.field("result").outcome(|result| {
        result.list("versions")?.into_iter().map(Input::as_version).collect::<Result<Vec<_>, _>>()
    })?;
    let found = membership::watermarks_at(members.as_ref(), &marks, target);
    report.answer(name, &expected, &found.map_err(|error| Refused::plain(&error)), None);
    Ok(())
}

pub(super) fn membership_replace(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(case.field("limits"))?.membership()?;
    let names = case.texts("members_hex")?.into_iter().map(unhex).collect::<Result<Vec<_>, _>>()?;
    let expected = case.field("result").outcome(|result| result.bytes("file_hex"))?;
    let found = Membership::new(&names, &limits).and_then(|membership| membership.encode(&limits));
    report.answer(name, &expected, &found.map_err(|error| Refused::plain(&error)), None);
    Ok(())
}

fn watermark_ops(section: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(section.field("limits"))?.watermarks()?;
    let mut book = Watermarks::default();
    let mut file = None;
    for (index, op) in section.list("ops")?.iter().enumerate() {
        let name = format!("{name} {index}");
        report.case("watermark_ops");
        let (bytes, version) = (op.bytes("peer_hex")?, op.version("version")?);
        let peer = limits.peer(&bytes);
        let done = match (&peer, op.text("op")?) {
            (Err(error), _) => Err(error.clone()),
            (Ok(peer), "acknowledge") => book.acknowledge(peer, version, &limits),
            (Ok(peer), "reconcile") => book.reconcile(peer, version, &limits),
            (Ok(peer), "forget") => Ok(book.forget(peer)),
            (Ok(_), other) => return Err(format!("operation {other:?} is unknown to this runner")),
        };
        if done == Ok(Changed::Yes) {
            file = Some(book.encode(&limits).map_err(|error| error.to_string())?);
        }
        let result = op.field("result");
        let expected = result.outcome(|result| result.flag("ok").map(drop))?;
        let found = done.map(drop).map_err(|error| Refused::plain(&error));
        report.answer(&name, &expected, &found, None);
        let mark = peer.map_or(Version::ZERO, |peer| book.of(&peer));
        report.same(&name, &result.version("watermark_after")?, &mark);
        report.same(&name, &result.number("peers_after")?, &(book.iter().count() as u64));
        let sum = result.text("file_sha256_after").ok().map(String::from);
        report.same(&name, &sum, &file.as_deref().map(sha256));
    }
    Ok(())
}

fn coordinator_ops(section: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = WatermarkLimits::default();
    let last = last_version_in(section.text("journal")?)?;
    let mut book = Watermarks::default();
    for (index, op) in section.list("ops")?.iter().enumerate() {
        let name = format!("{name} {index}");
        report.case("coordinator_ops");
        let (peer, version) = (limits.peer(op.text("peer")?.as_bytes()), op.version("version")?);
        let kind = op.text("op")?;
        let done = peer.clone().map_err(AcknowledgeError::Book).and_then(|peer| {
            check_acknowledged(&peer, version, last)?;
            Ok(match kind {
                "acknowledge" => book.acknowledge(&peer, version, &limits)?,
                _ => book.reconcile(&peer, version, &limits)?,
            })
        });
        if !["acknowledge", "reconcile"].contains(&kind) {
            return Err(format!("operation {kind:?} is unknown to this runner"));
        }
        let result = op.field("result");
        let expected = result.outcome(|result| result.flag("ok").map(drop))?;
        let found = done.map(drop).map_err(|error| Refused::plain(&error));
        report.answer(&name, &expected, &found, None);
        let mark = peer.map_or(Version::ZERO, |peer| book.of(&peer));
        report.same(&name, &result.version("watermark_after")?, &mark);
    }
    Ok(())
}

/// The last version in a sentence that writes versions as `{1,5}`.
fn last_version_in(sentence: &str) -> Result<Version, Trouble> {
    let trouble = || format!("expected a version in {sentence:?}");
    let (_, last) = sentence.rsplit_once('{').ok_or_else(trouble)?;
    let (inside, _) = last.split_once('}').ok_or_else(trouble)?;
    let (epoch, sequence) = inside.split_once(',').ok_or_else(trouble)?;
    let number = |text: &str| text.trim().parse().map_err(|_| trouble());
    Ok(Version::new(number(epoch)?, number(sequence)?))
}
