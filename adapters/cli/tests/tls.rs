//! Nodes of the built program with TLS: what replicates, what is refused, and what a reload does.

mod support;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpStream;
use std::process::Command;
use support::{Replica, wait_until};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed"))
    }

    /// Writes the files of a node called `name` into the home of a replica.
    fn certify(&self, name: &str, replica: &Replica) {
        self.certify_as(name, 1, replica);
    }

    /// The same, with a number by which the certificate can be revoked.
    fn certify_as(&self, name: &str, serial: u64, replica: &Replica) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        let write = |file, text: String| std::fs::write(replica.path(file), text).expect("writes");
        write("node.pem", certificate.pem());
        write("node.key", key.serialize_pem());
        write("ca.pem", self.0.pem());
    }

    /// Writes the list of what it has revoked.
    fn revoke(&self, serials: &[u64], replica: &Replica) {
        let day = date_time_ymd(2020, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: day,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: day,
            next_update: date_time_ymd(2020, 2, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let text = list.signed_by(&self.0).and_then(|list| list.pem()).expect("signed");
        std::fs::write(replica.path("crl.pem"), text).expect("writes");
    }
}

const TLS: &str = "[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\nauthorities = \"ca.pem\"\n";

fn called(token: &str) -> String {
    format!("{TLS}[[peers]]\nidentity = \"b\"\ntoken = \"{token}\"\n")
}

fn calls(address: &str, token: &str) -> String {
    format!("token = \"{token}\"\n{TLS}[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n")
}

fn follower(of: &Replica) -> Replica {
    let log = of.status()["log"].as_str().expect("a log").to_owned();
    let replica = Replica::new();
    replica.done(["init", "--identity", "b", "--follow", "--log", &log]);
    replica
}

fn wait_until_same(a: &Replica, b: &Replica) {
    let tail = a.status();
    wait_until("the same tail", || b.status()["tail"] == tail["tail"]);
    assert_eq!(b.status()["tail_digest"], tail["tail_digest"]);
}

fn links(of: &Replica) -> usize {
    of.status()["links"].as_array().map_or(0, Vec::len)
}

#[test]
fn nodes_with_certificates_replicate_and_are_reloaded_while_the_link_stands() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut a = Replica::writer("a");
    old.certify("a", &a);
    a.put("k", b"one");
    let address = a.serve(&called("of b"));
    let mut b = follower(&a);
    old.certify("b", &b);
    b.serve(&calls(&address, "of b"));
    wait_until_same(&a, &b);

    // Other certificates of another authority, by signal and by command; the link stands.
    new.certify("a", &a);
    new.certify("b", &b);
    a.hangup();
    let done = b.done(["reload"]).last();
    assert_eq!((&done["links_ended"], &done["peers_called"]), (&0.into(), &0.into()));
    a.put("k", b"two");
    wait_until_same(&a, &b);

    // A file that cannot be used changes nothing.
    std::fs::write(a.path("node.key"), "no key").expect("writes");
    let refused = a.run(["reload"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("private key"), "{}", refused.stderr);
    a.put("k", b"three");
    wait_until_same(&a, &b);

    // The token of b is taken away: its link ends, and another token lets it in again.
    new.certify("a", &a);
    std::fs::write(a.path("peers.toml"), called("the next")).expect("writes");
    assert_eq!(a.done(["reload"]).last()["links_ended"], 1);
    wait_until("the end of the link", || links(&a) == 0 && links(&b) == 0);
    a.put("k", b"four");
    std::fs::write(b.path("peers.toml"), calls(&address, "the next")).expect("writes");
    b.done(["reload"]);
    wait_until_same(&a, &b);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

#[test]
fn a_revoked_certificate_is_of_no_use_after_a_reload() {
    let authority = Authority::new();
    let mut a = Replica::writer("a");
    authority.certify_as("a", 7, &a);
    a.put("k", b"one");
    let listed = called("of b").replacen("[tls]\n", "[tls]\nrevoked = \"crl.pem\"\n", 1);
    assert_eq!(a.try_serve(&listed), Err(2), "there is no such file");
    authority.revoke(&[9], &a);
    let address = a.serve(&listed);
    let mut b = follower(&a);
    authority.certify_as("b", 8, &b);
    b.serve(&calls(&address, "of b"));
    wait_until_same(&a, &b);

    authority.revoke(&[8, 9], &a);
    assert_eq!(a.done(["reload"]).last()["links_ended"], 0, "what stands goes on");
    assert_eq!(b.stop(), 0);
    wait_until("the end of the link", || links(&a) == 0);
    a.put("k", b"two");
    b.serve(&calls(&address, "of b"));
    for _ in 0..20 {
        assert_eq!((links(&a), links(&b)), (0, 0));
    }
    assert_eq!(b.plain(["get", "k"]).stdout, b"one");
    authority.certify_as("b", 10, &b);
    b.done(["reload"]);
    wait_until_same(&a, &b);
    std::fs::write(a.path("crl.pem"), "no list").expect("writes");
    let refused = a.run(["reload"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("revoked certificates"), "{}", refused.stderr);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

#[test]
fn a_stolen_token_with_another_certificate_gets_nothing() {
    let authority = Authority::new();
    let mut a = Replica::writer("a");
    authority.certify("a", &a);
    a.put("k", b"secret");
    let address = a.serve(&called("of b"));
    let mut thief = follower(&a);
    authority.certify("c", &thief);
    thief.serve(&calls(&address, "of b"));
    // A link would have been made long before this many exchanges with both nodes.
    for _ in 0..20 {
        assert_eq!((links(&a), links(&thief)), (0, 0));
        assert_eq!(thief.status()["present"], 0);
    }
}

#[test]
fn other_machines_need_tls_or_plaintext_in_so_many_words() {
    let a = Replica::writer("a");
    let file = a.path("peers.toml");
    std::fs::write(&file, "[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n").expect("writes");
    let file = file.to_str().expect("UTF-8");
    let refused = a.plain(["serve", "--listen", "0.0.0.0:0", "--peers", file]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("0.0.0.0:0") && refused.stderr.contains("--plaintext"),
        "{}",
        refused.stderr
    );
    let not_served = a.run(["reload"]);
    assert_eq!(not_served.code, 1, "{}", not_served.stderr);
}

#[test]
fn a_thousand_silent_connections_take_nothing_from_a_peer() {
    raise_descriptors();
    let authority = Authority::new();
    let mut a = Replica::writer("a");
    authority.certify("a", &a);
    a.put("k", b"one");
    let address = a.serve(&called("of b"));
    let mut b = follower(&a);
    authority.certify("b", &b);
    b.serve(&calls(&address, "of b"));
    wait_until_same(&a, &b);

    let flood: Vec<_> = (0..1_000).map(|_| TcpStream::connect(&*address).expect("connects")).collect();
    a.put("k", b"two");
    wait_until_same(&a, &b);
    assert_eq!(b.stop(), 0);
    a.put("k", b"three");
    b.serve(&calls(&address, "of b"));
    wait_until_same(&a, &b);
    drop(flood);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

/// Makes room for the flood in this process, as far as the system allows; the node inherits it.
fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(4_000, |maximum| maximum.min(4_000));
    if current.is_some_and(|current| current < raised) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).expect("is raised");
    }
}

/// Runs the commands that OPERATIONS.md gives for an authority and a certificate, as they stand there.
#[test]
fn the_commands_of_the_handbook_make_certificates_that_nodes_believe() {
    let handbook = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/OPERATIONS.md");
    let handbook = std::fs::read_to_string(handbook).expect("is there");
    let (_, section) = handbook.split_once("### Certificates").expect("the section");
    let (_, commands) = section.split_once("```sh\n").expect("its commands");
    let (commands, _) = commands.split_once("```").expect("their end");
    let (authority, node) = commands.split_once('\n').expect("the authority's comes first");
    let run = |commands: &str, replica: &Replica| {
        let mut shell = Command::new("sh");
        let ended = shell.args(["-ec", commands]).current_dir(replica.home.path()).output().expect("runs");
        assert!(ended.status.success(), "{commands}: {}", String::from_utf8_lossy(&ended.stderr));
    };
    let mut a = Replica::writer("a");
    a.put("k", b"one");
    run(authority, &a);
    run(node, &a);
    let mut b = follower(&a);
    for file in ["ca.pem", "ca.key"] {
        std::fs::copy(a.path(file), b.path(file)).expect("copies");
    }
    run(&node.replace("CN=a", "CN=b").replace("DNS:a", "DNS:b"), &b);
    let address = a.serve(&called("of b"));
    b.serve(&calls(&address, "of b"));
    wait_until_same(&a, &b);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}
