# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conversation with a llama-server: visible content, tools, reasoning as configured, the configured context, an
embedding of the right size. Private to the collection.

Conversation sends the requests, functions judge the answers. A model too small to call a tool is only reported.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple, Optional

from .._llama.api import DOCUMENTS, NoAnswer, count, error_text, plain, rows, table
from .._llama.args import Settings
from .._text import Refusal
from .health import LOOK, Head, Result
from .sense import is_fallback, judge_picture, nonsense, with_picture

# Tokens and seconds for thoughts. A model too slow for these tokens is only reported.
MOST = 2048
PATIENCE = 300
# Tokens for a tool call, and for the answer to its result.
SHORT = 128
# Tokens for the answer to a picture.
LOOKED = 16
# Unparsed reasoning in content.
THOUGHTS = re.compile(
    r"</?(think|thinking|thought|reasoning|seed:think)>|\[/?THINK\]|<\|(START|END)_THINKING\|>|<\|channel\|>"
)
# An unparsed tool call.
CALLS = re.compile(r"<tool_call>|\[TOOL_CALLS\]|<\|tool_call|<function[ =]|<\|python_tag\|>|functools\[")
# A template with tools.
OF_TOOLS = re.compile(r"\b(tools|tool_calls)\b")
NAME = "get_temperature"
ASKED = {"role": "user", "content": "Use the tool to find out how warm it is in Paris."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": NAME,
            "description": "Tells how warm it is in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The name of the city."}},
                "required": ["city"],
            },
        },
    }
]
# A call to render if the model made none. Templates of Mistral want nine characters.
CALLED = {"id": "call00001", "type": "function", "function": {"name": NAME, "arguments": '{"city": "Paris"}'}}

# Keys of the result.
PARTS = ("question", "embedding", "reranking", "tools", "reasoning", "draft", "picture", "not_held")
# (result or None, error or None)
Verdict = tuple[Optional[str], Optional[str]]


class Reply(NamedTuple):
    """The answer to a chat request. calls: as received."""

    content: str
    reasoning: str
    calls: list[dict[str, Any]]
    finish: str
    tokens: int
    prompt_tokens: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether its thoughts used all tokens."""
        return self.finish == "length" and not self.content.strip() and not self.calls


class Refused(Refusal):
    """A failed conversation."""


class NotHeld(Refusal):
    """The conversation was not possible."""


def reply_of(body: dict[str, Any]) -> Reply:
    """The parsed answer; missing and malformed fields are empty."""
    choice = (rows(body.get("choices")) or [{}])[0]
    message = table(choice.get("message"))
    texts = [message.get(name) for name in ("content", "reasoning_content")]
    content, reasoning = [text if isinstance(text, str) else "" for text in texts]
    finish = choice.get("finish_reason")
    return Reply(
        content,
        reasoning,
        rows(message.get("tool_calls")) or [],
        finish if isinstance(finish, str) else "",
        *(count(table(body.get("usage")).get(name)) for name in ("completion_tokens", "prompt_tokens")),
    )


def judge_content(reply: Reply, limit: int, server_limit: int = 0) -> Verdict:
    """Judges the answer to a plain question. limit: requested tokens; server_limit: n_predict, 0 for none."""
    if reply.content.strip():
        return "answers", None
    seen = "a plain question is answered without visible content (%s)" % (
        "%d characters of reasoning_content" % len(reply.reasoning) if reply.reasoning else "nothing at all"
    )
    if reply.finish == "length" and 0 < server_limit <= reply.tokens <= limit:
        step = "n_predict is %d, which ends it while it thinks: raise or remove n_predict" % server_limit
    elif reply.finish == "length":
        step = (
            'it thinks for all of %d tokens: set reasoning: "off" or a reasoning_budget, or another chat_template'
            % (reply.tokens or limit)
        )
    elif reply.reasoning:
        step = (
            'all of it is taken for reasoning: set reasoning: "off", another reasoning_format or another chat_template'
        )
    else:
        step = "its chat_template does not fit the model or the build: set another chat_template"
    return None, f"{seen}, some is needed, and {step}"


def judge_sense(reply: Reply, question: str, settings: Settings, bare: bool) -> str | None:
    """An error for a prompt format that does not fit the model. bare: no chat template in its file or settings."""
    # judge_reasoning() reports raw thoughts.
    seen = "" if THOUGHTS.search(reply.content) else nonsense(reply.content, question)
    if not seen:
        return None
    if bare:
        cause = "its file has no chat template, as a base model has none, and llama-server speaks ChatML to it"
        step = "set a model that is made for chat, or the chat_template that it was trained with"
    elif settings.template:
        cause, step = "chat_template is not the one that it was trained with", "remove it, or set that one"
    else:
        cause = "the chat template of its file does not fit, or it is a base model"
        step = "set another chat_template, a model that is made for chat, or another quant"
    return f"{seen}, and {cause}: {step}"


def judge_reasoning(reply: Reply, settings: Settings) -> Verdict:
    """Judges the reasoning of an answer."""
    found = THOUGHTS.search(reply.content)
    if found and settings.reasoning_raw and not settings.reasoning_off:
        return "in the content as configured", None
    if found:
        return None, (
            "content holds raw thoughts (%s), reasoning_content is needed for them: set reasoning_format: auto, or a "
            "chat_template whose reasoning this build knows" % found.group()
        )
    if settings.reasoning_off and reply.reasoning:
        return None, (
            "reasoning is off and %d characters of reasoning_content came, none are allowed: its chat_template does "
            'not obey the switch, replace reasoning: "off" by reasoning_budget: 0, or set another chat_template'
            % len(reply.reasoning)
        )
    return (
        "off as configured" if settings.reasoning_off else "apart from the answer" if reply.reasoning else "none"
    ), None


def refuse_context(slot: int | None, wanted: int | None, trained: int) -> str | None:
    """An error for a slot smaller than configured. trained: tokens by the header, 0 if unknown."""
    if slot is None or wanted is None or slot >= wanted:
        return None
    if slot == trained:
        cause = "the header's context_length caps it: set rope_scaling and rope_scale or override_kv"
    else:
        cause = "the build gives no more: read in its journal why"
    words = "a slot has %d tokens, slot_ctx_size asks for %d, and %s, or set slot_ctx_size: %d"
    return words % (slot, wanted, cause, slot)


def judge_call(reply: Reply) -> Verdict:
    """Judges the answer to a request with tools."""
    if not reply.calls:
        found = CALLS.search(reply.content)
        if found and reply.finish == "stop":
            return None, (
                "a tool call came as text (%s in content), tool_calls are needed: set a chat_template whose calls this "
                "build parses, or another build" % found.group()
            )
        return "did not call the tool", None
    given = [table(call.get("function")).get("arguments") for call in reply.calls]
    for one in given:
        if not isinstance(one, str):
            return None, (
                "a tool call has arguments of type %s, a string of JSON is needed: set another build, or a "
                "chat_template whose calls it parses" % ("object" if isinstance(one, dict) else type(one).__name__)
            )
    # The limit of tokens may have cut off the last one.
    for one in given[:-1] if reply.finish == "length" else given:
        try:
            parsed = json.loads(str(one))
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            return None, (
                "a tool call has arguments that are no JSON object (%s), one is needed: set another chat_template or "
                "build" % plain(one)
            )
    return "called, and was cut off" if reply.finish == "length" else "called", None


def judge_embedding(body: dict[str, Any], size: int) -> Verdict:
    """Judges an embedding. size: that of the model, 0 if unknown."""
    vector = (rows(body.get("data")) or [{}])[0].get("embedding")
    numbers = vector if isinstance(vector, list) else []
    if not numbers or not all(isinstance(one, (int, float)) and abs(one) < math.inf for one in numbers):
        seen = f"an embedding of {len(numbers)} entries that are no finite numbers" if numbers else "no embedding"
        return None, f"{seen} seen, a list of numbers is needed: set another pooling or build"
    if not any(numbers):
        return None, "an embedding of zeros seen, other numbers are needed: set another pooling or build"
    if size and len(numbers) != size:
        return None, (
            "an embedding of %d numbers seen, the model's %d are needed: set another pooling, or the model that was "
            "meant" % (len(numbers), size)
        )
    return f"{len(numbers)} numbers", None


def judge_scores(body: dict[str, Any], documents: int) -> Verdict:
    """Judges the scores of a number of documents."""
    scores: dict[Any, Any] = {
        str(one.get("index")): one.get("relevance_score") for one in rows(body.get("results")) or []
    }
    found = [scores.get(str(at)) for at in range(documents)]
    sound = [one for one in found if isinstance(one, (int, float)) and abs(one) < math.inf]
    if len(sound) < documents:
        return None, (
            "%d scores for %d documents seen, one for each is needed: set a model that is made for reranking, or "
            "another build" % (len(sound), documents)
        )
    return "%d scores for %d documents" % (len(sound), documents), None


def judge_draft(draft: str, timings: dict[str, Any], speculative: list[Any]) -> Verdict:
    """Judges drafting. draft: of Settings; speculative: of each slot."""
    drafted, accepted = count(timings.get("draft_n")), count(timings.get("draft_n_accepted"))
    if drafted:
        return "%d of %d drafted tokens accepted" % (accepted, drafted), None
    if False in speculative:
        wrong = f"{draft} does not draft, a model whose cache can forget tokens"
        wrong = "its draft model is not used, one with the model's own tokens" if draft == "model" else wrong
        return None, f"{wrong} is needed: set another draft, or draft: false"
    return "nothing was drafted for this answer", None


class Conversation:
    """A conversation after a deep Head.check(), whose result it changes. prompt, max_tokens, timeout: of that check."""

    def __init__(self, head: Head, result: Result, prompt: str, max_tokens: int, timeout: float) -> None:
        self.head, self.settings, self.result = head, head.settings, result
        self.prompt, self.max_tokens, self.timeout = prompt, max_tokens, timeout
        # Tokens/s, 0 if unknown.
        self.rate: float = result["tokens_per_second"] or 0.0
        self.refused: list[str] = []
        self.said: dict[str, str | None] = dict.fromkeys(PARTS)

    def hold(self, full: bool) -> None:
        """full: with requests of its own, else only the answer of the check."""
        self.result["conversation"] = self.said
        if self.result["answer"] is None:
            self.said["not_held"] = self.result["reason"]
            return
        meta = self._meta()
        slot = self.result["n_ctx"]
        self._refuse(refuse_context(slot, self.settings.slot_ctx, count(meta.get("n_ctx_train"))))
        try:
            if self.settings.reranking:
                self._note("reranking", judge_scores(self.head.body, len(DOCUMENTS)))
            elif self.settings.embeddings:
                self._note("embedding", judge_embedding(self.head.body, count(meta.get("n_embd"))))
            else:
                self._talk(full, slot)
        except Refused as refused:
            self.refused.append(str(refused))
        except NotHeld as reason:
            self.said["not_held"] = str(reason)
        if self.refused:
            self.result.update(state="degraded", reason="; ".join(self.refused))

    def _note(self, name: str, verdict: Verdict) -> None:
        said, refused = verdict
        self.said[name] = said
        self._refuse(refused)

    def _refuse(self, refused: str | None) -> None:
        if refused and refused not in self.refused:
            self.refused.append(refused)

    def _meta(self) -> dict[str, Any]:
        models = rows(table(self._look("/v1/models")).get("data")) or [{}]
        own = [one for one in models if one.get("id") == self.head.api.model]
        return table((own or models)[0].get("meta"))

    def _look(self, path: str) -> dict[str, Any]:
        try:
            status, body = self.head.api.get(path, LOOK, of_model=True)
        except NoAnswer:
            return {}
        return table(body) if status == 200 else {}

    def _slots(self) -> list[Any]:
        try:
            body = self.head.api.get("/slots", LOOK, of_model=True)[1]
        except NoAnswer:
            return []
        return rows(body) or []

    def _talk(self, full: bool, slot: int | None) -> None:
        props = self._look("/props")
        reply = reply_of(self.head.body)
        limit, patient = self.max_tokens, True
        # If the template opens the thoughts, content only has the tag that ends them.
        hidden = reply.finish == "length" and not reply.reasoning and not self.settings.reasoning_off
        if full and (reply.unfinished or (hidden and THOUGHTS.search(str(props.get("chat_template"))))):
            limit, patient = self._allowance(slot)
            question = {"messages": [{"role": "user", "content": self.prompt}]}
            reply = self._ask("a plain question", question, limit)
        if reply.unfinished and (not full or not patient) and reply.tokens >= limit:
            self.said["question"] = "still thinks after %d tokens" % limit
        else:
            bare = not self.settings.template and is_fallback(props.get("chat_template"))
            self._note("question", judge_content(reply, limit, self.settings.n_predict))
            wrong = judge_sense(reply, self.prompt, self.settings, bare)
            if wrong:
                self._note("question", (None, wrong))
            elif bare and self.said["question"]:
                self.said["question"] = "answers in ChatML, its file has no chat template"
        self._note("reasoning", judge_reasoning(reply, self.settings))
        if self.settings.draft:
            slots = [table(one).get("speculative") for one in self._slots()]
            self._note("draft", judge_draft(self.settings.draft, table(self.head.body.get("timings")), slots))
        if full:
            self._use_tools(props, slot)
        if full and self.settings.pictures:
            seen = self._ask("a question with a picture", with_picture(self.prompt), LOOKED)
            self._note("picture", judge_picture(seen.prompt_tokens, count(self.result["prompt_tokens"])))

    def _allowance(self, slot: int | None) -> tuple[int, bool]:
        """-> (tokens that an answer may have, whether speed allows all that the slot has)"""
        room = (slot or MOST) - count(self.result["prompt_tokens"]) - SHORT
        most = max(min(MOST, room, self.settings.n_predict or MOST), 1)
        fits = int(self.rate * PATIENCE) or most
        return min(most, fits), fits >= most

    def _ask(self, what: str, request: dict[str, Any], max_tokens: int) -> Reply:
        timeout = self.timeout + (min(2 * max_tokens / self.rate, 2 * PATIENCE) if self.rate else 0)
        try:
            status, body = self.head.api.converse(dict(request, max_tokens=max_tokens), timeout)
        except NoAnswer as error:
            changes = self.head.unanswered(error, timeout)
            if changes["state"] == "busy":
                raise NotHeld(f"{what}: {changes['reason']}") from None
            seen = f"{what}: {changes['reason']}"
            raise Refused(f"{seen}, an answer is needed: set another chat_template or build") from None
        if table(table(body).get("error")).get("type") == "exceed_context_size_error":
            raise NotHeld(f"{what} needs more tokens than a slot has")
        if status != 200 or not isinstance(body, dict):
            seen = "%s is answered %d (%s)" % (what, status, error_text(body))
            raise Refused(f"{seen}, 200 is needed: set another chat_template or build")
        return reply_of(body)

    def _use_tools(self, props: dict[str, Any], slot: int | None) -> None:
        caps = table(props.get("chat_template_caps"))
        has = bool(caps.get("supports_tools") and caps.get("supports_tool_calls"))
        # llama-server reports no tools for a template that fails with every tool. Clients would use it anyway.
        speaks = OF_TOOLS.search(f"{props.get('chat_template')} {props.get('chat_template_tool_use')}")
        if not self.settings.tools or not (has or speaks):
            self.said["tools"] = "skipped: no tools" if self.settings.tools else "skipped: no jinja"
            return
        what = "a request with tools"
        request = {"messages": [ASKED], "tools": TOOLS, "tool_choice": "required"}
        reply = self._ask(what, request, SHORT)
        if reply.unfinished:
            reply = self._ask(what, request, max(self._allowance(slot)[0], SHORT))
        if not has:
            self.said["tools"] = "skipped: no tools"
            return
        self._note("tools", judge_call(reply))
        self._note_thoughts(reply)
        if self.said["tools"] is None:
            return
        # A call that was cut off is replaced by a complete one.
        calls = reply.calls if self.said["tools"] == "called" else [CALLED]
        results = [
            {"role": "tool", "tool_call_id": call.get("id"), "name": NAME, "content": '{"celsius": 21}'}
            for call in calls
        ]
        said = {"role": "assistant", "content": reply.content if calls is reply.calls else "", "tool_calls": calls}
        request = {"messages": [ASKED, said] + results, "tools": TOOLS}
        self._note_thoughts(self._ask("the result of a tool call", request, SHORT))

    def _note_thoughts(self, reply: Reply) -> None:
        """Errors of reasoning that only show with tools."""
        self._refuse(judge_reasoning(reply, self.settings)[1])
