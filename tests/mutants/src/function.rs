//! Finds the functions of a Rust file.

use std::ops::Range;
use syn::visit::{self, Visit};
use syn::{Block, Ident, ImplItemFn, ItemFn, ItemImpl, ItemMod, Signature, Type, TypeImplTrait};

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The path of the function, such as `Waiting::handle_refusal`. An `impl` block has the name of its type.
    pub(crate) path: String,
    /// The bytes of the body, including its braces.
    pub(crate) body: Range<usize>,
    /// Why the function cannot have several bodies, one of which is chosen at run time.
    pub(crate) obstacle: Option<&'static str>,
}

/// Returns the functions of the file `text`, except functions inside functions and provided methods of traits.
pub(crate) fn functions(text: &str) -> Result<Vec<Function>, String> {
    let file = syn::parse_file(text).map_err(|error| format!("syntax error: {error}"))?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    parents: Vec<String>,
    found: Vec<Function>,
}

impl Finder {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let mut is_opaque = IsOpaque(false);
        is_opaque.visit_return_type(&signature.output);
        let obstacle = if signature.constness.is_some() {
            Some("a `const fn`")
        } else if is_opaque.0 {
            Some("a function that returns `impl Trait`")
        } else {
            None
        };
        let parents = self.parents.iter().cloned();
        let path = parents.chain([signature.ident.to_string()]).collect::<Vec<_>>().join("::");
        let body = body.brace_token.span.join().byte_range();
        self.found.push(Function { path, body, obstacle });
    }

    fn within(&mut self, parent: &Ident, visit: impl FnOnce(&mut Self)) {
        self.parents.push(parent.to_string());
        visit(self);
        self.parents.pop();
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        self.within(&item.ident, |finder| visit::visit_item_mod(finder, item));
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let Type::Path(path) = &*item.self_ty else { return };
        let Some(name) = path.path.segments.last() else { return };
        self.within(&name.ident, |finder| visit::visit_item_impl(finder, item));
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.add(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.add(&item.sig, &item.block);
    }
}

/// Whether a type contains `impl Trait`.
struct IsOpaque(bool);

impl<'a> Visit<'a> for IsOpaque {
    fn visit_type_impl_trait(&mut self, _: &'a TypeImplTrait) {
        self.0 = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        const ONE: u8 = 1;
        fn free() { fn inner() {} /* ü */ inner() }
        impl<T: Fn(u8) -> u8> fmt::Display for a::Two<T> where T: Copy {
            #[inline]
            pub const fn get<'a>(&'a self) -> Option<&'a T> { None }
            async fn all(&self) -> Option<impl Iterator<Item = T>> { None }
        }
        mod tests { fn last(one: impl Copy) { one } }
    ";

    #[test]
    fn functions_are_named_by_module_type_and_function() {
        let found = functions(FILE).expect("a Rust file");
        let found: Vec<_> = found
            .into_iter()
            .map(|function| (function.path, &FILE[function.body], function.obstacle))
            .collect();
        let expected = [
            ("free", "{ fn inner() {} /* ü */ inner() }", None),
            ("Two::get", "{ None }", Some("a `const fn`")),
            ("Two::all", "{ None }", Some("a function that returns `impl Trait`")),
            ("tests::last", "{ one }", None),
        ];
        assert_eq!(found, expected.map(|(path, body, why)| (path.to_owned(), body, why)));
    }
}
