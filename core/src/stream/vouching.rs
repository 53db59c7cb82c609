//! What somebody was handed, beside where the server stood then: so that a failover is told, never passed
//! over.
//!
//! A server that takes over may lack the end of what its master had answered. Whoever goes on there as if
//! nothing had happened trusts positions that may name other events by now. So every answer that hands
//! something out is judged first by where the server stands: see [`super::failover`].

use super::event::EventId;
use super::failover::{Doubt, Role, Standing, Survival, Vouched, survival};
use super::name::StreamName;
use alloc::collections::VecDeque;

/// Most notes that are kept. Beyond it the one goes whose neighbours are closest for their age, so that the
/// notes reach back to the first position, in steps that grow with the age.
pub const NOTES_MAX: usize = 32;

/// A change of a server's history, as one reader, consumer or handle saw it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failover {
    /// Of which stream.
    pub stream: StreamName,
    /// Whether what was handed out before is still so.
    pub survival: Survival,
    /// The last position that was handed out before; zero for none.
    pub handed_out: EventId,
    /// Up to here everything that was handed out is in the server's history; `None` where that can be said
    /// of no position. For [`Survival::Kept`] it is `handed_out`.
    pub kept: Option<EventId>,
}

/// A part: the notes of one reader, consumer or handle on one stream.
///
/// An answer is first given to [`Vouching::heard`], and what it handed out then to [`Vouching::note`].
/// Notes that are left out cost precision, never truth: then less is known to be kept.
///
/// ```
/// use strandline_core::stream::EventId;
/// use strandline_core::stream::failover::{Standing, Survival};
/// use strandline_core::stream::vouching::Vouching;
/// let info = |id: char, offset: u64, second: char, parting: i64| {
///     let (id, second) = (id.to_string().repeat(40), second.to_string().repeat(40));
///     let text = format!(
///         "role:master\nmaster_replid:{id}\nmaster_replid2:{second}\nmaster_repl_offset:{offset}\n\
///          second_repl_offset:{parting}\n"
///     );
///     Standing::parse(&text).unwrap()
/// };
/// let (mut vouching, first) = (Vouching::default(), EventId { ms: 1, seq: 0 });
/// let master = info('a', 100, '0', -1);
/// assert_eq!(vouching.heard(Some(&master)), None);
/// vouching.note(first, &master);
/// // The replica that took over parted from that history before the note.
/// let judged = vouching.heard(Some(&info('b', 200, 'a', 50))).unwrap();
/// assert_eq!((judged.survival, judged.kept), (Survival::Lost, None));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Vouching {
    /// Without a position: only that the server stood there.
    notes: VecDeque<(Option<EventId>, Vouched)>,
    /// Why nobody vouches at the moment, where that was told.
    doubt: Option<Doubt>,
}

/// What [`Vouching::heard`] found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Judged {
    /// Whether what was noted is still so.
    pub survival: Survival,
    /// The newest position of a note that is in the server's history.
    pub kept: Option<EventId>,
}

/// What an answer means for the notes.
enum Heard {
    /// Nothing was noted before.
    First,
    /// The server goes on in the history of the last note.
    GoesOn,
    /// It is not, or not any more, in a place where it would vouch for anything.
    Silent(Doubt),
    /// As before.
    StillSilent,
    /// It stands in another history, or vouches again after a silence.
    Stands(Survival),
}

impl Vouching {
    /// Takes where the server stood beside an answer; `None` where it did not say. What it tells must be
    /// handed out before anything of that answer.
    pub fn heard(&mut self, standing: Option<&Standing>) -> Option<Judged> {
        self.heard_since(self.noted(), standing)
    }

    /// As [`Vouching::heard`], for one of several operations that are under way at once: `asked` was the
    /// newest note when it was asked. Their answers may come in any order, so that one from before the
    /// newest note is no server that fell behind.
    pub fn heard_since(&mut self, asked: Option<Vouched>, standing: Option<&Standing>) -> Option<Judged> {
        match self.table(asked, standing) {
            Heard::First => {
                self.stands(None, standing);
                None
            }
            Heard::GoesOn | Heard::StillSilent => None,
            Heard::Silent(reason) => {
                self.doubt = Some(reason);
                Some(Judged { survival: Survival::Unknown { reason }, kept: None })
            }
            Heard::Stands(found) => {
                let is_kept = |noted: &Vouched| survival(Some(noted), standing) == Survival::Kept;
                let kept =
                    self.notes.iter().rev().filter(|(_, noted)| is_kept(noted)).find_map(|(at, _)| *at);
                self.stands(kept, standing);
                Some(Judged { survival: found, kept })
            }
        }
    }

    /// Begins anew where the server stands.
    fn stands(&mut self, at: Option<EventId>, standing: Option<&Standing>) {
        self.doubt = None;
        self.notes.clear();
        self.notes.extend(standing.and_then(|now| now.vouched(now)).map(|vouched| (at, vouched)));
    }

    /// Notes an answer that handed out nothing behind a position. One that is noted already is as good as
    /// it was then: what the server did since is nothing to it.
    pub fn note_moved(&mut self, at: EventId, standing: &Standing) {
        if self.notes.back().is_none_or(|(noted, _)| *noted != position(at)) {
            self.note(at, standing);
        }
    }

    /// Notes that everything up to a position was handed out by a server that stood there; zero for no
    /// position. One from before the newest note is put before it.
    pub fn note(&mut self, at: EventId, standing: &Standing) {
        let Some(vouched) = standing.vouched(standing) else { return };
        let place = self.notes.partition_point(|(_, noted)| noted.offset <= vouched.offset);
        self.notes.insert(place, (position(at), vouched));
        if self.notes.len() > NOTES_MAX {
            let first_says_least = self.notes.front().is_some_and(|(at, _)| at.is_none());
            let place = if first_says_least { 0 } else { self.most_spared() };
            self.notes.remove(place);
        }
    }

    /// The inner note without which the least is lost: the step over it, measured by its age, is smallest.
    fn most_spared(&self) -> usize {
        let offset = |place: usize| self.notes.get(place).map_or(0, |(_, noted)| u128::from(noted.offset));
        let newest = offset(self.notes.len() - 1);
        let step = |place: &usize| {
            let before = offset(place - 1);
            ((offset(place + 1) - before) << 32) / (newest - before + 1)
        };
        (1..self.notes.len() - 1).min_by_key(step).unwrap_or(0)
    }

    /// Whether what was handed out last is still so where the server stands. It changes nothing.
    pub fn survival(&self, standing: Option<&Standing>) -> Survival {
        survival(self.noted().as_ref(), standing)
    }

    /// The newest note.
    #[must_use]
    pub fn noted(&self) -> Option<Vouched> {
        self.notes.back().map(|(_, vouched)| *vouched)
    }

    fn table(&self, asked: Option<Vouched>, standing: Option<&Standing>) -> Heard {
        let silent = match standing {
            None => Some(Doubt::Unanswered),
            Some(now) if now.role == Role::Replica => Some(Doubt::NotMaster),
            Some(_) => None,
        };
        let newest = self.noted();
        // An older answer of the same history is judged by what was noted when it was asked: in this history
        // that may have been nothing.
        let by = match (standing, newest) {
            (Some(now), Some(noted)) if now.id == noted.id && now.offset < noted.offset => {
                let nothing = Vouched { offset: 0, ..noted };
                Some(asked.filter(|asked| asked.id == noted.id).unwrap_or(nothing))
            }
            (_, newest) => newest,
        };
        match (silent, by.as_ref()) {
            (Some(reason), _) if self.doubt == Some(reason) => Heard::StillSilent,
            (Some(reason), _) => Heard::Silent(reason),
            (None, None) => Heard::First,
            (None, Some(noted)) => match (survival(Some(noted), standing), self.doubt) {
                (Survival::Kept, None) if standing.is_some_and(|now| now.id == noted.id) => Heard::GoesOn,
                (found, _) => Heard::Stands(found),
            },
        }
    }
}

/// Nothing was handed out up to zero.
fn position(at: EventId) -> Option<EventId> {
    (at != EventId::ZERO).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::failover::ReplicationId;
    use super::*;

    fn id(letter: char) -> ReplicationId {
        ReplicationId::parse(&alloc::string::String::from(letter).repeat(40)).unwrap()
    }

    fn master(letter: char, offset: u64) -> Standing {
        Standing { role: Role::Master, id: id(letter), offset, second: None }
    }

    fn heir(letter: char, offset: u64, of: char, parting: u64) -> Standing {
        Standing { second: Some((id(of), parting)), ..master(letter, offset) }
    }

    fn follower(letter: char) -> Standing {
        Standing { role: Role::Replica, ..master(letter, 900) }
    }

    const fn at(ms: u64) -> EventId {
        EventId { ms, seq: 0 }
    }

    /// Notes at positions 1, 2, 3 with the offsets 100, 200, 300.
    fn noted() -> Vouching {
        let mut vouching = Vouching::default();
        for n in 1..=3 {
            assert_eq!(vouching.heard(Some(&master('a', n * 100))), None);
            vouching.note(at(n), &master('a', n * 100));
        }
        vouching
    }

    const fn unknown(reason: Doubt) -> Option<Judged> {
        Some(Judged { survival: Survival::Unknown { reason }, kept: None })
    }

    const fn judged(survival: Survival, kept: u64) -> Option<Judged> {
        Some(Judged { survival, kept: Some(at(kept)) })
    }

    #[test]
    fn the_first_answer_is_nothing_to_tell() {
        let mut vouching = Vouching::default();
        assert_eq!(vouching.heard(Some(&master('a', 5))), None);
        let judged = vouching.heard(Some(&heir('b', 9, 'a', 6)));
        assert_eq!(judged, Some(Judged { survival: Survival::Kept, kept: None }), "no position, and no loss");
    }

    #[test]
    fn a_server_that_goes_on_is_nothing_to_tell() {
        assert_eq!(noted().heard(Some(&master('a', 300))), None);
        assert_eq!(noted().heard(Some(&master('a', 301))), None);
    }

    #[test]
    fn an_heir_that_had_everything_keeps_it() {
        assert_eq!(noted().heard(Some(&heir('b', 900, 'a', 301))), judged(Survival::Kept, 3));
    }

    #[test]
    fn an_heir_that_lacks_the_end_says_up_to_where_all_is_kept() {
        assert_eq!(noted().heard(Some(&heir('b', 900, 'a', 250))), judged(Survival::Lost, 2));
        let nothing = Some(Judged { survival: Survival::Lost, kept: None });
        assert_eq!(noted().heard(Some(&heir('b', 900, 'a', 50))), nothing);
    }

    #[test]
    fn another_history_is_unknown() {
        assert_eq!(noted().heard(Some(&master('c', 900))), unknown(Doubt::OtherHistory));
    }

    #[test]
    fn a_server_that_fell_behind_its_own_word_is_unknown_and_keeps_what_it_has() {
        let behind = Survival::Unknown { reason: Doubt::Behind };
        assert_eq!(noted().heard(Some(&master('a', 299))), judged(behind, 2));
    }

    #[test]
    fn a_silent_server_is_told_once() {
        let mut vouching = noted();
        assert_eq!(vouching.heard(None), unknown(Doubt::Unanswered));
        assert_eq!(vouching.heard(None), None);
        assert_eq!(vouching.heard(Some(&follower('b'))), unknown(Doubt::NotMaster), "another reason");
        assert_eq!(vouching.heard(Some(&follower('b'))), None);
    }

    #[test]
    fn who_vouches_again_is_judged_by_the_notes_of_before() {
        let mut vouching = noted();
        assert!(vouching.heard(None).is_some());
        assert_eq!(vouching.heard(Some(&master('a', 300))), judged(Survival::Kept, 3), "the doubt is over");
        let mut vouching = noted();
        assert!(vouching.heard(Some(&follower('b'))).is_some());
        assert_eq!(vouching.heard(Some(&heir('b', 900, 'a', 250))), judged(Survival::Lost, 2));
    }

    #[test]
    fn after_a_silence_from_the_beginning_the_first_word_is_nothing_to_tell() {
        let mut vouching = Vouching::default();
        assert_eq!(vouching.heard(None), unknown(Doubt::Unanswered));
        assert_eq!(vouching.heard(Some(&master('a', 5))), None);
        assert_eq!(vouching.heard(None), unknown(Doubt::Unanswered), "and a new silence is told again");
    }

    #[test]
    fn one_failover_is_told_once_and_the_next_one_again() {
        let mut vouching = noted();
        let first = heir('b', 900, 'a', 301);
        assert!(vouching.heard(Some(&first)).is_some());
        assert_eq!(vouching.heard(Some(&first)), None);
        assert_eq!(vouching.heard(Some(&heir('c', 950, 'b', 950))), judged(Survival::Kept, 3));
    }

    #[test]
    fn notes_are_bounded_and_reach_far_back() {
        let mut vouching = Vouching::default();
        for n in 1..=10_000 {
            vouching.note(at(n), &master('a', n));
            assert!(vouching.notes.len() <= NOTES_MAX);
        }
        let reach = vouching.notes.front().unwrap().0.unwrap().ms;
        assert_eq!(reach, 1, "the oldest stays");
        for lost in [10, 100, 1_000, 5_000, 9_000] {
            let parting = 10_000 - lost;
            let judged = vouching.clone().heard(Some(&heir('b', 20_000, 'a', parting))).unwrap();
            assert_eq!(judged.survival, Survival::Lost);
            let kept = judged.kept.unwrap().ms;
            assert!(kept < parting && parting - kept <= lost, "of {lost} lost: {judged:?}");
        }
    }

    #[test]
    fn a_first_note_without_a_position_is_the_first_to_go() {
        let mut vouching = Vouching::default();
        assert_eq!(vouching.heard(Some(&master('a', 1))), None);
        for n in 2..=1_000 {
            vouching.note(at(n), &master('a', n));
        }
        assert_eq!(vouching.notes.front().unwrap().0, Some(at(2)));
    }

    #[test]
    fn answers_that_come_out_of_turn_are_no_server_that_fell_behind() {
        let mut vouching = noted();
        let asked = vouching.noted();
        assert_eq!(vouching.heard_since(asked, Some(&master('a', 500))), None);
        vouching.note(at(5), &master('a', 500));
        assert_eq!(vouching.heard_since(asked, Some(&master('a', 400))), None);
        vouching.note(at(4), &master('a', 400));
        assert_eq!(vouching.clone().heard(Some(&heir('b', 900, 'a', 450))), judged(Survival::Lost, 4));
        let behind = Survival::Unknown { reason: Doubt::Behind };
        assert_eq!(vouching.heard_since(asked, Some(&master('a', 299))), judged(behind, 2));
    }

    #[test]
    fn up_to_zero_nothing_is_kept() {
        let mut vouching = Vouching::default();
        vouching.note(EventId::ZERO, &master('a', 100));
        let kept = Some(Judged { survival: Survival::Kept, kept: None });
        assert_eq!(vouching.heard(Some(&heir('b', 900, 'a', 101))), kept);
    }

    #[test]
    fn a_position_is_as_old_as_its_first_note() {
        let mut vouching = noted();
        vouching.note_moved(at(3), &master('a', 800));
        assert_eq!(vouching.heard(Some(&heir('b', 900, 'a', 301))), judged(Survival::Kept, 3));
    }

    #[test]
    fn the_notes_are_looked_at_without_changing_them() {
        let vouching = noted();
        let now = heir('b', 900, 'a', 250);
        assert_eq!(vouching.survival(Some(&now)), Survival::Lost);
        assert_eq!(vouching.survival(Some(&now)), Survival::Lost);
        assert_eq!(vouching.survival(None), Survival::Unknown { reason: Doubt::Unanswered });
    }
}
