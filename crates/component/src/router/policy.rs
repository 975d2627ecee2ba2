//! The policies of the contract.

use warmroute_routing::choose::{LeastLoad, LongestPrefix, Rule, Sticky, Weighed};

use crate::bindings::exports::warmroute::routing::router::{Policy, Weights};

/// The rule of a policy.
pub(crate) fn rule(policy: Policy) -> Rule {
    match policy {
        Policy::Standard => Rule::default(),
        Policy::Cost(weights) => Rule::Cost(weighed(weights)),
        Policy::Sticky => Rule::Sticky(Sticky::default()),
        Policy::Prefix => Rule::Prefix(LongestPrefix),
        Policy::LeastLoad => Rule::LeastLoad(LeastLoad),
    }
}

/// Refuses weights that no cost can be made of.
///
/// # Errors
///
/// What to mend.
pub(crate) fn check(policy: &Policy) -> Result<(), String> {
    let Policy::Cost(weights) = policy else { return Ok(()) };
    let named = [
        ("prefill-scale", weights.prefill_scale),
        ("gpu-credit", weights.gpu_credit),
        ("cpu-credit", weights.cpu_credit),
        ("disk-credit", weights.disk_credit),
        ("credit-decay", weights.credit_decay),
        ("request-weight", weights.request_weight),
    ];
    for (name, weight) in named {
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(format!("{name} is {weight}; write 0 or more"));
        }
    }
    if weights.gpu_credit < weights.cpu_credit || weights.cpu_credit < weights.disk_credit {
        return Err(
            "a slower tier's credit is above a faster one's; write gpu-credit >= cpu-credit >= disk-credit"
                .to_owned(),
        );
    }
    Ok(())
}

fn weighed(weights: Weights) -> Weighed {
    Weighed {
        prefill_scale: weights.prefill_scale,
        gpu_credit: weights.gpu_credit,
        cpu_credit: weights.cpu_credit,
        disk_credit: weights.disk_credit,
        credit_decay: weights.credit_decay,
        request_weight: weights.request_weight,
    }
}
