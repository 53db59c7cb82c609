//! What goes into a replica and what comes out of it.

mod blobs;
mod event;
mod link;
mod mutation;
mod pair;
mod request;
mod subscription;

pub use blobs::{BadBlob, Collect, Collected, NAMED_KEYS_MAX, Scrub, Scrubbed};
pub use event::{Event, Flow, Lag, LinkStatus, MemberStatus, Status};
pub use link::{CloseReason, LinkRefused, LinkRole, PeerFault, PeerFaultKind};
pub use mutation::{Accepted, Change, Entry, Mutation, MutationError, Scan, ScanPage};
pub use pair::{Divergence, PairReason, PairVerdict, Verified};
pub use request::{Compacted, Done, Fenced, MembersChange, RequestError, RequestId};
pub use subscription::{
    Cursor, CursorDivergence, CursorReason, CursorVerdict, Page, Served, SubscribeRefused, SubscriptionEnd,
    SubscriptionId, SubscriptionStatus,
};
