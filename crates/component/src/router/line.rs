//! A selection as a line of text, for hosts to which nested shapes are dear.

use std::fmt::Write as _;

use crate::bindings::exports::warmroute::routing::router::{Candidates, Prompt, Refusal, Selection};
use crate::bindings::exports::warmroute::routing::types::{Namespace, Tokens};

/// Stands for every worker of the index.
const ALL: &str = "*";

pub(super) fn prompt(tokens: String, lora: String, salt: String) -> Prompt {
    Prompt::Tokens((Tokens::Base64(tokens), Namespace { lora: Some(lora), salt: Some(salt) }))
}

/// Worker IDs in decimal, separated by blanks, or `*`.
///
/// # Errors
///
/// A refusal that says which is no number.
pub(super) fn candidates(text: &str) -> Result<Candidates, Refusal> {
    if text.trim() == ALL {
        return Ok(Candidates::All);
    }
    let number = |item: &str| {
        item.parse().map_err(|_| Refusal::BadRequest(format!("candidate {item:?} is no worker ID")))
    };
    text.split_ascii_whitespace().map(number).collect::<Result<_, _>>().map(Candidates::Ids)
}

pub(super) fn answer(selection: &Result<Selection, Refusal>) -> String {
    match selection {
        Ok(selection) => choice(selection),
        Err(Refusal::NoCandidates) => "refused no-candidates".to_owned(),
        Err(Refusal::NoTokens) => "refused no-tokens".to_owned(),
        Err(Refusal::BadRequest(why)) => format!("refused bad-request {why}"),
        Err(Refusal::NoIndex) => "refused no-index".to_owned(),
        Err(Refusal::Stale(age_ms)) => format!("refused stale {age_ms}"),
    }
}

fn choice(selection: &Selection) -> String {
    let mut line = format!("ok {}", selection.prompt_blocks);
    for ranked in &selection.ranked {
        let (worker, depths, cost) = (ranked.worker, ranked.depths, ranked.cost);
        // Writing to a string does not fail.
        let _ = write!(
            line,
            ";{} {} {} {} {} {} {} {}",
            worker.id,
            worker.rank,
            depths.gpu,
            depths.cpu,
            depths.disk,
            depths.external,
            cost.first,
            cost.then
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::exports::warmroute::routing::router::{Cost, Ranked};
    use crate::bindings::exports::warmroute::routing::types::{Depths, Worker};

    #[test]
    fn candidates_are_numbers_or_a_star() {
        assert_eq!(candidates("*"), Ok(Candidates::All));
        assert_eq!(candidates(" 1  18446744073709551615 "), Ok(Candidates::Ids(vec![1, u64::MAX])));
        assert_eq!(candidates(""), Ok(Candidates::Ids(vec![])));
        for text in ["1,2", "-1", "18446744073709551616", "x", "* 1"] {
            assert!(matches!(candidates(text), Err(Refusal::BadRequest(_))), "{text}");
        }
    }

    #[test]
    fn a_choice_and_a_refusal_are_lines() {
        let worker = Worker { id: u64::MAX, rank: 1 };
        let depths = Depths { gpu: 3, cpu: 4, disk: 4, external: 5 };
        let cost = Cost { first: 12.5, then: 0.0 };
        let ranked = vec![Ranked { worker, depths, cost }];
        let selection = Selection { worker, depths, cost, prompt_blocks: 9, ranked };
        assert_eq!(answer(&Ok(selection)), "ok 9;18446744073709551615 1 3 4 4 5 12.5 0");
        assert_eq!(answer(&Err(Refusal::Stale(40))), "refused stale 40");
    }
}
