//! The rules for names: of pools, clusters, hosts and headers.

use super::error::ConfigError;
use super::reader::Field;

/// The longest pool name, in bytes.
const POOL_NAME_BYTES: usize = 63;

/// Headers that the filter must not take over: it removes its own headers from requests, and without these a request
/// would be another one, or none.
const RESERVED: [&str; 9] = [
    "host",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Headers with this prefix steer Envoy's own router.
const ENVOY_PREFIX: &str = "x-envoy-";

pub(super) fn pool_name(field: &Field<'_>) -> Result<String, ConfigError> {
    let rule = "a name of a-z, 0-9, -, _ and ., 1 to 63 bytes long";
    let advice = "the pool's name in the collector's configuration";
    let name = field.text(rule, advice)?;
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > POOL_NAME_BYTES || !name.bytes().all(legal) {
        return Err(field.must_be(rule, advice));
    }
    Ok(name.to_owned())
}

pub(super) fn cluster_name(field: &Field<'_>) -> Result<String, ConfigError> {
    let rule = "the name of an Envoy cluster";
    let advice = "it as Envoy has it, for example \"workers\"";
    let name = field.text(rule, advice)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(field.must_be(rule, advice));
    }
    Ok(name.to_owned())
}

pub(super) fn authority(field: &Field<'_>) -> Result<String, ConfigError> {
    let rule = "a host name or an address, with a port or without";
    let advice = "for example \"warmroute-collector:9400\"";
    let name = field.text(rule, advice)?;
    let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b'?' | b'#' | b'@' | b'\\');
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(field.must_be(rule, advice));
    }
    Ok(name.to_owned())
}

/// A header's name, in the lower case in which Envoy keeps headers.
pub(super) fn header_name(field: &Field<'_>) -> Result<String, ConfigError> {
    let rule = "the name of a header, in lower case";
    let advice = "letters, digits and dashes, for example \"x-my-header\"";
    let name = field.text(rule, advice)?;
    if name.starts_with(':') || name.starts_with(ENVOY_PREFIX) || RESERVED.contains(&name) {
        return Err(field.must_be("a header of your own", "a name that HTTP and Envoy do not use themselves"));
    }
    if name.is_empty() || !name.bytes().all(is_lower_token_byte) {
        return Err(field.must_be(rule, advice));
    }
    Ok(name.to_owned())
}

/// Whether the byte may stand in a header's name (RFC 9110's `token`), upper case left out.
fn is_lower_token_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
