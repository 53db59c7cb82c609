//! Who waits for which stream, and until when.

use futures::channel::oneshot::Sender;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::stream::StreamName;
use strandline_core::stream::client::Waited;
use strandline_core::time::Instant;

#[derive(Debug)]
struct Wait {
    streams: Vec<StreamName>,
    until: Instant,
    sender: Sender<Waited>,
}

/// All waits. Each is answered once: rung, or out of time.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    next: u64,
    by_number: BTreeMap<u64, Wait>,
    by_stream: BTreeMap<StreamName, BTreeSet<u64>>,
    by_time: BTreeSet<(Instant, u64)>,
}

impl Waits {
    pub(crate) fn add(&mut self, streams: Vec<StreamName>, until: Instant, sender: Sender<Waited>) {
        self.drop_abandoned();
        let number = self.next;
        self.next += 1;
        for stream in &streams {
            self.by_stream.entry(stream.clone()).or_default().insert(number);
        }
        self.by_time.insert((until, number));
        self.by_number.insert(number, Wait { streams, until, sender });
    }

    /// Takes out whoever waits for the stream.
    pub(crate) fn ring(&mut self, stream: &StreamName, rung: &mut Vec<(Sender<Waited>, Waited)>) {
        for number in self.by_stream.remove(stream).unwrap_or_default() {
            rung.extend(self.remove(number).map(|sender| (sender, Waited::Rung)));
        }
    }

    /// Takes out everybody.
    pub(crate) fn ring_all(&mut self, rung: &mut Vec<(Sender<Waited>, Waited)>) {
        while let Some((number, _)) = self.by_number.first_key_value() {
            let number = *number;
            rung.extend(self.remove(number).map(|sender| (sender, Waited::Rung)));
        }
    }

    /// Takes out whose time has come.
    pub(crate) fn expire(&mut self, now: Instant, rung: &mut Vec<(Sender<Waited>, Waited)>) {
        while let Some((until, number)) = self.by_time.first().copied()
            && until <= now
        {
            rung.extend(self.remove(number).map(|sender| (sender, Waited::TimeOut)));
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Waits that nobody looks at any more: looked for one at a time, oldest first.
    fn drop_abandoned(&mut self) {
        while let Some((number, wait)) = self.by_number.first_key_value()
            && wait.sender.is_canceled()
        {
            let number = *number;
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Sender<Waited>> {
        let wait = self.by_number.remove(&number)?;
        self.by_time.remove(&(wait.until, number));
        for stream in &wait.streams {
            if let Some(numbers) = self.by_stream.get_mut(stream) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_stream.remove(stream);
                }
            }
        }
        Some(wait.sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::channel::oneshot::channel;

    #[test]
    fn each_wait_is_answered_once_and_leaves_nothing() {
        let name = |text: &str| StreamName::new(text).unwrap();
        let (mut waits, mut rung) = (Waits::default(), Vec::new());
        let (both, mut of_both) = channel();
        let (late, mut of_late) = channel();
        waits.add(vec![name("a"), name("b")], Instant(9), both);
        waits.add(vec![name("b")], Instant(5), late);
        assert_eq!(waits.deadline(), Some(Instant(5)));
        waits.ring(&name("a"), &mut rung);
        waits.expire(Instant(20), &mut rung);
        for (sender, how) in rung {
            sender.send(how).unwrap();
        }
        assert_eq!(
            (of_both.try_recv(), of_late.try_recv()),
            (Ok(Some(Waited::Rung)), Ok(Some(Waited::TimeOut)))
        );
        assert_eq!(waits.deadline(), None);
        assert!(waits.by_stream.is_empty() && waits.by_number.is_empty());
    }

    #[test]
    fn an_abandoned_wait_goes_when_the_next_one_comes() {
        let name = StreamName::new("a").unwrap();
        let mut waits = Waits::default();
        for _ in 0..3 {
            let (sender, receiver) = channel();
            drop(receiver);
            waits.add(vec![name.clone()], Instant(5), sender);
        }
        assert_eq!(waits.by_number.len(), 1);
    }
}
