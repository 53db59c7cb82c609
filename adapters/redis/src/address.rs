//! Where a server is, and how it is found.

use crate::connection::Connection;
use crate::names::Names;
use crate::server::Server;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _,
    RedisError, TlsCertificates, TlsMode,
};
use std::time::Duration;
use strandline_core::stream::error::{CallerError, Setting, StreamError};
use strandline_core::stream::word::refusal;
use strandline_core::stream::{Layout, ServerFault};

/// Longest wait for one answer when nothing else is said.
pub const ANSWER_MS_DEFAULT: u64 = 5_000;

/// Where a server is: one, the master that Sentinels name, or a cluster. Cheap to clone.
///
/// ```
/// use strandline_redis::Address;
/// let one = Address::one("redis://user:secret@127.0.0.1:6379/")?;
/// let cluster = Address::cluster(["redis://10.0.0.1/", "redis://10.0.0.2/"])?;
/// assert!(cluster.is_cluster() && !one.is_cluster());
/// # Ok::<(), strandline_core::stream::StreamError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    kind: Kind,
    certificates: Option<TlsCertificates>,
}

#[derive(Clone)]
enum Kind {
    One(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, as_user: ConnectionInfo },
    Cluster(Vec<ConnectionInfo>),
}

impl core::fmt::Debug for Address {
    // Passwords stay out of it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shown = |infos: &[ConnectionInfo]| -> Vec<String> {
            infos.iter().map(|info| info.addr().to_string()).collect()
        };
        match &self.kind {
            Kind::One(info) => f.debug_tuple("One").field(&info.addr().to_string()).finish(),
            Kind::Sentinel { sentinels, master, .. } => {
                f.debug_tuple("Sentinel").field(&shown(sentinels)).field(master).finish()
            }
            Kind::Cluster(seeds) => f.debug_tuple("Cluster").field(&shown(seeds)).finish(),
        }
    }
}

fn info(url: &str) -> Result<ConnectionInfo, StreamError> {
    url.into_connection_info().map_err(|error| {
        let detail = format!("expected an address like redis://host/ or rediss://host/, found {error}");
        ServerFault::NotSent { detail }.into()
    })
}

fn infos<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Vec<ConnectionInfo>, StreamError> {
    let infos: Vec<ConnectionInfo> = urls.into_iter().map(info).collect::<Result<_, _>>()?;
    if infos.is_empty() {
        let detail = "expected at least one address, found none".into();
        return Err(ServerFault::NotSent { detail }.into());
    }
    Ok(infos)
}

impl Address {
    const fn of(kind: Kind) -> Self {
        Self { kind, certificates: None }
    }

    /// One server at `redis://…`, or with TLS at `rediss://…`.
    ///
    /// # Errors
    /// `NotSent` for what is no address.
    pub fn one(url: &str) -> Result<Self, StreamError> {
        Ok(Self::of(Kind::One(info(url)?)))
    }

    /// The server that a client was made for.
    #[must_use]
    pub fn of_client(client: &Client) -> Self {
        Self::of(Kind::One(client.get_connection_info().clone()))
    }

    /// The master that these Sentinels name `master`, asked for anew with every connection. `as_user`
    /// is an address whose user, password, database and scheme hold for the master; its host is not
    /// used.
    ///
    /// # Errors
    /// `NotSent` for what is no address, or without any.
    pub fn sentinel<'a>(
        sentinels: impl IntoIterator<Item = &'a str>,
        master: impl Into<String>,
        as_user: &str,
    ) -> Result<Self, StreamError> {
        let (sentinels, as_user) = (infos(sentinels)?, info(as_user)?);
        Ok(Self::of(Kind::Sentinel { sentinels, master: master.into(), as_user }))
    }

    /// A cluster, some of whose nodes are these. User and password of the first hold for all nodes.
    ///
    /// # Errors
    /// `NotSent` for what is no address, or without any.
    pub fn cluster<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Result<Self, StreamError> {
        Ok(Self::of(Kind::Cluster(infos(nodes)?)))
    }

    /// Trusts these certificates, in PEM, instead of those of the machine, and shows ours if there is
    /// one. They are used at addresses with `rediss://`; at Sentinels only if all of them have such.
    #[must_use]
    pub fn with_certificates(mut self, certificates: TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Whether streams lie on several servers.
    #[must_use]
    pub const fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// Whether streams of these names can live there.
    ///
    /// # Errors
    /// `InvalidOption` for the Pulse layout in a cluster: its keys of one stream lie in different slots.
    pub const fn admits(&self, names: &Names) -> Result<(), CallerError> {
        match (self.is_cluster(), names.layout()) {
            (true, Layout::Pulse) => Err(CallerError::InvalidOption { setting: Setting::PulseInCluster }),
            (true, Layout::Tagged) | (false, Layout::Pulse | Layout::Tagged) => Ok(()),
        }
    }

    /// Connects, for operations over this one connection; each answer is given up after `answer_ms_max`,
    /// as uncertain. [`Remote`](crate::Remote) connects anew by itself.
    ///
    /// # Errors
    /// What kept the connection from being made; `InvalidOption` for the Pulse layout in a cluster.
    pub async fn server(&self, names: Names, answer_ms_max: u64) -> Result<Server<Connection>, StreamError> {
        self.admits(&names)?;
        Ok(Server::new(self.connect(answer_ms_max).await?, names))
    }

    /// Connects; each answer is given up after `answer_ms_max`.
    pub(crate) async fn connect(&self, answer_ms_max: u64) -> Result<Connection, StreamError> {
        let limit = Duration::from_millis(answer_ms_max);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(limit))
            .set_connection_timeout(Some(limit));
        let made = match &self.kind {
            Kind::One(info) => self.one_of(info.clone(), &config).await,
            Kind::Sentinel { sentinels, master, as_user } => {
                self.master(sentinels, master, as_user, &config).await
            }
            Kind::Cluster(seeds) => self.whole(seeds, limit).await,
        };
        made.map_err(|error| unreachable(&error))
    }

    async fn one_of(
        &self,
        info: ConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> Result<Connection, RedisError> {
        if has_tls(&info) {
            provide_ciphers();
        }
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
            None => Client::open(info)?,
        };
        let connection = client.get_multiplexed_async_connection_with_config(config).await?;
        admitted(connection).await
    }

    /// The Sentinels are asked anew each time: the answer is of now.
    async fn master(
        &self,
        sentinels: &[ConnectionInfo],
        master: &str,
        as_user: &ConnectionInfo,
        config: &AsyncConnectionConfig,
    ) -> Result<Connection, RedisError> {
        let addresses = sentinels.iter().map(|info| info.addr().clone());
        let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
        let settings = as_user.redis_settings();
        builder =
            builder.set_client_to_redis_db(settings.db()).set_client_to_redis_protocol(settings.protocol());
        if let Some(user) = settings.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = settings.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if has_tls(as_user) || sentinels.iter().any(has_tls) {
            provide_ciphers();
        }
        // Nothing is shown to Sentinels without TLS: they would be refused together with those that have it.
        if let Some(certificates) = self.certificates.as_ref().filter(|_| sentinels.iter().all(has_tls)) {
            builder = builder.set_client_to_sentinel_certificates(certificates.clone());
        }
        if has_tls(as_user) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(certificates) = &self.certificates {
                builder = builder.set_client_to_redis_certificates(certificates.clone());
            }
        }
        let first = sentinels[0].redis_settings();
        if let Some(user) = first.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = first.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        let mut client: SentinelClient = builder.build()?;
        admitted(client.get_async_connection_with_config(config).await?).await
    }

    async fn whole(&self, seeds: &[ConnectionInfo], limit: Duration) -> Result<Connection, RedisError> {
        let mut builder = ClusterClientBuilder::new(seeds.to_vec())
            .connection_timeout(limit)
            .response_timeout(limit)
            // A command is never sent twice behind our back: whether it may be is for us to say.
            .retries(0);
        if seeds.iter().any(has_tls) {
            provide_ciphers();
        }
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        let connection = builder.build()?.get_async_connection().await?;
        Ok(Connection::Cluster(Box::new(connection)))
    }

    /// A connection for waiting, to the node of a cluster that was named, or to any.
    pub(crate) async fn connect_to_node(
        &self,
        node: Option<(&str, u16)>,
        answer_ms_max: u64,
    ) -> Result<Connection, StreamError> {
        let Kind::Cluster(seeds) = &self.kind else { return self.connect(answer_ms_max).await };
        let limit = Duration::from_millis(answer_ms_max);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(limit))
            .set_connection_timeout(Some(limit));
        let mut last = None;
        for seed in seeds {
            let info = match node {
                Some((host, port)) => seed.clone().set_addr(moved(seed.addr(), host, port)),
                None => seed.clone(),
            };
            match self.one_of(info, &config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
            if node.is_some() {
                break;
            }
        }
        let nobody = || RedisError::from((ErrorKind::InvalidClientConfig, "no address"));
        Err(unreachable(&last.unwrap_or_else(nobody)))
    }
}

/// Whoever may not do anything, or comes too early, is told so now: to a long command from nobody in
/// particular a server says nothing of use.
async fn admitted(mut connection: MultiplexedConnection) -> Result<Connection, RedisError> {
    redis::cmd("PING").exec_async(&mut connection).await?;
    Ok(Connection::One(connection))
}

/// The same way of connecting, to another node.
fn moved(from: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_string();
    if let ConnectionAddr::TcpTls { insecure, tls_params, .. } = from {
        let (insecure, tls_params) = (*insecure, tls_params.clone());
        return ConnectionAddr::TcpTls { host, port, insecure, tls_params };
    }
    ConnectionAddr::Tcp(host, port)
}

fn has_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// TLS needs ciphers for the process, with certificates of ours or of the machine: where more than one set of
/// them is built in, none is taken by itself. Whoever chose some before keeps them.
fn provide_ciphers() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread was faster, which then provided some.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Why there is no connection. Nothing was asked over it.
pub(crate) fn unreachable(error: &RedisError) -> StreamError {
    if error.kind() == ErrorKind::AuthenticationFailed {
        let message = error.detail().unwrap_or_default().to_string();
        return ServerFault::NotPermitted { word: "WRONGPASS".into(), message }.into();
    }
    match error.code() {
        Some(code) => refusal(&format!("{code} {}", error.detail().unwrap_or_default())),
        None => ServerFault::NotSent { detail: format!("expected a connection, found {error}") }.into(),
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;

    /// A port of this machine that nobody listens on.
    fn closed() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("rediss://{}/", listener.local_addr().expect("an address"))
    }

    /// The client that we build on takes some only when it has reached somebody, and none where it could
    /// choose: then it panics.
    #[tokio::test]
    async fn there_are_ciphers_before_anybody_is_reached_by_tls() {
        let url = closed();
        let address = Address::one(&url).expect("an address");
        assert!(address.connect(10_000).await.is_err());
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
