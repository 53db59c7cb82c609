//! Random bytes from the system.

use crate::exit::Failure;

/// `N` bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Failure::storage(format!("the system gave no random bytes: {error}"))),
    }
}
