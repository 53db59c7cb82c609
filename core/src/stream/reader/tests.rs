//! Readers against the model, with something begun while an answer is still out.

use super::*;
use crate::stream::event::Event;
use crate::stream::keyspace::Keyspace;
use crate::stream::layout::Layout;
use crate::stream::op::Condition;
use crate::stream::retention::Wanted;
use crate::stream::settings::TakeSettings;
use crate::stream::time::ServerTime;

#[test]
fn a_batch_on_its_way_when_its_stream_is_left_moves_no_other() {
    let nonce = Nonce([7; 16]);
    let now = ServerTime::from_ms(1000);
    let name = |stream| StreamName::new(stream).unwrap();
    let mut server = Keyspace::new(Layout::Tagged);
    let mut reader = Reader::new(TakeSettings::new().start(Start::Oldest).taking().unwrap());
    for stream in ["s", "t"] {
        let mut handle = Handle::new(name(stream), Wanted::default(), Layout::Tagged).unwrap();
        let add = Verb::Add { event: Event::new("e", stream).unwrap(), condition: Condition::Always };
        let op = handle.op(add, nonce);
        handle.answered(&op.verb, &server.apply(now, &op));
        reader.attach(&handle).unwrap();
        let op = reader.op(nonce).unwrap();
        reader.answered(&op, server.apply(now, &op)).unwrap();
    }
    reader.pass().unwrap();
    let read = reader.op(nonce).unwrap();
    let batch = server.apply(now, &read);
    reader.detach(&name("s")).unwrap();
    assert_eq!(reader.answered(&read, batch), Ok(Read::More));
    let read = reader.op(nonce).unwrap();
    let Ok(Read::Entries(stream, entries, None)) = reader.answered(&read, server.apply(now, &read)) else {
        panic!("the entry of the other stream")
    };
    assert_eq!((stream, entries.len()), (name("t"), 1));
}
