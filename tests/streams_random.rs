//! The model and the scripts do the same, step by step, under a clock that the test moves.
//!
//! `STRANDLINE_STREAM_RANDOM="pulse 17 0,4,9"` replays those steps of that sequence.

use strandline_core::stream::{Layout, StreamName};
use strandline_redis::Names;
use strandline_tests::streams::answers::layout_name;
use strandline_tests::streams::backend::Backend;
use strandline_tests::streams::embedded::Embedded;
use strandline_tests::streams::random::{KINDS, Reached, STEPS_MAX, STREAMS, TAGGED_KINDS, replay, sequence};
use strandline_tests::streams::redis::Real;

/// Operations of each layout, and in a cluster, in `make test`.
const OPERATIONS: usize = 10_000;

/// So many times more with `STRANDLINE_SOAK`.
const SOAK: usize = 10;

fn names(layout: Layout) -> Names {
    match layout {
        Layout::Pulse => Names::Pulse,
        Layout::Tagged => Names::tagged_below("s").expect("a name"),
    }
}

/// Holds a server to the model; `name` chooses what is replayed.
fn differential(real: &mut dyn Backend, name: &str) {
    if let Ok(chosen) = std::env::var("STRANDLINE_STREAM_RANDOM") {
        let mut words = chosen.split(' ');
        if words.next() == Some(name) {
            let seed = words.next().and_then(|word| word.parse().ok()).expect("a seed");
            let steps: Vec<usize> =
                words.next().expect("steps").split(',').map(|step| step.parse().expect("a step")).collect();
            let told = replay(real, seed, &steps);
            assert!(told.is_ok(), "{}", told.unwrap_err());
        }
        return;
    }
    let operations =
        if std::env::var_os("STRANDLINE_SOAK").is_some() { SOAK * OPERATIONS } else { OPERATIONS };
    let mut done = 0;
    let mut kinds = Reached::new();
    for seed in 0.. {
        if done >= operations {
            break;
        }
        match sequence(real, seed) {
            Ok(reached) => {
                done += STEPS_MAX;
                kinds.extend(reached);
            }
            Err(failure) => {
                let steps: Vec<String> = failure.steps.iter().map(usize::to_string).collect();
                panic!(
                    "the server and the model differ; to replay it:\n  \
                     STRANDLINE_STREAM_RANDOM=\"{name} {} {}\" cargo test -p strandline-tests --test streams_random\n{}",
                    failure.seed,
                    steps.join(","),
                    failure.told,
                );
            }
        }
    }
    let tagged: &[&str] = if real.layout() == Layout::Tagged { &TAGGED_KINDS } else { &[] };
    let wanted = KINDS.iter().chain(tagged);
    let unseen: Vec<&&str> = wanted.filter(|kind| !kinds.contains(**kind)).collect();
    assert!(unseen.is_empty(), "{done} operations and never: {unseen:?}");
    println!("{}: {done} operations in sequences of {STEPS_MAX}", real.name());
}

fn scripts(layout: Layout) {
    differential(&mut Real::start_frozen(names(layout)), layout_name(layout));
}

#[test]
fn the_embedded_keyspace_in_memory_does_what_the_model_does() {
    differential(&mut Embedded::in_memory(), "memory");
}

#[test]
fn the_embedded_keyspace_opened_after_each_step_does_what_the_model_does() {
    let mut embedded = Embedded::durable_in_small_files();
    differential(&mut embedded, "durable");
    assert!(embedded.reopened > 1000, "{} times", embedded.reopened);
}

#[test]
fn scripts_of_the_pulse_layout_do_what_the_model_does() {
    scripts(Layout::Pulse);
}

#[test]
fn scripts_of_the_tagged_layout_do_what_the_model_does() {
    scripts(Layout::Tagged);
}

#[test]
fn scripts_on_a_cluster_of_three_masters_do_what_the_model_does() {
    let mut real = Real::start_frozen_cluster(names(Layout::Tagged));
    let homes = STREAMS.map(|name| real.master_of(&StreamName::new(name).expect("a name")));
    assert_ne!(homes[0], homes[1], "the streams lie on different masters");
    differential(&mut real, "cluster");
}
