//! The examples of the documents.

#[path = "../examples/cache_invalidation.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod cache_invalidation;
#[path = "../examples/job_progress.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod job_progress;

#[tokio::test]
async fn a_cache_is_never_wrong_and_lets_go_of_all_only_when_it_missed_something() {
    let (hits, emptied) = cache_invalidation::run(100).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(hits > 100, "{hits}");
    assert_eq!(emptied, 10, "once for each time that it slept");
}

#[tokio::test]
async fn who_watches_a_job_misses_no_step_and_who_comes_late_sees_its_end() {
    let [early, late] = job_progress::run(20).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(early, (1..=20).collect::<Vec<u32>>());
    assert_eq!(late, [20]);
}
