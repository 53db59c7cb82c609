//! Faults of people: copies put back, disks wiped, names and roles given twice.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::fs::{Fs, Name};
use crate::host::NodeHost;
use crate::model::Mirror;
use crate::node::{Claim, Life, Node};
use crate::rng::Rng;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::MembersChange;

/// Most nodes, those that people add by mistake included.
const NODES_MAX: usize = 5;

impl World {
    pub(super) fn people(&mut self, at: usize, fault: Fault) -> Judged {
        match fault {
            Fault::RestoredBackup => {
                let Some(backup) = self.nodes[at].backup.clone() else { return Ok(()) };
                self.count(fault);
                self.stop(at, false);
                let node = &mut self.nodes[at];
                node.host.fs = backup.fs;
                node.host.blobs = backup.blobs;
                self.regress(at);
                self.start(at)
            }
            // A writer that is made anew is another writer: that is `two-writers`.
            Fault::WipedDisk if at == 0 => Ok(()),
            Fault::WipedDisk => {
                self.count(fault);
                self.wipe(at)
            }
            Fault::SecondOpener => {
                // The lock of the directory is held as long as the process runs.
                let node = &self.nodes[at];
                let held = matches!(node.life, Life::Up(_) | Life::Recovering(_));
                if held {
                    self.count(fault);
                    self.start(at)?;
                    if matches!(self.nodes[at].life, Life::Down) {
                        return Err(Violation::new("lock", format!("{at} was opened twice")));
                    }
                }
                Ok(())
            }
            Fault::WrongMembers => {
                self.count(fault);
                self.members(0, MembersChange::Add("nobody".into()))
            }
            Fault::TwoNames | Fault::TwoWriters => {
                if self.nodes.len() >= NODES_MAX {
                    return Ok(());
                }
                let writes = fault == Fault::TwoWriters;
                let twin = if writes { "z".to_string() } else { self.nodes[1].identity.clone() };
                let host =
                    NodeHost::new(Rng::new(self.rng.next()), self.profile.window, self.profile.instant);
                let mut node = Node::new(&twin, writes, self.nodes[1].config.clone(), host);
                node.twin = true;
                self.nodes.push(node);
                self.count(fault);
                self.forked |= writes;
                self.start(self.nodes.len() - 1)
            }
            Fault::LostAuthority => {
                if at == 0 && matches!(self.nodes[0].life, Life::Down) && self.nodes[0].made {
                    self.count(fault);
                    let fs = &mut self.nodes[0].host.fs;
                    fs.remove(Name::File(FileName::Authority));
                    fs.sync_folder();
                }
                Ok(())
            }
            _ => unreachable!("{fault:?} is no fault of people"),
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
        self.regress(at);
        self.start(at)
    }

    fn regress(&mut self, at: usize) {
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
