//! A replica of one master, which takes its place when it is gone.

use super::{Environment, Master, RedisCluster, wait};

impl RedisCluster {
    /// Starts a replica of a master, and waits until it follows.
    ///
    /// # Panics
    /// If it does not follow in time.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> Replica {
        let server = Master::start(&Environment::new());
        self.meet(&server);
        let id = self.id(master);
        wait("a replica that knows its master", || server.ask::<()>(&["CLUSTER", "REPLICATE", &id]).is_ok());
        wait("a replica that follows", || {
            server.told("master_link_status").is_some_and(|status| status == "up")
        });
        Replica { server, master }
    }

    /// Waits until a replica has everything that its master holds now.
    ///
    /// # Panics
    /// If it does not get there in time.
    pub fn replicated(&self, replica: &Replica) {
        let offset = |server: &Master, field| server.told(field)?.parse::<u64>().ok();
        let target = offset(&self.masters[replica.master], "master_repl_offset").expect("an offset");
        wait("a replica that has everything", || {
            offset(&replica.server, "slave_repl_offset").is_some_and(|offset| offset >= target)
        });
    }

    /// From now on a replica gets nothing more of its master.
    ///
    /// # Panics
    /// If the master refuses, or the replica stays.
    pub fn cut_off(&self, replica: &Replica) {
        let master = &self.masters[replica.master];
        master.ask::<()>(&["ACL", "SETUSER", "default", "-psync", "-sync"]).expect("fewer rights");
        master.ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).expect("an end of its connection");
        wait("a master without replicas", || {
            master.told("connected_slaves").is_some_and(|count| count == "0")
        });
    }

    /// Kills the master and gives its slots to the replica, and waits until the others know.
    ///
    /// # Panics
    /// If they do not.
    pub fn fail_over(&mut self, replica: &Replica) {
        let gone = &mut self.masters[replica.master];
        gone.child.kill().expect("a process to kill");
        gone.child.wait().expect("its end");
        wait("a replica that is promoted", || {
            // Refused once it is the master, which the others may have made it by themselves.
            let _ = replica.server.ask::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
            replica.server.told("role").is_some_and(|role| role == "master")
        });
        let (first, last) = self.range(replica.master);
        let (slots, port) = (format!(" {first}-{last}"), format!(":{}@", replica.server.port));
        for (index, master) in self.masters.iter().enumerate().filter(|(index, _)| *index != replica.master) {
            wait(&format!("word of it at master {index}"), || {
                let Ok(nodes) = master.ask::<String>(&["CLUSTER", "NODES"]) else { return false };
                nodes.lines().any(|line| line.contains(&port) && line.contains(&slots))
            });
        }
    }
}

/// A replica; it ends with this value.
#[derive(Debug)]
pub struct Replica {
    server: Master,
    master: usize,
}

impl Master {
    /// What `INFO replication` says of a field.
    fn told(&self, field: &str) -> Option<String> {
        let info = self.ask::<String>(&["INFO", "replication"]).ok()?;
        let mut told = info.lines().filter_map(|line| line.split_once(':'));
        told.find_map(|(name, value)| (name == field).then(|| value.trim().to_owned()))
    }
}
