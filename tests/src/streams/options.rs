//! Arguments of scenario steps, turned into our settings.

use super::value::repeated;
use serde_json::Value;
use std::time::Duration;
use strandline_core::stream::error::{CallerError, Setting};
use strandline_core::stream::retention::Settings;
use strandline_core::stream::settings::{TakeSettings, Taking};
use strandline_core::stream::{Handle, Layout, Start, StreamName};

/// Milliseconds with a fraction, as a duration; what is below zero no duration can be.
fn duration(value: &Value) -> Duration {
    Duration::try_from_secs_f64(value.as_f64().unwrap_or_default() / 1000.0).unwrap_or_default()
}

/// A number that our types hold; what is below zero is refused by them, as zero is.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The settings that an object of arguments names.
pub(super) fn handle(args: &Value, layout: Layout) -> Result<Handle, CallerError> {
    let mut settings = Settings::new();
    let mut stream = "orders".to_string();
    for (name, value) in args.as_object().into_iter().flatten() {
        settings = match name.as_str() {
            "stream" => {
                stream = repeated(value, "x");
                settings
            }
            "max_len" => settings.max_len(number(value)),
            "unbounded" if value == true => settings.unbounded(),
            "ttl_ms" => settings.ttl(duration(value)),
            "sliding" if value == true => settings.sliding(),
            "unbounded" | "sliding" => settings,
            "deadline" if value == "zero" => settings.deadline_ms(0),
            "deadline" => settings.deadline_ms(number(value)),
            other => panic!("a handle with {other:?}: no such setting is known"),
        };
    }
    Handle::new(StreamName::new(stream)?, settings.wanted()?, layout)
}

/// The settings of a reader or a consumer.
pub(super) fn taking(args: &Value) -> Result<Taking, CallerError> {
    let mut settings = TakeSettings::new();
    for (name, value) in args.as_object().into_iter().flatten() {
        let text = || value.as_str().unwrap_or_default();
        settings = match name.as_str() {
            "start" => settings.start(Start::parse(text()).expect("a start")),
            "start_options" => (0..number(value)).fold(settings, |settings, _| settings.start(Start::Oldest)),
            "topic" => settings.topic(text()),
            "pattern" => settings.pattern(text()),
            "max_polled" => settings.max_polled(u32::try_from(number(value)).unwrap_or(u32::MAX)),
            // A length below zero: our type has no such value.
            "buffer" if value.as_i64().is_some_and(|n| n < 0) => {
                return Err(CallerError::InvalidOption { setting: Setting::Buffer });
            }
            "buffer" => settings.buffer(u32::try_from(number(value)).unwrap_or(u32::MAX)),
            "block_ms" => settings.block(duration(value)),
            "grace_ms" => settings.grace(duration(value)),
            "no_ack" if value == true => settings.no_ack(),
            "no_ack" | "sink" | "consumer" => settings,
            other => panic!("taking with {other:?}: no such setting is known"),
        };
    }
    settings.taking()
}
