"use strict";
(() => {
  const source = document.getElementById("data");
  if (!source) return;
  const find = (id) => document.getElementById(id);
  const methods = JSON.parse(source.textContent);
  const all = methods.flatMap((method) => method.records.map((record) => ({ method, record })));
  let shown = [], at = 0;

  // Everything below is put on the page as text: what a model wrote is never markup.
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const option = (select, value, label) => {
    const node = make("option", "", label);
    node.value = value;
    select.append(node);
  };
  const stages = (record) => ["draft", "challenge"].filter((role) => record[role]);
  const outcome = (record) => stages(record).map((role) => (record[role].correct ? "1" : "0")).join("");
  const words = (record) => stages(record).map((role) => (record[role].correct ? "right" : "wrong")).join(" → ");
  const number = (value) => (typeof value === "number" ? value.toFixed(2).replace("-", "−") : "–");
  const has = (record, text) =>
    [record.problem, ...stages(record).map((role) => record[role].text)].some(
      (part) => typeof part === "string" && part.toLowerCase().includes(text));

  const fillSteps = () => {
    const select = find("by-step"), chosen = select.value, key = find("by-method").value;
    const steps = [...new Set(all.filter((each) => !key || each.method.key === key).map((each) => each.record.step))];
    select.replaceChildren();
    option(select, "", "all");
    for (const step of steps.sort((a, b) => a - b)) option(select, String(step), String(step));
    select.value = steps.some((step) => String(step) === chosen) ? chosen : "";
  };

  const refresh = () => {
    const key = find("by-method").value, step = find("by-step").value, wanted = find("by-outcome").value;
    const text = find("by-text").value.trim().toLowerCase();
    shown = all.filter(({ method, record }) =>
      (!key || method.key === key) && (!step || String(record.step) === step) &&
      (!wanted || outcome(record) === wanted) && (!text || has(record, text)));
    const list = find("list");
    list.replaceChildren(...shown.map(({ method, record }, index) => {
      const button = make("button");
      button.type = "button";
      button.append(make("strong", "", `${method.name}, step ${record.step}`), make("span", "", words(record)),
        make("span", "", record.problem));
      button.addEventListener("click", () => go(index));
      const item = make("li");
      item.append(button);
      return item;
    }));
    go(0);
  };

  const go = (index) => {
    at = index;
    const some = shown.length > 0;
    find("count").textContent = some ? `${at + 1} of ${shown.length}` : "No transcript matches these filters.";
    find("previous").disabled = !some || at === 0;
    find("next").disabled = !some || at === shown.length - 1;
    find("list").querySelectorAll("button").forEach((button, i) => {
      if (i !== at) return button.removeAttribute("aria-current");
      button.setAttribute("aria-current", "true");
      const list = find("list"), top = button.offsetTop - list.offsetTop;
      if (top < list.scrollTop || top + button.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top;
    });
    find("detail").replaceChildren(...(some ? detail(shown[at]) : []));
  };

  const detail = ({ method, record }) => {
    const both = make("div", "stages");
    both.append(...stages(record).map((role) => stage(method, record, role)));
    return [
      make("h3", "", `${method.name}, step ${record.step}: ${words(record)}`),
      make("h4", "", "Problem"), make("div", "text", record.problem), both,
    ];
  };

  const stage = (method, record, role) => {
    const data = record[role], box = make("section", "stage"), title = make("h4", "", role === "draft" ? "Draft" : "Challenge");
    title.append(make("span", "", `by policy ${String(data.policy ?? "").toUpperCase()}`),
      make("span", `badge ${data.correct ? "right" : "wrong"}`, data.correct ? "right" : "wrong"));
    const facts = make("dl");
    for (const [name, value] of [
      ["answer", data.answer ?? "none"], ["reference", data.reference ?? "–"], ["verdict", data.verdict ?? "–"],
      ["reward", number(data.reward)], ["advantage", number(data.advantage)],
      ["form", `${data.well_formed ? "well formed" : "malformed"}, ${data.finished ? "finished" : "cut off"}`],
    ]) facts.append(make("dt", "", name), make("dd", "", String(value)));
    box.append(title, facts, ...parts(String(data.text ?? "")));
    if (role === "draft" && record.challenge) {
      box.append(make("h5", "", method.shown ? "Summary, as shown to the challenger" : "Summary, not shown to the rival"),
        make("div", "text", data.summary || "(empty)"));
    }
    return box;
  };

  // The private reasoning is folded; what was written after it is open.
  const parts = (text) => {
    const end = text.indexOf("</think>");
    if (end < 0) return [make("h5", "", "Text"), make("div", "text", text || "(empty)")];
    const thinking = text.slice(0, end).replace(/^\s*<think>/, "").trim(), fold = make("details");
    fold.append(make("summary", "", `Thinking (${thinking.length.toLocaleString("en")} characters)`),
      make("div", "text", thinking || "(empty)"));
    return [fold, make("h5", "", "Text after thinking"), make("div", "text", text.slice(end + 8).trim() || "(empty)")];
  };

  option(find("by-method"), "", "all");
  for (const method of methods) option(find("by-method"), method.key, method.name);
  find("by-method").addEventListener("change", () => { fillSteps(); refresh(); });
  for (const id of ["by-step", "by-outcome"]) find(id).addEventListener("change", refresh);
  find("by-text").addEventListener("input", refresh);
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  find("previous").addEventListener("click", () => go(at - 1));
  find("next").addEventListener("click", () => go(at + 1));
  find("browser").hidden = false;
  fillSteps();
  refresh();
})();
