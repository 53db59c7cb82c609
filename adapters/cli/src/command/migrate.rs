//! `strandline migrate`: from a directory of StreamHive v1, and back to one.

use crate::backend::{Backend, NodeBackend, create_node, scan_all};
use crate::context::Context;
use crate::entropy::random;
use crate::exit::Failure;
use crate::migrate::{Folder, bring};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use strandline_core::compat::streamhive::journal::End;
use strandline_core::compat::streamhive::migrate::{History, Member, export, state_digest};
use strandline_core::id::{LogId, hex};
use strandline_core::lifecycle::api::{Entry, MembersChange, Scan};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{BlobKey, Key, Record, State};
use strandline_file::node::Node;

/// Take over a directory of StreamHive v1 into a new replica, or write this replica's state as one. The
/// directory that is read stays as it is; the state is compared by its digest at the end.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("way").required(true).args(["from_streamhive", "to_streamhive"])))]
pub(crate) struct Args {
    /// The directory to take over: journal, checkpoint, authority, membership, watermarks and blobs/.
    #[arg(long, value_name = "V1DIR", requires = "identity")]
    from_streamhive: Option<PathBuf>,
    /// The new replica's name, as its peers know it.
    #[arg(long, value_name = "NAME", requires = "from_streamhive")]
    identity: Option<String>,
    /// A namespace the log may hold beside those of its records; can be given several times.
    #[arg(long = "namespace", value_name = "NAME", requires = "from_streamhive")]
    namespaces: Vec<OsString>,
    /// The log's identity, if other replicas of it exist already; else a new one.
    #[arg(long, value_name = "HEX", requires = "from_streamhive", value_parser = parse_log)]
    log: Option<LogId>,
    /// The directory to write, which must be empty or missing.
    #[arg(long, value_name = "V1DIR")]
    to_streamhive: Option<PathBuf>,
}

fn parse_log(text: &str) -> Result<LogId, String> {
    LogId::parse(text).ok_or_else(|| format!("expected 32 lower-case hexadecimal digits, found {text:?}"))
}

/// What was carried over.
#[derive(Serialize)]
struct Report {
    log: String,
    identity: String,
    tail: String,
    floor: String,
    keys: usize,
    blobs: usize,
    state_digest: String,
    /// Who wrote the history, and the last version given out.
    authority: Option<String>,
    /// Bytes behind the last whole entry of the v1 journal; they were never acknowledged.
    torn_bytes: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    match (&args.from_streamhive, &args.to_streamhive, &args.identity) {
        (Some(from), _, Some(identity)) => from_v1(args, from, identity, context),
        (_, Some(to), _) => to_v1(to, context),
        (_, None, _) => Err(Failure::usage("expected --from-streamhive with --identity, or --to-streamhive")),
    }
}

fn from_v1(args: &Args, from: &Path, identity: &str, context: &Context) -> Result<(), Failure> {
    let folder = Folder { path: from.to_owned() };
    let history = folder.read()?.history()?;
    let wanted = history.blobs();
    let blobs = folder.find_blobs(&history.named_blobs())?;
    if let Some(missing) = wanted.iter().find(|blob| !blobs.contains_key(blob)) {
        let count = wanted.iter().filter(|blob| !blobs.contains_key(blob)).count();
        return Err(Failure::storage(format!(
            "{count} blobs are not in {}, {missing} among them",
            folder.blobs().display()
        ))
        .advise("nothing was changed; bring the blobs, then migrate again"));
    }
    let mut namespaces: BTreeSet<Vec<u8>> = history.namespaces();
    namespaces.extend(args.namespaces.iter().map(|name| name.clone().into_vec()));
    if namespaces.is_empty() {
        namespaces.insert(b"files".to_vec());
    }
    let log = match args.log {
        Some(log) => log,
        None => LogId(random()?),
    };
    let namespaces = namespaces.into_iter().collect();
    let dir = context.dir()?;
    let init = Init { log, identity: identity.to_owned(), namespaces, authority: None };
    let node = create_node(dir, init)?;
    let report = fill(node, identity, log, &history, &blobs).map_err(|failure| {
        let begun = format!("before another try remove {}, which holds a part only", dir.display());
        failure.partly("the new replica is not whole").advise_also(begun)
    })?;
    let text = format!(
        "log {} as {}: {} keys and {} blobs up to {}, verified ({}); it follows until an authority is given to it",
        report.log, report.identity, report.keys, report.blobs, report.tail, report.state_digest
    );
    context.output.result(text, &report)
}

/// Brings the history and its blobs into the new replica, and compares.
fn fill(
    node: Node,
    identity: &str,
    log: LogId,
    history: &History,
    blobs: &BTreeMap<BlobKey, PathBuf>,
) -> Result<Report, Failure> {
    let mut replica = NodeBackend::new(node.handle().clone());
    store(&mut replica, blobs)?;
    bring(node.handle(), identity, log, history)?;
    carry_members(&mut replica, history)?;
    let records = records(&mut replica)?;
    let found = state_digest(&records);
    let status = replica.status()?;
    if found != history.digest() || status.tail.0 != history.tail() || status.blobs_wanted > 0 {
        return Err(Failure::storage(format!(
            "the new replica is not what was read: expected {} with {}, found {} with {}",
            history.tail(),
            hex(&history.digest()),
            status.tail,
            hex(&found)
        ))
        .advise("do not use the new directory; the old one is as it was"));
    }
    drop(replica);
    node.close()?;
    Ok(Report {
        log: log.to_string(),
        identity: identity.to_owned(),
        tail: history.tail().to_string(),
        floor: history.floor().to_string(),
        keys: records.len(),
        blobs: blobs.len(),
        state_digest: hex(&found),
        authority: history.authority().map(|(name, version)| format!("{name} at {version}")),
        torn_bytes: match history.end() {
            End::Clean => 0,
            End::Torn { bytes, .. } | End::Zeros { bytes, .. } => bytes,
        },
    })
}

fn store(replica: &mut dyn Backend, blobs: &BTreeMap<BlobKey, PathBuf>) -> Result<(), Failure> {
    /// How many are made durable together.
    const GROUP: usize = 1024;
    let all: Vec<_> = blobs.iter().collect();
    for part in all.chunks(GROUP) {
        let mut group = replica.group()?;
        for (key, path) in part {
            let mut file = File::open(path).map_err(|error| Failure::io("read", path, &error))?;
            let (found, _) = group.add(&mut file).map_err(|error| error.fatal(path))?;
            if found != **key {
                return Err(Failure::storage(format!("{} changes while it is read", path.display()))
                    .advise("stop what writes into the directory, then migrate again"));
            }
        }
        group.commit()?;
    }
    Ok(())
}

fn carry_members(replica: &mut dyn Backend, history: &History) -> Result<(), Failure> {
    match history.members() {
        None => Ok(()),
        Some([]) => replica.members(&MembersChange::Clear),
        Some(members) => {
            members.iter().try_for_each(|member| replica.members(&MembersChange::Add(member.clone())))
        }
    }
}

fn records(replica: &mut dyn Backend) -> Result<Vec<Record>, Failure> {
    let scan = Scan {
        namespace: None,
        prefix: Vec::new(),
        after: None,
        entries_max: crate::backend::PAGE_ENTRIES_MAX,
        deleted: true,
    };
    let mut records = Vec::new();
    scan_all(replica, scan, |key: &Key, entry: &Entry| {
        let Entry { state, version, authority } = entry.clone();
        records.push(Record { key: key.clone(), state, version, authority });
        Ok(())
    })?;
    Ok(records)
}

fn to_v1(to: &Path, context: &Context) -> Result<(), Failure> {
    match fs::read_dir(to).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(Failure::refused(format!("{} is not empty", to.display()))),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::io("read", to, &error)),
    }
    let folder = Folder { path: to.to_owned() };
    let report = context.with_replica(|replica| {
        let status = replica.status()?;
        let records = records(replica)?;
        // Writes went on meanwhile: what was read is the state of no single moment.
        if replica.status()?.submitted != status.tail {
            return Err(Failure::refused("the replica is being written to").advise("stop the writers first"));
        }
        let last = records.iter().max_by_key(|record| record.version);
        let members: Option<Vec<Member>> = status.members_configured.then(|| {
            let of = status.members.iter();
            of.map(|m| Member { identity: m.identity.clone(), acked: m.acked.0 }).collect()
        });
        let authority = last.map(|record| &record.authority);
        let files = export(status.tail.0, &records, authority, members.as_deref())
            .map_err(|error| Failure::refused(format!("the reference cannot hold this: {error}")))?;
        folder.write(&files)?;
        let blobs = write_blobs(replica, &folder, &records)?;
        let read = folder.read()?.history()?;
        if read.digest() != files.digest || read.tail() != status.tail.0 {
            return Err(Failure::storage("what was written reads back as another state")
                .advise("do not use the directory"));
        }
        Ok(Report {
            log: status.log,
            identity: status.identity,
            tail: status.tail.to_string(),
            floor: status.tail.to_string(),
            keys: records.len(),
            blobs,
            state_digest: hex(&files.digest),
            authority: authority.map(|name| format!("{} at {}", name.as_str(), status.tail)),
            torn_bytes: 0,
        })
    })?;
    let text = format!(
        "{}: {} keys and {} blobs at {}, verified ({})",
        to.display(),
        report.keys,
        report.blobs,
        report.tail,
        report.state_digest
    );
    context.output.result(text, &report)
}

fn write_blobs(replica: &mut dyn Backend, folder: &Folder, records: &[Record]) -> Result<usize, Failure> {
    let blob = |record: &Record| match record.state {
        State::Present { blob } => Some(blob),
        State::Deleted => None,
    };
    let blobs: BTreeSet<BlobKey> = records.iter().filter_map(blob).collect();
    for key in &blobs {
        let Some(mut from) = replica.blob(*key)? else {
            return Err(Failure::storage(format!("blob {key} is not stored here"))
                .advise("connect to a peer that has it, then export again"));
        };
        folder.write_blob(*key, &mut from)?;
    }
    folder.sync()?;
    Ok(blobs.len())
}
