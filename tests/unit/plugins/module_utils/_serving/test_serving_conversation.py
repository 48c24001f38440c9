# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversations with answers in the formats of llama-server b11434 and b7772."""

import itertools

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args as llama_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import conversation
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import health as serving_health
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

CHAT = "/v1/chat/completions"
CALL = {"type": "function", "id": "Ub1GqhAnP", "function": {"name": "get_temperature", "arguments": '{"city":"Paris"}'}}
ASKED = {"prompt": "Name the three primary colors.", "max_tokens": 48, "timeout": 5}
LINE = ("--ctx-size", "8192", "--parallel", "2")


@pytest.fixture(name="quick", autouse=True)
def fixture_quick(monkeypatch):
    monkeypatch.setattr(serving_health, "POLL", 0.01)


@pytest.fixture(name="server")
def fixture_server():
    server = fake.FakeLlamaServer()
    server.responses["/v1/models"] = fake.models()
    yield server
    server.stop()


def props(server, template="{{ messages }}", tools=False):
    caps = {"supports_tools": tools, "supports_tool_calls": tools}
    found = dict(fake.PROPS, chat_template=template, chat_template_caps=caps)
    server.responses["/props"] = (200, found)


def answers(server, *replies):
    """Sets the replies to chat requests; the last one repeats."""
    left = iter(replies)
    last = []

    def reply():
        last[:] = [next(left, last[0] if last else None)]
        return last[0]() if callable(last[0]) else last[0]

    server.responses[CHAT] = reply


def talk(server, full=True, line=LINE, **asked):
    """-> (state, reason, conversation)"""
    asked = dict(ASKED, **asked)
    head = serving_health.Head(llama_api.LlamaApi(server.url), settings=llama_args.parse_args(line))
    result = head.check(0, asked)
    if result["state"] in serving_health.SERVING:
        conversation.Conversation(head, result, **asked).hold(full)
    said = {name: text for name, text in result.get("conversation", {}).items() if text is not None}
    return result["state"], result["reason"], said


def refused(server, *words, **options):
    """Expects a failed conversation whose reason has these words."""
    state, reason, _said = talk(server, **options)
    assert state == "degraded", reason
    for word in words:
        assert word in reason
    return reason


def tool_answer(call=None, **message):
    return fake.answer(finish="tool_calls", **dict({"content": "", "tool_calls": [call or CALL]}, **message))


# A sound one.


def test_a_template_without_tools_costs_no_request_more(server):
    props(server)
    assert talk(server)[::2] == (
        "ready",
        {"question": "answers", "tools": "skipped: no tools", "reasoning": "none"},
    )
    assert len(server.asked(CHAT)) == 1


def test_a_tool_is_called_and_its_result_taken(server):
    props(server, tools=True)
    answers(server, fake.answer(), tool_answer(), fake.answer(content="It is 21 degrees."))
    state, _reason, said = talk(server)
    assert (state, said["tools"]) == ("ready", "called")
    _plain, first, second = server.asked(CHAT)
    assert (first["tool_choice"], [tool["function"]["name"] for tool in first["tools"]], first["temperature"]) == (
        "required",
        ["get_temperature"],
        0,
    )
    assert 0 < first["max_tokens"] <= 128 and 0 < second["max_tokens"] <= 128
    user, assistant, tool = second["messages"]
    assert (user["role"], assistant["tool_calls"], tool["role"], tool["tool_call_id"]) == (
        "user",
        [CALL],
        "tool",
        CALL["id"],
    )


def test_missing_call_is_reported(server):
    props(server, tools=True)
    answers(server, fake.answer())
    state, _reason, said = talk(server)
    assert (state, said["tools"]) == ("ready", "did not call the tool")
    assistant, tool = server.asked(CHAT)[-1]["messages"][1:]
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"]


def test_a_plain_conversation_asks_nothing_more(server):
    props(server, tools=True)
    state, _reason, said = talk(server, full=False)
    assert (state, said) == ("ready", {"question": "answers", "reasoning": "none"})
    assert len(server.asked(CHAT)) == 1


def test_a_busy_service_is_asked_nothing(server):
    decoded = itertools.count(100)
    server.responses["/slots"] = (200, [fake.WORKING])
    server.responses["/metrics"] = lambda: fake.metrics(next(decoded), 1)
    assert talk(server) == ("busy", "1 of 1 slots work", {"not_held": "1 of 1 slots work"})
    assert server.asked(CHAT) == []


def test_without_jinja_no_tool_is_offered(server):
    props(server, tools=True)
    assert talk(server, line=(*LINE, "--no-jinja"))[2]["tools"] == "skipped: no jinja"
    assert len(server.asked(CHAT)) == 1


# Content.


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("message", "seen", "step"),
    [
        ({"content": ""}, "(nothing at all)", "set another chat_template"),
        ({"content": " \n"}, "(nothing at all)", "does not fit the model or the build"),
        (
            {"content": "", "reasoning_content": "Red, yellow, blue."},
            "(18 characters of reasoning_content)",
            'set reasoning: "off", another reasoning_format or another chat_template',
        ),
        ({"content": None, "reasoning_content": "Red"}, "(3 characters of", "taken for reasoning"),
    ],
)
def test_an_answer_without_content_names_the_setting(server, full, message, seen, step):
    props(server)
    answers(server, fake.answer(finish="stop", **message))
    refused(server, "a plain question is answered without visible content " + seen, step, full=full)


def test_thinking_model_gets_more_tokens(server):
    props(server)
    thinks = fake.answer(tokens=48, finish="length", content="", reasoning_content="The user")
    answers(server, thinks, fake.answer(tokens=400, finish="stop", content="Red.", reasoning_content="The user asks"))
    assert talk(server)[2] == {
        "question": "answers",
        "tools": "skipped: no tools",
        "reasoning": "apart from the answer",
    }
    assert [request["max_tokens"] for request in server.asked(CHAT)] == [48, 2048]


def test_one_that_never_finishes_is_refused(server):
    props(server)
    thinks = [fake.answer(tokens=n, finish="length", content="", reasoning_content="Wait") for n in (48, 2048)]
    answers(server, *thinks)
    refused(server, 'it thinks for all of 2048 tokens: set reasoning: "off" or a reasoning_budget')


def test_too_slow_model_is_reported(server):
    props(server)
    slow = {"predicted_n": 48, "predicted_per_second": 2.0}
    answers(
        server,
        fake.answer(tokens=48, finish="length", timings=slow, content="", reasoning_content="Wait"),
        fake.answer(tokens=600, finish="length", timings=slow, content="", reasoning_content="Wait"),
    )
    state, _reason, said = talk(server)
    assert (state, said["question"]) == ("ready", "still thinks after 600 tokens")


def test_small_slot_limits_tokens(server):
    props(server)
    server.responses["/props"][1]["default_generation_settings"] = {"n_ctx": 512}
    answers(server, fake.answer(tokens=48, finish="length", content="", reasoning_content="Wait"))
    refused(server, "it thinks for all of 48 tokens", line=())
    assert server.asked(CHAT)[-1]["max_tokens"] == 512 - 34 - 128


def test_plain_conversation_does_not_await_thoughts(server):
    props(server)
    answers(server, fake.answer(tokens=48, finish="length", content="", reasoning_content="Wait"))
    assert talk(server, full=False)[2]["question"] == "still thinks after 48 tokens"


def test_server_limit_is_named(server):
    props(server)
    thinks = [fake.answer(tokens=n, finish="length", content="", reasoning_content="Wait") for n in (48, 200)]
    answers(server, *thinks)
    limited = (*LINE, "--n-predict", "200")
    refused(server, "n_predict is 200, which ends it while it thinks: raise or remove n_predict", line=limited)
    assert server.asked(CHAT)[-1]["max_tokens"] == 200


# Sense.

# As /props of b11434 has it.
CHATML = (
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n"
    "{%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\n' -}}\n{%- endif -%}"
)
# Answers of Gemma-3-270m, whose file has no template.
BASE = (
    "Name the three primary colors.<|im_end|>\n<|im_start|>student\nName the three primary colors.<|im_end|>\n"
    "<|im_start|>student\nName the three primary colors.<|im"
)


@pytest.mark.parametrize("full", [True, False])
def test_base_model_without_template_is_named(server, full):
    props(server, template=CHATML)
    answers(server, fake.answer(content=BASE, finish="length"))
    refused(
        server,
        "the answer holds special tokens (<|im_end|>), text is needed",
        "its file has no chat template, as a base model has none, and llama-server speaks ChatML to it",
        "set a model that is made for chat",
        full=full,
    )
    # A sensible answer is accepted and reported.
    answers(server, fake.answer(content="Red, yellow, blue.", finish="stop"))
    assert talk(server, full=full)[2]["question"] == "answers in ChatML, its file has no chat template"
    # Somebody has set it.
    line = (*LINE, "--chat-template", "chatml")
    assert talk(server, full=full, line=line)[2]["question"] == "answers"
    answers(server, fake.answer(content=BASE, finish="length"))
    refused(server, "chat_template is not the one that it was trained with: remove it", line=line)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Red.<|im_end|>", "special tokens (<|im_end|>)"),
        ("Red.<|eot_id|><|start_header_id|>user<|end_header_id|>", "special tokens (<|eot_id|>)"),
        ("Red.<end_of_turn>\n<start_of_turn>model", "special tokens (<end_of_turn>)"),
        ("Red. [/INST] Blue.", "special tokens ([/INST])"),
        ("[INST] Which ones? [/INST]", "special tokens ([INST])"),
        ("Red.<|assistant|>", "special tokens (<|assistant|>)"),
        ("Red.<|end|><|user|>", "special tokens (<|end|>)"),
        ("Red.</s>", "special tokens (</s>)"),
        ("<s>Red.", "special tokens (<s>)"),
        ("Red.<|endoftext|>", "special tokens (<|endoftext|>)"),
        ("Red.<|END_OF_TURN_TOKEN|>", "special tokens (<|END_OF_TURN_TOKEN|>)"),
        ("Red.<\uff5cend\u2581of\u2581sentence\uff5c>", "special tokens (<"),
        ("Red.<turn|>", "special tokens (<turn|>)"),
        ("<|turn>model", "special tokens (<|turn>)"),
        ("Red.<|im", "special tokens (<|im)"),
        ("<pad><pad><pad>", "special tokens (<pad>)"),
        ("Red.<unused49>", "special tokens (<unused49>)"),
        ("Red<0x0A>", "special tokens (<0x0A>)"),
        ("[PAD151645]", "special tokens ([PAD151645])"),
        ("<<SYS>> Red", "special tokens (<<SYS>>)"),
        ("Red.\n### Instruction:\nName", "special tokens (### Instruction:)"),
        ("Red.\nUser: and now?", "special tokens (User:)"),
        ("Name the three primary colors.", "the answer repeats the question"),
        ("\n\n" + "Name the three primary colors.\n\n" * 7, "the answer repeats the question"),
        ("**Name the three primary colors.**", "the answer repeats the question"),
        # Answers of SmolLM2-135M-Instruct with foreign templates.
        (".1.2.2-2.1.0.2.1.h2.v1.x86_64" + ".x86_64" * 9, "over and over (.x86_64)"),
        ("er.com" + "/b2" * 15, "the answer repeats itself over and over ("),
        # Answers of a card or build that computes wrongly.
        ("G" * 48, "over and over (G)"),
        ("1. It is red.\n2. It is red.\n3. It is red.\n", "over and over (It is red.)"),
        ("Red is a color and blue is one. " * 3, "over and over (Red is a color and blue is one.)"),
        ("\u7ea2\u8272\u3002" * 12, "the answer repeats itself over and over ("),
        ("A long text first. " + "x y z, and others. " * 40, "the answer repeats itself over and over ("),
    ],
)
def test_senseless_answer_is_refused(server, content, words):
    props(server)
    answers(server, fake.answer(content=content, finish="length"))
    cause = "the chat template of its file does not fit, or it is a base model: set another"
    refused(server, words, cause, full=False)


@pytest.mark.parametrize(
    "content",
    [
        "The three primary colors are:\n\nRed (R)\nBlue (B)\nYellow (Y)",
        "The most obvious example of a color is the color red.",
        "| color | hex |\n| --- | --- |\n| red | #f00 |\n| green | #0f0 |\n| blue | #00f |",
        "Red, red, red: and blue.",
        "You asked me to name the three primary colors. They are red, yellow and blue.",
        "* Red\n* Yellow\n* Blue\n\n---\n\nIn code: `if a<b: x = [1, 2]`, <b>bold</b>, a <| b, 1 < 2 > 0.",
        "Ha ha ha!",
        "1. Red\n2. Red\n3. Red",
    ],
)
def test_an_answer_with_sense_holds(server, content):
    props(server)
    thinks = "Name the three primary colors.<|im_end|> " * 9
    answers(server, fake.answer(content=content, reasoning_content=thinks, finish="stop"))
    assert talk(server)[2]["question"] == "answers"


def test_short_question_may_be_answer(server):
    props(server)
    answers(server, fake.answer(content="Red.", finish="stop"))
    assert talk(server, prompt="Red")[2]["question"] == "answers"


# Reasoning.


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("content", ["<think>\nThe user", "The user.</think>Red.", "[THINK]The", "<|channel|>"])
def test_raw_thoughts_name_the_reasoning_format(server, full, content):
    props(server)
    answers(server, fake.answer(content=content, finish="stop"))
    refused(server, "content holds raw thoughts (", "set reasoning_format: auto", full=full)


def test_configured_raw_thoughts_are_accepted(server):
    props(server)
    answers(server, fake.answer(content="<think>\nThe user</think>Red.", finish="stop"))
    line = (*LINE, "--reasoning-format", "none")
    assert talk(server, line=line)[0] == "ready"
    assert talk(server, line=line)[2]["reasoning"] == "in the content as configured"
    refused(server, "content holds raw thoughts (", line=(*line, "--reasoning", "off"))


def test_thoughts_opened_by_template_are_finished(server):
    """With reasoning_format none their first tag is in the prompt, and only the last one in content."""
    props(server, template="{% if add_generation_prompt %}<think>{% endif %}")
    answers(
        server,
        fake.answer(tokens=48, finish="length", content="The user wants"),
        fake.answer(tokens=90, finish="stop", content="The user wants colors.</think>Red."),
    )
    refused(server, "content holds raw thoughts (</think>)")


def test_reasoning_that_is_off_must_not_come(server):
    props(server)
    off = (*LINE, "--reasoning", "off")
    assert talk(server, line=off)[2]["reasoning"] == "off as configured"
    answers(server, fake.answer(reasoning_content="Well"))
    refused(
        server,
        "reasoning is off and 4 characters of reasoning_content came",
        'replace reasoning: "off" by reasoning_budget: 0, or set another chat_template',
        line=off,
    )


def test_reasoning_with_tools_counts_too(server):
    props(server, tools=True)
    answers(server, fake.answer(), tool_answer(reasoning_content="Well"), fake.answer())
    refused(server, "reasoning is off and 4 characters", line=(*LINE, "--reasoning-budget", "0"))


# Tools.


def test_a_server_that_dies_of_tools_is_named(server):
    props(server, tools=True)

    def die():
        server.responses["/health"] = fake.CUT
        return fake.CUT

    answers(server, fake.answer(), die)
    refused(
        server,
        "a request with tools: it broke off while it answered a completion (Remote end closed connection",
        "set another chat_template or build",
    )


def error(status, message):
    return status, {"error": {"code": status, "message": message, "type": "server_error"}}


def called(*arguments):
    """An answer with a call for each of these arguments."""
    names = [{"name": "get_temperature", "arguments": one} for one in arguments]
    return tool_answer(tool_calls=[dict(CALL, function=name) for name in names])


NOT_PARSED = "The model produced output that does not match the expected peg-native format"
SOUND = CALL["function"]["arguments"]


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        (
            [error(500, NOT_PARSED)],
            "a request with tools is answered 500 (%s), 200 is needed: set another" % NOT_PARSED,
        ),
        ([error(400, "No parser")], "a request with tools is answered 400 (No parser), 200 is needed: set another"),
        ([tool_answer(), error(500, "Object expected")], "the result of a tool call is answered 500 (Object expected)"),
        (
            [fake.answer(finish="stop", content='<tool_call>{"name"')],
            "a tool call came as text (<tool_call> in content)",
        ),
        ([called({"city": "Paris"})], "a tool call has arguments of type object, a string of JSON is needed: set"),
        ([called(None)], "a tool call has arguments of type NoneType"),
        ([called('{"city":')], 'a tool call has arguments that are no JSON object ({"city":)'),
        ([called('"Paris"')], 'no JSON object ("Paris")'),
        ([called("[" * 100000)], "no JSON object"),
        ([called(SOUND, {"city": "Rome"})], "a tool call has arguments of type object"),
        ([called(SOUND, "7")], "a tool call has arguments that are no JSON object (7)"),
    ],
)
def test_broken_tool_call_names_template(server, replies, words):
    props(server, tools=True)
    answers(server, fake.answer(), *replies)
    refused(server, words, "chat_template")
    assert len(server.asked(CHAT)) == 1 + len(replies)


BARE = "{% for message in messages %}{{ message.content }}{% endfor %}"
FAILS = "{% if tools %}{{- raise_exception('no tools here') }}{% endif %}" + BARE


@pytest.mark.parametrize("where", ["chat_template", "chat_template_tool_use"])
def test_template_failing_with_tools_is_refused(server, where):
    """llama-server has tried it with one at its start, and tells that it has none."""
    props(server, template=BARE)
    server.responses["/props"][1][where] = FAILS
    answers(server, fake.answer(), (500, {"error": {"message": "no tools here", "type": "server_error"}}))
    refused(server, "a request with tools is answered 500 (no tools here), 200 is needed: set another chat_template")
    assert len(server.asked(CHAT)) == 2


def test_template_without_tools_is_skipped(server):
    props(server, template="{# tools are not for this model #}" + BARE)
    answers(server, fake.answer(), fake.answer(content="<tool_call>"))
    assert talk(server)[::2] == ("ready", {"question": "answers", "tools": "skipped: no tools", "reasoning": "none"})
    assert len(server.asked(CHAT)) == 2


def test_only_last_call_may_be_cut(server):
    props(server, tools=True)
    cut = dict(CALL, function={"name": "get_temperature", "arguments": '{"ci'})
    for calls, sound in (([CALL, cut], True), ([cut, CALL], False)):
        answers(server, fake.answer(), fake.answer(finish="length", content="", tool_calls=calls), fake.answer())
        state, reason, said = talk(server)
        assert (state == "ready") == sound, reason
        assert said.get("tools") == ("called, and was cut off" if sound else None)


def test_cut_call_is_accepted(server):
    props(server, tools=True)
    cut = dict(CALL, function={"name": "get_temperature", "arguments": '{"ci'})
    cut_off = fake.answer(finish="length", content="", tool_calls=[cut])
    answers(server, fake.answer(), cut_off, fake.answer())
    assert talk(server)[2]["tools"] == "called, and was cut off"
    assert server.asked(CHAT)[-1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'


def test_too_long_prompt_is_not_held(server):
    props(server, tools=True)
    error = {"code": 400, "message": "request exceeds", "type": "exceed_context_size_error", "n_ctx": 256}
    answers(server, fake.answer(), (400, {"error": error}))
    state, _reason, said = talk(server)
    assert (state, said["not_held"]) == ("ready", "a request with tools needs more tokens than a slot has")


def test_a_turn_that_others_have_is_no_failure(server, monkeypatch):
    props(server, tools=True)
    monkeypatch.setattr(
        serving_health.Head,
        "unanswered",
        lambda head, error, timeout: {"state": "busy", "reason": "no turn for a completion in 5 s"},
    )
    answers(server, fake.answer(), fake.CUT)
    state, _reason, said = talk(server)
    assert (state, said["not_held"]) == ("ready", "a request with tools: no turn for a completion in 5 s")


# Context.


@pytest.mark.parametrize(
    ("trained", "words"),
    [
        (
            4096,
            "the header's context_length caps it: set rope_scaling and rope_scale or override_kv, or set "
            "slot_ctx_size: 4096",
        ),
        (32768, "the build gives no more: read in its journal why, or set slot_ctx_size: 4096"),
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_too_small_slot_names_cause(server, full, trained, words):
    props(server)
    server.responses["/v1/models"] = fake.models(n_ctx_train=trained)
    line = ("--ctx-size", "16384", "--parallel", "2")
    refused(server, "a slot has 4096 tokens, slot_ctx_size asks for 8192, and " + words, full=full, line=line)


@pytest.mark.parametrize(
    "line",
    [
        (),
        ("--ctx-size", "0", "--parallel", "2"),
        ("--ctx-size", "8192", "--parallel", "2"),
        # llama-server rounds it up.
        ("--ctx-size", "12000", "--parallel", "3"),
    ],
)
def test_a_slot_with_enough_is_not_spoken_of(server, line):
    props(server)
    state, _reason, said = talk(server, line=line)
    assert state == "ready" and "context" not in said


# Embeddings.

EMBEDS = (*LINE, "--embeddings")


def embedding(vector):
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    data = [{"embedding": vector, "index": 0, "object": "embedding"}]
    return 200, {"model": "m", "object": "list", "usage": usage, "data": data}


def test_an_embedding_of_the_models_size(server):
    server.responses.update({"/v1/embeddings": embedding([0.5, -0.25, 0.125]), "/v1/models": fake.models(n_embd=3)})
    state, reason, said = talk(server, line=EMBEDS)
    assert (state, said) == ("ready", {"embedding": "3 numbers"}) and reason.startswith("it answered 7 tokens in ")
    assert server.asked(CHAT) == []
    assert server.asked("/v1/embeddings") == [{"input": ASKED["prompt"]}]


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ([0.5, 0.25], "an embedding of 2 numbers seen, the model's 3 are needed: set another pooling"),
        ([0.0, 0, 0.0], "an embedding of zeros seen"),
        ([0.5, None, 0.1], "an embedding of 3 entries that are no finite numbers seen"),
        ([0.5, float("nan"), 0.1], "that are no finite numbers seen"),
        ([0.5, 10**400, float("inf")], "that are no finite numbers seen"),
        ([], "no embedding seen, a list of numbers is needed"),
        ("AAAA", "no embedding seen"),
    ],
)
def test_an_embedding_that_is_none_is_named(server, vector, words):
    server.responses.update({"/v1/embeddings": embedding(vector), "/v1/models": fake.models(n_embd=3)})
    refused(server, words, line=EMBEDS)


def test_a_server_that_does_not_embed_is_degraded(server):
    server.responses["/v1/embeddings"] = (501, {"error": {"message": "This server does not support embeddings."}})
    assert talk(server, line=EMBEDS) == (
        "degraded",
        "a request for an embedding is answered 501 (This server does not support embeddings.)",
        {},
    )


# Malformed answers.


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": ["a"], "tool_calls": "none"}, "finish_reason": 3}], "usage": 4},
        {"choices": [{"message": None}]},
        {"choices": "none"},
    ],
)
def test_malformed_answer_is_empty(body):
    assert conversation.reply_of(body)[:4] == ("", "", [], "")


def test_unknown_values_are_not_judged(server):
    server.responses.update({"/props": (200, {}), "/v1/models": (404, {})})
    assert talk(server)[::2] == ("ready", {"question": "answers", "tools": "skipped: no tools", "reasoning": "none"})


DRAFTED = {"prompt_n": 34, "predicted_n": 8, "predicted_per_second": 58.25, "draft_n": 24, "draft_n_accepted": 19}


@pytest.mark.parametrize("flag", ["--model-draft", "-md", "--spec-draft-model"])
def test_accepted_draft_tokens_are_reported(server, flag):
    props(server)
    answers(server, fake.answer(timings=DRAFTED, finish="stop"))
    state, _reason, said = talk(server, line=(*LINE, flag, "/opt/models/d.gguf"))
    assert (state, said["draft"]) == ("ready", "19 of 24 drafted tokens accepted")
    assert "draft" not in talk(server)[2]


def test_unused_draft_is_refused(server):
    """llama-server ignores a draft with another vocabulary, and only logs that."""
    props(server)
    line = (*LINE, "--model-draft", "/opt/models/d.gguf")
    server.responses["/slots"] = (200, [fake.IDLE])
    answers(server, fake.answer(finish="stop"))
    refused(server, "its draft model is not used", "set another draft, or draft: false", line=line)
    refused(
        server,
        "ngram-mod does not draft",
        "set another draft, or draft: false",
        line=(*LINE, "--spec-type", "ngram-mod"),
    )
    for slots in ((200, [dict(fake.IDLE, speculative=True)]), (501, {}), fake.CUT):
        server.responses["/slots"] = slots
        assert talk(server, line=line)[2]["draft"] == "nothing was drafted for this answer"


SEES = (*LINE, "--mmproj", "/opt/models/p.gguf")


def seen(prompt_tokens):
    status, body = fake.answer(finish="stop")
    return status, dict(body, usage={"completion_tokens": 8, "prompt_tokens": prompt_tokens})


def test_picture_is_asked_about(server):
    props(server)
    answers(server, seen(35), seen(99))
    state, _reason, said = talk(server, line=SEES)
    assert (state, said["picture"]) == ("ready", "64 tokens read")
    text, image = server.asked(CHAT)[1]["messages"][0]["content"]
    assert text["text"] == ASKED["prompt"] and image["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert "picture" not in talk(server, line=SEES, full=False)[2]


def test_picture_without_tokens_is_refused(server):
    props(server)
    answers(server, seen(35), seen(35))
    refused(server, "a picture added no tokens to a prompt of 35", "set the mmproj", line=SEES)
    answers(server, seen(35), (400, {"error": {"message": "Invalid token"}}))
    refused(server, "a question with a picture is answered 400 (Invalid token)", line=SEES)


RERANKS = (*LINE, "--reranking")


def scores(*found):
    """An answer of b11434."""
    results = [{"index": index, "relevance_score": score} for index, score in found]
    usage = {"prompt_tokens": 16, "total_tokens": 16}
    return 200, {"model": "m", "object": "list", "usage": usage, "results": results}


def test_scores_come_for_both_documents(server):
    server.responses["/v1/rerank"] = scores((1, -1.69), (0, -1.45))
    state, reason, said = talk(server, line=RERANKS)
    assert (state, said) == ("ready", {"reranking": "2 scores for 2 documents"})
    assert reason.startswith("it answered 16 tokens in ") and server.asked(CHAT) == []
    asked = {"query": ASKED["prompt"], "documents": llama_api.DOCUMENTS}
    assert server.asked("/v1/rerank") == [asked] and server.asked("/v1/embeddings") == []


@pytest.mark.parametrize(
    "found", [[(0, -1.45)], [(0, 1), (2, 1)], [(0, 1.0), (1, float("nan"))], [(0, 1.0), (1, "0.5")], []]
)
def test_a_score_that_is_missing_is_named(server, found):
    server.responses["/v1/rerank"] = scores(*found)
    refused(server, "for 2 documents seen, one for each is needed", line=RERANKS)


def test_a_server_that_does_not_rerank_is_degraded(server):
    server.responses["/v1/rerank"] = (501, {"error": {"message": "This server does not support reranking."}})
    assert talk(server, line=RERANKS)[:2] == (
        "degraded",
        "a request for scores is answered 501 (This server does not support reranking.)",
    )
