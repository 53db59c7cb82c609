//! The bounds of protocol B, each checked before anything is allocated or sent.

/// Longest name of a stream, a group or a consumer, in characters.
pub const NAME_CHARS_MAX: usize = 512;

/// Longest idempotency key. The shortest has one byte.
pub const ONCE_KEY_BYTES_MAX: usize = 256;

/// Most bytes that name, topic and payload of one event may have together.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// Most members a group has at once.
pub const GROUP_MEMBERS_MAX: usize = 1024;

/// Most expired idempotency records that one `add_once` drops, oldest first.
pub const ONCE_DROPPED_MAX: usize = 100;

/// Most unexpired idempotency records of one generation.
pub const ONCE_RECORDS_MAX: usize = 1_000_000;

/// How long an idempotency record is kept when nothing else is said: one day.
pub const ONCE_WINDOW_MS_DEFAULT: u64 = 24 * 60 * 60 * 1000;

/// Length bound of a stream when nothing else is said.
pub const STREAM_LEN_MAX_DEFAULT: u64 = 1000;

/// Greatest length bound of a stream: a server counts it with its sign.
pub const STREAM_LEN_MAX: u64 = i64::MAX as u64;

/// Latest instant and longest duration in milliseconds: what a script on the server counts exactly.
pub const TIME_MS_MAX: u64 = (1 << 53) - 1;

/// Most IDs that travel to one command inside a script.
pub const IDS_PER_COMMAND_MAX: usize = 1000;

/// Most IDs that one acknowledgement or removal may name.
pub const IDS_PER_CALL_MAX: usize = 100_000;

/// Events of one read when nothing else is said.
pub const READ_EVENTS_DEFAULT: u32 = 1000;

/// Most events of one read.
pub const READ_EVENTS_MAX: u32 = 10_000;

/// Most bytes that one replayed batch may have when nothing else is said.
pub const REPLAY_BYTES_DEFAULT: u64 = 4 << 20;

/// Grace that a silent consumer gets when nothing else is said.
pub const GRACE_MS_DEFAULT: u64 = 20_000;

/// How long a read waits for events when nothing else is said.
pub const BLOCK_MS_DEFAULT: u64 = 5_000;

/// Longest time that a stream is left out because its server gave no answer; while one is, no wait for
/// news of the others is longer.
pub const REST_MS_MAX: u64 = 5_000;

/// Events that wait for a slow subscriber when nothing else is said.
pub const BUFFER_EVENTS_DEFAULT: u32 = 1000;

/// How long a lease lasts when nothing else is said.
pub const LEASE_MS_DEFAULT: u64 = 1_000;

/// Most entries of one group that are put off to a later instant at once.
pub const GROUP_LATER_MAX: usize = 1024;

/// Most holes of one group that are kept until a consumer was told; more are joined to the last one.
pub const GROUP_MISSED_MAX: usize = 64;

/// Most groups that one listing tells of.
pub const GROUPS_LISTED_MAX: u32 = 100;

/// Most dead letters of one generation.
pub const DEAD_LETTERS_MAX: usize = 10_000;

/// Longest time that an event may be put off: thirty days.
pub const NACK_DELAY_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;

/// How often an event is handed out when nothing else is said, before it becomes a dead letter.
pub const DELIVERIES_MAX_DEFAULT: u64 = 16;

/// Compiled size of a topic pattern.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;

const _: () = {
    assert!(READ_EVENTS_DEFAULT <= READ_EVENTS_MAX);
    assert!(EVENT_BYTES_MAX as u64 <= REPLAY_BYTES_DEFAULT);
    assert!(ONCE_WINDOW_MS_DEFAULT <= TIME_MS_MAX);
    assert!(READ_EVENTS_MAX as usize <= IDS_PER_CALL_MAX);
    assert!(IDS_PER_COMMAND_MAX <= IDS_PER_CALL_MAX && IDS_PER_COMMAND_MAX < 8000);
};
