"""What a conversation shows of the real llama-server: a template with tools, and settings that are broken on purpose.

They come from a drop-in, which no playbook knows of: what the inventory says stays as it is.
"""

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
# They break at what verify sends alone: what llama-server tries at its start would tell it that there are no tools.
NO_REQUEST = r"{%- if tools and 'Paris' in messages[0].content %}{{- raise_exception('no tools here') }}{%- endif %}"
NO_RESULT = r"""
{%- if messages[-1].role == 'tool' and 'celsius' in messages[-1].content %}{{- raise_exception('no results') }}
{%- endif %}"""
# It opens the thoughts of a model that has none and so never closes them.
THINKS = r"""
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {%- if message.reasoning_content %}{{- '<think>\n' ~ message.reasoning_content ~ '\n</think>\n\n' }}{%- endif %}
    {{- message.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}
"""


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
        status, output = lab.playbook("verify", "--skip-tags", "preflight", *options)
        # YAML in quotes doubles them.
        return status, output.replace("''", "'")

    yield verify
    lab.node1.check_output("rm -rf %s %s", DROP_IN, TEMPLATE)
    restart()


@pytest.fixture(scope="module", name="sound")
def fixture_sound(lab, verified):
    """The report of a service with tools."""
    status, output = verified(TOOLS, "", "-e", "deep=true")
    assert status == 0, output
    return lab.report("chat"), output


def test_a_template_with_tools_is_talked_with(sound):
    report, output = sound
    assert report["conversation"]["question"] == "answers"
    # It has 135 million parameters.
    assert report["conversation"]["tools"] in ("called", "called, and was cut off", "did not call the tool")
    assert "conversation: answers, tools: %s, reasoning: none" % report["conversation"]["tools"] in output


def test_a_slot_is_filled_on_request(sound):
    report, output = sound
    assert report["long_prompt"].startswith("3686 of the 4096 tokens of a slot read in ")
    assert "llama-head-chat.service has read 1843 of 3686 tokens" in output


def test_a_template_that_breaks_with_tools_is_named(verified):
    status, output = verified(NO_REQUEST + TOOLS)
    assert status != 0
    assert "is degraded: a request with tools is answered " in output and "no tools here" in output
    assert "200 is needed: set another chat_template or build; see journalctl -u llama-head-chat.service" in output


def test_a_template_that_refuses_results_is_named(verified):
    status, output = verified(NO_RESULT + TOOLS)
    assert status != 0
    assert "is degraded: the result of a tool call is answered " in output and "no results" in output


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
