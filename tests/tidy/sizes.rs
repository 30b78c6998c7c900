//! Checks that files and functions do not exceed their size limits.

use crate::sources::all_sources;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;

#[derive(Default)]
struct LongFunctions(Vec<String>);

impl LongFunctions {
    fn measure(&mut self, name: &syn::Ident, body: proc_macro2::Span) {
        let lines = body.end().line - body.start().line + 1;
        if lines > MAX_FUNCTION_LINES {
            self.0.push(format!("{name}: {lines} lines"));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
}

#[test]
fn files_and_functions_are_short() {
    let mut long = Vec::new();
    for source in all_sources() {
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES {
            long.push(format!("{}: {lines} lines", source.path.display()));
        }
        let mut functions = LongFunctions::default();
        functions.visit_file(&source.file);
        let at = |name| format!("{}: {name}", source.path.display());
        long.extend(functions.0.into_iter().map(at));
    }
    assert!(
        long.is_empty(),
        "longer than {MAX_FILE_LINES} (file) or {MAX_FUNCTION_LINES} lines (function): {long:#?}"
    );
}
