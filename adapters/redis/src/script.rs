//! The scripts: one file for each operation, put behind its quick way, if it has one, and what it uses of that
//! which all have and of what the layout brings.

use crate::parts::with_what_they_use;
use redis::Script;
use std::sync::LazyLock;
use strandline_core::stream::limits::{ONCE_DROPPED_MAX, ONCE_RECORDS_MAX};
use strandline_core::stream::{Layout, Verb};

const FIRST: &str = include_str!("lua/first.lua");
const COMMON: &str = include_str!("lua/common.lua");
const PULSE: &str = include_str!("lua/pulse.lua");
const TAGGED: &str = include_str!("lua/tagged.lua");
const EFFECTS: &str = include_str!("lua/effects.lua");
const QUICK_PULSE: &str = include_str!("lua/quick_pulse.lua");
const QUICK_TAGGED: &str = include_str!("lua/quick_tagged.lua");

macro_rules! scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        /// Which script does an operation.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Name { $($name),* }

        const ALL: &[(Name, &str)] = &[$((Name::$name, include_str!(concat!("lua/", $file, ".lua")))),*];
    };
}

scripts! {
    Open = "open",
    Attend = "attend",
    Add = "add",
    AddOnce = "add_once",
    Remove = "remove",
    Snapshot = "snapshot",
    Destroy = "destroy",
    Read = "read",
    Replay = "replay",
    GroupOpen = "group_open",
    GroupRead = "group_read",
    GroupAck = "group_ack",
    GroupRegister = "group_register",
    GroupKeepAlive = "group_keep_alive",
    GroupDetach = "group_detach",
    LeaseAcquire = "lease_acquire",
    LeaseRenew = "lease_renew",
    GroupClaim = "group_claim",
    GroupSweep = "group_sweep",
    GroupNack = "group_nack",
    GroupBury = "group_bury",
    GroupTold = "group_told",
    Groups = "group_list",
    DeadRead = "dead_read",
    DeadRemove = "dead_remove",
}

impl Name {
    pub(crate) const fn of(verb: &Verb) -> Self {
        match verb {
            Verb::Open => Self::Open,
            Verb::Attend => Self::Attend,
            Verb::Add { .. } => Self::Add,
            Verb::AddOnce { .. } => Self::AddOnce,
            Verb::Remove { .. } => Self::Remove,
            Verb::Snapshot => Self::Snapshot,
            Verb::Destroy => Self::Destroy,
            Verb::Read { .. } => Self::Read,
            Verb::Replay { .. } => Self::Replay,
            Verb::GroupOpen { .. } => Self::GroupOpen,
            Verb::GroupRead { .. } => Self::GroupRead,
            Verb::GroupAck { .. } => Self::GroupAck,
            Verb::GroupRegister { .. } => Self::GroupRegister,
            Verb::GroupKeepAlive { .. } => Self::GroupKeepAlive,
            Verb::GroupDetach { .. } => Self::GroupDetach,
            Verb::LeaseAcquire { .. } => Self::LeaseAcquire,
            Verb::LeaseRenew { .. } => Self::LeaseRenew,
            Verb::GroupClaim { .. } => Self::GroupClaim,
            Verb::GroupSweep { .. } => Self::GroupSweep,
            Verb::GroupNack { .. } => Self::GroupNack,
            Verb::GroupBury { .. } => Self::GroupBury,
            Verb::GroupTold { .. } => Self::GroupTold,
            Verb::Groups { .. } => Self::Groups,
            Verb::DeadRead { .. } => Self::DeadRead,
            Verb::DeadRemove { .. } => Self::DeadRemove,
        }
    }
}

/// The quick way of an operation: what most calls of it come to, where that pays.
const fn quick(name: Name, layout: Layout) -> &'static str {
    match (layout, name) {
        (Layout::Tagged, Name::Add) => include_str!("lua/quick_tagged_add.lua"),
        (Layout::Tagged, Name::AddOnce) => include_str!("lua/quick_tagged_add_once.lua"),
        (Layout::Tagged, Name::GroupRead) => include_str!("lua/quick_tagged_group_read.lua"),
        (Layout::Tagged, Name::GroupAck) => include_str!("lua/quick_tagged_group_ack.lua"),
        (Layout::Pulse, Name::Add) => include_str!("lua/quick_pulse_add.lua"),
        (Layout::Pulse, Name::AddOnce) => include_str!("lua/quick_pulse_add_once.lua"),
        (Layout::Pulse, Name::GroupRead) => include_str!("lua/quick_pulse_group_read.lua"),
        (_, _) => "",
    }
}

/// All scripts of one layout, with their hashes.
#[derive(Debug)]
pub(crate) struct Scripts(Vec<Compiled>);

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl Scripts {
    /// Those of a layout: constants, put together once.
    pub(crate) fn of(layout: Layout) -> &'static Self {
        static PULSE: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Layout::Pulse));
        static TAGGED: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(Layout::Tagged));
        match layout {
            Layout::Pulse => &PULSE,
            Layout::Tagged => &TAGGED,
        }
    }

    fn new(layout: Layout) -> Self {
        let (version, brings, quick_ways) = match layout {
            Layout::Pulse => ('2', PULSE, QUICK_PULSE),
            Layout::Tagged => ('1', TAGGED, QUICK_TAGGED),
        };
        let library = format!("local S_VERSION = '{version}'\n{COMMON}\n{brings}\n{EFFECTS}\n");
        // What is handed to a command is text: a server takes its time to make one of a number.
        let bounds = format!(
            "local ONCE_RECORDS_MAX = {ONCE_RECORDS_MAX}\nlocal ONCE_DROPPED_MAX = '{ONCE_DROPPED_MAX}'\n"
        );
        let first = format!("{bounds}{FIRST}\n{quick_ways}\n");
        let compiled = ALL.iter().enumerate().map(|(at, (name, body))| {
            assert_eq!(*name as usize, at, "scripts stand in the order of their names");
            let text = with_what_they_use([(&first, quick(*name, layout)), (&library, body)]);
            let hash = Script::new(&text).get_hash().to_string();
            Compiled { text, hash }
        });
        Self(compiled.collect())
    }

    pub(crate) fn get(&self, name: Name) -> &Compiled {
        &self.0[name as usize]
    }
}
