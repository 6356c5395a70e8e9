//! Finds the places of a source file where a one-line defect can be put in.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, ReturnType, Stmt, Type};

/// A place and its defect. Every defect can be switched on while the program runs, so that many of
/// them fit into one build.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Bytes of the source that are replaced.
    pub(crate) range: Range<usize>,
    /// Line of the source, from 1.
    pub(crate) line: usize,
    /// The defect in words.
    pub(crate) what: String,
    edit: Edit,
}

#[derive(Clone, Debug)]
enum Edit {
    /// The first text while the switch is on, the source as it is otherwise.
    Choose(String),
    /// A condition is turned around.
    Negate,
    /// A statement is left out.
    Skip,
    /// The first text, which returns, stands before the body's first statement.
    Return(String),
}

impl Site {
    /// The text that replaces the range, for a switch that is the expression `on`.
    pub(crate) fn text(&self, source: &str, on: &str) -> String {
        let was = source.get(self.range.clone()).unwrap_or_default();
        match &self.edit {
            Edit::Choose(other) => format!("(if {on} {{ {other} }} else {{ {was} }})"),
            Edit::Negate => format!("({on} != ({was}))"),
            Edit::Skip => format!("if !{on} {{ {was} }}"),
            Edit::Return(statement) => format!("{{ if {on} {{ {statement} }}"),
        }
    }
}

/// Every site of `source`, without those of its tests.
///
/// # Errors
/// The source is no Rust.
pub(crate) fn sites(source: &str) -> syn::Result<Vec<Site>> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder { source, found: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'s> {
    source: &'s str,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn add(&mut self, span: Span, what: String, edit: Edit) {
        let (range, line) = (span.byte_range(), span.start().line);
        // Code made by a macro has no place of its own.
        if !range.is_empty() && self.source.get(range.clone()).is_some() {
            self.found.push(Site { range, line, what, edit });
        }
    }

    fn text(&self, span: Span) -> &str {
        self.source.get(span.byte_range()).unwrap_or_default()
    }

    /// The defect that returns at once, for a function whose result has an obvious wrong value.
    fn early_return(&mut self, signature: &syn::Signature, body: &syn::Block) {
        if body.stmts.is_empty() {
            return;
        }
        let result = match &signature.output {
            ReturnType::Default => String::new(),
            ReturnType::Type(_, result) => self.text(result.span()).to_owned(),
        };
        let values: &[&str] = match result.as_str() {
            "" => &["return;"],
            "bool" => &["return true;", "return false;"],
            option if option.starts_with("Option<") => &["return None;"],
            "Result<()>" | "io::Result<()>" | "Outcome" => &["return Ok(());"],
            unit if unit.starts_with("Result<(), ") => &["return Ok(());"],
            _ => &[],
        };
        for value in values {
            let what = format!("{}: {value}", signature.ident);
            self.add(body.brace_token.span.open(), what, Edit::Return((*value).to_owned()));
        }
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) -> bool {
        // The switch cannot be read while the compiler evaluates.
        let ordinary = signature.constness.is_none();
        if ordinary && signature.asyncness.is_none() {
            self.early_return(signature, body);
        }
        ordinary
    }
}

/// An attribute that keeps what follows out of what ships.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test")))
    })
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// The operator with a small mistake in it.
fn other(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::And(_) => ("&&", "||"),
        BinOp::Or(_) => ("||", "&&"),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        _ => return None,
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(module) if is_for_tests(&module.attrs) => {}
            syn::Item::Fn(function) if is_for_tests(&function.attrs) => {}
            syn::Item::Impl(block) if is_for_tests(&block.attrs) => {}
            syn::Item::Const(_) | syn::Item::Static(_) | syn::Item::Macro(_) => {}
            syn::Item::Enum(_) | syn::Item::Struct(_) | syn::Item::Type(_) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if self.function(&function.sig, &function.block) {
            visit::visit_block(self, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) && self.function(&function.sig, &function.block) {
            visit::visit_block(self, &function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default
            && self.function(&function.sig, block)
        {
            visit::visit_block(self, block);
        }
    }

    // No switch can be read in a constant, a pattern or a type.
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, both: &'ast syn::ExprBinary) {
        if let Some((was, is)) = other(&both.op)
            && !has_let(&both.left)
            && !has_let(&both.right)
        {
            let (left, right) = (self.text(both.left.span()), self.text(both.right.span()));
            let edit = Edit::Choose(format!("{left} {is} {right}"));
            self.add(both.span(), format!("{was} becomes {is}"), edit);
        }
        visit::visit_expr_binary(self, both);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        if !has_let(&branch.cond) {
            self.add(branch.cond.span(), "a condition is turned around".into(), Edit::Negate);
        }
        visit::visit_expr_if(self, branch);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard
            && !has_let(guard)
        {
            self.add(guard.span(), "a guard is turned around".into(), Edit::Negate);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        if let Lit::Int(number) = &literal.lit
            && let Ok(value) = number.base10_parse::<u64>()
            && let Some(more) = value.checked_add(1)
        {
            let edit = Edit::Choose(format!("{more}{}", number.suffix()));
            self.add(literal.span(), format!("{value} becomes {more}"), edit);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && matches!(
                expression,
                Expr::Assign(_)
                    | Expr::Call(_)
                    | Expr::MethodCall(_)
                    | Expr::Binary(_)
                    | Expr::Try(_)
            )
        {
            self.add(statement.span(), "a statement is left out".into(), Edit::Skip);
        }
        visit::visit_stmt(self, statement);
    }
}

#[cfg(test)]
mod tests {
    use super::sites;

    /// Each site's defect, put into the source alone.
    fn mutants(source: &str) -> Vec<String> {
        let put = |site: &super::Site| {
            let mut text = source.to_owned();
            text.replace_range(site.range.clone(), &site.text(source, "ON"));
            text
        };
        sites(source).unwrap().iter().map(put).collect()
    }

    fn has(source: &str, mutant: &str) {
        let all = mutants(source);
        assert!(all.iter().any(|one| one == mutant), "{mutant:?} is not among {all:#?}");
    }

    #[test]
    fn a_comparison_gets_a_neighbour() {
        has(
            "fn f(a: u8) -> u8 { g(a < b) }",
            "fn f(a: u8) -> u8 { g((if ON { a <= b } else { a < b })) }",
        );
    }

    #[test]
    fn a_condition_and_a_guard_are_turned_around() {
        has(
            "fn f() -> u8 { if a() { b } else { c } }",
            "fn f() -> u8 { if (ON != (a())) { b } else { c } }",
        );
        has(
            "fn f() -> u8 { match a { b if c => d, _ => e } }",
            "fn f() -> u8 { match a { b if (ON != (c)) => d, _ => e } }",
        );
    }

    #[test]
    fn a_statement_is_left_out_and_a_function_returns_at_once() {
        has("fn f() { g(); }", "fn f() { if !ON { g(); } }");
        has("fn f() { g(); }", "fn f() { if ON { return; } g(); }");
        has("fn f() -> bool { g() }", "fn f() -> bool { if ON { return true; } g() }");
    }

    #[test]
    fn a_number_is_one_more() {
        has("fn f() -> u8 { 16_u8 }", "fn f() -> u8 { (if ON { 17u8 } else { 16_u8 }) }");
    }

    #[test]
    fn no_switch_stands_in_a_constant_a_pattern_a_chain_of_lets_or_a_test() {
        for source in [
            "const A: u8 = 1 + 2;",
            "const fn f() -> u8 { 1 + 2 }",
            "fn f(a: [u8; 3]) -> u8 { match a { [1, 2, x] => x, _ => b } }",
            "fn f() -> u8 { if let Some(a) = b && c { a } else { d } }",
            "#[cfg(test)] mod tests { fn f() -> bool { 1 < 2 } }",
        ] {
            assert_eq!(mutants(source), Vec::<String>::new(), "{source}");
        }
    }
}
