//! tmp
#[test]
fn x() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let report = strandline_tests::conformance::play(&dir).unwrap();
    println!("{}", report.text());
    for (k, v) in report.differences() {
        println!("DIFF {v}\t{k}");
    }
}
