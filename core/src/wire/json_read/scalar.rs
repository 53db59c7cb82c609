//! Seeds for the values inside objects.

use super::object::{Object, ObjectSeed};
use super::{Context, Refusal, base64};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

/// Reads by asking what stands there, so that a refused kind can be named.
macro_rules! any_seed {
    ($seed:ident -> $value:ty) => {
        impl<'de> DeserializeSeed<'de> for $seed<'_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

/// An integer from 0 to 2^64 - 1, without fraction, exponent or sign.
#[derive(Debug)]
pub struct Number<'a>(pub &'a Context);

any_seed!(Number -> u64);

impl Visitor<'_> for Number<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer from 0 to 18446744073709551615")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_unit<E: de::Error>(self) -> Result<u64, E> {
        Err(self.0.refuse(Refusal::Null, "null for an integer"))
    }
}

/// `true` or `false`.
#[derive(Debug)]
pub struct Boolean<'a>(pub &'a Context);

any_seed!(Boolean -> bool);

impl Visitor<'_> for Boolean<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_unit<E: de::Error>(self) -> Result<bool, E> {
        Err(self.0.refuse(Refusal::Null, "null for a boolean"))
    }
}

/// A text, borrowed from the payload if no escape stands in it.
#[derive(Debug)]
pub struct Text<'a>(pub &'a Context);

any_seed!(Text -> Cow<'de, str>);

impl<'de> Visitor<'de> for Text<'_> {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.into()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Err(self.0.refuse(Refusal::Null, "null for a string"))
    }
}

/// A text that is left out when it is empty.
#[derive(Debug)]
pub struct FilledText<'a>(pub &'a Context);

impl<'de> DeserializeSeed<'de> for FilledText<'_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let text = Text(self.0).deserialize(deserializer)?;
        if text.is_empty() {
            return Err(self.0.refuse(Refusal::EmptyForAbsent, "empty string, expected no field at all"));
        }
        Ok(text)
    }
}

/// Bytes as standard padded base64.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a Context);

any_seed!(Bytes -> Vec<u8>);

impl<'de> Visitor<'de> for Bytes<'_> {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string of standard padded base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        const DETAIL: &str = "bytes are not standard padded base64";
        base64::decode(text).map_err(|refusal| match refusal {
            Some(refusal) => self.0.refuse(refusal, DETAIL),
            None => E::custom(DETAIL),
        })
    }

    fn visit_unit<E: de::Error>(self) -> Result<Vec<u8>, E> {
        Err(self.0.refuse(Refusal::Null, "null for bytes"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Vec<u8>, A::Error> {
        Err(self.0.refuse(Refusal::NumberArray, "an array for bytes, expected standard padded base64"))
    }
}

/// Bytes that are left out when there are none.
#[derive(Debug)]
pub struct FilledBytes<'a>(pub &'a Context);

impl<'de> DeserializeSeed<'de> for FilledBytes<'_> {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let bytes = Bytes(self.0).deserialize(deserializer)?;
        if bytes.is_empty() {
            return Err(self.0.refuse(Refusal::EmptyForAbsent, "no bytes, expected no field at all"));
        }
        Ok(bytes)
    }
}

/// A value whose kind has a seed, so that lists of it can be read.
pub trait Element<'de>: Sized {
    /// Reads one.
    ///
    /// # Errors
    /// What stands there is none.
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error>;
}

impl<'de> Element<'de> for Cow<'de, str> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        Text(context).deserialize(deserializer)
    }
}

impl<'de> Element<'de> for Vec<u8> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        Bytes(context).deserialize(deserializer)
    }
}

impl<'de, T: Object<'de>> Element<'de> for T {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        ObjectSeed::new(context).deserialize(deserializer)
    }
}

/// A list of at most as many elements as the context allows.
#[derive(Debug)]
pub struct List<'a, T> {
    context: &'a Context,
    element: PhantomData<T>,
}

impl<'a, T> List<'a, T> {
    /// A seed bounded by `context`.
    #[must_use]
    pub const fn new(context: &'a Context) -> Self {
        Self { context, element: PhantomData }
    }
}

struct ElementSeed<'a, T>(&'a Context, PhantomData<T>);

impl<'de, T: Element<'de>> DeserializeSeed<'de> for ElementSeed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer, self.0)
    }
}

impl<'de, T: Element<'de>> DeserializeSeed<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Element<'de>> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", self.context.list_max)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Err(self.context.refuse(Refusal::Null, "null for a list"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element_seed(ElementSeed(self.context, PhantomData))? {
            if list.len() >= self.context.list_max as usize {
                return Err(self.context.too_many());
            }
            list.push(element);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Reads `text` with one seed and tells the value or the refusal.
    fn read<'de, S, T>(text: &'de str, seed: impl FnOnce(&'de Context) -> S) -> Result<T, Option<Refusal>>
    where
        S: DeserializeSeed<'de, Value = T>,
    {
        let context = alloc::boxed::Box::leak(alloc::boxed::Box::new(Context::new(2)));
        let mut json = serde_json::Deserializer::from_str(text);
        let seen: &Cell<_> = &context.refusal;
        seed(context).deserialize(&mut json).map_err(|_| seen.get())
    }

    #[test]
    fn numbers() {
        assert_eq!(read("18446744073709551615", Number), Ok(u64::MAX));
        assert_eq!(read("null", Number), Err(Some(Refusal::Null)));
        for text in ["4.0", "1e3", "-1", "-0", "18446744073709551616", "\"1\"", "true", "[]", "{}"] {
            assert_eq!(read(text, Number), Err(None), "{text}");
        }
    }

    #[test]
    fn booleans() {
        assert_eq!(read("true", Boolean), Ok(true));
        assert_eq!(read("null", Boolean), Err(Some(Refusal::Null)));
        assert_eq!(read("1", Boolean), Err(None));
    }

    #[test]
    fn texts() {
        assert_eq!(read(r#""a\/b""#, Text), Ok(Cow::Borrowed("a/b")));
        assert_eq!(read("null", Text), Err(Some(Refusal::Null)));
        assert_eq!(read("1", Text), Err(None));
        assert_eq!(read("\"\"", FilledText), Err(Some(Refusal::EmptyForAbsent)));
    }

    #[test]
    fn bytes() {
        assert_eq!(read("\"YQ==\"", Bytes), Ok(b"a".to_vec()));
        assert_eq!(read("null", Bytes), Err(Some(Refusal::Null)));
        assert_eq!(read("[97]", Bytes), Err(Some(Refusal::NumberArray)));
        assert_eq!(read("\"YR==\"", Bytes), Err(Some(Refusal::LooseBase64)));
        assert_eq!(read("\"YQ\"", Bytes), Err(None));
        assert_eq!(read("{}", Bytes), Err(None));
        assert_eq!(read("\"\"", FilledBytes), Err(Some(Refusal::EmptyForAbsent)));
    }

    #[test]
    fn lists() {
        assert_eq!(read("[]", List::<Vec<u8>>::new), Ok(Vec::new()));
        assert_eq!(read("null", List::<Vec<u8>>::new), Err(Some(Refusal::Null)));
        assert_eq!(read("[null]", List::<Vec<u8>>::new), Err(Some(Refusal::Null)));
        assert_eq!(read("{}", List::<Vec<u8>>::new), Err(None));
    }
}
