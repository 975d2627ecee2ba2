"""Requests and the token IDs that transformers gives them.

Usage: make_cases.py MODEL_DIR NAME COUNT SEED OUT.jsonl    cases for a model's tokenizer and chat template
       make_cases.py --small DIR                            the small tokenizer of the default tests, and its cases

A case is a line {"name", "path", "body", "tokens"}, the body as a text; where the template refuses the conversation, "tokens" is null. What
vLLM does to a request before it calls transformers is written down here once more, from its documentation and source,
independently of the Rust code that is held against it.
"""

import copy
import json
import os
import random
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from transformers import AutoTokenizer, PreTrainedTokenizerFast

# The small tokenizer's template, and a template for a model that ships none: loops, macros, filters and whitespace control.
PLAIN = """\
{%- macro show(content) -%}{{ content | trim }}{%- endmacro -%}
{%- if documents %}{{ open }}documents{{ '\\n' }}{% for d in documents %}[{{ loop.index }}] {{ d.title }}: {{ d.text }}
{% endfor %}{{ close }}{% endif -%}
{%- if tools %}{{ open }}tools{{ '\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' if not loop.last }}{% endfor %}{{ close }}{% endif -%}
{%- for message in messages %}
    {%- if message.role == 'tool' and loop.previtem is defined and loop.previtem.role == 'tool' %}
        {{- '\\n---\\n' }}
    {%- else %}
        {{- open + message.role + '\\n' }}
    {%- endif %}
    {%- if message.name is defined %}({{ message.name }}) {% endif %}
    {%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
    {%- generation -%}
    {{- show(message.content) }}
    {%- endgeneration -%}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n' ~ call.function.name ~ '(' }}
        {%- for key, value in call.function.arguments.items() %}{{ ', ' if not loop.first }}{{ key }}={{ value | tojson(ensure_ascii=true) }}{% endfor %}
        {{- ')' }}
    {%- endfor %}
    {%- if loop.nextitem is not defined or message.role != 'tool' or loop.nextitem.role != 'tool' %}{{ close }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ open }}assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""

SMALL_TEMPLATE = "{%- set open = '<|im_start|>' -%}{%- set close = '<|im_end|>\\n' -%}\n" + PLAIN
HARMONY_TEMPLATE = "{%- set open = '<|start|>' -%}{%- set close = '<|end|>' -%}\n" + PLAIN

# Templates that a request brings itself, each with the way in which it takes content.
OWN_TEMPLATES = [
    ("text", "{% for m in messages %}{{ m['role'] ~ ': ' ~ m['content'] }}\n{% endfor %}{{ messages | length }}"),
    ("parts", "{% for m in messages[::-1] %}{% for p in m['content'] %}{% if p['type'] == 'text' %}<{{ p['text'] | trim }}>"
              "{% endif %}{% else %}-{% endfor %}{% if loop.index > 3 %}{% break %}{% endif %}{% endfor %}"),
    ("text", "{{ tools | tojson(indent=2) if tools else 'no tools' }}{% set ns = namespace(n=0) %}{% for m in messages %}"
             "{% if m.role != 'user' %}{% continue %}{% endif %}{% set ns.n = ns.n + m.content.split() | length %}"
             "{{ m.content.strip()[:20] | upper }}|{% endfor %}{{ ns.n }} {{ messages[0] }} {{ 1.0 }} {{ none }} {{ true }}"),
    ("text", "{% for m in messages if m.role in ['user', 'system'] %}{{ loop.index0 }}{{ m.content | replace('a', 'b') }}"
             "{{ m.content.startswith('The') }}{{ m.content.rstrip('.!?').split('\\n')[-1] }}{% endfor %}"
             "{% if not messages %}{{ raise_exception('nothing') }}{% endif %}"),
]

TEXTS = [
    "The quick brown fox jumps over the lazy dog.", "What's the weather like in Paris today?", "hi", "", " ", "\n", "I'm", "2 + 2 = 4!",
    "  leading and trailing  ", "line one\nline two\r\nline three\n\n\n  indented\n", "tab\tseparated\t\tvalues", "a" * 300, "1234567890" * 12,
    "Grüße aus Köln: ÄÖÜ ß", "naïve café e\u0301 \u0041\u030a", "你好，世界！今天天气怎么样？", "こんにちは世界。カタカナとひらがな", "안녕하세요 세계",
    "Привет, мир! Как дела?", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "👋🏽 👨‍👩‍👧‍👦 🇩🇪 🎉🎉", "∑ x² ≤ ∞ → ∀ε>0",
    "def f(x):\n    return {\n        'a': [1, 2.5, None],\n    }  # comment\n", "<b>bold</b> &amp; \"quoted\" 'single' \\ back", "{{ not.a.template }} {% nor this %}",
    "<|im_start|>system\nignore<|im_end|>", "<think>\nhm\n</think>\n\nanswer", "<｜User｜>x<｜Assistant｜>", "<start_of_turn>user\n<end_of_turn>", "<|eot_id|><|begin_of_text|>",
    "zero\u200bwidth\ufeff and \u00a0nbsp\u3000wide", "\x00\x01\x1c\x1f control \x7f\x85", "ends with newline\n", "\u2028\u2029separators", "a/b//c\n/d:\n//e", "!!!\n/etc/passwd\n...\n",
    "https://example.org/path?x=1&y=2#z user@example.org", "SELECT * FROM t WHERE a >= 10 AND b <> 'x';", "https://例え.jp/パス", "ＦＵＬＬ ｗｉｄｔｈ １２３", "ﬁ ligature Ⅳ ½",
    "It's 10,000.50 dollars; they've won't I'LL", "x" + " " * 50 + "y" + "\n" * 20 + "z", "\ud7ff\ue000\uffff\U0001f600\U000e0001",
]

# Turns of a long conversation.
LONG = 40

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city, °C \"or\" °F", "parameters": {
        "type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]}, "city": {"type": "string", "default": "Zürich"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop"}},
    {"function": {"parameters": {"z": 1, "a": 2.50, "n": None, "t": True, "e": [], "items": {"x": 1e20}}, "name": "odd", "strict": False}, "type": "function"},
]
ARGUMENTS = ['{"city": "Zürich", "unit": "c"}', "{}", "", "not json", "[1]", '{"b":1,"a":{"x":[1,2.0,null,true,"<&>"]},"b":2}', {"already": "parsed", "n": 3}]


def text(dice, long=False):
    parts = [dice.choice(TEXTS) for _ in range(dice.randint(1, 40 if long else 3))]
    if dice.random() < 0.2:
        parts.append("".join(chr(dice.choice([dice.randint(32, 0x24F), dice.randint(0x370, 0x1FFF), dice.randint(0x4E00, 0x4FFF),
                                              dice.randint(0x1F300, 0x1F6FF)])) for _ in range(dice.randint(1, 20))))
    return dice.choice(["", " ", "\n", "\n\n"]).join(parts)


def content(dice, plain=False, long=False):
    shape = dice.random()
    if plain or shape < 0.8:
        return text(dice, long)
    parts = [{"type": dice.choice(["text", "input_text", "output_text"]), "text": text(dice)} for _ in range(dice.randint(0, 3))]
    if dice.random() < 0.2:
        parts.append({"type": "refusal", "refusal": "no"})
    if dice.random() < 0.2:
        parts.append("plain part")
    return parts


def conversation(dice, alternate):
    messages = []
    if dice.random() < 0.5:
        messages.append({"role": "system", "content": content(dice)})
    turns = dice.choice([1, 1, 2, 3, 5, 8]) if dice.random() < 0.95 else LONG
    for turn in range(turns):
        messages.append({"role": "user", "content": content(dice, long=dice.random() < 0.1)})
        if turn + 1 == turns:
            break
        answer = {"role": "assistant", "content": content(dice)}
        if dice.random() < 0.2:
            answer[dice.choice(["reasoning", "reasoning_content"])] = text(dice)
        if not alternate and dice.random() < 0.35:
            calls = dice.randint(0, 2)
            answer["tool_calls"] = [{"id": f"call_{turn}_{i}", "type": "function", "function": {
                "name": dice.choice(["get_weather", "noop"]), "arguments": dice.choice(ARGUMENTS)}} for i in range(calls)]
            if dice.random() < 0.5:
                answer["content"] = None
            messages.append(answer)
            messages += [{"role": "tool", "tool_call_id": f"call_{turn}_{i}", "content": content(dice)} for i in range(calls)]
            continue
        messages.append(answer)
    if not alternate and dice.random() < 0.1:
        dice.choice(messages)["name"] = "Ada"
    if not alternate and dice.random() < 0.1:
        messages.insert(dice.randint(0, len(messages)), {"role": dice.choice(["developer", "system"]), "content": text(dice)})
    return messages


def chat_body(dice, alternate):
    body = {"model": "m", "messages": conversation(dice, alternate)}
    if dice.random() < 0.3:
        body["tools"] = dice.sample(TOOLS, dice.randint(1, 3))
    if dice.random() < 0.3:
        body["chat_template_kwargs"] = dice.choice([{"enable_thinking": False}, {"enable_thinking": True}, {"unknown": [1], "enable_thinking": None}])
    if dice.random() < 0.1:
        body["reasoning_effort"] = dice.choice(["none", "low", "high"])
    if dice.random() < 0.1:
        body["documents"] = [{"title": "T", "text": text(dice)} for _ in range(2)]
    if dice.random() < 0.15:
        body["add_generation_prompt"] = False
        if dice.random() < 0.5:
            body["messages"].append({"role": "assistant", "content": text(dice)})
            body["continue_final_message"] = True
    if dice.random() < 0.08:
        body["chat_template"] = dice.choice(OWN_TEMPLATES)[1]
    return body


# What vLLM does before it calls transformers.

def vllm_content(value, form):
    parts = [] if value is None else [{"type": "text", "text": value}] if isinstance(value, str) else value
    texts = []
    for part in parts:
        found = part if isinstance(part, str) else part.get("refusal" if part["type"] == "refusal" else "text")
        texts.append((found, isinstance(part, str)))
    if form == "parts":
        return [{"type": "text", "text": found} for found, _ in texts]
    return "\n".join(found for found, _ in texts if found)


def vllm_messages(messages, form):
    out = []
    for message in copy.deepcopy(messages):
        made = {"role": message["role"], "content": vllm_content(message.get("content"), form)}
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or []:
                arguments = call["function"].get("arguments")
                if isinstance(arguments, str):
                    try:
                        arguments = json.loads(arguments)
                    except ValueError:
                        arguments = {}
                call["function"]["arguments"] = arguments if isinstance(arguments, dict) else {}
            if message.get("tool_calls"):
                made["tool_calls"] = message["tool_calls"]
            if reasoning is not None:
                made["reasoning"] = made["reasoning_content"] = reasoning
        if message["role"] == "tool":
            made["tool_call_id"] = message["tool_call_id"]
            if isinstance(made["content"], list):
                made["content"] = "\n".join(part["text"] for part in made["content"])
        if "name" in message:
            made["name"] = message["name"]
        out.append(made)
    return out


def one_system(messages):
    systems = [m for m in messages if m["role"] == "system"]
    if not any(m["role"] == "system" for m in messages[1:]):
        return messages
    texts = []
    for message in systems:
        value = message["content"]
        texts.append("\n".join(p["text"] for p in value) if isinstance(value, list) else value)
    return [{"role": "system", "content": "\n\n".join(t for t in texts if t)}] + [m for m in messages if m["role"] != "system"]


def vllm_tool(tool):
    function = tool["function"]
    made = {"name": function["name"], "description": function.get("description"), "parameters": function.get("parameters")}
    if function.get("strict") is not None:
        made["strict"] = function["strict"]
    return {"type": "function", "function": made}


def expected(tokenizer, form, body):
    template = body.get("chat_template")
    if template:
        form = dict((source, form) for form, source in OWN_TEMPLATES)[template]
    messages = vllm_messages(body["messages"], form)
    source = template or tokenizer.chat_template
    if any(m["role"] == "developer" for m in messages) and "'developer'" not in source and '"developer"' not in source:
        messages = one_system([{**m, "role": "system"} if m["role"] == "developer" else m for m in messages])
    variables = {k: v for k, v in body.get("chat_template_kwargs", {}).items() if v is not None}
    if "reasoning_effort" in body:
        variables["reasoning_effort"] = body["reasoning_effort"]
        if "enable_thinking" not in body.get("chat_template_kwargs", {}):
            variables["enable_thinking"] = body["reasoning_effort"] != "none"
    try:
        return tokenizer.apply_chat_template(
            messages, tools=[vllm_tool(t) for t in body["tools"]] if "tools" in body else None, documents=body.get("documents"),
            chat_template=template, add_generation_prompt=body.get("add_generation_prompt", True),
            continue_final_message=body.get("continue_final_message", False), tokenize=True, return_dict=False, **variables)
    except Exception as error:  # The template refuses it: whatever the reason, there are no tokens.
        if os.environ.get("SHOW"):
            print("refused:", repr(error)[:200], file=sys.stderr)
        return None


def cases(tokenizer, form, alternate, count, seed):
    dice = random.Random(seed)
    for number in range(count):
        if number % 8 == 0:
            value = text(dice, long=number % 16 == 0)
            body = {"model": "m", "prompt": value if number % 24 else [value, "second"]}
            if number % 3 == 0:
                body["add_special_tokens"] = False
            yield {"name": f"text {number}", "path": "/v1/completions", "body": body,
                   "tokens": tokenizer.encode(value, add_special_tokens=body.get("add_special_tokens", True))}
            continue
        body = chat_body(dice, alternate)
        yield {"name": f"chat {number}", "path": "/v1/chat/completions", "body": body, "tokens": expected(tokenizer, form, body)}


def write(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        for case in lines:
            # The body as the text that a client sends: the order of its keys is part of the prompt.
            case["body"] = json.dumps(case["body"], ensure_ascii=False)
            out.write(json.dumps(case, separators=(",", ":"), ensure_ascii=False) + "\n")


# Which models take content as parts, and which refuse roles that do not alternate.
PARTS = {"gemma3"}
ALTERNATE = {"gemma3"}


def small(directory):
    """A byte-level BPE tokenizer with the pattern of Qwen, trained on the texts above."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator([t for t in TEXTS if t] + ["assistant user system tool the answer is in the question"] * 9, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = SMALL_TEMPLATE
    os.makedirs(directory, exist_ok=True)
    fast.save_pretrained(directory)
    fast = AutoTokenizer.from_pretrained(directory)
    write(os.path.join(directory, "cases.jsonl"), cases(fast, "text", False, 48, 7))


def main():
    if sys.argv[1] == "--small":
        small(sys.argv[2])
        return
    directory, name, count, seed, out = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    if tokenizer.chat_template is None:
        with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(HARMONY_TEMPLATE)
        tokenizer.chat_template = HARMONY_TEMPLATE
    made = list(cases(tokenizer, "parts" if name in PARTS else "text", name in ALTERNATE, int(count), int(seed)))
    write(out, made)
    refused = sum(case["tokens"] is None for case in made)
    print(f"{name}: {len(made)} cases, {refused} of them refused by the template", file=sys.stderr)


if __name__ == "__main__":
    main()
