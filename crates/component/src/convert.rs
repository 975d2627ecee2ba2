//! The contract's shapes and ours.

use warmroute_routing::Tier;
use warmroute_routing::choose;
use warmroute_routing::hash::Namespace;
use warmroute_routing::lookup::Depths;

use crate::bindings::exports::warmroute::routing::types as wit;

pub(crate) fn namespace(namespace: &wit::Namespace) -> Namespace {
    Namespace::new(namespace.lora.as_deref(), namespace.salt.as_deref())
}

pub(crate) fn tier(tier: wit::Tier) -> Tier {
    match tier {
        wit::Tier::Gpu => Tier::Gpu,
        wit::Tier::Cpu => Tier::Cpu,
        wit::Tier::Disk => Tier::Disk,
        wit::Tier::External => Tier::External,
    }
}

pub(crate) fn depths(depths: &wit::Depths) -> Depths {
    Depths::new([depths.gpu, depths.cpu, depths.disk, depths.external])
}

pub(crate) fn depths_out(depths: &Depths) -> wit::Depths {
    wit::Depths {
        gpu: depths.within(Tier::Gpu),
        cpu: depths.within(Tier::Cpu),
        disk: depths.within(Tier::Disk),
        external: depths.within(Tier::External),
    }
}

pub(crate) fn load(load: wit::Load) -> choose::Load {
    choose::Load { requests: load.requests, prefill_tokens: load.prefill_tokens, blocks: load.blocks }
}

pub(crate) fn load_out(load: choose::Load) -> wit::Load {
    wit::Load { requests: load.requests, prefill_tokens: load.prefill_tokens, blocks: load.blocks }
}
