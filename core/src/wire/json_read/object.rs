//! One visitor for every object: names exactly as written, each once, none missing.

use super::{Context, FromJson, JsonFault, JsonFaultKind, Refusal, as_text};
use alloc::borrow::Cow;
use alloc::format;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// A field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Whether it is always written.
    pub always: bool,
}

impl Field {
    /// A field that is always written.
    #[must_use]
    pub const fn always(name: &'static str) -> Self {
        Self { name, always: true }
    }

    /// A field that is left out when its value is empty.
    #[must_use]
    pub const fn unless_empty(name: &'static str) -> Self {
        Self { name, always: false }
    }
}

/// The names an object may have.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The fields, at most 32.
    pub fields: &'static [Field],
    /// Whether other names are skipped instead of refused. A name that folds to one of `fields` is
    /// refused all the same.
    pub skip_unknown: bool,
}

/// A value read from a JSON object.
pub trait Object<'de>: Default {
    /// What it consists of, for errors.
    const WHAT: &'static str;
    /// Its fields.
    const NAMES: Names;

    /// Reads the value of `NAMES.fields[index]`.
    ///
    /// # Errors
    /// The value is not of the field's kind.
    fn read_field<A: MapAccess<'de>>(
        &mut self,
        index: usize,
        map: &mut A,
        context: &Context,
    ) -> Result<(), A::Error>;
}

/// Defines an object by its fields: `rust_name: Type = always|unless_empty "name"`, in the order they
/// are written. `skip unknown` skips other names.
macro_rules! json_object {
    (@skip) => { false };
    (@skip skip unknown) => { true };
    ($(#[$meta:meta])* $vis:vis struct $object:ident<'de> = $what:literal $($skip:ident $unknown:ident)? {
        $($field:ident: $kind:ty = $presence:ident $name:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $object<'de> {
            $($field: $kind,)+
        }

        impl<'de> $crate::wire::json_read::Object<'de> for $object<'de> {
            const WHAT: &'static str = $what;
            const NAMES: $crate::wire::json_read::Names = $crate::wire::json_read::Names {
                fields: &[$($crate::wire::json_read::Field::$presence($name),)+],
                skip_unknown: json_object!(@skip $($skip $unknown)?),
            };

            fn read_field<A: serde::de::MapAccess<'de>>(
                &mut self,
                index: usize,
                map: &mut A,
                context: &$crate::wire::json_read::Context,
            ) -> Result<(), A::Error> {
                match Self::NAMES.fields[index].name {
                    $($name => {
                        self.$field = map.next_value_seed($crate::wire::json_read::Seed::new(context))?;
                    })+
                    other => unreachable!("{other} is none of the fields listed"),
                }
                Ok(())
            }
        }
    };
}
pub(crate) use json_object;

/// Reads a payload that is exactly one object, whose lists have at most `list_max` elements.
///
/// # Errors
/// See [`JsonFault`].
pub fn read_object<'de, T: Object<'de>>(payload: &'de [u8], list_max: u32) -> Result<T, JsonFault> {
    let text = as_text(payload)?;
    let context = Context::new(list_max);
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::read(&mut json, &context).map_err(|error| context.fault(text, &error))?;
    json.end().map_err(|error| JsonFault { kind: JsonFaultKind::Trailing, ..context.fault(text, &error) })?;
    Ok(value)
}

impl<'de, T: Object<'de>> FromJson<'de> for T {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor { context, kind: PhantomData })
    }
}

struct ObjectVisitor<'a, T> {
    context: &'a Context,
    kind: PhantomData<T>,
}

impl<'de, T: Object<'de>> Visitor<'de> for ObjectVisitor<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object: {}", T::WHAT)
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        Err(self.context.refuse(Refusal::Null, format!("null for an object: {}", T::WHAT)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut value = T::default();
        let mut seen = 0u32;
        while let Some(name) = map.next_key_seed(NameSeed { names: T::NAMES, context: self.context })? {
            let Name::Known(index) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen & 1 << index != 0 {
                let name = T::NAMES.fields[index].name;
                let detail = format!("field {name:?} appears twice, expected once");
                return Err(self.context.refuse(Refusal::DuplicateName, detail));
            }
            seen |= 1 << index;
            value.read_field(index, &mut map, self.context)?;
        }
        for (index, field) in T::NAMES.fields.iter().enumerate() {
            if field.always && seen & 1 << index == 0 {
                let detail = format!("field {:?} of {} is absent, expected always", field.name, T::WHAT);
                return Err(self.context.refuse(Refusal::AbsentField, detail));
            }
        }
        Ok(value)
    }
}

enum Name {
    Known(usize),
    Skipped,
}

struct NameSeed<'a> {
    names: Names,
    context: &'a Context,
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, found: &str) -> Result<Name, E> {
        let fields = self.names.fields;
        if let Some(index) = fields.iter().position(|field| field.name == found) {
            return Ok(Name::Known(index));
        }
        if let Some(field) = fields.iter().find(|field| folds_to(found, field.name)) {
            let detail = format!("field name is {}, expected {:?}", shown(found), field.name);
            return Err(self.context.refuse(Refusal::FoldedCase, detail));
        }
        if self.names.skip_unknown {
            return Ok(Name::Skipped);
        }
        let detail = format!("field {} is unknown", shown(found));
        Err(self.context.refuse(Refusal::UnknownField, detail))
    }
}

/// A name of a peer's choosing, quoted and cut for an error.
fn shown(name: &str) -> Cow<'static, str> {
    format!("{:?}", name.chars().take(32).collect::<alloc::string::String>()).into()
}

/// Whether Go takes one name for the other: letters in either case, and the two characters outside
/// ASCII that fold to an ASCII letter.
fn folds_to(found: &str, name: &str) -> bool {
    let folded = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    found.chars().map(folded).eq(name.chars().map(folded))
}

#[cfg(test)]
mod tests {
    use super::super::Seed;
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Pair {
        kind: u64,
        size: u64,
    }

    impl<'de> Object<'de> for Pair {
        const WHAT: &'static str = "a pair";
        const NAMES: Names =
            Names { fields: &[Field::always("kind"), Field::unless_empty("size")], skip_unknown: false };

        fn read_field<A: MapAccess<'de>>(
            &mut self,
            index: usize,
            map: &mut A,
            context: &Context,
        ) -> Result<(), A::Error> {
            let value = map.next_value_seed(Seed::new(context))?;
            match index {
                0 => self.kind = value,
                _ => self.size = value,
            }
            Ok(())
        }
    }

    fn refusal(text: &str) -> Option<Refusal> {
        read_object::<Pair>(text.as_bytes(), 0).expect_err(text).refusal
    }

    #[test]
    fn any_order_and_white_space_are_read() {
        for text in [r#"{"kind":1,"size":2}"#, " {\t\"size\" : 2 ,\r\n\"kind\":1 } \n"] {
            assert_eq!(read_object(text.as_bytes(), 0), Ok(Pair { kind: 1, size: 2 }), "{text}");
        }
        assert_eq!(read_object(br#"{"kind":1}"#, 0), Ok(Pair { kind: 1, size: 0 }));
        assert_eq!(read_object(br#"{"\u006bind":1}"#, 0), Ok(Pair { kind: 1, size: 0 }));
    }

    #[test]
    fn duplicate_name() {
        assert_eq!(refusal(r#"{"kind":1,"kind":1}"#), Some(Refusal::DuplicateName));
    }

    #[test]
    fn folded_case() {
        for name in ["Kind", "KIND", "\u{212a}ind", r"\u212aind"] {
            assert_eq!(refusal(&format!("{{\"{name}\":1}}")), Some(Refusal::FoldedCase), "{name}");
        }
        assert_eq!(refusal("{\"\u{17f}ize\":1}"), Some(Refusal::FoldedCase));
    }

    #[test]
    fn unknown_field() {
        assert_eq!(refusal(r#"{"kind":1,"more":[[1]]}"#), Some(Refusal::UnknownField));
    }

    #[test]
    fn absent_field() {
        assert_eq!(refusal(r#"{"size":1}"#), Some(Refusal::AbsentField));
    }

    #[test]
    fn null_object() {
        assert_eq!(refusal("null"), Some(Refusal::Null));
    }

    #[test]
    fn arrays_and_scalars_are_no_objects_to_anybody() {
        for text in ["[1,2]", "1", "\"\"", "true", ""] {
            assert_eq!(refusal(text), None, "{text}");
        }
    }

    #[test]
    fn trailing_data_is_told_apart() {
        for text in [r#"{"kind":1}{}"#, r#"{"kind":1}]"#, "{\"kind\":1}\0"] {
            let fault = read_object::<Pair>(text.as_bytes(), 0).expect_err(text);
            assert_eq!((fault.kind, fault.refusal), (JsonFaultKind::Trailing, None), "{text}");
        }
    }

    #[test]
    fn invalid_utf8() {
        let fault = read_object::<Pair>(b"{\"kind\xff\":1}", 0).expect_err("not UTF-8");
        assert_eq!(fault.refusal, Some(Refusal::InvalidUtf8));
    }

    #[test]
    fn lone_surrogate_in_a_name() {
        assert_eq!(refusal(r#"{"\ud800":1}"#), Some(Refusal::LoneSurrogate));
    }
}
