//! What may happen in one exhaustive run, and how often: small enough that everything is tried.

/// A node of the pair: the first, or the second.
pub type Side = usize;

/// One step of a node's own work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// A put of this key, of a blob of the same bytes.
    Put(&'static str),
    /// A delete of this key.
    Delete(&'static str),
    /// A compaction to the durable tail; no members are waited for.
    Compact,
}

/// What the two nodes declare to each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Speech {
    /// Everything a replica declares: standings, snapshots and blobs in pieces.
    Native,
    /// What a peer of the reference declares: marks, single frames, blobs ahead of their records.
    Reference,
}

/// How the host of a node treats its disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disks {
    /// An append is answered when it is durable.
    Honest,
    /// A fault put in: an append is answered before it is durable, and a crash may lose it.
    AnswerEarly,
}

/// What may happen, and how often.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A name, for the report.
    pub name: &'static str,
    /// What the nodes declare.
    pub speech: Speech,
    /// How appends are answered.
    pub disks: Disks,
    /// What each node writes, in this order. A node that writes nothing follows the other.
    pub script: [&'static [Step]; 2],
    /// How many connections each node dials.
    pub dials: [u8; 2],
    /// How many ends of a connection end by themselves. The other end learns of it at any time later,
    /// or never.
    pub cuts: u8,
    /// How often each node loses power.
    pub crashes: [u8; 2],
    /// How many frames within one connection come twice, are lost, or are overtaken. No connection of
    /// ours does that: promises must hold, and only a new connection must bring repair to an end.
    pub frame_faults: u8,
    /// How often time passes, so that periodic work is done.
    pub ticks: u8,
}

const DELETE: &[Step] = &[Step::Delete("k")];
const PUT_DELETE: &[Step] = &[Step::Put("k"), Step::Delete("k")];
const NOTHING: &[Step] = &[];

const NO_FAULT: Bounds = Bounds {
    name: "",
    speech: Speech::Native,
    disks: Disks::Honest,
    script: [PUT_DELETE, NOTHING],
    dials: [0, 2],
    cuts: 0,
    crashes: [0, 0],
    frame_faults: 0,
    ticks: 0,
};

impl Bounds {
    /// The bounds of `make model`: each brings out one side of the protocol.
    #[must_use]
    pub fn small() -> Vec<Self> {
        vec![
            Self {
                name: "one crash each and a cut",
                script: [DELETE, NOTHING],
                cuts: 1,
                crashes: [1, 1],
                ..NO_FAULT
            },
            Self { name: "two records, one crash each", crashes: [1, 1], ..NO_FAULT },
            Self { name: "a cut", cuts: 1, ..NO_FAULT },
            Self { name: "frames twice, lost, overtaken", dials: [0, 1], frame_faults: 1, ..NO_FAULT },
            Self {
                name: "two such frames, and another connection",
                script: [DELETE, NOTHING],
                frame_faults: 2,
                ..NO_FAULT
            },
            Self { name: "both dial", script: [DELETE, NOTHING], dials: [1, 1], cuts: 1, ..NO_FAULT },
            Self {
                name: "a snapshot",
                script: [&[Step::Put("k"), Step::Delete("l"), Step::Compact], NOTHING],
                dials: [0, 1],
                crashes: [0, 1],
                ..NO_FAULT
            },
            Self {
                name: "a snapshot, begun again",
                script: [&[Step::Delete("k"), Step::Compact], NOTHING],
                crashes: [0, 1],
                ..NO_FAULT
            },
            Self {
                name: "two histories",
                script: [DELETE, &[Step::Delete("l")]],
                dials: [0, 1],
                crashes: [1, 1],
                ..NO_FAULT
            },
            Self {
                name: "time passes",
                script: [DELETE, NOTHING],
                dials: [0, 1],
                cuts: 1,
                ticks: 1,
                ..NO_FAULT
            },
            Self { name: "reference: a cut", speech: Speech::Reference, cuts: 1, ..NO_FAULT },
            Self {
                name: "reference: one crash each",
                speech: Speech::Reference,
                script: [DELETE, NOTHING],
                crashes: [1, 1],
                ..NO_FAULT
            },
        ]
    }

    /// Larger ones, for a long run: the same with one more cut, and everything at once.
    #[must_use]
    pub fn large() -> Vec<Self> {
        let more = |bounds: Self| Self { cuts: bounds.cuts + 1, ..bounds };
        let mut all: Vec<Self> = Self::small().into_iter().map(more).collect();
        all.push(Self {
            name: "everything at once",
            script: [DELETE, NOTHING],
            cuts: 1,
            crashes: [1, 1],
            frame_faults: 1,
            ..NO_FAULT
        });
        all
    }
}
