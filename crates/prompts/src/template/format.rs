//! Whether a template takes a message's content as one text or as a list of parts.
//!
//! vLLM finds that out from the template's syntax: where a loop goes over a message's content, the content is handed over
//! as a list of parts, else as a text. The rules here are vLLM's (`vllm/renderers/hf.py`, release 0.32): names that stand for
//! the messages, the loops over them, and then the loops over what a message's `content` is.

use std::collections::HashSet;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Macro, Stmt};
use minijinja::machinery::{WhitespaceConfig, parse};

/// How content is handed to a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// As one text.
    Text,
    /// As a list of parts, as clients send it.
    Parts,
}

/// What is looked at of a template.
#[derive(Default)]
struct Found<'a> {
    /// Every loop, and the macro that it is in.
    loops: Vec<(&'a ForLoop<'a>, Option<&'a Macro<'a>>)>,
    /// Every name that something is assigned to.
    assignments: Vec<(&'a str, &'a Expr<'a>)>,
    /// Every call by name, with its arguments.
    calls: Vec<(&'a str, &'a [CallArg<'a>])>,
}

/// The format of a template. One that cannot be read takes text.
pub(super) fn detect(source: &str) -> ContentFormat {
    let whitespace = WhitespaceConfig::default();
    let Ok(root) = parse(source, "chat_template", Default::default(), whitespace) else {
        return ContentFormat::Text;
    };
    let mut found = Found::default();
    found.statement(&root, None);
    if found.loops_over_content() { ContentFormat::Parts } else { ContentFormat::Text }
}

// === impl Found ===

impl<'a> Found<'a> {
    fn loops_over_content(&self) -> bool {
        let mut lists = HashSet::from(["messages"]);
        let mut known = 0;
        while known != lists.len() {
            known = lists.len();
            let more = self.assignments.iter().filter(|(_, value)| is_any_of(value, &lists, None));
            let more: Vec<_> = more.map(|(name, _)| *name).collect();
            lists.extend(more);
        }
        let over_messages = self.loops.iter().filter(|(each, _)| is_any_of(&each.iter, &lists, None));
        let messages: HashSet<_> = over_messages.filter_map(|(each, _)| name_of(&each.target)).collect();
        self.loops.iter().any(|(each, inside)| {
            is_any_of(&each.iter, &messages, Some("content"))
                || match (name_of(&each.iter), inside) {
                    (Some(name), Some(inside)) => self.is_passed_content(inside, name, &messages),
                    (Some(name), None) => name == "content",
                    (None, _) => false,
                }
        })
    }

    /// Whether some call hands a message's content to a parameter of a macro.
    fn is_passed_content(&self, to: &Macro<'_>, parameter: &str, messages: &HashSet<&str>) -> bool {
        let place = to.args.iter().position(|arg| name_of(arg) == Some(parameter));
        let calls = self.calls.iter().filter(|(name, _)| *name == to.name);
        calls.flat_map(|(_, args)| args.iter().enumerate()).any(|(i, arg)| match arg {
            CallArg::Pos(value) => Some(i) == place && is_any_of(value, messages, Some("content")),
            CallArg::Kwarg(name, value) => {
                *name == parameter && place.is_some() && is_any_of(value, messages, Some("content"))
            }
            CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
        })
    }

    fn statements(&mut self, statements: &'a [Stmt<'a>], inside: Option<&'a Macro<'a>>) {
        statements.iter().for_each(|statement| self.statement(statement, inside));
    }

    fn statement(&mut self, statement: &'a Stmt<'a>, inside: Option<&'a Macro<'a>>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children, inside),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::ForLoop(each) => {
                self.loops.push((each, inside));
                self.expression(&each.iter);
                self.statements(&each.body, inside);
                self.statements(&each.else_body, inside);
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr);
                self.statements(&condition.true_body, inside);
                self.statements(&condition.false_body, inside);
            }
            Stmt::WithBlock(with) => self.statements(&with.body, inside),
            Stmt::Set(set) => {
                if let Some(name) = name_of(&set.target) {
                    self.assignments.push((name, &set.expr));
                }
                self.expression(&set.expr);
            }
            Stmt::SetBlock(set) => self.statements(&set.body, inside),
            Stmt::AutoEscape(block) => self.statements(&block.body, inside),
            Stmt::FilterBlock(block) => self.statements(&block.body, inside),
            Stmt::Macro(own) => self.statements(&own.body, Some(own)),
            Stmt::CallBlock(call) => {
                self.call(&call.call.expr, &call.call.args);
                self.statements(&call.macro_decl.body, inside);
            }
            Stmt::Do(statement) => self.call(&statement.call.expr, &statement.call.args),
            _ => {}
        }
    }

    fn call(&mut self, called: &'a Expr<'a>, args: &'a [CallArg<'a>]) {
        match name_of(called) {
            Some(name) => self.calls.push((name, args)),
            None => self.expression(called),
        }
        for arg in args {
            match arg {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    fn expression(&mut self, expression: &'a Expr<'a>) {
        match expression {
            Expr::Call(call) => self.call(&call.expr, &call.args),
            Expr::Filter(filter) => filter.expr.iter().for_each(|inner| self.expression(inner)),
            Expr::UnaryOp(op) => self.expression(&op.expr),
            Expr::BinOp(op) => {
                self.expression(&op.left);
                self.expression(&op.right);
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                choice.false_expr.iter().for_each(|inner| self.expression(inner));
            }
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::GetItem(get) => self.expression(&get.expr),
            Expr::Slice(slice) => self.expression(&slice.expr),
            Expr::Test(test) => self.expression(&test.expr),
            _ => {}
        }
    }
}

fn name_of<'a>(expression: &Expr<'a>) -> Option<&'a str> {
    match expression {
        Expr::Var(variable) => Some(variable.id),
        _ => None,
    }
}

/// Whether an expression is one of the variables, or its `key`; a slice of it or a filter over it counts as well.
fn is_any_of(expression: &Expr<'_>, names: &HashSet<&str>, key: Option<&str>) -> bool {
    let is_name = |expression| name_of(expression).is_some_and(|name| names.contains(name));
    match (expression, key) {
        (Expr::Filter(filter), _) => filter.expr.as_ref().is_some_and(|inner| is_any_of(inner, names, key)),
        (Expr::Test(test), _) => is_any_of(&test.expr, names, key),
        (Expr::Slice(slice), _) => is_any_of(&slice.expr, names, key),
        (Expr::GetAttr(get), Some(key)) => get.name == key && is_name(&get.expr),
        (Expr::GetItem(get), Some(key)) => {
            matches!(&get.subscript_expr, Expr::Const(constant) if constant.value.as_str() == Some(key))
                && is_name(&get.expr)
        }
        (expression, None) => is_name(expression),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_over_content_takes_parts() {
        for parts in [
            "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}",
            "{% for m in messages[1:] %}{% for p in m.content | list %}{% endfor %}{% endfor %}",
            "{% set rest = messages %}{% for m in rest %}{% if m.content is string %}{% else %}{% for p in m.content %}{% endfor %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}",
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ 'x' + show(m.content) }}{% endfor %}",
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{% set t = show(c=m['content']) | trim %}{% endfor %}",
        ] {
            assert_eq!(detect(parts), ContentFormat::Parts, "{parts}");
        }
    }

    #[test]
    fn everything_else_takes_text() {
        for text in [
            "{% for m in messages %}{{ m.content }}{% for t in m.tool_calls %}{% endfor %}{% endfor %}",
            "{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}{{ show(tools) }}",
            "{% for t in tools %}{% for p in t.content %}{% endfor %}{% endfor %}",
            "{% if %}",
        ] {
            assert_eq!(detect(text), ContentFormat::Text, "{text}");
        }
    }
}
