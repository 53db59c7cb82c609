//! One worker: a root machine, and an application that is not always well-behaved.

use super::rng::Rng;
use std::time::Duration;
use strandline_core::id::Run;
use strandline_core::seed::Seed;
use strandline_core::stream::client::{Consume, Delivery, HandleId, PartyId, StreamClient};
use strandline_core::stream::retention::Settings;
use strandline_core::stream::settings::TakeSettings;
use strandline_core::stream::{ConsumerName, GroupName, Layout, Start, StreamName};
use strandline_core::time::Now;

/// Grace of the group.
pub(super) const GRACE_MS: u64 = 200;
/// Length bound of the stream.
pub(super) const LEN_MAX: u64 = 12;
const LEASE_MS: u64 = 200;
const DELIVERIES_MAX: u64 = 6;

/// A worker while it lives.
#[derive(Debug)]
pub(super) struct Worker {
    /// Which life of which worker: what was asked by an earlier one is answered to nobody.
    pub(super) life: u64,
    pub(super) client: StreamClient,
    pub(super) party: PartyId,
    pub(super) hand: Vec<Delivery>,
    /// It does nothing with what it is handed, nor asks for more, until then.
    pub(super) asleep_until_ms: u64,
    pub(super) closing: bool,
}

/// What an application does with an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Deed {
    ProcessAndAck,
    ProcessAndForget,
    Forget,
    GiveBack { delay_ms: u64 },
    Bury,
}

pub(super) fn stream() -> StreamName {
    StreamName::new("orders").expect("a name")
}

pub(super) fn group() -> GroupName {
    GroupName::new("mail").expect("a name")
}

pub(super) fn settings() -> Settings {
    Settings::new().max_len(LEN_MAX)
}

impl Worker {
    pub(super) fn new(life: u64, seed: u64, now: Now) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8..16].copy_from_slice(&life.to_be_bytes());
        let mut client = StreamClient::new(Layout::Tagged, Run(life), Seed::new(bytes), now);
        let wanted = settings().wanted().expect("settings");
        let handle: HandleId = client.handle_stream(now, stream(), wanted).expect("a name");
        let taking = TakeSettings::new()
            .start(Start::Oldest)
            .grace(Duration::from_millis(GRACE_MS))
            .block(Duration::from_millis(50))
            .max_polled(4);
        let name = ConsumerName::new(format!("w{life}")).expect("a name");
        let mut consume = Consume::new(group(), name, taking.taking().expect("settings"));
        (consume.lease_ms, consume.deliveries_max) = (LEASE_MS, Some(DELIVERIES_MAX));
        let party = client.handle_consumer(now, &[handle], consume).expect("settings");
        Self { life, client, party, hand: Vec::new(), asleep_until_ms: 0, closing: false }
    }

    /// What it does with an event; a well-behaved one processes and settles.
    pub(super) const fn deed(rng: &mut Rng, well_behaved: bool) -> Deed {
        if well_behaved {
            return Deed::ProcessAndAck;
        }
        match rng.below(20) {
            0 | 1 => Deed::ProcessAndForget,
            2 => Deed::Forget,
            3 | 4 => Deed::GiveBack { delay_ms: rng.below(2) * rng.below(1000) },
            5 => Deed::Bury,
            _ => Deed::ProcessAndAck,
        }
    }
}
