// The player: a recording as one live figure. Code, graph, kept tensors and memory follow one slider.
//
// This file is the body of `function (data, css)`; player.py writes it into a page right after the still picture that
// shows where scripts do not run, and player_data.py says what the data are. Three rules hold throughout:
// - Words from the data become text nodes, never markup: a parameter may be named "<script>".
// - A step changes only what differs from the step before. Nothing that a step does asks the browser for a layout:
//   places are measured when sizes change.
// - If anything goes wrong, the still picture comes back, and the console gets one line.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const script = document.currentScript;
const still = stillBefore(script);
let host = null;
function giveUp(error) {
  if (host) host.remove();
  if (still) still.style.removeProperty("display");
  console.warn(`The player stopped, its still picture stays. ${error && error.message}`);
}

function stillBefore(element) {
  const before = element && element.previousElementSibling;
  if (!before) return null;
  return before.matches('[data-gi="still"]') ? before : before.querySelector('[data-gi="still"]');
}

function start() {
  const model = modelOf(data);
  // Run a second time on the same page (a front end may do so), it takes the first one's place.
  const old = still.previousElementSibling;
  if (old && old.matches('[data-gi="player"]')) old.remove();
  host = document.createElement("div");
  host.dataset.gi = "player";
  host.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys stay away
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = css;
  root.append(style);
  const player = playerIn(root, model);
  // Shown hidden until it is complete: what fails on the way leaves the still as it was.
  still.before(host);
  player.go(0);
  still.style.setProperty("display", "none", "important");
}

// ------------------------------------------------------------------------------------------------ small tools

function list(value) {
  return Array.isArray(value) ? value : [];
}

function at(values, index, other) {
  const value = list(values)[index];
  return value === undefined || value === null ? other : value;
}

function whole(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function bytes(n) {
  return `${n < 0 ? "−" : ""}${whole(Math.abs(n))} B`;
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function icon(path) {
  return draw("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, draw("path", { d: path }));
}

// ------------------------------------------------------------------------------------------------ the data, made safe

// All that can be asked about a position. Missing or odd data become empty lists here, so that no view need look twice.
function modelOf(given) {
  const raw = given && typeof given === "object" ? given : {};
  const n = Math.max(0, Math.floor(Number(raw.n)) || 0);
  const categories = list(raw.categories);
  const width = categories.length;
  const live = new Float64Array((n + 1) * width);
  for (let c = 0; c < width; c++) live[c] = at(raw.start, c, 0);
  const deltas = list(raw.delta).slice().sort((a, b) => a[0] - b[0]);
  for (let p = 1, d = 0; p <= n; p++) {
    live.copyWithin(p * width, (p - 1) * width, p * width);
    for (; d < deltas.length && deltas[d][0] <= p; d++) live[p * width + deltas[d][1]] += deltas[d][2];
  }
  const phases = list(raw.phases);
  const phaseAt = new Int32Array(n + 1).fill(-1);
  phases.forEach(([, first, last], k) => phaseAt.fill(k, clamp(first, 0, n + 1), clamp(last, -1, n) + 1));
  const keeps = [raw.kept_count, raw.kept_alive].some((counts) => list(counts).some((count) => count > 0));
  const nodes = raw.nodes || {};
  const saved = raw.saved || {};
  const leaves = raw.leaves || {};

  function total(p) {
    let sum = 0;
    for (let c = 0; c < width; c++) sum += live[p * width + c];
    return sum;
  }
  function caption(p) {
    const words = list(raw.words);
    return list(at(raw.caption, p, [])).map((id) => at(words, id, "")).join(" ");
  }
  function closing(p) {
    const count = at(raw.kept_count, p, 0);
    const kept = count ? `${whole(count)} tensor${count === 1 ? "" : "s"}, ${bytes(at(raw.kept_bytes, p, 0))}` : at(raw.kept_alive, p, 0) ? "only what is alive anyway" : "nothing";
    return `${keeps ? `Still kept: ${kept}. ` : ""}${width ? `Live: ${bytes(total(p))}.` : ""}`.trim();
  }
  function moments(values) {
    return [...new Set(values)].filter((p) => p >= 0 && p <= n).sort((a, b) => a - b);
  }
  return {
    n, categories, phases, nodes, saved, leaves, total, caption, closing,
    title: String(raw.title || "Recording"),
    lines: list(raw.lines),
    rounds: list(raw.rounds),
    graphs: list(raw.graphs),
    drawings: list(raw.drawings),
    memory: raw.memory || null,
    ledger: list(raw.ledger),
    jumps: list(raw.jumps),
    error: raw.error || null,
    amount: (p, c) => live[p * width + c],
    hot: (p) => at(raw.hot, p, -1),
    call: (p) => at(raw.call, p, -1),
    node: (p) => at(raw.node, p, -1),
    what: (p) => at(raw.what, p, ""),
    phase: (p) => (phaseAt[p] < 0 ? "" : String(phases[phaseAt[p]][0])),
    round: (p) => list(raw.rounds).findIndex(([first, last]) => first <= p && p <= last),
    momentsOfNode(id) {
      const node = nodes[id] || {};
      const arrived = list(leaves[id]).map((entry) => entry[0]);
      return moments([node.made || -1, node.failed || -1, ...list(node.ran), ...arrived]);
    },
    momentsOfSaved(id) {
      const tensor = saved[id] || {};
      return moments([tensor.kept, tensor.changed, tensor.gone].filter((p) => typeof p === "number"));
    },
    // Where a line begins to run, again and again: not each of its events.
    momentsOfLine(index) {
      const found = [];
      for (let p = 0; p <= n; p++)
        if (at(raw.hot, p, -1) === index && (p === 0 || at(raw.hot, p - 1, -1) !== index)) found.push(p);
      for (let p = 1; p <= n; p++)
        if (at(raw.call, p, -1) === index && at(raw.call, p - 1, -1) !== index) found.push(p);
      return moments(found);
    },
  };
}

// The moment that a click on something leads to: the next one after p, or round to the first.
function next(moments, p) {
  const later = moments.find((moment) => moment > p);
  return later === undefined ? moments[0] : later;
}

// ------------------------------------------------------------------------------------------------ the player

const KEYS = "Keys: ← → one step, with Shift ten · Page Up, Page Down: phase · Home, End · Space: play or pause · " +
  "f, b, p, e: forward, backward, peak, error or end · ↑ ↓: from part to part inside the code or the graph, Enter: go there";
const HINT = "Click an operation, a tensor, a line or a moment: the rest follows.";
const SPEEDS = [["0.5", "½ ×"], ["1", "1 ×"], ["2", "2 ×"], ["4", "4 ×"], ["16", "16 ×"]];
const TICK = 1100; // ms a step at speed 1: time to read a short caption

function playerIn(root, model) {
  const { n } = model;
  let p = -1;
  let timer = 0;
  const main = make("div", { class: "player", role: "group", "aria-label": `Player. ${model.title}`, tabindex: "-1" });
  const detail = make("p", { class: "detail" }, HINT);
  const controls = controlsOf(model, { go, toggle, jump });
  const words = captionOf(model);
  const code = codeOf(model, { go, tell });
  const graph = graphOf(model, { go, tell });
  const memory = memoryOf(model, { go });
  const ledger = ledgerOf(model);
  const views = [controls, words, code, graph, memory, ledger].filter(Boolean);
  const stage = make("div", { class: code && graph ? `stage two${graph.width > 800 ? " wide" : graph.width > 580 ? " middling" : ""}` : "stage" }, code && code.element, graph && graph.element,
    make("div", { class: "aside" }, detail, graph && graph.legend));
  main.append(controls.element, words.element, stage);
  if (memory) main.append(memory.element);
  if (ledger) main.append(ledger.element);
  main.append(make("details", { class: "help" }, make("summary", {}, "Keys"), make("p", {}, KEYS)));
  root.append(main);

  // About what was clicked, until the next step.
  function tell(content) {
    if (content) detail.textContent = content;
  }

  function go(to) {
    to = clamp(Math.round(Number(to)) || 0, 0, n);
    if (to === p) return;
    const before = p;
    p = to;
    try {
      if (detail.textContent !== HINT) detail.textContent = HINT;
      if (main.dataset.phase !== model.phase(p)) main.dataset.phase = model.phase(p);
      const failed = model.what(p) === "error";
      if (failed !== main.hasAttribute("data-failed")) main.toggleAttribute("data-failed", failed);
      for (const view of views) view.show(p, before);
    } catch (error) {
      stop();
      giveUp(error);
    }
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    controls.playing(false);
    words.quiet(false);
  }
  function tick() {
    // A cell that was run again or deleted takes its player out of the page.
    if (p >= n || !host.isConnected) return stop();
    go(p + 1);
    timer = setTimeout(tick, TICK / controls.speed());
  }
  function toggle() {
    if (timer) return stop();
    if (p >= n) go(0);
    controls.playing(true);
    words.quiet(true);
    timer = setTimeout(tick, Math.min(400, TICK / controls.speed()));
  }

  // Several backwards: each press leads to the next one.
  function jump(name) {
    const starts = model.phases.filter((phase) => phase[0] === name).map((phase) => phase[1]);
    const named = model.jumps.filter((entry) => entry[0] === name).map((entry) => entry[1]);
    const places = [...new Set([...named, ...starts])].sort((a, b) => a - b);
    if (places.length) go(next(places, p));
  }
  function byPhase(step) {
    const starts = [...new Set([0, ...model.phases.map((phase) => phase[1]), n])].sort((a, b) => a - b);
    const to = step > 0 ? starts.find((s) => s > p) : starts.filter((s) => s < p).pop();
    if (to !== undefined) go(to);
  }

  const commands = {
    ArrowLeft: (event) => go(p - (event.shiftKey ? 10 : 1)),
    ArrowRight: (event) => go(p + (event.shiftKey ? 10 : 1)),
    Home: () => go(0),
    End: () => go(n),
    PageUp: () => byPhase(-1),
    PageDown: () => byPhase(1),
    " ": toggle,
    f: () => jump("forward"),
    b: () => jump("backward"),
    p: () => jump("peak"),
    e: () => (model.error ? jump("error") : go(n)),
  };

  main.addEventListener("keydown", (event) => {
    // Keys of the browser and of screen readers pass; all others end here, so that no front end takes them.
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    event.stopPropagation();
    const target = event.target;
    if (target.matches("select") || event.defaultPrevented) return;
    if (event.key === " " && target.matches("button, summary")) return;
    const command = Object.hasOwn(commands, event.key) ? commands[event.key] : null;
    if (!command) return;
    event.preventDefault();
    if (timer && event.key !== " ") stop();
    command(event);
  });
  for (const kind of ["keyup", "keypress"]) main.addEventListener(kind, (event) => event.stopPropagation());
  main.addEventListener("pointerdown", (event) => {
    if (timer && !event.target.closest(".transport, select")) stop();
  });

  function paint() {
    const theme = themeOf(host);
    if (main.dataset.theme !== theme) main.dataset.theme = theme;
  }
  // The page holds what watches it. So a player watches only while it is seen: one that was taken out, or whose tab
  // was hidden and then closed, has no size.
  let unwatch = null;
  new ResizeObserver(() => {
    const seen = main.isConnected && main.offsetWidth > 0;
    if (!seen && unwatch) unwatch = unwatch();
    if (!seen) return;
    unwatch ||= watchTheme(paint);
    paint();
    for (const view of views) if (view.measure) view.measure();
  }).observe(main);
  return { go };
}

// ------------------------------------------------------------------------------------------------ the theme

// The front end's own mark first, then the ground that the figure stands on, then what the reader prefers.
function themeOf(element) {
  const html = document.documentElement;
  const body = document.body;
  if (body && body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
  if (html.getAttribute("theme")) return html.getAttribute("theme") === "dark" ? "dark" : "light";
  if (body && body.matches(".vscode-dark, .vscode-high-contrast:not(.vscode-high-contrast-light)")) return "dark";
  if (body && body.matches(".vscode-light, .vscode-high-contrast-light")) return "light";
  for (let up = element.parentElement; up; up = up.parentElement) {
    const colour = getComputedStyle(up).backgroundColor.match(/[\d.]+/g);
    if (colour && (colour.length < 4 || Number(colour[3]) > 0.5)) {
      return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 128 ? "dark" : "light";
    }
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// Returns what ends the watch.
function watchTheme(paint) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(paint);
  const marks = ["class", "style", "theme", "data-jp-theme-light", "data-vscode-theme-kind"];
  for (const place of [document.documentElement, document.body])
    if (place) observer.observe(place, { attributes: true, attributeFilter: marks });
  query.addEventListener("change", paint);
  return () => {
    observer.disconnect();
    query.removeEventListener("change", paint);
    return null;
  };
}

// ------------------------------------------------------------------------------------------------ controls

const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  forward: "M5 3v10l7-5z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
};

function controlsOf(model, { go, toggle, jump }) {
  const { n } = model;
  let now = 0;
  function button(name, label, keys, action) {
    const made = make("button", { type: "button", "aria-label": label, title: label, "aria-keyshortcuts": keys }, icon(ICONS[name]));
    made.addEventListener("click", action);
    return made;
  }
  const play = button("play", "Play", "Space", toggle);
  play.classList.add("main");
  const transport = make("div", { class: "transport" },
    button("first", "To the start", "Home", () => go(0)),
    button("back", "Step back", "ArrowLeft", () => go(now - 1)),
    play,
    button("forward", "Step forward", "ArrowRight", () => go(now + 1)),
    button("last", "To the end", "End", () => go(n)));
  const jumps = make("div", { class: "jumps" });
  const seen = new Set(["start", "end"]); // those two are in the row beside
  for (const [name] of model.jumps) {
    if (seen.has(name)) continue;
    seen.add(name);
    const chip = make("button", { type: "button", class: "chip", "data-jump": name, title: `Jump to: ${name}`, "aria-label": `Jump to ${name}`, "aria-keyshortcuts": String(name)[0] }, String(name));
    chip.addEventListener("click", () => jump(name));
    jumps.append(chip);
  }
  const speed = make("select", { "aria-label": "Speed", title: "Speed" }, ...SPEEDS.map(([value, label]) => make("option", { value }, label)));
  speed.value = n <= 60 ? "1" : n <= 400 ? "4" : "16";
  const slider = make("input", { type: "range", min: 0, max: n, step: 1, value: 0, "aria-label": "Step" });
  slider.addEventListener("input", () => go(slider.value));
  const count = document.createTextNode("");
  const counter = make("div", { class: "counter", "aria-hidden": "true" }, make("b", {}, count), ` of ${whole(n)}`);
  const strip = make("div", { class: "strip", "aria-hidden": "true" });
  if (model.phases.length <= 80)
    for (const [name, first, last] of model.phases) {
      const part = make("span", { "data-phase": name });
      part.style.flexGrow = Math.max(0.5, last - first + 1);
      strip.append(part);
    }
  const element = make("div", { class: "controls" },
    transport,
    make("div", { class: "track" }, slider, strip),
    counter,
    make("div", { class: "more" }, jumps, make("label", { class: "speed" }, "speed ", speed)));
  return {
    element,
    speed: () => Number(speed.value) || 1,
    playing(on) {
      play.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
      for (const name of ["aria-label", "title"]) play.setAttribute(name, on ? "Pause" : "Play");
    },
    show(p) {
      now = p;
      slider.value = p;
      slider.style.setProperty("--at", `${n ? (100 * p) / n : 0}%`);
      const phase = model.phase(p);
      slider.setAttribute("aria-valuetext", `${p} of ${n}${phase ? `, ${phase}` : ""}`);
      count.data = whole(p);
    },
  };
}

// ------------------------------------------------------------------------------------------------ the caption

// `Names` become code, amounts stand out and stay on one line. Pieces are used again: only words that differ are touched.
function sentence(element) {
  const pieces = [];
  return (content) => {
    const parts = content.split(/(`[^`]+`|\d[\d,]* B\b)/);
    for (let k = 0; k < Math.max(parts.length, pieces.length); k++) {
      const part = parts[k] ?? "";
      const look = k % 2 === 0 || !part ? "" : part[0] === "`" ? "code" : "much";
      if (!pieces[k]) {
        pieces[k] = { text: document.createTextNode(part), look };
        element.append((pieces[k].span = make("span", { class: look }, pieces[k].text)));
      }
      const piece = pieces[k];
      const words = look === "code" ? part.slice(1, -1) : part;
      if (piece.text.data !== words) piece.text.data = words;
      if (piece.look !== look && part) piece.span.className = piece.look = look;
    }
  };
}

function captionOf(model) {
  let quiet = false;
  const turn = document.createTextNode("");
  const badge = make("span", { class: "badge" }, turn);
  const told = make("span", { class: "told" });
  const closing = make("span", { class: "closing" });
  const [tell, close] = [sentence(told), sentence(closing)];
  const text = make("p", { class: "caption", role: "status", "aria-live": "polite" }, told, " ", closing);
  // A hidden copy of a long caption keeps the room, so that nothing below jumps from step to step.
  const all = Array.from({ length: model.n + 1 }, (_, p) => `${model.caption(p)} ${model.closing(p)}`);
  all.sort((a, b) => a.length - b.length);
  const longest = model.n > 200 ? all[Math.floor(0.97 * model.n)] : all[model.n];
  const long = all[model.n].length > 700; // an error's message: it scrolls in its place
  const room = make("p", { class: "caption room", "aria-hidden": "true" }, longest.replaceAll("`", ""));
  return {
    element: make("div", { class: model.rounds.length > 1 ? "says" : "says plain" }, badge, make("div", long ? { class: "words long", tabindex: "0", role: "group", "aria-label": "What happens" } : { class: "words" }, room, text)),
    quiet(on) {
      if (on === quiet) return;
      quiet = on;
      text.setAttribute("aria-live", on ? "off" : "polite");
      if (!on) setTimeout(() => text.append(closing), 50); // a change, so that the last one is spoken
    },
    show(p) {
      const round = model.round(p);
      const turns = round >= 0 && model.rounds.length > 1 && /^(forward|backward)$/.test(model.phase(p));
      const name = turns ? `Round ${round + 1} of ${model.rounds.length}` : "";
      if (turn.data !== name) turn.data = name;
      tell(model.caption(p));
      close(model.closing(p));
    },
  };
}

// ------------------------------------------------------------------------------------------------ lists of buttons

// One Tab stop for many buttons: ↑ and ↓ lead from one to the next, Enter or Space goes to its moment.
function rove(container, buttons, open) {
  let current = 0;
  buttons.forEach((button, k) => button.setAttribute("tabindex", k ? "-1" : "0"));
  function stop(index) {
    if (index === current || !buttons[index]) return;
    buttons[current].setAttribute("tabindex", "-1");
    buttons[index].setAttribute("tabindex", "0");
    current = index;
  }
  container.addEventListener("keydown", (event) => {
    const index = buttons.indexOf(event.target);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step) {
      const to = clamp(index + step, 0, buttons.length - 1);
      stop(to);
      buttons[to].focus();
    } else if (event.key === "Enter" || event.key === " ") open(buttons[index]);
    else return;
    event.preventDefault();
  });
  container.addEventListener("click", (event) => {
    const button = event.target.closest('[role="button"]');
    const index = buttons.indexOf(button);
    if (index < 0) return;
    stop(index);
    button.focus({ preventScroll: true });
    open(button);
  });
}

// A pane that scrolls by itself to what runs. Sizes are read when they change, never at a step.
function paneOf(element) {
  let view = { top: 0, left: 0, width: 0, height: 0 };
  element.addEventListener("scroll", () => {
    view.top = element.scrollTop;
    view.left = element.scrollLeft;
  }, { passive: true });
  return {
    measure() {
      view = { top: element.scrollTop, left: element.scrollLeft, width: element.clientWidth, height: element.clientHeight };
    },
    reveal(box) {
      if (!view.height) return;
      const top = along(box.y, box.height, view.top, view.height);
      const left = along(box.x, box.width, view.left, view.width);
      if (top !== view.top || left !== view.left) element.scrollTo({ top, left });
    },
  };
}

function along(from, size, seen, room) {
  const margin = Math.min(36, Math.max(0, (room - size) / 2));
  if (from - margin < seen) return Math.max(0, from - (room - size) / 2);
  return from + size + margin > seen + room ? Math.max(0, from - Math.max(0, room - size) / 2) : seen;
}

// ------------------------------------------------------------------------------------------------ the code

function codeOf(model, { go, tell }) {
  if (!model.lines.length) return null;
  let here = 0;
  const hot = { index: -1 };
  const call = { index: -1 };
  const moments = model.lines.map((_, index) => model.momentsOfLine(index));
  const rows = model.lines.map(([number, content], index) => {
    const [indent] = /^\s*/.exec(String(content ?? ""));
    const parts = [
      make("span", { class: "sign", "aria-hidden": "true" }),
      make("span", { class: "number" }, String(number ?? "")),
      make("span", { class: "source" }, indent, make("code", {}, String(content ?? "").slice(indent.length) || " ")),
    ];
    const can = moments[index].length > 0;
    const label = can ? `Line ${number}: ${String(content).trim()}. ${steps(moments[index])}` : null;
    return make("div", { class: "line", role: can ? "button" : null, "aria-label": label }, ...parts);
  });
  const pane = make("div", { class: "pane lines" }, make("div", { class: "sheet" }, ...rows));
  const scroll = paneOf(pane);
  const buttons = rows.filter((row) => row.hasAttribute("role"));
  if (!buttons.length) pane.setAttribute("tabindex", "0");
  rove(pane, buttons, (row) => go(next(moments[rows.indexOf(row)], here)));
  let boxes = [];
  function mark(state, index, name) {
    if (state.index === index) return;
    if (rows[state.index]) rows[state.index].classList.remove(name);
    if (rows[index]) rows[index].classList.add(name);
    state.index = index;
  }
  return {
    element: make("div", { class: "view code", role: "group", "aria-label": "Code" }, make("p", { class: "heading" }, "Code"), pane),
    measure() {
      scroll.measure();
      boxes = rows.map((row) => ({ x: 0, width: 0, y: row.offsetTop, height: row.offsetHeight }));
      if (boxes[hot.index]) scroll.reveal(boxes[hot.index]);
    },
    show(p) {
      here = p;
      mark(hot, model.hot(p), "is-hot");
      mark(call, model.call(p), "is-call");
      const index = hot.index >= 0 ? hot.index : call.index;
      if (boxes[index]) scroll.reveal(boxes[index]);
    },
  };
}

function steps(moments) {
  const shown = moments.slice(0, 6).map(whole).join(", ");
  return `Step${moments.length === 1 ? "" : "s"} ${shown}${moments.length > 6 ? ", …" : ""}`;
}

// ------------------------------------------------------------------------------------------------ a drawing

const DRAWN = new Set("svg g title rect text tspan path ellipse circle line polyline polygon".split(" "));

// The still's own drawing as elements, with nothing in it that could run or fetch.
function drawingFrom(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const svg = parsed.documentElement;
  if (svg.localName !== "svg") throw new Error("a drawing could not be read");
  for (const element of [svg, ...svg.querySelectorAll("*")]) {
    if (!DRAWN.has(element.localName)) element.remove();
    for (const { name } of [...element.attributes]) if (/^on|href|^style$|^id$/i.test(name)) element.removeAttribute(name);
  }
  return document.importNode(svg, true);
}

function drawingOfStill(part) {
  const image = still.querySelector(`[data-part="${part}"] img`);
  const found = image && /^data:image\/svg\+xml;base64,(.*)$/.exec(image.getAttribute("src") || "");
  if (!found) return null;
  const raw = Uint8Array.from(atob(found[1]), (c) => c.charCodeAt(0));
  return drawingFrom(new TextDecoder().decode(raw));
}

const num = (element, name) => Number(element.getAttribute(name)) || 0;

function boxOf(rect) {
  return { x: num(rect, "x"), y: num(rect, "y"), width: num(rect, "width"), height: num(rect, "height") };
}

// ------------------------------------------------------------------------------------------------ the graph

const NO = 0, FUTURE = 1, MADE = 2, NOW = 4, DONE = 8, FAILED = 16;
const ITEM = [[FUTURE, "is-future"], [MADE, "is-made"], [NOW, "is-now"], [DONE, "is-done"], [FAILED, "is-failed"]];
const KEPT = 2, NOW_KEPT = 4, NOW_GONE = 8, GONE = 16, CHANGED = 32;
const TENSOR = [[FUTURE, "is-future"], [KEPT, "is-kept"], [NOW_KEPT, "is-now-kept"], [NOW_GONE, "is-now-gone"], [GONE, "is-gone"], [CHANGED, "is-changed"]];

const BARE = 1; // a frame in which nothing is kept

// A folded block goes from one repetition to the next at a step. That changes all its parts at once, and to write to
// each would be slow. So each class that is written has a generation, "a" or "b", and its block says which one counts:
// to turn that over makes the whole block look as a repetition does where it is entered: before its forward
// ("base-future"), between its forward and its backward (no word), or after both ("base-done").
function write(part, base, names, state, gen) {
  const look = names.reduce((all, [bit, name]) => (state & bit ? `${all} ${name}` : all), `${base} ${gen}`);
  part.group.setAttribute("class", look);
  part.state = state;
  part.gen = gen;
}

// A folded block is drawn with the names of its first repetition: "0.weight", "in module 3.norm". Of any other one
// shown in it, those numbers would be wrong.
function anyOf(words) {
  return words.replace(/(^|[\s.])\d+(?=\.[A-Za-z_])/g, "$1…").replace(/(\bin (?:module )?(?:[A-Za-z_][\w.]*\.)?)\d+(?=$|[\s.])/g, "$1…");
}

function foldsOf(sheet, cast) {
  const folds = [-1, ...cast.blocks.keys()].map((block) => ({ block, gen: "a", rep: -1, element: draw("g", { class: "gen-a" }) }));
  sheet.units.forEach((unit, i) => folds[cast.items[i].block + 1].element.append(unit));
  for (const fold of folds.slice(1))
    for (const text of fold.element.querySelectorAll("text")) {
      const words = anyOf(text.textContent);
      if (words === text.textContent) continue;
      const other = text.cloneNode();
      other.textContent = words;
      other.classList.add("of-any");
      text.classList.add("of-first");
      text.after(other);
    }
  sheet.plan.append(...folds.map((fold) => fold.element), sheet.sign);
  return folds;
}

function turnOver(fold, rep, backward, sheet, cast) {
  const before = fold.rep;
  fold.rep = rep;
  const names = rep ? " elsewhere" : "";
  if (before < 0 && !rep) return;
  if (before < 0) return fold.element.setAttribute("class", `gen-${fold.gen}${names}`);
  const begins = backward ? rep < before : rep > before;
  const base = begins === backward ? "" : backward ? "base-done" : "base-future";
  const [item, leaf, tensor] = { "": [MADE, MADE, KEPT], "base-done": [MADE | DONE, MADE | DONE, GONE], "base-future": [FUTURE, MADE, FUTURE] }[base];
  const { gen } = fold;
  fold.gen = gen === "a" ? "b" : "a";
  fold.element.setAttribute("class", `gen-${fold.gen} ${base}${names}`);
  // What was last written two generations ago would count again: it must be written anew.
  const as = (part, state) => (part.gen === fold.gen ? -1 : state);
  cast.items.forEach((member, i) => {
    if (member.block !== fold.block) return;
    const part = sheet.items[i];
    part.state = as(part, part.leaf ? leaf : item);
    part.look = part.badgeGen === fold.gen ? "" : base !== "base-done" ? "grad" : part.words === "grad" ? "grad is-there" : "";
  });
  for (const frame of sheet.frames)
    if (cast.items[frame.item].block === fold.block) frame.state = as(frame, base ? BARE : NO);
  cast.tensors.forEach((member, i) => {
    if (member.block === fold.block) sheet.tensors[i].state = as(sheet.tensors[i], tensor);
  });
}

// A drawing that was taken apart once: items and tensors as siblings (no button may stand inside a button), arrows
// with the items that they join, and the places of all.
function sheetOf(svg) {
  const plan = [...svg.children].find((child) => child.localName === "g" && child.hasAttribute("transform")) || svg;
  const itemGroups = [...svg.querySelectorAll("g.item[data-nodes]")];
  const tensorGroups = [...svg.querySelectorAll("g.kept[data-saved]")];
  const extent = { x: Infinity, y: Infinity, right: -Infinity, bottom: -Infinity };
  function grow(x, y) {
    extent.x = Math.min(extent.x, x);
    extent.y = Math.min(extent.y, y);
    extent.right = Math.max(extent.right, x);
    extent.bottom = Math.max(extent.bottom, y);
  }
  for (const rect of plan.querySelectorAll("rect")) {
    const box = boxOf(rect);
    grow(box.x, box.y);
    grow(box.x + box.width, box.y + box.height);
  }
  const boxes = new Map();
  for (const group of plan.querySelectorAll("g.item")) {
    const rect = group.querySelector(".box");
    if (rect) boxes.set(group, boxOf(rect));
  }
  const items = itemGroups.map((group) => {
    const box = boxes.get(group) || { x: 0, y: 0, width: 0, height: 0 };
    const title = group.querySelector("title");
    const name = title ? title.textContent.replace(/^\[[^\]]*\]\s*/, "").replace(/\s+/g, " ") : "";
    if (title) title.remove();
    const leaf = group.matches(".leaf, .parameter");
    const item = { group, box, name, leaf, look: "grad", base: group.getAttribute("class"), state: NO };
    if (leaf) {
      const right = box.x + box.width;
      const text = draw("text", { x: right - 1, y: box.y - 1.5, "text-anchor": "end" });
      const ground = draw("rect", { y: box.y - 13, height: 16, rx: 8 });
      item.badge = draw("g", { class: "grad" }, ground, text);
      item.label = (words) => {
        text.textContent = item.words = words;
        const wide = words.length * 6.1 + 14;
        ground.setAttribute("x", right + 6 - wide);
        ground.setAttribute("width", wide);
      };
      item.label("grad");
    } else {
      const [x, y] = [box.x + box.width - 1, box.y + 1];
      group.append(draw("g", { class: "ran" }, draw("circle", { cx: x, cy: y, r: 8 }), draw("path", { d: `M${x - 3.6} ${y}l2.6 3l4.6 -5.4` })));
    }
    return item;
  });
  const tensors = tensorGroups.map((group) => {
    const ellipse = group.querySelector("ellipse");
    const title = group.querySelector("title");
    if (title) title.remove();
    const [cx, cy, rx, ry] = ["cx", "cy", "rx", "ry"].map((name) => num(ellipse || group, name));
    return {
      group, state: NO, base: group.getAttribute("class"),
      box: { x: cx - rx, y: cy - ry, width: 2 * rx, height: 2 * ry },
      name: [...group.querySelectorAll("text")].map((text) => text.textContent).join(", "),
    };
  });
  const frames = [];
  const units = items.map((item, i) => {
    const region = item.group.querySelector(".region");
    const unit = draw("g", { class: "unit" });
    if (region) frames.push({ group: unit, state: NO, item: i });
    item.group.before(unit);
    unit.append(item.group);
    if (region) {
      const first = region.previousElementSibling;
      while (first && first.nextElementSibling && !first.nextElementSibling.matches(".ran")) unit.append(first.nextElementSibling);
      if (first && first.localName === "path") unit.append(first);
      frames.at(-1).tensors = tensors.flatMap(({ group }, t) => (unit.contains(group) ? [t] : []));
    }
    if (item.badge) unit.append(item.badge);
    return unit;
  });
  const wires = wiresOf(plan, boxes, items, grow);
  const sign = draw("g", { class: "now", "aria-hidden": "true" }, draw("circle", { r: 10 }), draw("path", { d: "M-4.6 -2.6h9.2L0 5z" }));
  plan.append(sign);
  const shift = (plan.getAttribute("transform") || "").match(/-?[\d.]+/g) || [0, 0];
  const [dx, dy] = plan === svg ? [0, 0] : [Number(shift[0]) || 0, Number(shift[1]) || 0];
  const margin = 16;
  const sheet = { svg, plan, items, tensors, units, frames, folds: null, wires, sign, lit: [], scale: 1, origin: [margin, margin], width: num(svg, "width") };
  if (extent.right > extent.x) {
    sheet.width = extent.right - extent.x + 2 * margin;
    const height = extent.bottom - extent.y + 2 * margin;
    sheet.origin = [margin - extent.x, margin - extent.y];
    svg.setAttribute("viewBox", `${dx + extent.x - margin} ${dy + extent.y - margin} ${sheet.width} ${height}`);
    sheet.height = height;
  }
  for (const name of ["width", "height", "role", "xml:space"]) svg.removeAttribute(name);
  const legend = svg.querySelector(".legend");
  if (legend) legend.remove();
  sheet.legend = legend ? legendOf(legend).map(([form, words]) => keyOf(form, words.replace(/is filled$/, "will be filled"))) : [];
  svg.setAttribute("role", "group");
  svg.style.width = `${sheet.width}px`;
  svg.style.minWidth = `${Math.round(sheet.width * 0.75)}px`;
  return sheet;
}

// The arrows have no names in the drawing; the boxes at their two ends tell which items they join.
function wiresOf(plan, boxes, items, grow) {
  const wires = [];
  const paths = [...plan.children].filter((child) => child.matches("path.edge"));
  const near = (x, y) => items.findIndex(({ box }) => x >= box.x - 1.5 && x <= box.x + box.width + 1.5 && y >= box.y - 1.5 && y <= box.y + box.height + 1.5);
  for (let k = 0; k + 1 < paths.length; k += 2) {
    const [line, head] = [paths[k], paths[k + 1]];
    const points = (line.getAttribute("d") || "").match(/-?[\d.]+/g) || [];
    const tip = (head.getAttribute("d") || "").match(/-?[\d.]+/g) || [];
    for (let i = 0; i + 1 < points.length; i += 2) grow(Number(points[i]), Number(points[i + 1]));
    const group = draw("g", { class: "wire" });
    line.before(group);
    group.append(line, head, draw("path", { class: "back", d: headBack(points, tip) }));
    wires.push({ group, from: near(Number(points[0]), Number(points[1])), to: near(Number(tip[0]), Number(tip[1])) });
  }
  return wires;
}

// The head for what flows the other way, at the arrow's tail; and the bit of line that its own head leaves open.
function headBack(points, tip) {
  const [x, y, x1, y1, tx, ty] = [...points.slice(0, 4), ...tip].map(Number);
  const far = Math.hypot(x1 - x, y1 - y) || 1;
  const [dx, dy] = [(x1 - x) / far, (y1 - y) / far];
  const [bx, by] = [x + 8 * dx, y + 8 * dy];
  const [ex, ey] = points.slice(-2).map(Number);
  return `M${x} ${y}L${bx - 4 * dy} ${by + 4 * dx}L${bx + 4 * dy} ${by - 4 * dx}ZM${ex} ${ey}L${tx} ${ty}`;
}

// The still's legend: each form as a small drawing of its own, its words as text that wraps.
function legendOf(legend) {
  return [...legend.children].filter((form) => form.nextElementSibling?.localName === "text" && form.localName !== "text").map((form) => {
    const words = form.nextElementSibling.textContent;
    const box = form.localName === "ellipse"
      ? [num(form, "cx") - num(form, "rx"), num(form, "cy") - num(form, "ry"), 2 * num(form, "rx"), 2 * num(form, "ry")]
      : [num(form, "x"), num(form, "y"), num(form, "width"), num(form, "height")];
    const svg = draw("svg", { viewBox: `${box[0] - 1} ${box[1] - 1} ${box[2] + 2} ${box[3] + 2}`, width: box[2] + 2, height: box[3] + 2 }, draw("g", { class: "legend" }, form));
    return [svg, words];
  });
}

function graphOf(model, { go, tell }) {
  if (!model.graphs.length) return null;
  const sheets = new Map();
  let shown = -1;
  let here = 0;
  let current = null;
  const head = make("div", { class: "head" });
  const pane = make("div", { class: "pane drawing" });
  const foot = make("div", { class: "legend-of" });
  const signs = signsOf(model);
  const scroll = paneOf(pane);

  function sheetFor(number) {
    if (!sheets.has(number)) {
      const text = model.drawings[number];
      const svg = text ? drawingFrom(text) : text === null ? drawingOfStill("graph") : null;
      sheets.set(number, svg ? sheetOf(svg) : null);
    }
    return sheets.get(number);
  }

  // Who is who in one graph: several graphs may share a drawing.
  const casts = new Map();
  function castOf(k) {
    if (casts.has(k)) return casts.get(k);
    const graph = model.graphs[k];
    const sheet = sheetFor(graph.drawing);
    const blocks = list(graph.blocks);
    const cast = { graph, sheet, items: [], tensors: [], blocks: [], places: new Map() };
    casts.set(k, cast);
    if (!sheet) return cast;
    const blockAt = (of, i) => (blocks[at(of, i, -1)] ? of[i] : -1);
    // Ids of all repetitions, one after the other, as one list for each.
    const repetitions = (ids, block) => {
      const count = block < 0 ? 1 : Math.max(1, blocks[block].count);
      const each = Math.ceil(list(ids).length / count);
      return Array.from({ length: count }, (_, r) => ids.slice(r * each, (r + 1) * each).filter((id) => id >= 0));
    };
    sheet.items.forEach((_, i) => {
      const block = blockAt(graph.item_blocks, i);
      const reps = repetitions(at(graph.items, i, []), block);
      reps.forEach((nodes, rep) => nodes.forEach((id) => {
        if (!cast.places.has(id)) cast.places.set(id, []);
        cast.places.get(id).push([i, rep]);
      }));
      cast.items.push({ reps, block });
    });
    sheet.tensors.forEach((_, i) => {
      const block = blockAt(graph.tensor_blocks, i);
      cast.tensors.push({ reps: repetitions(at(graph.tensors, i, []), block), block });
    });
    cast.blocks = blocks.map((block, b) => blockOf(cast, block, b));
    return cast;
  }

  // The repetition that a folded block shows: the one that runs, or that ran last, unless the reader chose one.
  function blockOf(cast, block, b) {
    const first = clamp(cast.graph.first || 0, 0, model.n);
    const last = clamp(cast.graph.last ?? model.n, first, model.n);
    const rep = new Uint16Array(last - first + 1);
    for (let p = first; p <= last; p++) {
      const place = list(cast.places.get(model.node(p))).find(([item]) => cast.items[item].block === b);
      rep[p - first] = place ? place[1] : p > first ? rep[p - first - 1] : 0;
    }
    const count = Math.max(1, Number(block.count) || 1);
    const named = new Map();
    // The modules of one repetition, by what they have in common.
    function modules(k) {
      if (!named.has(k)) {
        const found = cast.items.filter((item) => item.block === b).flatMap((item) => list(item.reps[k]))
          .map((id) => /\bin module ((?:[A-Za-z_]\w*\.)*\d+)\b/.exec((model.nodes[id] || {}).more)?.[1]);
        const names = [...new Set(found.filter(Boolean))];
        named.set(k, names.length ? `, module${names.length > 1 ? "s" : ""} ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""}` : "");
      }
      return named.get(k);
    }
    const choose = make("select", { "aria-label": `Which of ${block.label}` },
      make("option", { value: "" }, "follow"), ...Array.from({ length: count }, (_, k) => make("option", { value: k }, `${k + 1} of ${count}${modules(k)}`)));
    const told = document.createTextNode("");
    choose.addEventListener("change", () => show(here));
    return {
      element: make("div", { class: "block" }, make("span", { class: "name" }, String(block.label ?? "")), choose, make("span", { class: "which" }, told)),
      now(p) {
        const chosen = choose.value === "" ? rep[clamp(p - first, 0, rep.length - 1)] : Number(choose.value);
        const words = `showing ${chosen + 1} of ${count}${modules(chosen)}`;
        if (told.data !== words) told.data = words;
        return chosen;
      },
    };
  }

  function itemState(nodes, p, graph) {
    let state = NO;
    const first = graph.first || 0;
    for (const id of nodes) {
      const node = model.nodes[id] || {};
      state |= (node.made || 0) <= p ? MADE : NO;
      state |= model.node(p) === id ? NOW : NO;
      state |= list(node.ran).some((ran) => first <= ran && ran <= p) ? DONE : NO;
      state |= typeof node.failed === "number" && node.failed <= p ? FAILED : NO;
    }
    return state & (MADE | NOW) || !nodes.length ? state : state | FUTURE;
  }

  function tensorState(ids, p) {
    let state = NO;
    let packed = false;
    let gone = ids.length > 0;
    for (const id of ids) {
      const tensor = model.saved[id] || {};
      packed = packed || Boolean(tensor.packed);
      const kept = typeof tensor.kept === "number" && tensor.kept <= p;
      const left = typeof tensor.gone === "number" && tensor.gone <= p;
      gone = gone && kept && left;
      state |= kept && !left ? KEPT : NO;
      state |= tensor.kept === p && p > 0 ? NOW_KEPT : NO;
      state |= tensor.gone === p ? NOW_GONE : NO;
      state |= kept && !left && typeof tensor.changed === "number" && tensor.changed <= p ? CHANGED : NO;
    }
    if (gone) state |= GONE;
    else if (!(state & KEPT)) state |= FUTURE;
    return [state, packed];
  }

  // Gradients in a leaf at p: those that have arrived since it was last cleared.
  function gradsOf(nodes, p) {
    let most = 0;
    for (const id of nodes) {
      let count = 0;
      for (const [when, , how] of list(model.leaves[id])) if (when <= p) count = how === "cleared" ? 0 : count + 1;
      most = Math.max(most, count);
    }
    return most;
  }

  function badge(item, nodes, p, gen) {
    const count = gradsOf(nodes, p);
    const fresh = nodes.some((id) => list(model.leaves[id]).some((entry) => entry[0] === p && entry[2] !== "cleared"));
    const look = count ? `grad is-there${fresh ? " is-fresh" : ""}` : "grad";
    const words = count > 1 ? `grad ×${count} added` : "grad";
    if (count && item.words !== words) item.label(words);
    if (item.look === look) return;
    item.badge.setAttribute("class", `${(item.look = look)} ${gen}`);
    item.badgeGen = gen;
  }

  function enter(k) {
    const cast = castOf(k);
    const { graph, sheet } = cast;
    shown = k;
    if (current === cast) return;
    const before = current && current.sheet;
    current = cast;
    head.replaceChildren(make("p", { class: "heading" }, String(graph.title || "Graph")),
      ...list(graph.flags).map((flag) => make("p", { class: "flag" }, String(flag))), ...cast.blocks.map((block) => block.element));
    if (!sheet) {
      pane.replaceChildren(make("p", { class: "instead" }, String(graph.words || "This graph has no drawing here.")));
      foot.replaceChildren();
      pane.setAttribute("tabindex", "0");
      return;
    }
    if (sheet !== before) {
      pane.replaceChildren(sheet.svg);
      foot.replaceChildren(...sheet.legend, ...signs);
      if (!sheet.wired) wire(sheet);
      measure();
    }
    sheet.svg.setAttribute("aria-label", String(graph.title || "Graph"));
    name(cast);
  }

  // Names and Tab stops belong to the graph that is shown: its nodes have moments of their own.
  function name(cast) {
    const { sheet } = cast;
    sheet.items.forEach((item, i) => label(item, cast.items[i], model.momentsOfNode));
    sheet.tensors.forEach((tensor, i) => label(tensor, cast.tensors[i], model.momentsOfSaved));
  }
  function label(part, { reps, block }, of) {
    const moments = momentsOf(reps.flat(), of);
    if (moments.length) part.group.setAttribute("aria-label", `${block < 0 ? part.name : anyOf(part.name)}. ${steps(moments)}`);
  }
  function momentsOf(ids, of) {
    return [...new Set(ids.flatMap((id) => of(id)))].sort((a, b) => a - b);
  }

  function wire(sheet) {
    sheet.wired = true;
    const cast = current;
    const parts = [
      ...sheet.items.map((part, i) => ({ part, i, of: "items" })),
      ...sheet.tensors.map((part, i) => ({ part, i, of: "tensors" })),
    ].filter(({ i, of }) => momentsOf(cast[of][i].reps.flat(), of === "items" ? model.momentsOfNode : model.momentsOfSaved).length);
    parts.sort((a, b) => a.part.box.y - b.part.box.y || a.part.box.x - b.part.box.x);
    for (const { part } of parts) part.group.setAttribute("role", "button");
    if (!parts.length) pane.setAttribute("tabindex", "0");
    const groups = parts.map(({ part }) => part.group);
    rove(sheet.svg, groups, (group) => {
      const { i, of } = parts[groups.indexOf(group)];
      const member = current[of][i];
      const ids = list(member.reps[repOf(current, member, here)]);
      const entries = of === "items" ? model.nodes : model.saved;
      const moments = momentsOf(ids, of === "items" ? model.momentsOfNode : model.momentsOfSaved);
      if (moments.length) go(next(moments, here));
      tell(ids.map((id) => (entries[id] || {})[of === "items" ? "more" : "words"]).filter(Boolean).join(" · "));
    });
  }

  function repOf(cast, member, p) {
    return member.block < 0 ? 0 : cast.blocks[member.block].now(p);
  }

  function show(p) {
    here = p;
    let k = model.graphs.findLastIndex((graph) => graph.first <= p && p <= graph.last);
    if (k < 0) k = shown < 0 ? 0 : shown;
    if (k !== shown) enter(k);
    const { sheet, graph } = current;
    if (!sheet) return;
    const reps = current.blocks.map((block) => block.now(p));
    const folds = (sheet.folds ||= foldsOf(sheet, current));
    for (const fold of folds.slice(1))
      if (reps[fold.block] !== fold.rep) turnOver(fold, reps[fold.block], model.phase(p) === "backward", sheet, current);
    let now = -1;
    current.items.forEach((member, i) => {
      const item = sheet.items[i];
      const nodes = list(member.reps[member.block < 0 ? 0 : reps[member.block]]);
      const state = itemState(nodes, p, graph);
      const { gen } = folds[member.block + 1];
      if (state !== item.state) write(item, item.base, ITEM, state, gen);
      if (item.leaf) badge(item, nodes, p, gen);
      if (state & NOW && now < 0) now = i;
    });
    const kept = [];
    current.tensors.forEach((member, i) => {
      const tensor = sheet.tensors[i];
      const [state, packed] = tensorState(list(member.reps[member.block < 0 ? 0 : reps[member.block]]), p);
      const base = packed ? `${tensor.base} is-packed` : tensor.base;
      if (state !== tensor.state) write(tensor, base, TENSOR, state, folds[member.block + 1].gen);
      kept[i] = state & KEPT;
    });
    for (const frame of sheet.frames) {
      const state = frame.tensors.some((i) => kept[i]) ? NO : BARE;
      if (state !== frame.state) write(frame, "unit", [[BARE, "is-bare"]], state, folds[current.items[frame.item].block + 1].gen);
    }
    point(sheet, sheet.items[now], p);
    light(sheet, now, p);
  }

  // ▼ on what runs forward, ▲ on what runs backward: the way that the picture is read.
  function point(sheet, now, p) {
    const up = model.phase(p) === "backward";
    const to = now ? `translate(${now.box.x} ${now.box.y})${up ? " rotate(180)" : ""}` : "";
    if (sheet.pointed === to) return;
    sheet.pointed = to;
    sheet.sign.setAttribute("class", now ? "now is-there" : "now");
    if (!now) return;
    sheet.sign.setAttribute("transform", to);
    scroll.reveal(scaled(sheet, now.box));
  }
  function scaled(sheet, box) {
    const s = sheet.scale;
    return { x: (box.x + sheet.origin[0]) * s, y: (box.y + sheet.origin[1]) * s, width: box.width * s, height: box.height * s };
  }
  // The arrows on which something flows at this step. Forward: into what runs. Backward, against the arrow: while a
  // node works, the gradient that came to it; when it has run, those that it gives. Where it fails, nothing flows.
  function light(sheet, index, p) {
    const what = model.what(p);
    const back = model.phase(p) === "backward";
    const end = back && what !== "run" ? "from" : "to";
    const none = index < 0 || what === "error" || what === "release";
    const lit = none ? [] : sheet.wires.filter((wire) => wire[end] === index).slice(0, 12);
    const look = (wire, name) => wire.look !== name && wire.group.setAttribute("class", (wire.look = name));
    for (const wire of sheet.lit) if (!lit.includes(wire)) look(wire, "wire");
    for (const wire of lit) look(wire, back ? "wire is-lit is-back" : "wire is-lit");
    sheet.lit = lit;
  }

  function measure() {
    scroll.measure();
    const sheet = current && current.sheet;
    if (!sheet) return;
    const width = sheet.svg.getBoundingClientRect().width;
    if (width) sheet.scale = width / sheet.width;
    const now = sheet.items.find((item) => item.state & NOW);
    if (now) scroll.reveal(scaled(sheet, now.box));
  }
  return {
    element: make("div", { class: "view graph", role: "group", "aria-label": "Graph" }, head, pane),
    legend: foot,
    width: Math.max(0, ...model.drawings.map((_, number) => sheetFor(number)?.width || 0)),
    show,
    measure,
  };
}

// ------------------------------------------------------------------------------------------------ memory

// The still's plot, stretched to the place it has; its words are set anew, so that they stay as large as they were.
function memoryOf(model, { go }) {
  const given = model.memory;
  const used = model.categories.map((_, c) => c).filter((c) => {
    for (let p = 0; p <= model.n; p++) if (model.amount(p, c)) return true;
    return false;
  });
  if (!used.length) return null;
  const total = document.createTextNode("");
  const change = document.createTextNode("");
  const amounts = used.map(() => document.createTextNode(""));
  const chips = used.map((c, k) => {
    const [, words, colour, line, , hatch] = model.categories[c];
    const swatch = make("span", { class: "swatch", "data-hatch": hatch || "none" });
    swatch.style.setProperty("--fill", colour);
    swatch.style.setProperty("--line", line);
    return make("div", { class: "amount" }, swatch, make("span", {}, String(words)), make("b", {}, amounts[k]));
  }).reverse();
  const element = make("div", { class: "view memory", role: "group", "aria-label": "Memory" },
    make("p", { class: "heading" }, "Memory ", make("span", { class: "live" }, "live ", make("b", {}, total), " ", make("span", { class: "change" }, change))));
  const svg = given ? drawingOfStill("memory") : null;
  const column = (p) => (Array.isArray(given.columns) ? at(given.columns, p, 0) : p);
  let cursor = null;
  let columns = 1;
  if (svg && given.step > 0) {
    columns = column(model.n) + 1;
    const { left, step, top, height } = given;
    const texts = [...svg.querySelectorAll("text")];
    const base = top + height;
    const rounds = svg.querySelector(".round") !== null;
    const [y0, y1] = [top - 10, base + (rounds ? 30 : 20)];
    const [w, h] = [columns * step, y1 - y0];
    const labels = texts.filter((text) => {
      const y = num(text, "y");
      return (y > top - 16 && y < base + 20) || (y > base + 30 && y < base + 41 && text.hasAttribute("font-weight"));
    }).map((text) => {
      const anchor = text.getAttribute("text-anchor") || "start";
      const failed = text.getAttribute("fill") === "#983000";
      const mark = make("span", { class: anchor, "aria-hidden": "true" }, failed ? `${text.textContent} ✕` : text.textContent);
      if (text.hasAttribute("font-weight")) mark.classList.add("strong");
      if (num(text, "y") < top) mark.classList.add("above"); // over the cursor's triangle
      // In the still a cross of lines follows; stretched with the plot it would be no cross.
      if (failed) mark.classList.add("failed");
      if (anchor === "middle" && num(text, "x") - left > 0.94 * w) mark.className = mark.className.replace("middle", "end");
      mark.style.left = `${(100 * (num(text, "x") - left)) / w}%`;
      mark.style.top = `${(100 * (num(text, "y") - 4 - y0)) / h}%`;
      return mark;
    });
    for (const text of texts) text.remove();
    for (const cross of svg.querySelectorAll('path[stroke="#983000"]')) cross.remove();
    for (const part of svg.querySelectorAll(".legend, .part, .ground, title")) part.remove();
    for (const name of ["width", "height", "role"]) svg.removeAttribute(name);
    svg.setAttribute("viewBox", `${left} ${y0} ${w} ${h}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    cursor = make("div", { class: "cursor" });
    cursor.style.setProperty("--column", `${100 / columns}%`);
    const plot = make("div", { class: "plot", role: "img", "aria-label": "Live bytes by category over all steps, with a cursor at this one" },
      svg, make("div", { class: "over" }, cursor), ...labels);
    scrub(plot);
    element.append(make("div", { class: rounds ? "timeline rounds" : "timeline" }, plot));
  }
  element.append(make("div", { class: "amounts" }, ...chips));

  function scrub(plot) {
    let place = null;
    const to = (event) => {
      const c = clamp(Math.floor(((event.clientX - place.left) / place.width) * columns), 0, columns - 1);
      if (!Array.isArray(given.columns)) return go(c);
      const first = given.columns.indexOf(c);
      if (first >= 0) go(first);
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      place = plot.getBoundingClientRect();
      plot.setPointerCapture(event.pointerId);
      to(event);
    });
    plot.addEventListener("pointermove", (event) => place && to(event));
    for (const kind of ["pointerup", "pointercancel"]) plot.addEventListener(kind, () => (place = null));
  }

  return {
    element,
    show(p) {
      if (cursor) cursor.style.transform = `translateX(${(100 * (column(p) + 0.5)) / columns}%)`;
      used.forEach((c, k) => {
        const words = bytes(model.amount(p, c));
        if (amounts[k].data !== words) amounts[k].data = words;
      });
      const now = model.total(p);
      const more = p ? now - model.total(p - 1) : 0;
      if (total.data !== bytes(now)) total.data = bytes(now);
      const words = more ? `${more > 0 ? "▲ +" : "▼ "}${bytes(more)}` : "";
      if (change.data !== words) change.data = words;
    },
  };
}

// ------------------------------------------------------------------------------------------------ what stands below

// The still's ledger, in the player's own colours. A first column says of each row where it stands at this step.
function ledgerOf(model) {
  const part = still.querySelector('[data-part="kept"]');
  if (!part) return null;
  const copy = part.cloneNode(true);
  for (const element of [copy, ...copy.querySelectorAll("*")]) {
    const right = element.style.textAlign === "right";
    const mono = element.style.fontFamily.includes("Menlo");
    element.removeAttribute("style");
    element.removeAttribute("data-part");
    if (right) element.classList.add("right");
    if (mono) element.classList.add("mono");
  }
  // A table that the data do not speak of stands as it is.
  const trs = model.ledger.length ? [...copy.querySelectorAll("tbody tr")] : [];
  const rows = model.ledger.map((ids, k) => {
    const spans = list(ids).map((id) => model.saved[id]).filter((tensor) => tensor && typeof tensor.kept === "number");
    return { tr: trs[k], spans, word: document.createTextNode(""), look: "" };
  }).filter((row) => row.tr);
  if (rows.length) copy.querySelector("thead tr")?.prepend(make("th", { scope: "col" }, "at this step"));
  for (const tr of trs) tr.prepend(make("td", { class: "state" }, rows.find((row) => row.tr === tr)?.word));
  const ids = new Set(model.ledger.flat());
  const holds = (graph) => list(graph.tensors).flat().some((id) => ids.has(id));
  const graph = model.graphs.find((one) => model.drawings[one.drawing] === null && holds(one)) || model.graphs.find(holds);
  const title = graph && model.graphs.length > 1 ? `Kept for backward. ${graph.title}` : "Kept for backward";
  const element = make("div", { class: "view ledger", role: "group", "aria-label": "Kept for backward" },
    make("p", { class: "heading" }, title), make("div", { class: "pane", tabindex: "0", role: "group", "aria-label": "Ledger" }, copy));
  return {
    element,
    show(p) {
      for (const row of rows) {
        const { spans } = row;
        const begun = spans.filter(({ kept }) => kept <= p);
        const held = begun.filter(({ gone }) => typeof gone !== "number" || p < gone).length;
        const look = !spans.length ? "" : held ? "is-kept" : begun.length === spans.length ? "is-gone" : "is-future";
        const word = { "is-kept": "kept", "is-gone": "gone", "is-future": "to come", "": "" }[look];
        const more = held && spans.length > 1 ? `${word}, ${whole(held)} of ${whole(spans.length)}` : word;
        if (row.word.data !== more) row.word.data = more;
        if (row.look !== look) row.tr.setAttribute("class", (row.look = look));
      }
    },
  };
}

function keyOf(form, words) {
  return make("div", { class: "key" }, make("span", { class: "form", "aria-hidden": "true" }, form), words);
}

// What a drawing shows only when it lives: the signs that occur in this recording.
function signsOf(model) {
  const form = (name, ...children) => draw("svg", { class: name, viewBox: "-13 -9 26 18", width: 26, height: 18 }, ...children);
  const ghost = draw("rect", { class: "box", x: -12, y: -7, width: 24, height: 14, rx: 4 });
  const nodes = Object.values(model.nodes);
  const some = (name) => nodes.some((node) => list(node[name]).length > 0 && node.name !== "AccumulateGrad");
  return [
    keyOf(form("", draw("g", { class: "now is-there" }, draw("circle", { r: 8 }), draw("path", { d: "M-3.7 -2h7.4L0 4z" }))), "runs at this step"),
    some("ran") && keyOf(form("", draw("g", { class: "ran is-shown" }, draw("circle", { r: 7 }), draw("path", { d: "M-3.2 0l2.4 2.6l4 -4.6" }))), "its backward has run"),
    keyOf(form("", draw("g", { class: "gen-a" }, draw("g", { class: "item a is-future" }, ghost))), "not run, not kept yet; or released"),
    Object.values(model.leaves).some((entries) => list(entries).some((entry) => entry[2] !== "cleared")) && keyOf(form("", draw("g", { class: "grad is-shown" }, draw("rect", { x: -12, y: -7, width: 24, height: 14, rx: 7 }), draw("text", { x: 0, y: 3, "text-anchor": "middle" }, "grad"))), "a gradient has arrived"),
    nodes.some((node) => typeof node.failed === "number") && keyOf(form("", draw("g", { class: "gen-a" }, draw("g", { class: "item a is-failed" }, ghost.cloneNode()))), "raised the error"),
  ].filter(Boolean);
}

// Last, since all that stands above must be there.
try {
  if (!still) throw new Error("no still picture stands before it");
  start();
} catch (error) {
  giveUp(error);
}
