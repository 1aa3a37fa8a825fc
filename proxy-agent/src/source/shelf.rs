//! The objects of one kind in a manifest folder: which file counts for each, and what changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    decoder::{Decoded, Decoder},
    document::Contents,
    object::Object,
    slim::Slim,
};
use crate::model::{Text, Warning};

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Shelf<B: Object> {
    /// Fingerprints of the objects in each file.
    files: BTreeMap<Text, BTreeMap<B::Name, u64>>,
    /// What counts of each object.
    served: BTreeMap<B::Name, Served>,
}

#[derive(Debug)]
struct Served {
    file: Text,
    fingerprint: u64,
    /// The reader has it; else it was left out.
    live: bool,
}

/// What an update made of one kind.
pub(crate) struct Outcome<B: Object> {
    /// New or changed objects.
    pub(crate) changed: Vec<B::Model>,
    /// Objects that are no longer served.
    pub(crate) gone: Vec<B::Name>,
    /// Files to be read again: they count for an object that another file had before.
    pub(crate) reread: BTreeSet<Text>,
    /// Objects that are twice in one file, with the warning about it.
    pub(crate) twins: Vec<(Text, Warning)>,
}

impl<B: Object> Default for Shelf<B> {
    fn default() -> Self {
        Self {
            files: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }
}

impl<B: Object> Shelf<B> {
    /// Takes in files that were read and files that are gone. `of` picks the kind's objects.
    pub(crate) fn update(
        &mut self,
        decoder: &mut Decoder,
        read: &BTreeMap<Text, Contents>,
        of: fn(&Contents) -> &Vec<Slim<B>>,
        gone: &[Text],
    ) -> Outcome<B> {
        let mut outcome = Outcome {
            changed: Vec::new(),
            gone: Vec::new(),
            reread: BTreeSet::new(),
            twins: Vec::new(),
        };
        let mut fresh = HashMap::new();
        for (file, contents) in read {
            self.take(decoder, file, of(contents), &mut fresh, &mut outcome);
        }
        for file in gone {
            self.replace(decoder, file, None);
        }
        self.compare(decoder, &fresh, &mut outcome);
        outcome
    }

    /// Takes fingerprints of a file's objects.
    fn take<'a>(
        &mut self,
        decoder: &mut Decoder,
        file: &'a Text,
        slims: &'a [Slim<B>],
        fresh: &mut HashMap<(&'a Text, B::Name), &'a Slim<B>>,
        outcome: &mut Outcome<B>,
    ) {
        let mut fingerprints = BTreeMap::new();
        for slim in slims {
            let Some((namespace, name)) = decoder.key(slim) else {
                // Says what is wrong with its name.
                B::decode(decoder, slim, Some(file));
                continue;
            };
            let name = B::named(namespace, name);
            if fingerprints.contains_key(&name) {
                let object = B::display(&name, Some(file));
                let warning = Warning::new(object, "", "is there twice; the first counts");
                outcome.twins.push((file.clone(), warning));
            } else {
                let mut hasher = DefaultHasher::new();
                slim.body.hash(&mut hasher);
                fingerprints.insert(name.clone(), hasher.finish());
                fresh.insert((file, name), slim);
            }
        }
        self.replace(decoder, file, Some(fingerprints));
    }

    /// Replaces what a file holds; what it no longer holds needs no warning any more.
    fn replace(&mut self, decoder: &mut Decoder, file: &Text, new: Option<BTreeMap<B::Name, u64>>) {
        let old = self.files.remove(file).unwrap_or_default();
        for name in old.keys() {
            if !new.as_ref().is_some_and(|new| new.contains_key(name)) {
                decoder.resolve(|| B::display(name, Some(file)));
            }
        }
        if let Some(new) = new {
            self.files.insert(file.clone(), new);
        }
    }

    /// Finds which file counts for each object, the first by name, and decodes what is new.
    fn compare(
        &mut self,
        decoder: &mut Decoder,
        fresh: &HashMap<(&Text, B::Name), &Slim<B>>,
        outcome: &mut Outcome<B>,
    ) {
        let mut counts: BTreeMap<&B::Name, (&Text, u64)> = BTreeMap::new();
        for (file, fingerprints) in &self.files {
            for (name, fingerprint) in fingerprints {
                match counts.get(name) {
                    None => {
                        counts.insert(name, (file, *fingerprint));
                    }
                    Some((first, _)) => {
                        let object = B::display(name, Some(file));
                        let reason = format!("is in {first} too, which counts; it is skipped");
                        let warning = Warning::new(object.as_str(), "", reason);
                        decoder
                            .report
                            .set(object, vec![warning], &mut decoder.events);
                    }
                }
            }
        }
        for (name, (file, fingerprint)) in &counts {
            let before = self.served.get(*name);
            if before.is_some_and(|b| b.file == **file && b.fingerprint == *fingerprint) {
                continue;
            }
            let Some(slim) = fresh.get(&(*file, (*name).clone())) else {
                outcome.reread.insert((*file).clone());
                continue;
            };
            let was_live = before.is_some_and(|before| before.live);
            let live = match B::decode(decoder, slim, Some(file)) {
                Decoded::Serve(model) => {
                    outcome.changed.push(model);
                    true
                }
                Decoded::Leave(_) => {
                    if was_live {
                        outcome.gone.push((*name).clone());
                    }
                    false
                }
                Decoded::Keep(_) => was_live,
            };
            let served = Served {
                file: (*file).clone(),
                fingerprint: *fingerprint,
                live,
            };
            self.served.insert((*name).clone(), served);
        }
        self.served.retain(|name, served| {
            let stays = counts.contains_key(name);
            if !stays && served.live {
                outcome.gone.push(name.clone());
            }
            stays
        });
    }
}
