//! The rule by which a pool's worker is chosen, and its weights.

use warmroute_routing::choose::{FirstToken, LeastLoad, LongestPrefix, Rule, Sticky, Weighed};

use super::error::ConfigError;
use super::reader::{Field, Fields};

const NAMES: [&str; 5] = ["default", "prefix", "cost", "sticky", "least_load"];

pub(super) fn read(field: &Field<'_>) -> Result<Rule, ConfigError> {
    let advice = "its name, one of \"default\", \"prefix\", \"cost\", \"sticky\", \"least_load\"";
    let name = field.member("name")?.ok_or_else(|| field.error("has no name", advice))?.one_of(&NAMES)?;
    match name {
        "default" => {
            first_token(&field.fields(&["name", "thrift", "scarcity", "cpu_credit", "disk_credit"])?)
        }
        "cost" => weighed(&field.fields(&[
            "name",
            "prefill_scale",
            "gpu_credit",
            "cpu_credit",
            "disk_credit",
            "credit_decay",
            "request_weight",
        ])?),
        "sticky" => sticky(&field.fields(&["name", "least_share", "most_surplus_tokens"])?),
        "least_load" => field.fields(&["name"]).map(|_| Rule::LeastLoad(LeastLoad)),
        _ => field.fields(&["name"]).map(|_| Rule::Prefix(LongestPrefix)),
    }
}

fn first_token(fields: &Fields<'_>) -> Result<Rule, ConfigError> {
    let default = FirstToken::default();
    let rule = FirstToken {
        thrift: fields.weight("thrift", 100.0, default.thrift)?,
        scarcity: fields.weight("scarcity", 1000.0, default.scarcity)?,
        cpu_credit: fields.weight("cpu_credit", 1.0, default.cpu_credit)?,
        disk_credit: fields.weight("disk_credit", 1.0, default.disk_credit)?,
    };
    descending(fields, 1.0, rule.cpu_credit, rule.disk_credit)?;
    Ok(Rule::FirstToken(rule))
}

/// A block in a slower tier that were worth more would make a deeper match dearer.
fn descending(fields: &Fields<'_>, gpu: f64, cpu: f64, disk: f64) -> Result<(), ConfigError> {
    for (name, own, faster) in [("cpu_credit", cpu, gpu), ("disk_credit", disk, cpu)] {
        if own > faster {
            let problem = format!("is {own}, more than a faster tier's credit, which is {faster}");
            return Err(ConfigError::at(&format!("{}.{name}", fields.path()), problem, "less or as much"));
        }
    }
    Ok(())
}

fn weighed(fields: &Fields<'_>) -> Result<Rule, ConfigError> {
    let default = Weighed::default();
    let rule = Weighed {
        prefill_scale: fields.weight("prefill_scale", 1000.0, default.prefill_scale)?,
        gpu_credit: fields.weight("gpu_credit", 1.0, default.gpu_credit)?,
        cpu_credit: fields.weight("cpu_credit", 1.0, default.cpu_credit)?,
        disk_credit: fields.weight("disk_credit", 1.0, default.disk_credit)?,
        credit_decay: fields.weight("credit_decay", 1000.0, default.credit_decay)?,
        request_weight: fields.weight("request_weight", 1_000_000.0, default.request_weight)?,
    };
    descending(fields, rule.gpu_credit, rule.cpu_credit, rule.disk_credit)?;
    Ok(Rule::Cost(rule))
}

fn sticky(fields: &Fields<'_>) -> Result<Rule, ConfigError> {
    let default = Sticky::default();
    Ok(Rule::Sticky(Sticky {
        least_share: fields.weight("least_share", 1.0, default.least_share)?,
        most_surplus_tokens: fields.number(
            "most_surplus_tokens",
            0..=1_000_000_000,
            default.most_surplus_tokens,
        )?,
    }))
}
