//! Connections with TLS: our own authority, a certificate of ours, and none.

use crate::sentinel::Sentinel;
use crate::support::{PATIENT, SHORT, add, ask, handle, op, payloads, remote_by, runtime, tagged};
use std::path::Path;
use std::process::{Command, Stdio};
use strandline_core::stream::{Outcome, ServerFault, StreamError};
use strandline_redis::{Address, ClientTlsConfig, Remote, TlsCertificates};
use strandline_tests::streams::server::RedisServer;
use tempfile::TempDir;

/// An authority, with a certificate for a server on this machine and one for a client.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let authority = Self(TempDir::new().expect("a directory"));
        let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        authority
            .openssl(&[&key[..], &["-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca"]]);
        authority.issue("server", "subjectAltName=IP:127.0.0.1\n");
        authority.issue("client", "extendedKeyUsage=clientAuth\n");
        authority
    }

    fn issue(&self, name: &str, extensions: &str) {
        let file = |end: &str| format!("{name}.{end}");
        std::fs::write(self.0.path().join(file("ext")), extensions).expect("written");
        let (key, request, out, subject) = (file("key"), file("csr"), file("pem"), format!("/CN={name}"));
        let wanted =
            ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", &key];
        self.openssl(&[&wanted[..], &["-out", &request, "-subj", &subject]]);
        let signed =
            ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        self.openssl(&[&signed[..], &["-days", "2", "-extfile", &file("ext"), "-out", &out]]);
    }

    fn openssl(&self, words: &[&[&str]]) {
        let status = Command::new("openssl")
            .args(words.concat())
            .current_dir(self.0.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap_or_else(|error| panic!("expected openssl on the path: {error}"));
        assert!(status.success(), "openssl {words:?}");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("a file of the authority")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A server with TLS on one more port; whether it wants to see a certificate.
fn server(authority: &Authority, clients: &str) -> (RedisServer, String) {
    let port = free_port().to_string();
    let file = |name: &str| authority.path().join(name).display().to_string();
    let server = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        clients,
    ]);
    (server, format!("rediss://127.0.0.1:{port}/"))
}

fn trusting(authority: &Authority, client: bool) -> TlsCertificates {
    let client_tls = client.then(|| ClientTlsConfig {
        client_cert: authority.read("client.pem"),
        client_key: authority.read("client.key"),
    });
    TlsCertificates { client_tls, root_cert: Some(authority.read("ca.pem")) }
}

fn not_sent(remote: &Remote) {
    let outcome = runtime().block_on(remote.apply(&op(&handle("orders"), add("a"))));
    let Outcome::Answered { result: Err(StreamError::Server(ServerFault::NotSent { detail })), .. } = outcome
    else {
        panic!("expected nothing to be sent, found {outcome:?}")
    };
    assert!(!detail.is_empty());
}

#[test]
fn an_authority_of_ours_is_trusted_and_others_are_not() {
    let authority = Authority::new();
    let (_server, url) = server(&authority, "no");
    let address = Address::one(&url).expect("an address");
    let own = address.clone().with_certificates(trusting(&authority, false));
    runtime().block_on(async {
        let remote = remote_by(own, tagged(), PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        assert_eq!(payloads(&remote, &mut orders).await, ["a"]);
    });
    let strange = Authority::new();
    not_sent(&remote_by(address.with_certificates(trusting(&strange, false)), tagged(), SHORT));
}

#[test]
fn a_server_that_wants_to_know_us_is_shown_our_certificate() {
    let authority = Authority::new();
    let (_server, url) = server(&authority, "yes");
    let address = Address::one(&url).expect("an address");
    let shown = address.clone().with_certificates(trusting(&authority, true));
    runtime().block_on(async {
        let remote = remote_by(shown, tagged(), PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        assert_eq!(payloads(&remote, &mut orders).await, ["a"]);
    });
    not_sent(&remote_by(address.with_certificates(trusting(&authority, false)), tagged(), SHORT));
}

/// The Sentinel and the master it names both have certificates of our authority.
#[test]
fn sentinels_with_tls_are_trusted_by_our_authority() {
    let authority = Authority::new();
    let (_master, url) = server(&authority, "no");
    let port = url.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let (own, tls_port) = (port.expect("a port"), free_port());
    let file = |name: &str| authority.path().join(name).display().to_string();
    let settings = format!(
        "tls-port {tls_port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
         tls-auth-clients no\ntls-replication yes\n",
        file("server.pem"),
        file("server.key"),
        file("ca.pem"),
    );
    let _sentinel = Sentinel::start(own, &settings);
    let sentinel = format!("rediss://127.0.0.1:{tls_port}/");
    let address = Address::sentinel([sentinel.as_str()], "orders", "rediss://unused/").expect("addresses");
    runtime().block_on(async {
        let trusted = address.clone().with_certificates(trusting(&authority, false));
        let remote = remote_by(trusted, tagged(), PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        assert_eq!(payloads(&remote, &mut orders).await, ["a"]);
    });
    let strange = Authority::new();
    not_sent(&remote_by(address.with_certificates(trusting(&strange, false)), tagged(), SHORT));
}
