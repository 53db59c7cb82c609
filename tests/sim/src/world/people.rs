//! Faults of people: copies put back, disks wiped, names and roles given twice.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::fs::{Fs, Name};
use crate::host::NodeHost;
use crate::model::Mirror;
use crate::node::{Claim, Life, Node};
use crate::rng::Rng;
use strandline_core::journal::command::FileName;

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
        self.lossy.insert(self.nodes[at].identity.clone());
        let node = &mut self.nodes[at];
        node.life = Life::Down;
        node.regressed = true;
        node.damage.clear();
        node.pending.clear();
        node.mirror = Mirror::default();
        let highest = node.claim.highest;
        node.claim = Claim { highest, ..Claim::default() };
    }
}
