//! Methods of Python's text that differ from, or are not in, `minijinja-contrib`'s.

use minijinja::value::{Value, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python::is_space;

/// Called for `value.method(args)` where the engine knows no such method.
pub(super) fn call(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = of_text(text, method, args)
    {
        return result;
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let is_bare = args.iter().all(Value::is_none);
    Some(match method {
        // Without characters to strip, Python's idea of white space counts.
        "strip" if is_bare => Ok(Value::from(text.trim_matches(is_space))),
        "lstrip" if is_bare => Ok(Value::from(text.trim_start_matches(is_space))),
        "rstrip" if is_bare => Ok(Value::from(text.trim_end_matches(is_space))),
        "split" if is_bare => Ok(text.split(is_space).filter(|word| !word.is_empty()).collect()),
        "rsplit" => rsplit(text, args),
        "partition" => one(args).map(|by| parts(text.split_once(by), by, [text, "", ""])),
        "rpartition" => one(args).map(|by| parts(text.rsplit_once(by), by, ["", "", text])),
        "removeprefix" => one(args).map(|prefix| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => one(args).map(|suffix| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        _ => return None,
    })
}

fn one(args: &[Value]) -> Result<&str, Error> {
    let (text,): (&str,) = from_args(args)?;
    Ok(text)
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (&str, Option<i64>) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let mut parts: Vec<_> = text.rsplitn(most.saturating_add(1), separator).map(Value::from).collect();
    parts.reverse();
    Ok(Value::from(parts))
}

fn parts<'a>(found: Option<(&'a str, &'a str)>, separator: &'a str, without: [&'a str; 3]) -> Value {
    let parts = found.map_or(without, |(before, after)| [before, separator, after]);
    parts.into_iter().collect()
}
