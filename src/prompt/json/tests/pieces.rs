//! Where a body is cut changes nothing, and what is known half-way is true.

use super::*;
use crate::prompt::json::Progress;

const SAMPLE: &str = r#" {"model" : "ad\u0031\ud83d\ude00é\n", "temperature":-0.5e+1,"stop":["]","\"}"],
  "nested":{"prompt":[9,9],"a":[[],{},[{"b":null}],true,false]} ,"\u0070rompt":[ 0,1 , 22,4294967295,10
  ],"cache_salt":"tenant-7","lora_path":null,"extra_key":["k"],"stream":false}
"#;

fn sample_outcome() -> (BodySummary, Vec<u32>) {
    let summary = BodySummary {
        prompt: PromptKind::Tokens { count: 5 },
        model: Name::Known("ad1\u{1f600}\u{e9}\n".into()),
        cache_salt: Name::Known("tenant-7".into()),
        lora_path: Name::Absent,
        extra_key: Name::Unknown,
    };
    (summary, vec![0, 1, 22, u32::MAX, 10])
}

#[test]
fn the_sample_is_read() {
    assert_eq!(scan(SAMPLE.as_bytes()), Ok(sample_outcome()));
}

#[test]
fn every_cut_in_two_or_three_gives_the_same() {
    let body = SAMPLE.as_bytes();
    let whole = Ok(sample_outcome());
    for first in 0..=body.len() {
        for second in first..=body.len() {
            let pieces = [&body[..first], &body[first..second], &body[second..]];
            assert_eq!(scan_pieces(pieces), whole, "cut at {first} and {second}");
        }
    }
}

#[test]
fn single_bytes_and_empty_pieces_give_the_same() {
    let pieces = SAMPLE.as_bytes().chunks(1).flat_map(|byte| [byte, &[]]);
    assert_eq!(scan_pieces(pieces), Ok(sample_outcome()));
}

#[test]
fn a_truncated_body_is_never_complete() {
    let body = SAMPLE.trim_end().as_bytes();
    for end in 0..body.len() {
        let reason =
            if body[..end].contains(&b'{') { PromptError::MalformedBody } else { PromptError::NotJson };
        assert_eq!(scan(&body[..end]), Err(reason), "cut at {end}");
    }
}

#[test]
fn a_truncated_list_is_never_done() {
    let body = br#"{"prompt":[1,22,333"#;
    for end in 0..=body.len() {
        let mut tokens = Tokens::default();
        let mut scanner = BodyScanner::new();
        assert_eq!(scanner.feed(&body[..end], &mut tokens), Progress::Reading);
        assert!(!scanner.prompt_done());
        assert_eq!(scanner.tokens(), tokens.0.len());
        assert!([1, 22, 333].starts_with(&tokens.0), "a part of a number was taken for it");
    }
}

#[test]
fn what_is_known_grows_with_the_body() {
    let mut tokens = Tokens::default();
    let mut scanner = BodyScanner::new();
    assert_eq!(scanner.prompt_kind(), None);
    scanner.feed(br#"{"model":"m","prompt":[1,2,3"#, &mut tokens);
    assert_eq!(scanner.model().known(), Some("m"));
    assert_eq!((scanner.tokens(), scanner.prompt_done()), (2, false));
    assert_eq!(scanner.prompt_kind(), Some(PromptKind::Tokens { count: 2 }));
    scanner.feed(b"]", &mut tokens);
    assert_eq!((scanner.tokens(), scanner.prompt_done()), (3, true));
    assert_eq!((scanner.cache_salt(), scanner.obstacle()), (&Name::Absent, None));
    scanner.feed(br#","cache_salt":"s","lora_path":"l","extra_key":"e""#, &mut tokens);
    assert_eq!(scanner.cache_salt().known(), Some("s"));
    assert_eq!(scanner.lora_path().known(), Some("l"));
    assert_eq!(scanner.extra_key().known(), Some("e"));
    assert_eq!(scanner.feed(b"} ", &mut tokens), Progress::Complete);
    assert_eq!(scanner.feed(b" \n", &mut tokens), Progress::Complete);
    assert_eq!(scanner.feed(b"x", &mut tokens), Progress::Failed(PromptError::MalformedBody));
    assert_eq!(scanner.feed(b"", &mut tokens), Progress::Failed(PromptError::MalformedBody));
}

#[test]
fn an_obstacle_is_known_at_once() {
    for (begin, reason) in [
        (r#"{"prompt":"#, None),
        (r#"{"prompt":""#, Some(PromptError::TextPrompt)),
        (r#"{"prompt":[""#, Some(PromptError::TextPrompt)),
        (r#"{"prompt":{"#, Some(PromptError::NoTokens)),
        (r#"{"prompt":n"#, None),
        (r#"{"prompt":[1,"#, None),
        (r#"{"prompt_embeds":""#, Some(PromptError::Embeds)),
        (r#"{"prompt":[-"#, Some(PromptError::TokenOutOfRange)),
        ("{]", Some(PromptError::MalformedBody)),
    ] {
        let mut scanner = BodyScanner::new();
        scanner.feed(begin.as_bytes(), &mut Tokens::default());
        assert_eq!(scanner.obstacle(), reason, "{begin}");
    }
}
