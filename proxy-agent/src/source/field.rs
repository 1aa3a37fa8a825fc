//! Fields that never fail to decode.
//!
//! One odd value in one object must not cost the list that it came in, so every field of a slim
//! type is a [`Field`]: present with the wanted type, absent, or odd. What an odd field means is
//! not decided here but where the object is decoded.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Longest text, in characters, that a warning repeats.
const QUOTED: usize = 48;

/// One field of an object, whatever its type turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) enum Field<T> {
    /// Not there, or null.
    #[default]
    Absent,
    /// There, of the wanted type.
    Is(T),
    /// There, of another type: what was found.
    Odd(Box<str>),
}

/// A type that a [`Field`] can hold. Each `from_*` takes one kind of value; the default of each
/// says "not my type".
pub(crate) trait Shape: Sized {
    /// What the field should have been, as in "is true, not a number".
    const WANTED: &'static str;

    fn from_str(_: &str) -> Option<Self> {
        None
    }

    fn from_number(_: i64) -> Option<Self> {
        None
    }

    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn from_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl<T> Field<T> {
    /// The value, if there is one of the wanted type.
    pub(crate) fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Odd(_) => None,
        }
    }

    /// Whether the field is not there at all.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether the field is there with another type.
    pub(crate) fn is_odd(&self) -> bool {
        matches!(self, Self::Odd(_))
    }
}

impl Shape for String {
    const WANTED: &'static str = "a string";

    fn from_str(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Shape for i64 {
    const WANTED: &'static str = "a number";

    fn from_number(number: i64) -> Option<Self> {
        Some(number)
    }
}

impl Shape for bool {
    const WANTED: &'static str = "true or false";

    fn from_bool(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl<T: Shape> Shape for Vec<Field<T>> {
    const WANTED: &'static str = "a list";

    fn from_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let mut list = Self::new();
        while let Some(element) = seq.next_element()? {
            list.push(element);
        }
        list.shrink_to_fit();
        Ok(Some(list))
    }
}

/// The first element of a list; the others are not even kept (W8).
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) struct First<T>(pub(crate) Field<T>);

impl<T: Shape> Shape for First<T> {
    const WANTED: &'static str = "a list";

    fn from_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let first = seq.next_element()?.unwrap_or(Field::Absent);
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Some(Self(first)))
    }
}

/// Makes structs that derive `Deserialize` usable in a [`Field`].
macro_rules! object {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::source::field::Shape for $name {
            const WANTED: &'static str = "an object";

            fn from_map<'de, A: serde::de::MapAccess<'de>>(
                map: A,
            ) -> Result<Option<Self>, A::Error> {
                use serde::{Deserialize, de::value::MapAccessDeserializer};
                Self::deserialize(MapAccessDeserializer::new(map)).map(Some)
            }
        }
    )*};
}
pub(crate) use object;

impl<'de, T: Shape> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(std::marker::PhantomData))
    }
}

struct FieldVisitor<T>(std::marker::PhantomData<T>);

impl<T> FieldVisitor<T> {
    fn keep(value: Option<T>, found: impl FnOnce() -> String) -> Field<T> {
        match value {
            Some(value) => Field::Is(value),
            None => Field::Odd(found().into()),
        }
    }
}

impl<'de, T: Shape> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Self::keep(T::from_str(text), || quote(text)))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Self::keep(T::from_bool(value), || value.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Self::keep(T::from_number(number), || number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let value = i64::try_from(number).ok().and_then(T::from_number);
        Ok(Self::keep(value, || number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Field::Odd(number.to_string().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Ok(Self::keep(T::from_seq(seq)?, || "a list".into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Ok(Self::keep(T::from_map(map)?, || "an object".into()))
    }
}

/// A text as warnings repeat it: quoted, escaped, and cut if it is long.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Pair {
        name: Field<String>,
        count: Field<i64>,
    }

    object!(Pair);

    fn list(json: &str) -> Vec<Field<Pair>> {
        serde_json::from_str(json).expect("a list never fails")
    }

    #[test]
    fn an_odd_field_costs_neither_its_neighbours_nor_the_list() {
        let list = list(r#"[{"name": 5, "count": 1}, "x", {"name": "b", "count": [1, {"a": 2}]}]"#);
        assert_eq!(
            list,
            [
                Field::Is(Pair {
                    name: Field::Odd("5".into()),
                    count: Field::Is(1)
                }),
                Field::Odd("\"x\"".into()),
                Field::Is(Pair {
                    name: Field::Is("b".into()),
                    count: Field::Odd("a list".into())
                }),
            ]
        );
    }

    #[test]
    fn null_is_as_good_as_absent() {
        assert_eq!(
            list(r#"[{"name": null}, null]"#),
            [Field::Is(Pair::default()), Field::Absent]
        );
    }

    #[test]
    fn numbers_that_are_not_whole_or_too_large_are_odd() {
        let list: Vec<Field<i64>> =
            serde_json::from_str("[1.5, 18446744073709551615, -3]").expect("a list never fails");
        assert_eq!(
            list,
            [
                Field::Odd("1.5".into()),
                Field::Odd("18446744073709551615".into()),
                Field::Is(-3)
            ]
        );
    }

    #[test]
    fn only_the_first_element_is_kept_where_only_it_counts() {
        let first: Field<First<String>> =
            serde_json::from_str(r#"["a", 5, {"x": 1}]"#).expect("never fails");
        assert_eq!(first, Field::Is(First(Field::Is("a".into()))));
        let none: Field<First<String>> = serde_json::from_str("[]").expect("never fails");
        assert_eq!(none, Field::Is(First(Field::Absent)));
    }

    #[test]
    fn long_texts_are_cut_in_warnings() {
        let quoted = quote(&"é".repeat(100));
        assert_eq!(quoted, format!("\"{}\"…", "é".repeat(QUOTED)));
        assert_eq!(quote("a\nb"), "\"a\\nb\"");
    }
}
