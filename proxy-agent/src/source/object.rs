//! Services and EndpointSlices alike: what both sources do with an object of either kind.

use std::{fmt::Debug, hash::Hash};

use super::{
    decoder::{Decoded, Decoder, object},
    service::{self, ServiceBody},
    slice::{self, SliceBody},
    slim::{Kind, Slim},
};
use crate::model::{Change, EndpointSlice, Service, ServiceName, SliceName, Text};

/// A kind of object that is listed, changed and removed by name.
pub(crate) trait Object: Kind {
    /// Its form in the model.
    type Model: Clone + Debug + PartialEq + Send;
    /// What tells its objects apart.
    type Name: Clone + Debug + Eq + Ord + Hash + Send;

    fn decode(
        decoder: &mut Decoder,
        slim: &Slim<Self>,
        file: Option<&Text>,
    ) -> Decoded<Self::Model, Self::Name>;

    fn name(model: &Self::Model) -> &Self::Name;

    /// The object as warnings name it.
    fn display(name: &Self::Name, file: Option<&Text>) -> String;

    /// The name that namespace and name make.
    fn named(namespace: Text, name: Text) -> Self::Name;

    fn all(models: Vec<Self::Model>) -> Change;

    fn one(model: Self::Model) -> Change;

    fn gone(name: Self::Name) -> Change;
}

/// Both kinds do the same under different names.
macro_rules! object_kind {
    ($body:ty, $module:ident, $model:ident, $name:ident, $all:ident, $one:ident, $gone:ident) => {
        impl Object for $body {
            type Model = $model;
            type Name = $name;

            fn decode(
                decoder: &mut Decoder,
                slim: &Slim<Self>,
                file: Option<&Text>,
            ) -> Decoded<$model, $name> {
                $module::decode(decoder, slim, file)
            }

            fn name(model: &$model) -> &$name {
                &model.name
            }

            fn display(name: &$name, file: Option<&Text>) -> String {
                object(Self::KIND, Some(&name.namespace), &name.name, file)
            }

            fn named(namespace: Text, name: Text) -> $name {
                $name { namespace, name }
            }

            fn all(models: Vec<$model>) -> Change {
                Change::$all(models)
            }

            fn one(model: $model) -> Change {
                Change::$one(model)
            }

            fn gone(name: $name) -> Change {
                Change::$gone(name)
            }
        }
    };
}

object_kind!(
    ServiceBody,
    service,
    Service,
    ServiceName,
    Services,
    Service,
    ServiceGone
);
object_kind!(
    SliceBody,
    slice,
    EndpointSlice,
    SliceName,
    Slices,
    Slice,
    SliceGone
);
