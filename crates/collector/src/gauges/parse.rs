//! The names of the engines' gauges, and how they are read out of Prometheus' text format.

use std::collections::BTreeMap;

use warmroute_wire::Engine;

/// What one rank says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that it works on.
    pub running: u32,
    /// Requests that wait in it.
    pub waiting: u32,
    /// How much of its KV cache its requests hold, in thousandths.
    pub kv_permille: u16,
}

/// What an engine calls its gauges.
struct Names {
    running: &'static str,
    waiting: &'static str,
    /// From 0 to 1, in whichever of these there is.
    kv_use: &'static [&'static str],
    /// The label that tells the data-parallel rank.
    rank: &'static str,
}

const VLLM: Names = Names {
    running: "vllm:num_requests_running",
    waiting: "vllm:num_requests_waiting",
    // The second until 0.11.
    kv_use: &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
    rank: "engine",
};

const SGLANG: Names = Names {
    running: "sglang:num_running_reqs",
    waiting: "sglang:num_queue_reqs",
    kv_use: &["sglang:token_usage"],
    rank: "dp_rank",
};

const TRTLLM: Names = Names {
    running: "trtllm_num_requests_running",
    waiting: "trtllm_num_requests_waiting",
    kv_use: &["trtllm_kv_cache_utilization"],
    rank: "dp_rank",
};

/// Where an engine has its metrics. At `/metrics`, TensorRT-LLM has others.
pub(super) fn path(engine: Engine) -> &'static str {
    match engine {
        Engine::Vllm | Engine::Sglang | Engine::LlmdSim => "/metrics",
        Engine::TrtLlm => "/prometheus/metrics",
    }
}

fn names(engine: Engine) -> &'static Names {
    match engine {
        Engine::Vllm | Engine::LlmdSim => &VLLM,
        Engine::Sglang => &SGLANG,
        Engine::TrtLlm => &TRTLLM,
    }
}

/// The gauges by rank; those without a rank are nobody's in particular. A page without the number of running requests tells
/// nothing.
pub(super) fn gauges(engine: Engine, page: &str) -> BTreeMap<Option<u32>, Gauges> {
    let names = names(engine);
    let mut ranks = BTreeMap::<_, Gauges>::new();
    let mut is_told = false;
    for line in page.lines() {
        let Some(sample) = Sample::read(line) else { continue };
        let is_known = sample.name == names.running
            || sample.name == names.waiting
            || names.kv_use.contains(&sample.name);
        if !is_known {
            continue;
        }
        let gauges = ranks.entry(sample.label(names.rank).and_then(|rank| rank.parse().ok())).or_default();
        // Several series of a rank are its parallel parts, which all tell the same, or parts of a sum that is told too. A
        // negative value, or none, becomes 0.
        if sample.name == names.running {
            gauges.running = gauges.running.max(sample.value as u32);
            is_told = true;
        } else if sample.name == names.waiting {
            gauges.waiting = gauges.waiting.max(sample.value as u32);
        } else {
            gauges.kv_permille = gauges.kv_permille.max((sample.value.clamp(0.0, 1.0) * 1000.0) as u16);
        }
    }
    if is_told { ranks } else { BTreeMap::new() }
}

// === impl Gauges ===

impl Gauges {
    /// Both together, as those of one.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            running: self.running.saturating_add(other.running),
            waiting: self.waiting.saturating_add(other.waiting),
            kv_permille: self.kv_permille.max(other.kv_permille),
        }
    }
}

/// A line of the format that is no comment.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

// === impl Sample ===

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at_checked(end)?;
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest),
        };
        // A time may follow.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// The value of a label. One with an escaped character is of no interest here.
    fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, value) = rest.split_once("=\"")?;
            let (value, after) = value.split_once('"')?;
            if key.trim_start_matches(',').trim() == name {
                return Some(value);
            }
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(running: u32, waiting: u32, kv_permille: u16) -> Gauges {
        Gauges { running, waiting, kv_permille }
    }

    #[test]
    fn vllm_tells_each_rank() {
        let page = "\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0
vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 5.0
vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2.0
vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\",reason=\"capacity\"} 2.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.2515
vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 1.0
vllm:num_requests_running_total{engine=\"0\"} 99
";
        let expected = [(Some(0), told(3, 2, 251)), (Some(1), told(5, 0, 1000))];
        assert_eq!(gauges(Engine::Vllm, page), BTreeMap::from(expected));
        assert_eq!(gauges(Engine::LlmdSim, page), BTreeMap::from(expected));
        assert!(gauges(Engine::Sglang, page).is_empty());
    }

    #[test]
    fn sglang_and_tensorrt_llm_have_names_of_their_own() {
        let sglang = "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 7.0\n\
            sglang:num_queue_reqs{model_name=\"m\",tp_rank=\"0\"} 1.0\nsglang:token_usage{model_name=\"m\"} 0.5\n";
        assert_eq!(gauges(Engine::Sglang, sglang), BTreeMap::from([(None, told(7, 1, 500))]));
        let trtllm = "trtllm_num_requests_running 4\ntrtllm_num_requests_waiting 6 1700000000\n\
            trtllm_kv_cache_utilization 0.75\n";
        assert_eq!(gauges(Engine::TrtLlm, trtllm), BTreeMap::from([(None, told(4, 6, 750))]));
        assert_eq!(path(Engine::TrtLlm), "/prometheus/metrics");
    }

    #[test]
    fn what_is_no_page_of_metrics_tells_nothing() {
        for page in
            ["", "<html>", "vllm:num_requests_running", "vllm:num_requests_running{ x", "{}} 1", "\u{0}"]
        {
            assert!(gauges(Engine::Vllm, page).is_empty(), "{page:?}");
        }
        let odd = "vllm:num_requests_running{engine=\"x\",a=\"}\"} -3\nvllm:num_requests_waiting NaN\n\
            vllm:kv_cache_usage_perc +Inf\n";
        assert_eq!(gauges(Engine::Vllm, odd), BTreeMap::from([(None, told(0, 0, 1000))]));
    }
}
