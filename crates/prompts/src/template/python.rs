//! Values as Python writes them: chat templates are written for Jinja2, whose output is Python's.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Whether Python's `str.isspace` says so: Unicode's white space, and four separators of ASCII besides.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str(value)`.
pub(super) fn write_str(out: &mut impl Write, value: &Value) -> std::fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => write_repr(out, value),
    }
}

/// `repr(value)`.
fn write_repr(out: &mut impl Write, value: &Value) -> std::fmt::Result {
    match value.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Map => {
            out.write_char('{')?;
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.write_str(", ")?;
                }
                write_repr(out, &key)?;
                out.write_str(": ")?;
                write_repr(out, &value.get_item(&key).unwrap_or_default())?;
            }
            out.write_char('}')
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.write_str(", ")?;
                }
                write_repr(out, &item)?;
            }
            out.write_char(']')
        }
        _ => write!(out, "{value}"),
    }
}

fn write_number(out: &mut impl Write, value: &Value) -> std::fmt::Result {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => write_float(out, number),
        _ => write!(out, "{value}"),
    }
}

/// `repr(float)`: the shortest digits that read back, with an exponent from 1e16 on and below 1e-4.
fn write_float(out: &mut impl Write, number: f64) -> std::fmt::Result {
    if !number.is_finite() {
        return out.write_str(if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        out.write_str(&plain)?;
        return if plain.contains('.') { Ok(()) } else { out.write_str(".0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "{digits}e{sign}{:02}", exponent.abs())
}

fn write_quoted(out: &mut impl Write, text: &str) -> std::fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            c if c == quote => write!(out, "\\{c}")?,
            c if !is_printable(c) => match u32::from(c) {
                code @ 0..=0xFF => write!(out, "\\x{code:02x}")?,
                code @ 0..=0xFFFF => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
            c => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

/// What `str.isprintable` says, but for code points that Unicode has not assigned yet: for them Python asks a table of its
/// own release.
fn is_printable(c: char) -> bool {
    let is_format = matches!(u32::from(c),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x2064
        | 0x2066..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0xE0001 | 0xE0020..=0xE007F);
    let is_private = matches!(u32::from(c), 0xE000..=0xF8FF | 0xF0000..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format || is_private)
}

/// `json.dumps`, as transformers gives it to templates: nothing is escaped for HTML, and text stays as it is unless
/// `ensure_ascii` is set.
pub(super) fn to_json(value: &Value, kwargs: &Kwargs) -> Result<Value, Error> {
    let ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let indent = match kwargs.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(64)),
        }),
    };
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(separators) = kwargs.get::<Option<Value>>("separators")?.filter(|value| !value.is_none()) {
        item = separators.get_item_by_index(0)?.to_string();
        key = separators.get_item_by_index(1)?.to_string();
    }
    kwargs.assert_all_used()?;
    let mut dump = Dump { out: String::new(), item, key, indent, ensure_ascii, sort_keys };
    dump.value(value, 0)?;
    Ok(Value::from(dump.out))
}

struct Dump {
    out: String,
    item: String,
    key: String,
    indent: Option<String>,
    ensure_ascii: bool,
    sort_keys: bool,
}

// === impl Dump ===

impl Dump {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let mut text = String::new();
                write_number(&mut text, value).map_err(|_| Error::from(ErrorKind::WriteFailure))?;
                self.out.push_str(match &*text {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    text => text,
                });
            }
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<_> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.nested('{', '}', &keys, depth, |dump, key| {
                    let mut name = String::new();
                    match key.kind() {
                        ValueKind::Bool => name.push_str(if key.is_true() { "true" } else { "false" }),
                        ValueKind::None => name.push_str("null"),
                        _ => write_str(&mut name, key).map_err(|_| Error::from(ErrorKind::WriteFailure))?,
                    }
                    dump.text(&name);
                    let separator = std::mem::take(&mut dump.key);
                    dump.out.push_str(&separator);
                    dump.key = separator;
                    dump.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<_> = value.try_iter()?.collect();
                self.nested('[', ']', &items, depth, |dump, item| dump.value(item, depth + 1))?;
            }
            kind => {
                let message = format!("a value of type {kind} is no JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn nested(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.item);
            }
            self.line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\x08' => self.out.push_str("\\b"),
                '\x0c' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
