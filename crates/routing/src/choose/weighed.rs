//! Prefill saved against work in hand: NVIDIA Dynamo's rule.
//!
//! In blocks of size `B`, the least wins:
//!
//! ```text
//! cost   = prefill_scale * max(0, (prefill in flight + prompt) / B - credit)
//!        + decode blocks + request_weight * requests in flight
//! credit = gpu_credit * f * gpu + cpu_credit * (cpu - gpu) + disk_credit * (disk - cpu)        [depths, in blocks]
//! f      = 1 / (1 + credit_decay * ((prefill in flight - least of all) / B) / max(1, ceil(prompt / B)))
//! ```
//!
//! `decode blocks` are those of requests in flight and those that this request adds. Dynamo keeps the set of active
//! blocks and adds only what is not in it; here a request adds its whole prompt on every worker alike, so that blocks
//! shared between requests in flight count more than once.
//!
//! It keeps to a warm worker as long as that saves more prefill than the queue there costs, and spills over after that.

use super::{Cost, Fleet, Load, Policy, Prompt, saved_blocks};
use crate::lookup::Depths;

/// The rule's weights. The defaults are Dynamo's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighed {
    /// What a block to compute weighs, against a block to decode.
    pub prefill_scale: f64,
    /// What of a block's prefill is saved where it is cached on the GPU.
    pub gpu_credit: f64,
    /// The same in the host's memory.
    pub cpu_credit: f64,
    /// The same on disk.
    pub disk_credit: f64,
    /// How fast the GPU's credit shrinks on workers with more prefill in flight than others.
    pub credit_decay: f64,
    /// What a request in flight weighs, in blocks.
    pub request_weight: f64,
}

/// What the formula is about, for one worker.
#[derive(Clone, Copy, Debug)]
struct Terms {
    prefill_blocks: f64,
    credit_blocks: f64,
    decode_blocks: f64,
    requests: f64,
}

// === impl Weighed ===

impl Default for Weighed {
    fn default() -> Self {
        Self {
            prefill_scale: 1.0,
            gpu_credit: 1.0,
            cpu_credit: 0.75,
            disk_credit: 0.25,
            credit_decay: 0.0,
            request_weight: 0.0,
        }
    }
}

impl Weighed {
    fn of(&self, terms: Terms) -> f64 {
        let prefill = (terms.prefill_blocks - terms.credit_blocks).max(0.0);
        self.prefill_scale * prefill + terms.decode_blocks + self.request_weight * terms.requests
    }

    fn credit(&self, depths: &Depths, decay: f64) -> f64 {
        // Dynamo lets the decay take the GPU's credit below that of the host's memory, so that a block that is copied up
        // is worth less than before. A deeper match must never cost more.
        let gpu_credit = (self.gpu_credit * decay).max(self.cpu_credit.min(self.gpu_credit));
        saved_blocks(depths, gpu_credit, self.cpu_credit, self.disk_credit)
    }

    fn decay(&self, prompt: &Prompt, load: &Load, fleet: &Fleet) -> f64 {
        let surplus = load.prefill_tokens.saturating_sub(fleet.least_prefill_tokens) as f64;
        let surplus_blocks = surplus / f64::from(prompt.block_size.max(1));
        1.0 / (1.0 + self.credit_decay * surplus_blocks / prompt.all_blocks().max(1.0))
    }
}

impl Policy for Weighed {
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, fleet: &Fleet) -> Cost {
        let block_size = f64::from(prompt.block_size.max(1));
        let first = self.of(Terms {
            prefill_blocks: (load.prefill_tokens as f64 + prompt.tokens as f64) / block_size,
            credit_blocks: self.credit(depths, self.decay(prompt, load, fleet)),
            decode_blocks: load.blocks as f64 + f64::from(prompt.blocks),
            requests: f64::from(load.requests),
        });
        Cost { first, then: f64::from(load.requests) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Cases {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        env: BTreeMap<String, String>,
        block_size: u32,
        active_prefill_tokens: BTreeMap<String, u64>,
        dynamo: Dynamo,
        formula_logits: BTreeMap<String, f64>,
    }

    #[derive(Deserialize)]
    struct Dynamo {
        isl: u64,
        potential_loads: BTreeMap<String, PotentialLoad>,
        overlap: BTreeMap<String, Overlap>,
    }

    #[derive(Deserialize)]
    struct PotentialLoad {
        potential_decode_blocks: u32,
        active_requests: u32,
    }

    #[derive(Deserialize)]
    struct Overlap {
        device_blocks: u32,
        host_pinned_blocks: u32,
        disk_blocks: u32,
    }

    impl Case {
        fn rule(&self) -> Weighed {
            let weight =
                |name: &str, default: f64| self.env.get(name).map_or(default, |value| value.parse().unwrap());
            Weighed {
                gpu_credit: weight("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", 1.0),
                prefill_scale: weight("DYN_ROUTER_PREFILL_LOAD_SCALE", 1.0),
                request_weight: weight("DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT", 0.0),
                ..Weighed::default()
            }
        }
    }

    #[test]
    fn equals_dynamos_costs_to_three_decimals() {
        let text = include_str!("../../tests/data/dynamo_cost.json");
        let cases = serde_json::from_str::<Cases>(text).unwrap().cases;
        assert!(cases.len() >= 3);
        for case in &cases {
            let rule = case.rule();
            for (worker, expected) in &case.formula_logits {
                let (load, overlap) = (&case.dynamo.potential_loads[worker], &case.dynamo.overlap[worker]);
                let depths = Depths::new([
                    overlap.device_blocks,
                    overlap.host_pinned_blocks,
                    overlap.disk_blocks,
                    overlap.disk_blocks,
                ]);
                let prefill = case.active_prefill_tokens[worker] + case.dynamo.isl;
                let cost = rule.of(Terms {
                    prefill_blocks: prefill as f64 / f64::from(case.block_size),
                    credit_blocks: rule.credit(&depths, 1.0),
                    decode_blocks: f64::from(load.potential_decode_blocks),
                    requests: f64::from(load.active_requests),
                });
                assert!(
                    (cost - expected).abs() < 0.000_51,
                    "{}: worker {worker}: {cost}, not {expected}",
                    case.name
                );
            }
        }
    }

    const PROMPT: Prompt = Prompt { blocks: 100, tokens: 1600, block_size: 16 };

    fn cost(rule: &Weighed, gpu: u32, load: Load) -> f64 {
        rule.cost(&PROMPT, &Depths::all_gpu(gpu), &load, &Fleet::default()).first
    }

    #[test]
    fn a_warm_worker_is_kept_to_until_its_queue_costs_more_than_it_saves() {
        let rule = Weighed::default();
        let queue = |tokens| Load { requests: 1, prefill_tokens: tokens, blocks: 0 };
        assert!(cost(&rule, 80, queue(16 * 70)) < cost(&rule, 0, Load::default()));
        assert!(cost(&rule, 80, queue(16 * 90)) > cost(&rule, 0, Load::default()));
    }

    #[test]
    fn a_slower_tier_saves_less() {
        let rule = Weighed::default();
        let cost =
            |depths| rule.cost(&PROMPT, &Depths::new(depths), &Load::default(), &Fleet::default()).first;
        let [gpu, cpu, disk, external] =
            [[40, 40, 40, 40], [0, 40, 40, 40], [0, 0, 40, 40], [0, 0, 0, 40]].map(cost);
        assert!(gpu < cpu && cpu < disk && disk < external);
    }

    #[test]
    fn decay_takes_credit_from_the_busy() {
        let rule = Weighed { credit_decay: 1.0, cpu_credit: 0.25, ..Weighed::default() };
        let load = Load { requests: 1, prefill_tokens: 1600, blocks: 0 };
        // As many blocks ahead of the others as the prompt has: half the credit.
        let cost = rule.cost(&PROMPT, &Depths::all_gpu(100), &load, &Fleet { least_prefill_tokens: 0 });
        assert!((cost.first - (200.0 - 50.0 + 100.0)).abs() < 1e-9, "{cost:?}");
    }
}
