// Keeps the page of a run up to date, and shows answers: the other side of apps/cli/serve.cpp.
(() => {
"use strict";
const token = location.search, at = id => document.getElementById(id);
const state = at("state"), curves = at("curves"), model = at("model"), form = at("ask"), answer = at("answer");

const ask = async (path, options) => {
  const reply = await fetch(path, options).catch(() => { throw new Error("heed serve does not answer; has it ended?"); });
  const said = await reply.json();
  if (!reply.ok) throw new Error(said.error);
  return said;
};
const note = (box, text) => {
  const e = document.createElement("p");
  e.className = "muted"; e.textContent = text;
  box.replaceChildren(e);
};
const show = (box, html) => {
  box.innerHTML = html;
  heedCharts.draw(box);
  heedMaps.draw(box);
};

const renew = html => {
  const newer = document.createElement("template");
  newer.innerHTML = html;
  const [charts, numbers] = [".charts", "details"].map(name => [curves.querySelector(name), newer.content.querySelector(name)]);
  if (!charts[0] || !charts[1]) return show(curves, html);
  heedCharts.renew(...charts);
  numbers[1].open = numbers[0].open;
  numbers[0].replaceWith(numbers[1]);
};

const fill = async () => {
  const box = model.querySelector("div");
  note(box, "The model is being measured …");
  try {
    show(box, (await ask("model" + token)).html);
  } catch (error) {
    note(box, error.message);
  }
};
model.ontoggle = () => { if (model.open) fill(); };

let training = true, version = state.dataset.version;
const follow = async () => {
  try {
    const now = await ask(`state${token}&have=${version}`);
    state.textContent = now.state;
    if (now.version !== version) { at("summary").innerHTML = now.summary; renew(now.curves); }
    version = now.version;
    // What the model does is shown without being asked for once training has ended.
    if (training && !now.training) { if (model.open) fill(); else model.open = true; }
    training = now.training;
  } catch (error) {
    state.textContent = `This page is out of date: ${error.message}`;
  }
  setTimeout(follow, 3000);
};
follow();

form.onkeydown = event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
};
form.onsubmit = async event => {
  event.preventDefault();
  const button = form.querySelector("button");
  if (button.disabled) return;
  button.disabled = true;
  note(answer, "…");
  try {
    const parts = [...form.querySelectorAll("textarea")].map(field => field.value);
    show(answer, (await ask("answer" + token, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({parts})})).html);
  } catch (error) {
    note(answer, error.message);
  }
  button.disabled = false;
};
})();
