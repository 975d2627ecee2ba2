//! llm-d's endpoint picker, with its default constants: sticky until saturated, over the index and the routes of the last
//! two seconds; what nobody holds goes to the worker that was given such a request least recently.

use std::time::Duration;

use warmroute_routing::choose::{Fleet, Policy, Sticky};
use warmroute_routing::lookup::Depths;

use super::{Arrival, Choice, Router, least};
use crate::gateway::{Gateway, RecentRoutes};

const ROUTE_LIFE: Duration = Duration::from_secs(2);

/// The picker's own memory.
pub(super) struct LlmD {
    rule: Sticky,
    routes: RecentRoutes,
    /// By worker: the number of the last request that nobody held anything of.
    last_cold: Vec<u64>,
}

// === impl LlmD ===

impl LlmD {
    pub(super) fn new(workers: usize) -> Self {
        Self { rule: Sticky::default(), routes: RecentRoutes::new(ROUTE_LIFE), last_cold: vec![0; workers] }
    }
}

impl Router for LlmD {
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let request = arrival.request;
        let published: Vec<u32> = gateway.depths(request).iter().map(Depths::any).collect();
        let mut held = published.clone();
        for floor in self.routes.floors(request, arrival.now) {
            if let Some(blocks) = held.get_mut(usize::from(floor.slot.number())) {
                *blocks = floor.blocks.max(*blocks);
            }
        }
        let worker = if held.iter().all(|blocks| *blocks == 0) {
            let worker = least(self.last_cold.iter());
            if let Some(last) = self.last_cold.get_mut(worker) {
                *last = arrival.id + 1;
            }
            worker
        } else {
            let least_prefill_tokens =
                gateway.loads().iter().map(|load| load.prefill_tokens).min().unwrap_or(0);
            let fleet = Fleet { least_prefill_tokens };
            let costs = gateway.loads().iter().zip(&held).map(|(load, held)| {
                let cost = self.rule.cost(&request.prompt, &Depths::all_gpu(*held), load, &fleet);
                (cost.first, cost.then)
            });
            least(costs)
        };
        self.routes.note(worker, request, published.get(worker).copied().unwrap_or(0), arrival.now);
        Choice { worker, cached_blocks: held.get(worker).copied().unwrap_or(0) }
    }
}
