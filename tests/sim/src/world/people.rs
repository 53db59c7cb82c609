//! Faults of people: copies put back, disks wiped, names and roles given twice.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::fs::{Fs, Name};
use crate::host::NodeHost;
use crate::model::Mirror;
use crate::node::{Claim, Life, Node};
use crate::rng::Rng;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::backup::{BackupFile, restored_current};
use strandline_core::lifecycle::recovery::Reseeded;
use strandline_core::seed::Seed;

/// Most nodes, those that people add by mistake included.
const NODES_MAX: usize = 5;

impl World {
    /// An older copy takes the place of a node's directory and blobs.
    pub(super) fn restored_backup(&mut self, at: usize) -> Judged {
        let Some(backup) = self.nodes[at].backup.clone() else { return Ok(()) };
        self.count(Fault::RestoredBackup);
        self.stop(at, false);
        let node = &mut self.nodes[at];
        node.host.fs = backup.fs;
        node.host.blobs = backup.blobs;
        node.rotten.extend(node.rotted.iter().copied());
        node.host.appended = backup.appended;
        self.regress(at);
        self.start(at)
    }

    /// A backup is put back by `restore`: what was durable then, as another life. Whoever wrote may not
    /// write before it is fenced.
    pub(super) fn restore(&mut self, at: usize) -> Judged {
        let backup = self.nodes[at].backup.clone();
        let Some((plan, backup)) = backup.and_then(|backup| Some((backup.plan.clone()?, backup))) else {
            return Ok(());
        };
        let seed = self.seed(at);
        let current = restored_current(&plan.current, &seed).expect("it was encoded");
        let mut fs = Fs::default();
        for BackupFile { file, bytes, optional } in &plan.files {
            let name = Name::File(*file);
            let Some(length) = backup.fs.bytes(name) else {
                assert!(*optional, "a file of the plan is there");
                continue;
            };
            let most = bytes.map_or(length, |bytes| usize::try_from(bytes).expect("a small file"));
            let mut content = backup.fs.read(name, 0, most).expect("it is there");
            content.resize(length, 0);
            fs.put_durable(*file, &content);
        }
        fs.put_durable(FileName::Current, &current);
        self.count(Fault::Restore);
        self.stop(at, false);
        let node = &mut self.nodes[at];
        node.host.fs = fs;
        node.host.blobs = backup.blobs;
        node.rotten.extend(node.rotted.iter().copied());
        // What is not durable in it is not part of it; damage to its end must be judged by what is.
        node.host.appended = backup.appended;
        node.writes = false;
        node.made = true;
        self.regress(at);
        self.nodes[at].restored = Some((plan.tail_digest, plan.incarnation));
        self.start(at)
    }

    /// A person throws the history of a follower away: another life of it begins with nothing.
    pub(super) fn reseed(&mut self, at: usize) -> Judged {
        let current = Name::File(FileName::Current);
        let node = &self.nodes[at];
        let there = node.host.fs.copied().read(current, 0, usize::MAX);
        let (Some(bytes), false) = (there, node.writes || node.twin) else { return Ok(()) };
        let seed = self.seed(at);
        let Ok(reseeded) = Reseeded::of(&bytes, &seed) else { return Ok(()) };
        self.count(Fault::Reseed);
        self.stop(at, false);
        let node = &mut self.nodes[at];
        node.host.fs = Fs::default();
        node.host.fs.put_durable(FileName::Current, &reseeded.current);
        node.host.appended.clear();
        node.made = true;
        node.epoch = 0;
        self.regress(at);
        self.start(at)
    }

    fn seed(&mut self, at: usize) -> Seed {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.rng.next().to_be_bytes());
        seed[8..16].copy_from_slice(&(at as u64).to_be_bytes());
        Seed::new(seed)
    }

    /// A follower loses its disk. A writer that is made anew is another writer: `two-writers`.
    pub(super) fn wiped_disk(&mut self, at: usize) -> Judged {
        if at == 0 {
            return Ok(());
        }
        self.count(Fault::WipedDisk);
        self.wipe(at)
    }

    /// The lock of a directory is held as long as its process runs.
    pub(super) fn second_opener(&mut self, at: usize) -> Judged {
        let open = |node: &Node| matches!(node.life, Life::Up(_) | Life::Recovering(_));
        if open(&self.nodes[at]) {
            self.count(Fault::SecondOpener);
            let starts = self.nodes[at].starts;
            self.start(at)?;
            if self.nodes[at].starts != starts {
                return Err(Violation::new("lock", format!("{at} was opened twice")));
            }
        }
        Ok(())
    }

    /// A node that should not be there.
    pub(super) fn intruder(&mut self, fault: Fault, name: &str, writes: bool) -> Judged {
        if self.nodes.len() >= NODES_MAX {
            return Ok(());
        }
        let host = NodeHost::new(Rng::new(self.rng.next()), self.profile.window, self.profile.instant);
        let mut node = Node::new(name, writes, self.nodes[1].config.clone(), host);
        node.twin = true;
        self.nodes.push(node);
        self.lossy.insert(name.to_string());
        self.count(fault);
        self.forked |= writes;
        self.start(self.nodes.len() - 1)
    }

    /// The authority's sidecar of the writer is lost while it is down.
    pub(super) fn lost_authority(&mut self, at: usize) {
        if at == 0 && matches!(self.nodes[0].life, Life::Down) && self.nodes[0].made {
            self.count(Fault::LostAuthority);
            let fs = &mut self.nodes[0].host.fs;
            fs.remove(Name::File(FileName::Authority));
            fs.sync_folder();
        }
    }

    /// Loses the directory of a node, and makes it anew.
    pub(super) fn wipe(&mut self, at: usize) -> Judged {
        self.stop(at, false);
        let node = &mut self.nodes[at];
        node.life = Life::Down;
        node.host.fs = Fs::default();
        node.host.blobs = crate::blobs::BlobStore::default();
        node.host.appended.clear();
        node.backup = None;
        node.made = false;
        node.writes &= at == 0;
        node.epoch = 0;
        self.regress(at);
        self.start(at)
    }

    /// Moves the authority to a node, in an epoch that a person thinks is above all others; sometimes
    /// it is not.
    pub(super) fn fence(&mut self, at: usize, fault: Fault) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let epoch = if fault == Fault::WrongEpoch { self.nodes[at].epoch } else { self.epoch_asked + 1 };
        self.epoch_asked = self.epoch_asked.max(epoch);
        if self.nodes[at].replica().is_none() {
            return Ok(());
        }
        self.parts_from(at);
        let replica = self.nodes[at].replica_mut().expect("it serves");
        let request = replica.handle_fence(now, epoch);
        self.count(fault);
        self.step(12, at, request.0);
        self.tell(|| format!("{at} is to write in epoch {epoch}"));
        self.after(at)
    }

    fn regress(&mut self, at: usize) {
        let name = self.nodes[at].identity.clone();
        // A snapshot is due to whoever holds less, and another life that was seen ends the removed one.
        for node in &mut self.nodes {
            if let Some(removed) = node.removed.get_mut(&name) {
                removed.may_count = true;
            }
        }
        self.lossy.insert(name);
        let node = &mut self.nodes[at];
        node.life = Life::Down;
        node.regressed = true;
        node.damage.clear();
        node.pending.clear();
        node.restored = None;
        // Its members are those of then.
        node.removed.clear();
        node.changing.clear();
        node.mirror = Mirror::default();
        let highest = node.claim.highest;
        node.claim = Claim { highest, ..Claim::default() };
    }
}
