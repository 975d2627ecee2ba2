use super::*;

fn parse(path: &str, body: &str) -> Result<Source, PromptError> {
    Request::parse(path, body.as_bytes()).map(|request| request.source)
}

fn chat(path: &str, body: &str) -> ChatRequest {
    match parse(path, body).unwrap() {
        Source::Chat(chat) => chat,
        other => panic!("{other:?}"),
    }
}

fn messages(path: &str, body: &str) -> Json {
    Json::List(chat(path, body).messages)
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

#[test]
fn texts_and_token_ids_are_told_apart() {
    let text = |text: &str, special_tokens| Source::Text { text: Arc::from(text), special_tokens };
    let path = "/v1/completions";
    assert_eq!(parse(path, r#"{"prompt":"hi"}"#).unwrap(), text("hi", true));
    assert_eq!(
        parse(path, r#"{"prompt":["hi","ho"],"add_special_tokens":false}"#).unwrap(),
        text("hi", false)
    );
    assert_eq!(parse(path, r#"{"prompt":[5,6]}"#).unwrap(), Source::Tokens(vec![5, 6]));
    assert_eq!(parse(path, r#"{"prompt":[[5,6],[7]]}"#).unwrap(), Source::Tokens(vec![5, 6]));
    assert_eq!(parse("/x/generate?y=1", r#"{"text":"hi"}"#).unwrap(), text("hi", true));
    assert_eq!(parse("/generate", r#"{"input_ids":[[1],[2]]}"#).unwrap(), Source::Tokens(vec![1]));
    assert_eq!(
        parse("/v1/chat/completions", r#"{"messages":[],"input_ids":[1]}"#).unwrap(),
        Source::Tokens(vec![1])
    );
}

#[test]
fn what_cannot_be_known_is_refused_by_kind() {
    let kind = |path: &str, body: &str| parse(path, body).unwrap_err().kind();
    assert_eq!(kind("/v1/embeddings", "{}"), "path");
    for (path, body) in [
        ("/v1/completions", "{"),
        ("/v1/completions", "[]"),
        ("/v1/completions", "{}"),
        ("/v1/completions", r#"{"prompt":[1,"a"]}"#),
        ("/v1/completions", r#"{"prompt":[-1]}"#),
        ("/v1/completions", r#"{"prompt":"a","add_special_tokens":1}"#),
        ("/v1/chat/completions", r#"{"messages":[]}"#),
        (
            "/v1/chat/completions",
            r#"{"messages":[{}],"continue_final_message":true,"add_generation_prompt":true}"#,
        ),
        ("/v1/chat/completions", r#"{"messages":[{}],"chat_template_kwargs":{"tokenize":true}}"#),
        ("/v1/chat/completions", r#"{"messages":[{}],"tools":[{"function":{}}]}"#),
        ("/v1/responses", r#"{"input":5}"#),
        ("/v1/messages", r#"{"messages":[{"role":"user"}]}"#),
    ] {
        assert_eq!(kind(path, body), "malformed", "{path} {body}");
    }
    for (path, body) in [
        ("/v1/completions", r#"{"prompt":"a","truncate_prompt_tokens":5}"#),
        ("/v1/completions", r#"{"prompt_embeds":"x"}"#),
        ("/generate", r#"{"text":"a","image_data":"x"}"#),
        ("/v1/responses", r#"{"input":"a","previous_response_id":"r"}"#),
        ("/v1/responses", r#"{"input":[{"type":"item_reference","id":"x"}]}"#),
    ] {
        assert_eq!(kind(path, body), "unsupported", "{path} {body}");
    }
}

#[test]
fn names_of_the_namespace_are_read() {
    let request =
        Request::parse("/generate", br#"{"model":"m","lora_path":"ad","cache_salt":"s","text":""}"#).unwrap();
    assert_eq!((request.model.as_deref(), request.cache_salt.as_deref()), (Some("ad"), Some("s")));
    let request = Request::parse("/generate", br#"{"model":null,"text":""}"#).unwrap();
    assert_eq!((request.model, request.cache_salt), (None, None));
}

#[test]
fn a_tool_has_the_fields_that_vllm_gives_it() {
    let body = r#"{"messages":[{"role":"user"}],"tools":[{"function":{"parameters":{"z":1,"a":2},"name":"f","x":1},"type":"function"}]}"#;
    let expected =
        r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{"z":1,"a":2}}}]"#;
    assert_eq!(chat("/v1/chat/completions", body).tools, Some(json(expected)));
}

#[test]
fn an_effort_switches_thinking_unless_the_client_does() {
    let variables = |rest: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user"}}],{rest}}}"#);
        Json::Object(chat("/v1/chat/completions", &body).variables)
    };
    assert_eq!(
        variables(r#""reasoning_effort":"none""#),
        json(r#"{"reasoning_effort":"none","enable_thinking":false}"#)
    );
    assert_eq!(
        variables(
            r#""reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false,"n":null,"a":"auto"}"#
        ),
        json(r#"{"enable_thinking":false,"reasoning_effort":"high"}"#)
    );
}

#[test]
fn items_of_responses_become_messages() {
    let body = r#"{"instructions":"be brief","input":[
        {"role":"user","content":"a"},
        {"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]},
        {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
        {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
        {"type":"function_call_output","call_id":"c1","output":"1"},
        {"type":"message","role":"assistant","status":"in_progress","content":[{"type":"output_text","text":"so"}]}]}"#;
    let expected = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"a"},
        {"role":"assistant","reasoning":"hm","tool_calls":[
            {"id":"c1","function":{"name":"f","arguments":"{}"},"type":"function"},
            {"id":"c2","function":{"name":"g","arguments":"{}"},"type":"function"}]},
        {"role":"tool","content":"1","tool_call_id":"c1"},{"role":"assistant","content":"so"}]"#;
    assert_eq!(messages("/v1/responses", body), json(expected));
    let chat = chat("/v1/responses", body);
    assert_eq!((chat.add_generation_prompt, chat.continue_final_message), (false, true));
}

#[test]
fn blocks_of_anthropic_become_messages() {
    let body = r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"be "},{"type":"text","text":"brief"}],
        "tools":[{"name":"f","input_schema":{"type":"object"}}],"thinking":{"type":"disabled"},
        "messages":[{"role":"user","content":"a"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"b"},{"type":"tool_use","id":"c","name":"f","input":{"q":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"type":"text","text":"c"}]}]}"#;
    let expected = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"a"},
        {"role":"assistant","reasoning":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"q":1}}}],"content":"b"},
        {"role":"tool","tool_call_id":"c","content":"1\n2"},{"role":"user","content":"c"}]"#;
    assert_eq!(messages("/v1/messages", body), json(expected));
    let chat = chat("/v1/messages", body);
    let tools =
        r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{"type":"object"}}}]"#;
    assert_eq!(chat.tools, Some(json(tools)));
    assert_eq!(Json::Object(chat.variables), json(r#"{"reasoning_effort":"none","enable_thinking":false}"#));
}
