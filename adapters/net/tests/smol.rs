//! The driver on smol, through the runtime of the example.

#[path = "../examples/smol.rs"]
#[allow(unreachable_pub, reason = "an example, included")]
mod example;
mod suite;

use suite::Outcome;

fn run<F: Future<Output = Outcome>>(test: impl FnOnce(example::Smol) -> F) -> Outcome {
    smol::block_on(test(example::Smol))
}

suite::tests!(run);

#[test]
fn the_example_runs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let version = smol::block_on(example::replicate(folder.path()))?;
    assert_eq!((version.epoch, version.sequence), (1, 1));
    Ok(())
}
