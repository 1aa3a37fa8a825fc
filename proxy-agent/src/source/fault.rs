//! How faults of objects are tested: each gives exactly one warning that names the field, the rest
//! of the object is served, and the object next to it is untouched.

use serde_json::{Value, json};

use super::{
    Event,
    decoder::{Decoded, Decoder, Origin},
    object::Object,
    slim::Slim,
};

/// What becomes of the object.
pub(crate) enum Then<M> {
    /// Served as if the fault were not there, but for this.
    Serve(fn(&mut M)),
    /// Not ours to serve.
    Leave,
    /// Its last good state stays.
    Keep,
    /// As `Keep`, but not even its name is known.
    Nameless,
}

/// Where in the object, the value put there (null: as if it were not there), the field and
/// the reason that the warning gives, and what becomes of the object.
pub(crate) type Row<M> = (&'static str, Value, &'static str, &'static str, Then<M>);

/// Decodes a list of two objects, the faulty one and a good one.
pub(crate) fn check<B: Object>(
    base: fn() -> Value,
    (pointer, value, field, reason, then): Row<B::Model>,
) {
    let row = format!("{pointer} = {value}");
    let mut bad = base();
    *bad.pointer_mut(pointer)
        .unwrap_or_else(|| panic!("{row}: no such field")) = value;
    let mut good = base();
    good["metadata"]["name"] = "good".into();
    let text = json!([bad, good, base()]).to_string();
    let list: Vec<Slim<B>> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{row}: {e}"));

    let mut decoder = Decoder::new(Origin::Server, true);
    let Decoded::Serve(whole) = B::decode(&mut decoder, &list[2], None) else {
        panic!("the base object is served");
    };
    assert_eq!(decoder.events, [], "the base object is faultless");

    let decoded = B::decode(&mut decoder, &list[0], None);
    let [Event::Warning(warning)] = &decoder.events[..] else {
        panic!("{row}: {:#?}", decoder.events);
    };
    assert_eq!(
        (warning.field.as_str(), warning.reason.as_str()),
        (field, reason),
        "{row}"
    );
    match (then, decoded) {
        (Then::Serve(change), Decoded::Serve(served)) => {
            let mut expected = whole.clone();
            change(&mut expected);
            assert_eq!(served, expected, "{row}");
            assert_eq!(warning.object, B::display(B::name(&whole), None), "{row}");
        }
        (Then::Leave, Decoded::Leave(name)) | (Then::Keep, Decoded::Keep(Some(name))) => {
            assert_eq!(&name, B::name(&whole), "{row}");
            assert_eq!(warning.object, B::display(&name, None), "{row}");
        }
        (Then::Nameless, Decoded::Keep(None)) => {}
        (_, decoded) => panic!("{row}: {decoded:?}"),
    }

    decoder.events.clear();
    let decoded = B::decode(&mut decoder, &list[1], None);
    assert!(
        matches!(decoded, Decoded::Serve(_)),
        "{row}: the good one too: {decoded:?}"
    );
    assert_eq!(decoder.events, [], "{row}");
}
