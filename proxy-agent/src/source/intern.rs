//! Names that many objects of one list share, kept once.

use std::{collections::HashSet, sync::Arc};

use crate::model::Text;

/// The texts of the list that is being decoded. The store shares texts between lists; here they
/// are forgotten with the end of each, so that the two never keep each other's alive.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    texts: HashSet<Text>,
}

impl Interner {
    /// The shared text.
    pub(crate) fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Text = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    /// Lets go of all texts.
    pub(crate) fn clear(&mut self) {
        self.texts = HashSet::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_allocation_until_cleared() {
        let mut interner = Interner::default();
        let (a, b) = (interner.text("node-1"), interner.text("node-1"));
        assert!(Arc::ptr_eq(&a, &b));
        interner.clear();
        assert_eq!(Arc::strong_count(&a), 2);
    }
}
