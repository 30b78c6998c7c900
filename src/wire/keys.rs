//! What one attempt wants to lock.

/// One key, as a rule; or several that are locked together, sorted and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    first: Box<[u8]>,
    more: Box<[Box<[u8]>]>,
}

impl Keys {
    /// One key.
    pub(crate) fn one(key: Box<[u8]>) -> Self {
        Self { first: key, more: Box::default() }
    }

    /// These keys in order, without repetition; `None` if there are none.
    pub(crate) fn all(mut keys: Vec<Box<[u8]>>) -> Option<Self> {
        keys.sort_unstable();
        keys.dedup();
        let mut keys = keys.into_iter();
        Some(Self { first: keys.next()?, more: keys.collect() })
    }

    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&[u8]> {
        match place.checked_sub(1) {
            None => Some(&self.first),
            Some(place) => self.more.get(place).map(|key| &**key),
        }
    }

    /// A key made of each of these, in the same order; or the first of which none can be made.
    pub(crate) fn try_map(&self, make: impl Fn(&[u8]) -> Option<Box<[u8]>>) -> Result<Self, &[u8]> {
        let make = |key| make(key).ok_or(key);
        let more = self.more.iter().map(|key| make(key)).collect::<Result<_, _>>();
        Ok(Self { first: make(&self.first)?, more: more? })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.more.iter().map(|key| &**key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_and_each_stands_there_once() {
        let keys = |names: &[&str]| Keys::all(names.iter().map(|n| n.as_bytes().into()).collect());
        let abc = keys(&["c", "a", "b", "a"]).expect("not empty");
        assert_eq!(abc.iter().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!((abc.len(), abc.first()), (3, &b"a"[..]));
        assert_eq!((abc.get(0), abc.get(2), abc.get(3)), (Some(&b"a"[..]), Some(&b"c"[..]), None));
        assert_eq!(keys(&["x", "x"]), Some(Keys::one(b"x".as_slice().into())));
        assert_eq!(keys(&[]), None);
        assert_eq!(
            abc.try_map(|key| Some(key.repeat(2).into())).as_ref(),
            Ok(&keys(&["aa", "bb", "cc"]).expect("not empty"))
        );
        assert_eq!(abc.try_map(|key| (key < &b"b"[..]).then(|| key.into())), Err(&b"b"[..]));
    }
}
