use super::*;

fn render(source: &str, others: &str) -> Result<String, TemplateError> {
    let others = Json::parse(others.as_bytes()).unwrap();
    Template::new(source)?.render(Variables {
        messages: &[],
        tools: None,
        documents: None,
        add_generation_prompt: true,
        others: others.as_object().unwrap(),
        now: 1_796_083_200,
    })
}

#[track_caller]
fn check(source: &str, others: &str, expected: &str) {
    assert_eq!(render(source, others).unwrap(), expected, "{source}");
}

/// Expected texts are what Jinja2 3.1.6 writes in transformers' environment.
#[test]
fn values_are_written_as_python_writes_them() {
    let all = r#"{"v":[true,false,null,1,-2,1.0,0.1,1e16,1.5e-7,123456789012345680.0,"it's","a\"b","é\n\u200b",{"k":[]}]}"#;
    check(
        "{{ v }}",
        all,
        "[True, False, None, 1, -2, 1.0, 0.1, 1e+16, 1.5e-07, 1.2345678901234568e+17, \"it's\", 'a\"b', 'é\\n\\u200b', {'k': []}]",
    );
    check("{{ v[0] }} {{ v[2] }} {{ v[7] }} {{ v[10] }}{{ nothing }}", all, "True None 1e+16 it's");
    check("{{ v[0] | string }} {{ v[:3] | join('-') }}", all, "True True-False-None");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let v = r#"{"v":{"b":[1,2.50,1e20,"<é\t\u0001'\"\\>"],"a":{},"e":[],"n":null,"t":true}}"#;
    check(
        "{{ v | tojson }}",
        v,
        "{\"b\": [1, 2.5, 1e+20, \"<é\\t\\u0001'\\\"\\\\>\"], \"a\": {}, \"e\": [], \"n\": null, \"t\": true}",
    );
    check(
        "{{ v | tojson(indent=2) }}",
        r#"{"v":{"b":[1,{}],"a":"x"}}"#,
        "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": \"x\"\n}",
    );
    check(
        "{{ v | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
        r#"{"v":{"b":"é😀","a":1}}"#,
        r#"{"a":1,"b":"\u00e9\ud83d\ude00"}"#,
    );
    assert!(render("{{ nothing | tojson }}", "{}").is_err());
}

#[test]
fn methods_of_text_are_pythons() {
    check(
        "[{{ v.strip() }}|{{ v | trim }}|{{ v.rstrip() }}]",
        r#"{"v":"\u001c a\u00a0\t"}"#,
        "[a|a|\u{1c} a]",
    );
    check("{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',', 1) }}", "{}", "['a', 'b']['a,b', 'c']");
    check("{{ 'a</t>b</t>c'.split('</t>')[-1] }}{{ 'xxa'.lstrip('x') }}", "{}", "ca");
    check("{{ 'k=v=w'.partition('=')[2] }}{{ 'abc'.removeprefix('a') }}", "{}", "v=wbc");
    check(
        "{% for k, n in v.items() %}{{ k }}{{ n }}{% endfor %}{{ v.get('z', 'no') }}",
        r#"{"v":{"items":1,"a":2}}"#,
        "items1a2no",
    );
}

#[test]
fn blocks_loops_and_slices_are_jinja2s() {
    check("  {% if true %}\n  a\n  {% endif %}\nb\n", "{}", "  a\nb");
    check(
        "{% for x in v[::-1] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{{ loop.index0 }}{% if x == 1 %}{% break %}{% endif %}{% endfor %}",
        r#"{"v":[0,1,2,3]}"#,
        "3012",
    );
    check(
        "{% set ns = namespace(n=0) %}{% for x in v %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
        r#"{"v":[1,2]}"#,
        "3",
    );
    check(
        "{{ 'text' is sequence }}{{ v is mapping }}{{ v is iterable }}{{ 1 is iterable }}",
        r#"{"v":{}}"#,
        "TrueTrueTrueFalse",
    );
}

#[test]
fn an_assistants_part_is_marked_without_a_trace() {
    check("a\n  {%- generation -%}\n  b\n  {%- endgeneration %}\nc", "{}", "abc");
    check("{% set generation = 'x' %}{% generation %}{{ generation }}{% endgeneration %}", "{}", "x");
}

#[test]
fn a_template_may_refuse_and_sees_the_date() {
    let error = render("{{ raise_exception('roles must alternate') }}", "{}").unwrap_err();
    assert!(error.to_string().contains("roles must alternate"), "{error}");
    check("{{ strftime_now('%d %b %Y') }}", "{}", "01 Dec 2026");
    assert!(render("{{ nothing.at.all }}", "{}").is_err());
    assert!(render("{{ 'a' + none }}", "{}").is_err());
    assert!(render("{% if %}", "{}").is_err());
}

#[test]
fn a_template_from_outside_does_not_run_for_ever() {
    let source = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    let template = Template::untrusted(source).unwrap();
    let variables = Variables {
        messages: &[],
        tools: None,
        documents: None,
        add_generation_prompt: true,
        others: &[],
        now: 0,
    };
    assert!(template.render(variables).is_err());
}
