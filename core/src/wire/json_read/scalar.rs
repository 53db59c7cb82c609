//! Seeds for the values inside objects.

use super::{Context, Refusal, base64};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

/// A value with one way to stand in JSON.
pub trait FromJson<'de>: Sized {
    /// Reads one where it stands.
    ///
    /// # Errors
    /// What stands there is none.
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error>;
}

/// Reads a value through `serde`.
#[derive(Debug)]
pub struct Seed<'a, T> {
    context: &'a Context,
    kind: PhantomData<T>,
}

impl<'a, T> Seed<'a, T> {
    /// A seed that reports refusals to `context`.
    #[must_use]
    pub const fn new(context: &'a Context) -> Self {
        Self { context, kind: PhantomData }
    }
}

impl<'de, T: FromJson<'de>> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer, self.context)
    }
}

/// Reads by asking what stands there, so that a refused kind can be named.
macro_rules! from_json {
    ($value:ty, $visitor:ident) => {
        impl<'de> FromJson<'de> for $value {
            fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
                deserializer.deserialize_any($visitor(context))
            }
        }
    };
}

from_json!(u64, Number);
from_json!(bool, Boolean);
from_json!(Cow<'de, str>, Text);
from_json!(Vec<u8>, Bytes);

struct Number<'a>(&'a Context);

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

struct Boolean<'a>(&'a Context);

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

/// Borrows from the payload if no escape stands in the text.
struct Text<'a>(&'a Context);

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

struct Bytes<'a>(&'a Context);

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

/// A value whose field is left out when it is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filled<T>(pub T);

impl<'de, T: FromJson<'de> + Default + PartialEq> FromJson<'de> for Filled<T> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        let value = T::read(deserializer, context)?;
        if value == T::default() {
            let detail = "an empty value, expected no field at all";
            return Err(context.refuse(Refusal::EmptyForAbsent, detail));
        }
        Ok(Self(value))
    }
}

/// A list of at most as many elements as the context allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: FromJson<'de>> FromJson<'de> for List<T> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor { context, element: PhantomData }).map(Self)
    }
}

struct ListVisitor<'a, T> {
    context: &'a Context,
    element: PhantomData<T>,
}

impl<'de, T: FromJson<'de>> Visitor<'de> for ListVisitor<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", self.context.list_max)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Err(self.context.refuse(Refusal::Null, "null for a list"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element_seed(Seed::new(self.context))? {
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

    /// Reads `text` and tells the value or the refusal.
    fn read<'de, T: FromJson<'de>>(text: &'de str) -> Result<T, Option<Refusal>> {
        let context = Context::new(2);
        T::read(&mut serde_json::Deserializer::from_str(text), &context).map_err(|_| context.refusal.get())
    }

    #[test]
    fn numbers() {
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read::<u64>("null"), Err(Some(Refusal::Null)));
        for text in ["4.0", "1e3", "-1", "-0", "18446744073709551616", "\"1\"", "true", "[]", "{}"] {
            assert_eq!(read::<u64>(text), Err(None), "{text}");
        }
    }

    #[test]
    fn booleans() {
        assert_eq!(read("true"), Ok(true));
        assert_eq!(read::<bool>("null"), Err(Some(Refusal::Null)));
        assert_eq!(read::<bool>("1"), Err(None));
    }

    #[test]
    fn texts() {
        assert_eq!(read(r#""a\/b""#), Ok(Cow::Borrowed("a/b")));
        assert_eq!(read::<Cow<'_, str>>("null"), Err(Some(Refusal::Null)));
        assert_eq!(read::<Cow<'_, str>>("1"), Err(None));
        assert_eq!(read::<Filled<Cow<'_, str>>>("\"\""), Err(Some(Refusal::EmptyForAbsent)));
    }

    #[test]
    fn bytes() {
        assert_eq!(read("\"YQ==\""), Ok(b"a".to_vec()));
        assert_eq!(read::<Vec<u8>>("null"), Err(Some(Refusal::Null)));
        assert_eq!(read::<Vec<u8>>("[97]"), Err(Some(Refusal::NumberArray)));
        assert_eq!(read::<Vec<u8>>("\"YR==\""), Err(Some(Refusal::LooseBase64)));
        assert_eq!(read::<Vec<u8>>("\"YQ\""), Err(None));
        assert_eq!(read::<Vec<u8>>("{}"), Err(None));
        assert_eq!(read::<Filled<Vec<u8>>>("\"\""), Err(Some(Refusal::EmptyForAbsent)));
    }

    #[test]
    fn lists() {
        assert_eq!(read("[1,2]"), Ok(List(alloc::vec![1u64, 2])));
        assert_eq!(read::<List<u64>>("[1,2,3]"), Err(None));
        assert_eq!(read::<List<u64>>("null"), Err(Some(Refusal::Null)));
        assert_eq!(read::<List<u64>>("[null]"), Err(Some(Refusal::Null)));
        assert_eq!(read::<List<u64>>("{}"), Err(None));
        assert_eq!(read::<Filled<List<u64>>>("[]"), Err(Some(Refusal::EmptyForAbsent)));
    }
}
