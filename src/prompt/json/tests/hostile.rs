//! Bodies by hand: the shapes of every engine, and what a client may send to break the reader.

use super::*;
use crate::prompt::json::{Name, PromptKind};

#[track_caller]
fn refuses(body: impl AsRef<[u8]>, reason: PromptError) {
    let body = body.as_ref();
    let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    assert_eq!(scan(body), Err(reason), "{shown}");
    assert_eq!(scan_pieces(body.chunks(1)), Err(reason), "{shown}, byte by byte");
}

#[track_caller]
fn kind(body: &str) -> PromptKind {
    let outcome = scan(body.as_bytes());
    assert_eq!(scan_pieces(body.as_bytes().chunks(1)), outcome, "{body}, byte by byte");
    outcome.unwrap_or_else(|reason| panic!("{body}: {reason}")).0.prompt
}

#[track_caller]
fn tokens(body: &str) -> Vec<u32> {
    let PromptKind::Tokens { count } = kind(body) else { panic!("{body} has no tokens") };
    let (_, tokens) = scan(body.as_bytes()).unwrap();
    assert_eq!(tokens.len(), count);
    tokens
}

#[test]
fn every_engines_shape_is_read() {
    assert_eq!(tokens(r#"{"model":"tiny","prompt":[5,6,7],"max_tokens":1}"#), [5, 6, 7]);
    assert_eq!(tokens(r#"{"model":"tiny","prompt":[[5,6,7],[8,9]],"max_tokens":1}"#), [5, 6, 7]);
    assert_eq!(
        tokens(r#"{"token_ids":[5,6,7],"sampling_params":{"max_tokens":2},"cache_salt":null}"#),
        [5, 6, 7]
    );
    assert_eq!(tokens(r#"{"input_ids":[[5,6],[7]],"sampling_params":{"max_new_tokens":1}}"#), [5, 6]);
    assert_eq!(tokens(r#"{"messages":[{"role":"user","content":"hi"}],"input_ids":[5,6,7]}"#), [5, 6, 7]);
    assert_eq!(tokens(r#"{"prompt":null,"prompt_embeds":null,"input_ids":[1]}"#), [1]);
    assert!(tokens(r#"{"prompt":[]}"#).is_empty());
    assert!(tokens(r#"{"prompt":[ [ ] , [1] ] }"#).is_empty());
}

#[test]
fn prompts_without_token_ids_are_told_apart() {
    for body in
        [r#"{"prompt":"hi"}"#, r#"{"prompt":["hi","ho"]}"#, r#"{"prompt":[ "hi",[1]]}"#, r#"{"prompt":""}"#]
    {
        assert_eq!(kind(body), PromptKind::Text, "{body}");
    }
    for body in [
        "{}",
        " { } ",
        r#"{"model":"m"}"#,
        r#"{"prompt":null}"#,
        r#"{"prompt":5}"#,
        r#"{"prompt":true}"#,
        r#"{"prompt":{"id":"p"}}"#,
        r#"{"prompt":[null]}"#,
        r#"{"prompt":[{"a":1}]}"#,
        r#"{"prompt":[["a"],[1]]}"#,
        r#"{"prompt":[[[1]]]}"#,
        r#"{"a":{"prompt":[1]}}"#,
        r#"{"Prompt":[1],"prompt ":[1],"promp":[1]}"#,
        r#"{"prompt\u0000":[1]}"#,
        r#"{"prompt_prompt_prompt":[1]}"#,
        r#"{"\ud800prompt":[1]}"#,
    ] {
        assert_eq!(kind(body), PromptKind::Absent, "{body}");
    }
    for body in [r#"{"prompt":[1],"prompt_embeds":"AAAA"}"#, r#"{"prompt_embeds":["AAAA"],"prompt":"x"}"#] {
        assert_eq!(kind(body), PromptKind::Embeds, "{body}");
    }
    assert_eq!(PromptKind::Tokens { count: 0 }.reason(), None);
    assert_eq!(PromptKind::Text.reason(), Some(PromptError::TextPrompt));
    assert_eq!(PromptKind::Embeds.reason(), Some(PromptError::Embeds));
    assert_eq!(PromptKind::Absent.reason(), Some(PromptError::NoTokens));
}

#[test]
fn a_token_is_an_integer_of_32_bits() {
    assert_eq!(tokens(r#"{"prompt":[0,4294967295]}"#), [0, u32::MAX]);
    let long = "9".repeat(1_000_000);
    for number in ["-1", "-0", "1.5", "1.0", "1e3", "1E3", "0.1", "4294967296", "42949672950", &long] {
        refuses(format!(r#"{{"prompt":[{number}]}}"#), PromptError::TokenOutOfRange);
        refuses(format!(r#"{{"prompt":[1, {number}]}}"#), PromptError::TokenOutOfRange);
        refuses(format!(r#"{{"prompt":[[{number}]]}}"#), PromptError::TokenOutOfRange);
    }
    for number in ["01", "00", "1a", "1 2", "0x1", "1_0"] {
        refuses(format!(r#"{{"prompt":[{number}]}}"#), PromptError::MalformedBody);
    }
    for number in ["NaN", "+1", ".5", ",", "'1'"] {
        refuses(format!(r#"{{"prompt":[{number}]}}"#), PromptError::MalformedBody);
        refuses(format!(r#"{{"prompt":[1,{number}]}}"#), PromptError::MalformedBody);
    }
    for item in ["", "null", "true", "\"a\"", "[1]", "{}"] {
        refuses(format!(r#"{{"prompt":[1,{item}]}}"#), PromptError::MalformedBody);
    }
}

#[test]
fn a_second_prompt_is_refused() {
    for body in [
        r#"{"prompt":[1],"prompt":[1]}"#,
        r#"{"prompt":[1],"\u0070rompt":[2]}"#,
        r#"{"prompt":null,"prompt":[1]}"#,
        r#"{"prompt":[1],"a":{},"prompt":null}"#,
        r#"{"prompt":[1],"input_ids":[2]}"#,
        r#"{"prompt":"a","token_ids":[2]}"#,
        r#"{"token_ids":[2],"prompt":5}"#,
    ] {
        refuses(body, PromptError::DuplicatePrompt);
    }
}

#[test]
fn the_last_of_two_equal_names_counts() {
    let (summary, _) = scan(br#"{"model":"a","model":"b","cache_salt":"a","cache_salt":null}"#).unwrap();
    assert_eq!(summary.model.known(), Some("b"));
    assert_eq!(summary.cache_salt, Name::Absent);
    assert!(!summary.cache_salt.is_present() && summary.model.is_present());
}

#[test]
fn a_name_that_cannot_be_kept_is_unknown() {
    let fits = "x".repeat(1024);
    let long = "x".repeat(1025);
    let huge = "é".repeat(1_000_000);
    for (value, name) in [
        (format!("\"{fits}\""), Name::Known(fits)),
        (format!("\"{long}\""), Name::Unknown),
        (format!("\"{huge}\""), Name::Unknown),
        ("[\"a\"]".into(), Name::Unknown),
        ("7".into(), Name::Unknown),
        ("false".into(), Name::Unknown),
        (r#""\ud83d""#.into(), Name::Unknown),
        ("null".into(), Name::Absent),
        (r#""""#.into(), Name::Known(String::new())),
    ] {
        let body = format!(r#"{{"cache_salt":{value},"prompt":[1]}}"#);
        let (summary, tokens) = scan(body.as_bytes()).unwrap();
        assert_eq!((summary.cache_salt, tokens), (name, vec![1]));
    }
    refuses(b"{\"model\":\"\xff\"}", PromptError::MalformedBody);
    refuses(b"{\"model\":\"\xc3\"}", PromptError::MalformedBody);
}

#[test]
fn what_is_no_object_is_no_json() {
    let utf16: Vec<u8> = r#"{"prompt":[1]}"#.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let marked: Vec<u8> = [0xff, 0xfe].into_iter().chain(utf16.iter().copied()).collect();
    for body in [
        &b""[..],
        b" \n",
        b"[1]",
        b"\"a\"",
        b"null",
        b"}",
        b"\xef\xbb\xbf{}",
        b"\x1f\x8b\x08",
        b"--boundary",
        b"a=b",
        &utf16,
        &marked,
    ] {
        refuses(body, PromptError::NotJson);
    }
    // Little-endian UTF-16 without a mark begins with a brace.
    let utf16: Vec<u8> = r#"{"prompt":[1]}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    refuses(utf16, PromptError::MalformedBody);
}

#[test]
fn broken_objects_are_refused() {
    for body in [
        "{",
        "{]",
        "{,}",
        "{1:2}",
        "{a:1}",
        r#"{"a"}"#,
        r#"{"a" 1}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"prompt":[1]]"#,
        r#"{"prompt":[1}"#,
        r#"{"prompt":[1,]}"#,
        r#"{"prompt":[,1]}"#,
        r#"{"prompt":[1,,2]}"#,
        r#"{"prompt":[[1,2],]}"#,
        r#"{"prompt":[[1,2] 3]}"#,
        r#"{"prompt":[}"#,
        r#"{"prompt":nul}"#,
        r#"{"prompt":x}"#,
        r#"{"prompt":["a",]}"#,
        r#"{"prompt":[["a"}]}"#,
        r#"{"model":"\x"}"#,
        "{\"model\":\"a\nb\"}",
        "{\"a\u{1}\":1}",
        r#"{"a":'b'}"#,
        r#"{} {}"#,
        "{}x",
        "{}\0",
        "{}\u{a0}",
        r#"{"prompt":[1]},"#,
        "{\u{b}}",
        "{/**/}",
    ] {
        refuses(body, PromptError::MalformedBody);
    }
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let body =
        |levels: usize| format!(r#"{{"a":{}{},"prompt":[1]}}"#, "[".repeat(levels), "]".repeat(levels));
    assert_eq!(tokens(&body(127)), [1]);
    refuses(body(128), PromptError::MalformedBody);
    assert_eq!(scan(body(5_000_000).as_bytes()), Err(PromptError::MalformedBody));
    let objects = format!(r#"{{"a":{}"#, r#"{"a":"#.repeat(1_000_000));
    assert_eq!(scan(objects.as_bytes()), Err(PromptError::MalformedBody));
    let prompt = |levels: usize| format!(r#"{{"prompt":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert_eq!(kind(&prompt(127)), PromptKind::Absent);
    refuses(prompt(128), PromptError::MalformedBody);
}

#[test]
fn size_alone_is_no_fault() {
    let blanks = " \n\t\r".repeat(2_500_000);
    let body = format!(
        r#"{blanks}{{{blanks}"prompt":{blanks}[{blanks}1{blanks},{blanks}2{blanks}]{blanks}}}{blanks}"#
    );
    assert_eq!(scan(body.as_bytes()).unwrap().1, [1, 2]);
    let text = "lorem ipsum \\\" ".repeat(500_000);
    let body = format!(r#"{{"{text}":"{text}","prompt":[3]}}"#);
    assert_eq!(scan(body.as_bytes()).unwrap().1, [3]);
    let many = r#""a":0,"#.repeat(1_000_000);
    let body = format!(r#"{{{many}"prompt":[4]}}"#);
    assert_eq!(scan(body.as_bytes()).unwrap().1, [4]);
}
