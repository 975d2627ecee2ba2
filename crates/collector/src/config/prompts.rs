//! `pools[].prompts`: where the tokens of text and chat prompts come from.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use warmroute_prompts::template::ContentFormat;
use warmroute_prompts::{Json, Options};

use super::ConfigError;
use super::check::{millis, number, refused};

/// Where a pool's tokens come from: its model's files, an engine, or the files held against the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptsConfig {
    /// The folder of `tokenizer.json`.
    pub model: Option<PathBuf>,
    /// The `host:port` of an engine that is asked.
    pub engine: Option<String>,
    /// How the files are used.
    pub options: Options,
    /// The pause between two comparisons of files and engine.
    pub check_interval: Duration,
}

/// The entry as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrompts {
    model: Option<PathBuf>,
    engine: Option<String>,
    chat_template: Option<PathBuf>,
    content_format: Option<String>,
    chat_template_kwargs: Option<Json>,
    #[serde(default)]
    trust_request_chat_template: bool,
    cache_mib: Option<u64>,
    check_interval_ms: Option<u64>,
}

/// Takes values that cannot be.
pub(super) fn check(path: &str, raw: RawPrompts) -> Result<PromptsConfig, ConfigError> {
    let field = |name: &str| format!("{path}.{name}");
    if raw.model.is_none() && raw.engine.is_none() {
        return Err(refused(
            path,
            "name a `model` (a folder with tokenizer.json), an `engine` to ask, or both",
        ));
    }
    if raw.model.is_none() && (raw.chat_template.is_some() || raw.chat_template_kwargs.is_some()) {
        return Err(refused(
            path,
            "a chat template and its variables go with a `model`: an engine has its own",
        ));
    }
    if let Some(engine) = &raw.engine {
        let port = engine.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if !port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return Err(refused(field("engine"), format!("`{engine}`: write `host:port`")));
        }
    }
    let content_format = match raw.content_format.as_deref() {
        None | Some("auto") => None,
        Some("string") => Some(ContentFormat::Text),
        Some("openai") => Some(ContentFormat::Parts),
        Some(other) => {
            let message = format!("`{other}`: write `auto`, `string` or `openai`");
            return Err(refused(field("content_format"), message));
        }
    };
    let template_variables = match raw.chat_template_kwargs {
        None => None,
        Some(variables @ Json::Object(_)) => Some(variables.to_string()),
        Some(_) => return Err(refused(field("chat_template_kwargs"), "write names and values")),
    };
    let cache_mib = number(field("cache_mib"), raw.cache_mib.unwrap_or(64), 1..=65_536)?;
    let check_interval =
        millis(field("check_interval_ms"), raw.check_interval_ms.unwrap_or(60_000), 100..=86_400_000)?;
    Ok(PromptsConfig {
        model: raw.model,
        engine: raw.engine,
        options: Options {
            chat_template: raw.chat_template,
            content_format,
            template_variables,
            trust_request_template: raw.trust_request_chat_template,
            cache_bytes: (cache_mib as usize) << 20,
        },
        check_interval,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parse(prompts: &str) -> Result<super::PromptsConfig, String> {
        let text = format!(
            "pools:\n- name: a\n  block_size: 1\n  prompts: {prompts}\n  workers: [{{address: '[::1]:80', events: 'tcp://host:1'}}]\n"
        );
        let config = Config::parse(&text).map_err(|error| error.to_string())?;
        Ok(config.pools[0].prompts.clone().unwrap())
    }

    #[test]
    fn what_may_be_left_out_has_its_default() {
        let prompts = parse("{model: /m, chat_template_kwargs: {b: [1, true], a: x}}").unwrap();
        assert_eq!((prompts.check_interval.as_secs(), prompts.options.cache_bytes), (60, 64 << 20));
        assert_eq!(prompts.options.template_variables.as_deref(), Some(r#"{"b":[1,true],"a":"x"}"#));
        assert_eq!(parse("{engine: 'llama.svc:8000'}").unwrap().engine.as_deref(), Some("llama.svc:8000"));
    }

    #[test]
    fn what_cannot_be_is_named_with_what_to_write() {
        for (prompts, field, advice) in [
            ("{}", "pools[0].prompts", "model"),
            ("{engine: host}", "pools[0].prompts.engine", "host:port"),
            ("{engine: 'h:1', chat_template: /t}", "pools[0].prompts", "go with a `model`"),
            ("{model: /m, content_format: list}", "pools[0].prompts.content_format", "openai"),
            (
                "{model: /m, chat_template_kwargs: 5}",
                "pools[0].prompts.chat_template_kwargs",
                "names and values",
            ),
            ("{model: /m, cache_mib: 0}", "pools[0].prompts.cache_mib", "65536"),
            ("{model: /m, speed: 9}", "pools[0].prompts", "speed"),
        ] {
            let error = parse(prompts).unwrap_err();
            assert!(error.contains(field) && error.contains(advice), "{prompts}: {error}");
        }
    }
}
