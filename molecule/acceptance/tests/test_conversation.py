"""Conversations with the real llama-server: a template with tools, and settings that are broken on purpose.

Those of the service come from a drop-in, which no playbook knows of: what the inventory says stays as it is. Most of
what is broken has a server of its own, and all of these are judged in one run.
"""

import json

import pytest

DROP_IN = "/run/systemd/system/llama-head-chat.service.d"
TEMPLATE = "/etc/llama-broken.jinja"
# ChatML with tools, as Qwen2.5 has them.
TOOLS = r"""
{%- if tools %}
    {{- '<|im_start|>system\nYou may call one or more functions to assist with the user query.\n\nYou are provided '
     ~ 'with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within '
     ~ '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
     ~ '</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\n' ~ message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- set called = tool_call.function %}
            {{- '\n<tool_call>\n{"name": "' ~ called.name ~ '", "arguments": ' }}{{- called.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' ~ message.content ~ '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""
# It breaks with every tool; llama-server notices at its start.
NO_TOOLS = "{%- if tools %}{{- raise_exception('no tools here') }}{%- endif %}"
# It breaks only with the request of verify.
NO_REQUEST = r"{%- if tools and 'Paris' in messages[0].content %}{{- raise_exception('no tools here') }}{%- endif %}"
# The generated text begins in a turn that has ended already.
BEGINS = "{{- '<|im_start|>assistant\\n' }}"
ENDED = "{{- '<|im_start|>assistant\\n<|im_end|>\\n' }}"
# It wants the arguments of a call as clients send them, a string, and gets an object of llama-server.
NO_OBJECT = "{%- if called.arguments.city %}{{- raise_exception('a string was expected') }}{%- endif %}"
SETS = "{%- set called = tool_call.function %}"
# It opens the thoughts of a model that has none and so never closes them.
THINKS = r"""
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {%- if message.reasoning_content %}{{- '<think>\n' ~ message.reasoning_content ~ '\n</think>\n\n' }}{%- endif %}
    {{- message.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}
"""


# Template, flags.
BROKEN = {
    "crash": (TOOLS.replace(BEGINS, ENDED), []),
    "no-tools": (NO_TOOLS + TOOLS, []),
    "object": (TOOLS.replace(SETS, SETS + NO_OBJECT), []),
    "empty": (THINKS, []),
    "raw": (THINKS, ["--reasoning", "off", "--reasoning-format", "none"]),
}


@pytest.fixture(scope="module", name="judged")
def fixture_judged(lab):
    """{what is broken: what llama_health says of it}"""
    unit = "/etc/systemd/system/llama-head-chat.service"
    line = lab.node1.check_output("grep -o '[^=]*bin/llama-server --model [^ ]*' %s", unit)
    servers = []
    for port, (name, (template, flags)) in enumerate(BROKEN.items(), 8100):
        path = "/run/llama-broken-%s.jinja" % name
        lab.node1.check_output("printf '%%s' %s >%s", template, path)
        options = "--host 127.0.0.1 --port %d --threads 1 --ctx-size 4096 --parallel 1 --chat-template-file %s"
        arguments = [*(options % (port, path)).split(), *flags]
        servers.append({"name": name, "port": port, "arguments": arguments})
        command = "systemd-run --unit=llama-broken-%s %s --device none " % (name, line)
        lab.node1.check_output(command + " ".join(arguments))
    try:
        intent = json.dumps({"servers": servers})
        status, output = lab.playbook("../molecule/acceptance/judge", "-e", intent)
        assert status == 0, output
        return json.loads(lab.node1.check_output("cat /run/llama-judged.json"))
    finally:
        lab.node1.run("systemctl stop 'llama-broken-*'; systemctl reset-failed 'llama-broken-*'")
        lab.node1.run("rm -f /run/llama-broken-* /run/llama-judged.json")


def test_template_that_kills_the_server_is_named(judged):
    """Its process dies of SIGABRT."""
    assert " is degraded: a request with tools: it broke off while it answered a completion (" in judged["crash"]
    assert "an answer is needed: set another chat_template or build" in judged["crash"]


def test_template_that_fails_with_tools_is_named(judged):
    assert " is degraded: a request with tools is answered 400 (Unable to generate parser" in judged["no-tools"]
    assert "no tools here), 200 is needed: set another chat_template or build" in judged["no-tools"]


def test_template_that_refuses_call_objects_is_named(judged):
    """Clients get a string, the template an object."""
    assert " is degraded: the result of a tool call is answered 400 (" in judged["object"]
    assert "a string was expected), 200 is needed: set another chat_template or build" in judged["object"]


def test_an_answer_that_is_all_reasoning_is_named(judged):
    assert " is degraded: a plain question is answered without visible content (" in judged["empty"]
    assert 'set reasoning: "off", another reasoning_format or another chat_template' in judged["empty"]


def test_the_wrong_reasoning_format_is_named(judged):
    assert " is degraded: content holds raw thoughts (<think>), reasoning_content is needed for them: " in judged["raw"]
    assert "set reasoning_format: auto, or a chat_template" in judged["raw"]


@pytest.fixture(scope="module", name="verified")
def fixture_verified(lab):
    """verified(template, flags, *options) -> (exit status, output) of verify.yml"""

    def ready():
        return lab.node1.run("curl -sf http://%s:8000/health", lab.ethernet("node1")).rc == 0

    def restart():
        lab.node1.check_output("systemctl daemon-reload && systemctl restart llama-head-chat")
        lab.eventually(ready, 60, "the service is up again")

    def verify(template, flags="", *options):
        lines = ["[Service]", "Environment=LLAMA_ARG_CHAT_TEMPLATE_FILE=%s" % TEMPLATE]
        if flags:
            unit = lab.node1.check_output("grep ^ExecStart= /etc/systemd/system/llama-head-chat.service")
            lines += ["ExecStart=", "%s %s" % (unit, flags)]
        lab.node1.check_output("mkdir -p %s", DROP_IN)
        lab.node1.check_output("printf '%%s' %s >%s", template, TEMPLATE)
        lab.node1.check_output("printf '%%s\n' %s >%s/broken.conf", "\n".join(lines), DROP_IN)
        restart()
        status, output = lab.playbook("verify", "--skip-tags", "preflight,report", *options)
        # YAML in quotes doubles them.
        return status, output.replace("''", "'")

    yield verify
    lab.node1.check_output("rm -rf %s %s", DROP_IN, TEMPLATE)
    restart()


@pytest.fixture(scope="module", name="sound")
def fixture_sound(lab, verified):
    """The report of a service with tools, whose slot is filled: half a slot is read in half the time."""
    given = {"llama_services": lab.chat(ctx_size=2048, parallel=1, tensor_split={"node2": 15, "node3": 15})}
    status, output = verified(TOOLS, "--ctx-size 2048", "-e", "deep=true", "-e", json.dumps(given))
    assert status == 0, output
    return lab.report("chat"), output


def test_a_template_with_tools_is_talked_with(sound):
    report, output = sound
    assert report["conversation"]["question"] == "answers"
    # It has 135 million parameters.
    assert report["conversation"]["tools"] in ("called", "called, and was cut off", "did not call the tool")
    assert "answers, tools: %s " % report["conversation"]["tools"] in output


def test_a_slot_is_filled_on_request(sound):
    report, output = sound
    assert report["long_prompt"].startswith("1843 of the 2048 tokens of a slot read in ")
    assert "llama-head-chat.service has read 921 of 1843 tokens" in output


def test_a_template_that_breaks_with_tools_is_named(verified):
    status, output = verified(NO_REQUEST + TOOLS)
    assert status != 0
    assert "is degraded: a request with tools is answered " in output and "no tools here" in output
    assert "200 is needed: set another chat_template or build; see journalctl -u llama-head-chat.service" in output


@pytest.fixture(scope="module", name="hidden")
def fixture_hidden(verified):
    """Two at once. A slot of 512 tokens also ends soon what a small model thinks."""
    status, output = verified(THINKS, "--override-kv llama.context_length=int:512")
    assert status != 0
    return output


def test_a_context_that_the_header_caps_is_named(hidden):
    assert (
        "is degraded: a slot has 512 tokens, slot_ctx_size asks for 4096, and the header's context_length caps it: set "
        "rope_scaling and rope_scale or override_kv, or set slot_ctx_size: 512; " in hidden
    )


def test_a_template_that_hides_the_answer_is_named(hidden):
    """Whether the build takes all of it for reasoning, or for content with its tag."""
    assert (
        "a plain question is answered without visible content (" in hidden or "content holds raw thoughts (" in hidden
    )
