//! The scenarios of a shared backend, with a real server under the hubs.

use strandline_tests::coverage::play::play_over;
use strandline_tests::coverage::redis_server::Process;
use strandline_tests::coverage::runner::{chosen, own};
use strandline_tests::coverage::scenario::read;

#[test]
fn every_scenario_of_a_shared_backend_is_right_on_a_real_server() {
    let path = chosen();
    let scenarios: Vec<_> =
        read(&path).unwrap().into_iter().filter(|s| s.shared && s.check != "prose").collect();
    let server = Process::start();
    let report = play_over(&scenarios, || Box::new(server.empty()));
    println!("{} scenarios right over a real server, {} failed", report.right.len(), report.failures.len());
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert!(path != own() || !report.right.is_empty(), "no scenario of a shared backend");
}
