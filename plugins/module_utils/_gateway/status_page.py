# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page /status of the gateway: one file that loads nothing from elsewhere and shows status.json. Private to the
collection.

What is in status.json is put in as text, never as HTML; the policy in the page allows it no other address.
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>llama.cpp gateway</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --line: #d5d8dc; --dim: #5c6670; --back: #ffffff; --text: #1c2126; --box: #f4f6f7;
  --ready: #1a7f37; --wait: #9a6700; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4148; --dim: #a0a9b2; --back: #16191d; --text: #e6e9ec;
  --box: #20252a; --ready: #4ac26b; --wait: #d4a72c; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 70rem; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.4rem; margin: .5rem 0 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; }
.dim { color: var(--dim); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem 1.2rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--dim); white-space: nowrap; }
td.number, th.number { text-align: right; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
  overflow-x: auto; }
.state { font-weight: 600; white-space: nowrap; }
.why { font-weight: 400; white-space: normal; }
.ready { color: var(--ready); } .loading, .draining, .waiting { color: var(--wait); } .down { color: var(--bad); }
.stopped { color: var(--dim); }
</style>
</head>
<body>
<h1>llama.cpp gateway</h1>
<p id="updated" class="dim" role="status"></p>
<noscript><p>This page needs JavaScript. The same without it: <a href="status.json">status.json</a>, and
<a href="clients">how to connect</a>.</p></noscript>
<div id="page" hidden>
<h2>Services</h2>
<div class="wide"><table><thead><tr><th>Service</th><th>Tier</th><th>State</th><th>Node</th>
<th class="number">Slots</th><th class="number">Free</th>
<th class="number">In flight</th><th class="number">Waiting</th><th>Since</th><th>Build</th>
</tr></thead><tbody id="services"></tbody></table></div>
<h2>Names that clients may send</h2>
<div class="wide"><table><thead><tr><th>Model</th><th>Also as</th><th>Service</th>
<th class="number">Context of a slot</th>
<th>Quant</th></tr></thead><tbody id="models"></tbody></table></div>
<div id="tasks"></div>
<h2>Connect</h2>
<p>Base URL of the OpenAI API:</p>
<pre id="base"></pre>
<pre id="curl"></pre>
<p>Ready configurations: <span id="clients"></span>, and <a href="clients">all of it as text</a>.</p>
</div>
<script>
"use strict";
var CLIENTS = ["openai", "litellm", "opencode", "open-webui", "continue", "tensorzero"];
function byId(id) { return document.getElementById(id); }
function cell(row, text, name) {
  var made = row.insertCell();
  made.textContent = text === null || text === undefined ? "" : String(text);
  if (name) { made.className = name; }
  return made;
}
function ago(since) {
  var seconds = Math.max(0, Math.round(Date.now() / 1000 - since));
  if (!since) { return ""; }
  if (seconds < 60) { return seconds + " s"; }
  if (seconds < 3600) { return Math.floor(seconds / 60) + " min"; }
  if (seconds < 86400) { return Math.floor(seconds / 3600) + " h"; }
  return Math.floor(seconds / 86400) + " d";
}
function state(row, endpoint, why) {
  var left = endpoint.seconds_left;
  var text = endpoint.state + (endpoint.state === "loading" && left ? ", about " + Math.round(left) + " s" : "");
  var made = cell(row, text, "state " + (/^[a-z]+$/.test(endpoint.state) ? endpoint.state : "")), words;
  if (why) {
    words = document.createElement("div");
    words.className = "why";
    words.textContent = why;
    made.appendChild(words);
  }
}
function show(status) {
  var services = document.createDocumentFragment(), models = document.createDocumentFragment();
  var shown = {}, names = Object.keys(status.services).sort(), first = "";
  names.forEach(function (name) {
    var service = status.services[name], endpoints = service.endpoints || [];
    (endpoints.length ? endpoints : [{state: service.state}]).forEach(function (endpoint, number) {
      var row = document.createElement("tr");
      cell(row, number ? "" : name);
      cell(row, number ? "" : service.tier);
      state(row, endpoint, number ? "" : service.why);
      cell(row, endpoint.node ? endpoint.node + " (" + endpoint.address + ":" + endpoint.port + ")" : "");
      cell(row, endpoint.slots, "number");
      cell(row, endpoint.free, "number");
      cell(row, endpoint.in_flight, "number");
      cell(row, number ? "" : service.queue, "number");
      cell(row, ago(endpoint.since));
      cell(row, endpoint.build);
      services.appendChild(row);
    });
    (service.models || []).forEach(function (model) {
      var row = document.createElement("tr"), context = model.slot_ctx_size, text;
      if (shown[model.name]) { return; }
      shown[model.name] = true;
      text = cell(row, model.name);
      if (model.embeddings) { text.textContent += " (embeddings)"; }
      cell(row, (model.aliases || []).join(", "));
      cell(row, name);
      endpoints.forEach(function (endpoint) { context = context || endpoint.slot_ctx_size; });
      cell(row, context ? context.toLocaleString("en") : "", "number");
      cell(row, model.quant);
      models.appendChild(row);
      if (!model.embeddings && (!first || service.state === "ready" && !first.ready)) {
        first = {name: model.name, ready: service.state === "ready"};
      }
    });
  });
  byId("services").replaceChildren(services);
  byId("models").replaceChildren(models);
  tasks(status.routes || {});
  connect(status, first ? first.name : "MODEL");
  byId("page").hidden = false;
}
function tasks(routes) {
  var names = Object.keys(routes.tasks || {}).sort(), list = document.createElement("p");
  var lines = names.map(function (name) { return name + ": " + routes.tasks[name]; });
  if (routes.default) { lines.push("any other: " + routes.default); }
  list.textContent = lines.length ? "Tasks (/task/NAME/v1, or the header X-Task): " + lines.join(", ") : "";
  byId("tasks").replaceChildren(list);
}
function connect(status, model) {
  var base = location.origin, links = byId("clients");
  var body = JSON.stringify({model: model, messages: [{role: "user", content: "Hello"}]}).replace(/'/g, "'\\\\''");
  byId("base").textContent = base + "/v1";
  byId("curl").textContent = "curl -sS " + base + "/v1/chat/completions -H \\"Authorization: Bearer $LLAMA_API_KEY\\"" +
    " -H 'Content-Type: application/json' \\\\\\n    -d '" + body + "'";
  if (!links.childNodes.length) {
    CLIENTS.forEach(function (name, number) {
      var link = document.createElement("a");
      link.href = "clients/" + name;
      link.textContent = name;
      links.append(number ? ", " : "", link);
    });
  }
}
function ask() {
  fetch("status.json", {cache: "no-store"}).then(function (answer) {
    if (!answer.ok) { throw new Error("status " + answer.status); }
    return answer.json();
  }).then(function (status) {
    show(status);
    byId("updated").textContent = "As of " + new Date().toLocaleTimeString() + ", asked every 5 seconds.";
  }).catch(function (error) {
    byId("updated").textContent = "The gateway does not answer (" + error.message + "); this page may be out of date.";
  }).then(function () { setTimeout(ask, 5000); });
}
ask();
</script>
</body>
</html>
"""
