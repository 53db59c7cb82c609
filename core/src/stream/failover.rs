//! Whether what a server vouched for survived a failover.
//!
//! Replication of Redis is asynchronous: a replica that takes over may lack the end of what its master
//! had done. The same generation and the same position can then name another event. A server says which
//! history it holds by its **replication ID** and how far by an **offset**. One that took over has an ID
//! of its own, and keeps its master's as the second one, with the offset where the histories part.
//! Source: `INFO replication` of Redis 7.0, fields `role`, `master_replid`, `master_repl_offset`,
//! `master_replid2` and `second_repl_offset`.

use core::fmt;

/// The name of one history of a server.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct ReplicationId([u8; 40]);

impl ReplicationId {
    /// Reads forty hexadecimal digits. `None` for anything else, and for forty zeros, which stand for
    /// "none".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 40] = text.as_bytes().try_into().ok()?;
        let hex = bytes.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
        (hex && bytes != [b'0'; 40]).then_some(Self(bytes))
    }

    /// The forty digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a server takes part in replication as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// It decides what is written.
    Master,
    /// It follows another server.
    Replica,
}

/// Where a server stands in its history, by its own words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// As what.
    pub role: Role,
    /// Its history.
    pub id: ReplicationId,
    /// How far it has come.
    pub offset: u64,
    /// The history it followed before: its own begins with that one below this offset.
    pub second: Option<(ReplicationId, u64)>,
}

impl Standing {
    /// Reads the answer to `INFO replication`. `None` when a field is missing or unreadable.
    #[must_use]
    pub fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let role = match field("role")? {
            "master" => Role::Master,
            "slave" => Role::Replica,
            _ => return None,
        };
        let id = ReplicationId::parse(field("master_replid")?)?;
        let offset = field("master_repl_offset")?.parse().ok()?;
        // Without a second history the offset is -1.
        let second_id = field("master_replid2").and_then(ReplicationId::parse);
        let second_offset = field("second_repl_offset").and_then(|text| text.parse().ok());
        Some(Self { role, id, offset, second: second_id.zip(second_offset) })
    }

    /// Where the server stood beside an answer that it gave between `before` and now. `None` when its
    /// history or its role changed meanwhile: the answer may belong to another.
    #[must_use]
    pub fn beside(self, before: &Self) -> Option<Self> {
        (before.id == self.id && before.role == self.role).then_some(self)
    }

    /// Whether this, once told, is for good as true of the time before an operation as what would be told if the
    /// server were asked again, over the same connection, and told the same after the operation. Who was
    /// promoted meanwhile has another history, never this one again; a replica that was promoted can come back
    /// to its master's.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self.role {
            Role::Master => true,
            Role::Replica => false,
        }
    }

    /// What may be noted beside an answer that this server gave between `before` and now. `None` when it
    /// was no master all the while, or its history changed meanwhile: the answer may belong to another.
    #[must_use]
    pub fn vouched(&self, before: &Self) -> Option<Vouched> {
        let master = before.role == Role::Master && self.role == Role::Master;
        (master && before.id == self.id).then_some(Vouched { id: self.id, offset: self.offset })
    }
}

/// A place in a history, noted beside what a server vouched for: everything that it had answered by then
/// lies at this offset or below.
///
/// ```
/// use strandline_core::stream::failover::{Doubt, Standing, Survival, survival};
/// let info = "role:master\r\nmaster_replid:0123456789012345678901234567890123456789\r\n\
///             master_replid2:0000000000000000000000000000000000000000\r\n\
///             master_repl_offset:120\r\nsecond_repl_offset:-1\r\n";
/// let standing = Standing::parse(info).unwrap();
/// let noted = standing.vouched(&standing).unwrap();
/// assert_eq!(survival(Some(&noted), Some(&standing)), Survival::Kept);
/// assert_eq!(survival(Some(&noted), None), Survival::Unknown { reason: Doubt::Unanswered });
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vouched {
    /// The history.
    pub id: ReplicationId,
    /// How far it had come.
    pub offset: u64,
}

/// Why it cannot be told whether something survived.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Doubt {
    /// Nothing was noted.
    NothingNoted,
    /// The server does not say where it stands.
    Unanswered,
    /// The server only follows another one.
    NotMaster,
    /// The same history, but the server is behind the note: it cannot be the one that gave it.
    Behind,
    /// Another history than the noted one, which is not the one before it either.
    OtherHistory,
}

impl Doubt {
    /// The word for it, for people and in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NothingNoted => "nothing noted",
            Self::Unanswered => "unanswered",
            Self::NotMaster => "not master",
            Self::Behind => "behind",
            Self::OtherHistory => "other history",
        }
    }
}

/// Whether what was noted is still so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Survival {
    /// All that the server had answered by the note is in its history.
    Kept,
    /// The end of the noted history is gone, and the note lies in it: what was answered last may never
    /// have been, and its positions may name other events.
    Lost,
    /// It cannot be told: to be taken for lost where that is the safe side.
    Unknown {
        /// Why.
        reason: Doubt,
    },
}

impl Survival {
    /// Whether positions that were handed out before say nothing of the history that is there now.
    #[must_use]
    pub const fn ends_history(self) -> bool {
        match self {
            Self::Lost | Self::Unknown { reason: Doubt::Behind | Doubt::OtherHistory } => true,
            Self::Kept
            | Self::Unknown { reason: Doubt::NothingNoted | Doubt::Unanswered | Doubt::NotMaster } => false,
        }
    }

    /// The word for it, for people and in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// How a note lies to where a server stands.
enum Relation {
    NothingNoted,
    Unanswered,
    Follower,
    SameHistory,
    SameHistoryAhead,
    BeforeTheParting,
    BehindTheParting,
    Foreign,
}

fn relation(noted: Option<&Vouched>, now: Option<&Standing>) -> Relation {
    let Some(noted) = noted else { return Relation::NothingNoted };
    let Some(now) = now else { return Relation::Unanswered };
    if now.role == Role::Replica {
        return Relation::Follower;
    }
    if noted.id == now.id {
        return if noted.offset <= now.offset { Relation::SameHistory } else { Relation::SameHistoryAhead };
    }
    match now.second {
        // The offset is the first one that the histories do not share.
        Some((id, parting)) if id == noted.id && noted.offset < parting => Relation::BeforeTheParting,
        Some((id, _)) if id == noted.id => Relation::BehindTheParting,
        Some(_) | None => Relation::Foreign,
    }
}

/// The table of survival. A failover over two servers at once, a server whose data was taken from it,
/// and one that makes a new history because it lost its last replica all read as another history.
pub fn survival(noted: Option<&Vouched>, now: Option<&Standing>) -> Survival {
    match relation(noted, now) {
        Relation::NothingNoted => Survival::Unknown { reason: Doubt::NothingNoted },
        Relation::Unanswered => Survival::Unknown { reason: Doubt::Unanswered },
        Relation::Follower => Survival::Unknown { reason: Doubt::NotMaster },
        Relation::SameHistory => Survival::Kept,
        Relation::SameHistoryAhead => Survival::Unknown { reason: Doubt::Behind },
        Relation::BeforeTheParting => Survival::Kept,
        Relation::BehindTheParting => Survival::Lost,
        Relation::Foreign => Survival::Unknown { reason: Doubt::OtherHistory },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const fn id(byte: u8) -> ReplicationId {
        ReplicationId([byte; 40])
    }

    const NOTED: Vouched = Vouched { id: id(b'a'), offset: 100 };

    const fn master(id: ReplicationId, offset: u64, second: Option<(ReplicationId, u64)>) -> Standing {
        Standing { role: Role::Master, id, offset, second }
    }

    fn judged(now: Standing) -> Survival {
        survival(Some(&NOTED), Some(&now))
    }

    const fn unknown(reason: Doubt) -> Survival {
        Survival::Unknown { reason }
    }

    #[test]
    fn nothing_noted_is_unknown() {
        let now = master(id(b'a'), 100, None);
        assert_eq!(survival(None, Some(&now)), unknown(Doubt::NothingNoted));
    }

    #[test]
    fn unanswered_is_unknown() {
        assert_eq!(survival(Some(&NOTED), None), unknown(Doubt::Unanswered));
    }

    #[test]
    fn a_follower_vouches_for_nothing() {
        let now = Standing { role: Role::Replica, ..master(id(b'a'), 900, None) };
        assert_eq!(judged(now), unknown(Doubt::NotMaster));
    }

    #[test]
    fn the_same_history_keeps() {
        assert_eq!(judged(master(id(b'a'), 100, None)), Survival::Kept);
        assert_eq!(judged(master(id(b'a'), 101, None)), Survival::Kept);
    }

    #[test]
    fn the_same_history_that_is_behind_is_unknown() {
        assert_eq!(judged(master(id(b'a'), 99, None)), unknown(Doubt::Behind));
    }

    #[test]
    fn before_the_parting_is_kept() {
        assert_eq!(judged(master(id(b'b'), 500, Some((id(b'a'), 101)))), Survival::Kept);
    }

    #[test]
    fn behind_the_parting_is_lost() {
        assert_eq!(judged(master(id(b'b'), 500, Some((id(b'a'), 100)))), Survival::Lost);
    }

    #[test]
    fn a_foreign_history_is_unknown() {
        assert_eq!(judged(master(id(b'b'), 500, None)), unknown(Doubt::OtherHistory));
        let twice = master(id(b'c'), 500, Some((id(b'b'), 400)));
        assert_eq!(judged(twice), unknown(Doubt::OtherHistory));
    }

    #[test]
    fn nothing_is_noted_over_a_change_of_history_or_role() {
        let before = master(id(b'a'), 90, None);
        assert_eq!(master(id(b'a'), 100, None).vouched(&before), Some(NOTED));
        assert_eq!(master(id(b'b'), 100, Some((id(b'a'), 95))).vouched(&before), None);
        let follower = Standing { role: Role::Replica, ..before };
        assert_eq!(before.vouched(&follower), None);
        assert_eq!(follower.vouched(&before), None);
    }

    #[test]
    fn an_answer_over_a_change_of_history_or_role_belongs_to_nobody() {
        let before = master(id(b'a'), 90, None);
        let after = master(id(b'a'), 100, None);
        assert_eq!(after.beside(&before), Some(after));
        assert_eq!(master(id(b'b'), 100, None).beside(&before), None);
        assert_eq!(Standing { role: Role::Replica, ..after }.beside(&before), None);
    }

    #[test]
    fn what_a_master_told_lasts_and_what_a_replica_told_does_not() {
        let told = master(id(b'a'), 90, None);
        assert!(told.is_lasting());
        assert!(!Standing { role: Role::Replica, ..told }.is_lasting());
    }

    #[test]
    fn the_words_of_a_server_are_read() {
        let (own, other) = ("a".repeat(40), "b".repeat(40));
        let info = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:{own}\r\n\
             master_replid2:{other}\r\nmaster_repl_offset:77\r\nsecond_repl_offset:55\r\n"
        );
        assert_eq!(Standing::parse(&info), Some(master(id(b'a'), 77, Some((id(b'b'), 55)))));
        let none = info.replace(&other, &"0".repeat(40)).replace(":55", ":-1");
        assert_eq!(Standing::parse(&none), Some(master(id(b'a'), 77, None)));
        assert_eq!(Standing::parse(&info.replace("role:master", "role:king")), None);
        assert_eq!(Standing::parse(&info.replace(":77", ":x")), None);
        assert_eq!(Standing::parse(""), None);
    }
}
