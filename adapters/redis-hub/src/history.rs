//! Reads what the history of a topic keeps. It is vouched for by its entries: each has the incarnation and
//! the sequence of its event, so the core sees a hole, another incarnation, or an end that comes too soon.

use crate::script::{HubScripts, strange};
use crate::server::Commands;
use crate::wire;
use redis::{RedisError, Value};
use strandline_core::coverage::{History, Mark, Message, TopicName};
use strandline_core::error::StorageFault;

/// Events asked for at a time: with the largest events some 16 MiB.
const PAGE_EVENTS: u64 = 64;
/// Bytes read for one resume. A client that lacks more synchronises.
const BYTES_MAX: usize = 32 << 20;

/// The events right after `after`, at most `events_max` of them. Outside: the server cannot be asked.
/// Inside: it holds something else under that name.
pub(crate) async fn read(
    scripts: &HubScripts,
    commands: &mut Commands,
    (topic, after, events_max): (&TopicName, Mark, u32),
) -> Result<Result<History, StorageFault>, RedisError> {
    let key = scripts.names().history(topic);
    let (mut events, mut bytes) = (Vec::new(), 0);
    let mut next = after.position.next();
    while events.len() < events_max as usize && bytes < BYTES_MAX {
        let count = PAGE_EVENTS.min(u64::from(events_max) - events.len() as u64);
        let mut command = redis::cmd("XRANGE");
        command.arg(&key).arg(format!("{next}-0")).arg("+").arg("COUNT").arg(count);
        let page = match page(&commands.query(&command).await?) {
            Ok(page) => page,
            Err(strange) => return Ok(Err(strange)),
        };
        let Some(last) = page.last() else { break };
        next = last.mark.position.next();
        bytes += page.iter().map(|message| message.kind.len() + message.payload.len()).sum::<usize>();
        events.extend(page);
    }
    Ok(Ok(History::Run(events)))
}

fn page(value: &Value) -> Result<Vec<Message>, StorageFault> {
    let entries: Vec<(String, Vec<Vec<u8>>)> =
        redis::from_redis_value_ref(value).map_err(|e| strange(format!("expected entries, found {e}")))?;
    entries
        .into_iter()
        .map(|(id, fields)| {
            let message = match &fields[..] {
                [name, message] if name == b"m" => wire::kept(message),
                _ => None,
            };
            let message = message.filter(|message| id == format!("{}-0", message.mark.position));
            message.ok_or_else(|| strange(format!("expected an event of our script, found entry {id}")))
        })
        .collect()
}
