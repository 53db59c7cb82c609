#[cfg(feature = "peers")]
pub mod kv;
#[cfg(feature = "peers")]
pub mod logs;
#[cfg(feature = "peers")]
pub mod raft;
pub mod reference;
#[cfg(feature = "rocksdb")]
pub mod rocks;
pub mod strandline;

use crate::journal::Engine;

/// Every engine, in the order of the tables.
pub fn all() -> Vec<Engine> {
    vec![
        Engine::of::<reference::Floor>(),
        Engine::of::<reference::Group>(),
        Engine::of::<reference::GroupPre>(),
        Engine::of::<strandline::Strandline>(),
        Engine::of::<strandline::StrandlineReplay>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::WalDb>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::WalDbStrict>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::OkayWal>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::Seglog>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::LogDb>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::IronWal>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::Walrus>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::CommitLog>(),
        #[cfg(feature = "peers")]
        Engine::of::<logs::SimpleWal>(),
        #[cfg(feature = "peers")]
        Engine::of::<raft::RaftEngine>(),
        #[cfg(feature = "peers")]
        Engine::of::<raft::RaftLogDefault>(),
        #[cfg(feature = "peers")]
        Engine::of::<raft::RaftLogNoWait>(),
        #[cfg(feature = "rocksdb")]
        Engine::of::<rocks::RocksDb>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Fjall>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Canopy>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Redb>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Sled>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Sqlite>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Lmdb>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::PersyDb>(),
        #[cfg(feature = "peers")]
        Engine::of::<kv::Nebari>(),
    ]
}

/// Numbers for engines that need a unique key per record.
#[cfg(feature = "peers")]
pub struct Counter(std::sync::atomic::AtomicU64);

#[cfg(feature = "peers")]
impl Counter {
    pub fn new(start: u64) -> Self {
        Counter(start.into())
    }
    pub fn take(&self, n: usize) -> u64 {
        self.0.fetch_add(n as u64, std::sync::atomic::Ordering::Relaxed)
    }
}
