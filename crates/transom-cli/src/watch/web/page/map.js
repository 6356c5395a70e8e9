"use strict";
// The memory map. `model` is what was said of the processes, merged; `view` is what the user looks at;
// everything on the page is made from these two. Text is set as text, never as markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  // ---- elements ---------------------------------------------------------------------------------

  function make(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (typeof value === "function") element.addEventListener(name, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child);
    }
    return element;
  }
  const html = (name, attributes, ...children) => make(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => make(document.createElementNS(SVG, name), attributes, children);

  // ---- words ------------------------------------------------------------------------------------

  const hex = (number) => "0x" + number.toString(16);
  const span = (start, length) => `[${hex(start)}, ${hex(start + BigInt(length))})`;

  function bytes(count) {
    for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]]) {
      if (count < unit) continue;
      const value = count / unit;
      return `${Number.isInteger(value) ? value : value.toPrecision(3)} ${name}`;
    }
    return `${count} B`;
  }

  // A duration in milliseconds.
  function duration(ms) {
    const value = Math.abs(ms);
    const [scaled, unit] = value < 1e-3 ? [value * 1e6, "ns"] : value < 1 ? [value * 1e3, "us"]
      : value < 1e3 ? [value, "ms"] : value < 120e3 ? [value / 1e3, "s"]
        : value < 7200e3 ? [value / 60e3, "min"] : [value / 3600e3, "h"];
    return `${scaled < 9.95 ? Number(scaled.toFixed(1)) : Math.round(scaled)} ${unit}`;
  }

  const ago = (ms) => `${duration(model.at - ms)} ${live ? "ago" : "before the export"}`;
  const clock = (ms) => {
    const date = new Date(model.began + ms);
    const two = (number) => String(number).padStart(2, "0");
    return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  };

  const HATCHED = ["write", "both", "atomic"];
  const RIGHTS = { read: "R", write: "W", both: "RW", atomic: "A", none: "" };
  function rightsClass(rights) {
    const has = (right) => rights.includes(right);
    if (has("REMOTE_ATOMIC")) return "atomic";
    if (has("REMOTE_READ")) return has("REMOTE_WRITE") ? "both" : "read";
    return has("REMOTE_WRITE") ? "write" : "none";
  }

  function title(named) {
    return named.name ? `${named.what} "${named.name}"` : `${named.what} ${named.token}`;
  }

  // ---- the model --------------------------------------------------------------------------------

  const model = {
    sample: 0, at: 0, began: 0, processes: [], objects: new Map(), refusals: new Map(), accesses: [],
    leftOut: {},
  };
  const MOST_ACCESSES = 40000;

  function place(thing) {
    if (thing.address === null || thing.address === undefined) return thing;
    thing.start = BigInt(thing.address);
    thing.end = thing.start + BigInt(thing.length || 0);
    return thing;
  }

  function merge(told) {
    model.sample = told.sample;
    model.at = told.at_ms;
    model.began = told.began_unix_ms;
    model.processes = told.processes;
    model.leftOut = told.left_out;
    forget();
    for (const object of told.objects) {
      place(object);
      object.kind = rightsClass(object.rights);
      model.objects.set(object.id, object);
    }
    for (const access of told.accesses) model.accesses.push(place(access));
    if (model.accesses.length > MOST_ACCESSES) model.accesses.splice(0, model.accesses.length - MOST_ACCESSES);
    for (const refusal of told.refusals) {
      place(refusal);
      if (refusal.named) place(refusal.named);
      if (refusal.meant) place(refusal.meant);
      refusal.key = `${refusal.process}.${refusal.adapter}.${refusal.id}`;
      model.refusals.set(refusal.key, refusal);
    }
  }

  // The watch forgets processes that ended long ago, and so does the page.
  function forget() {
    const kept = new Set(model.processes.map((one) => one.process));
    let gone = false;
    for (const [id, one] of model.objects) if (!kept.has(one.process)) gone = model.objects.delete(id);
    for (const [key, one] of model.refusals) if (!kept.has(one.process)) model.refusals.delete(key);
    if (gone) model.accesses = model.accesses.filter((one) => model.objects.has(one.object));
  }
  const chosen = () => model.processes.find((one) => one.process === view.process);

  // The object that a refusal names, as it is known from elsewhere.
  function known(refusal, named) {
    if (!named) return null;
    let best = null;
    for (const object of model.objects.values()) {
      if (object.process === refusal.process && object.adapter === refusal.adapter
        && object.token === named.token && object.what === named.what && object.opened_ms <= refusal.at_ms + 1) {
        if (!best || object.opened_ms > best.opened_ms) best = object;
      }
    }
    return best;
  }

  // ---- the view ---------------------------------------------------------------------------------

  const view = {
    process: 0, moment: null, span: "all", closed: false, refusal: null, object: null, quiet: false,
    zooms: new Map(),
  };
  // The end of the time line: of a process that has ended, the moment before, so that its last state is
  // shown rather than nothing.
  function end() {
    const process = chosen();
    return process && process.ended_ms !== null ? process.ended_ms - 0.01 : model.at;
  }
  const moment = () => (view.moment === null ? end() : view.moment);
  const openAt = (object, at) => object.opened_ms <= at && (object.closed_ms === null || object.closed_ms > at);

  function refusalsNow() {
    return [...model.refusals.values()]
      .filter((one) => one.process === view.process && one.at_ms <= moment() + 0.001)
      .sort((a, b) => a.at_ms - b.at_ms);
  }

  // ---- strips -----------------------------------------------------------------------------------

  const min = (a, b) => (a < b ? a : b);
  const max = (a, b) => (a > b ? a : b);

  // Every strip of the moment: regions with what lies on them, and ranges that were asked for where no
  // region is.
  function strips() {
    const at = moment();
    const mine = [...model.objects.values()].filter((one) => one.process === view.process && one.opened_ms <= at);
    const refusals = refusalsNow();
    const byRegion = new Map();
    const stripOf = (region) => {
      const key = `${region.adapter} ${region.token} ${region.address}`;
      if (!byRegion.has(key)) {
        byRegion.set(key, {
          key, region, start: region.start, end: region.end, windows: [], refusals: [], open: openAt(region, at),
        });
      }
      return byRegion.get(key);
    };
    const regions = mine.filter((one) => one.what === "region" && one.length > 0);
    for (const region of regions) if (openAt(region, at)) stripOf(region);
    const regionOf = (named, adapter) => {
      let best = null;
      for (const region of regions) {
        if (region.adapter !== adapter || region.token !== named.region) continue;
        if (named.start < region.start || named.end > region.end) continue;
        if (!best || openAt(region, at) || region.opened_ms > best.opened_ms) best = region;
      }
      return best;
    };
    // Bytes beside a region that still are shown on its strip.
    const near = (strip, one) => {
      const margin = max(4096n, (strip.region.end - strip.region.start) / 4n);
      return one.start >= strip.region.start - margin && one.end <= strip.region.end + margin;
    };
    const wanted = new Set();
    const elsewhere = [];
    for (const refusal of refusals) {
      for (const named of [refusal.named, refusal.meant]) {
        const object = known(refusal, named);
        if (object) wanted.add(object.id);
      }
      if (refusal.start === undefined || refusal.refused === "by_peer") continue;
      const named = refusal.named || refusal.meant;
      const region = named && regionOf(named.what === "region" ? { ...named, region: named.token } : named, refusal.adapter);
      let strip = region && stripOf(region);
      if (!strip || !near(strip, refusal)) {
        strip = [...byRegion.values()].find((one) => one.region.adapter === refusal.adapter && near(one, refusal));
      }
      if (strip) strip.refusals.push(refusal);
      else elsewhere.push(refusal);
    }
    for (const window of mine.filter((one) => one.what === "window")) {
      const open = openAt(window, at);
      if (!open && !view.closed && !wanted.has(window.id) && view.object !== window.id) continue;
      const region = regionOf(window, window.adapter);
      if (region) stripOf(region).windows.push(window);
    }
    for (const strip of byRegion.values()) {
      for (const refusal of strip.refusals) {
        strip.start = min(strip.start, refusal.start);
        strip.end = max(strip.end, refusal.end);
      }
    }
    const all = [...byRegion.values()].sort((a, b) => (a.start < b.start ? -1 : a.start > b.start ? 1 : 0));
    elsewhere.sort((a, b) => (a.start < b.start ? -1 : 1));
    let last = null;
    for (const refusal of elsewhere) {
      if (!last || refusal.start > last.end + (1n << 20n)) {
        last = { key: `nowhere ${refusal.address}`, region: null, windows: [], refusals: [], start: refusal.start, end: refusal.end };
        all.push(last);
      }
      last.refusals.push(refusal);
      last.end = max(last.end, refusal.end);
    }
    return all;
  }

  // The part of a strip that is shown, as numbers from `strip.start`: an address has more digits than a
  // number of a browser.
  function shown(strip) {
    const length = Number(strip.end - strip.start) || 1;
    const pad = strip.region ? length * 0.02 : Math.max(length * 2, 64);
    const whole = [-pad, length + pad];
    const zoom = view.zooms.get(strip.key);
    if (!zoom) return { from: whole[0], to: whole[1], whole, zoomed: 1 };
    const base = Number(zoom.start - strip.start);
    return { from: base, to: base + zoom.length, whole, zoomed: (whole[1] - whole[0]) / zoom.length };
  }

  function zoomTo(strip, from, to) {
    const whole = shown({ ...strip, key: "" }).whole;
    const length = Math.max(to - from, 16);
    const middle = (from + to) / 2;
    if (length >= whole[1] - whole[0]) view.zooms.delete(strip.key);
    else view.zooms.set(strip.key, { start: strip.start + BigInt(Math.round(middle - length / 2)), length });
  }

  // Rows so that nothing in a row overlaps: the row of each.
  function rows(things, most) {
    const ends = [];
    return things.map(([from, to]) => {
      let row = ends.findIndex((end) => end <= from);
      if (row < 0) row = ends.length < most ? ends.length : most - 1;
      ends[row] = Math.max(ends[row] === undefined ? -Infinity : ends[row], to);
      return row;
    });
  }

  const LANE = 24, PIN = 22, BAR = 9, AXIS = 20, LANES = 16;

  // The marks of an axis, at round numbers of bytes from the region's beginning.
  function axis(strip, width, from, to, y) {
    const scale = width / (to - from);
    const group = svg("g", {});
    let step = 1;
    while (step * scale < 110) step *= 2;
    const origin = strip.region ? Number(strip.region.start - strip.start) : 0;
    for (let at = Math.ceil((from - origin) / step) * step; at <= to - origin; at += step) {
      const x = (at + origin - from) * scale;
      group.append(svg("line", { class: "axis", x1: x, x2: x, y1: 0, y2: y + 4 }));
      if (x > width - 60) continue;
      const text = strip.region ? (at < 0 ? `-${hex(-at)}` : `+${hex(at)}`) : hex(strip.start + BigInt(Math.round(at)));
      if (!strip.region && at < 0 && strip.start + BigInt(Math.round(at)) < 0n) continue;
      group.append(svg("text", { x: x + 3, y: y + 15 }, text));
    }
    return group;
  }

  // The drawing of a strip: what stands still. Accesses are drawn upon it by `flash`.
  function draw(strip, width, options) {
    const { from, to } = options && options.range ? options.range : shown(strip);
    const scale = width / (to - from);
    const x = (address) => (Number(address - strip.start) - from) * scale;
    const box = (one, least) => {
      const left = x(one.start), right = x(one.end);
      const wide = Math.max(right - left, least);
      return [left - (wide - (right - left)) / 2, wide];
    };
    const visible = (one) => x(one.end) > -20 && x(one.start) < width + 20;
    const clip = (left, wide) => {
      const a = Math.max(left, -10), b = Math.min(left + wide, width + 10);
      return [a, Math.max(b - a, 0)];
    };

    const refusals = strip.refusals.filter(visible);
    const pinAt = refusals.map((one) => Math.min(Math.max(x(one.start) + (x(one.end) - x(one.start)) / 2, 13), width - 13));
    const pinOrder = refusals.map((_, i) => i).sort((a, b) => pinAt[a] - pinAt[b]);
    const pinRows = rows(pinOrder.map((i) => [pinAt[i] - 14, pinAt[i] + 14]), 8);
    const pinHeight = refusals.length ? (Math.max(...pinRows) + 1) * PIN + 8 : 4;

    const windows = strip.windows.filter(visible).sort((a, b) => (a.start < b.start ? -1 : a.start > b.start ? 1 : Number(b.end - a.end) || a.id - b.id));
    const lanes = rows(windows.map((one) => { const [left, wide] = box(one, 2); return [left, left + wide - 0.01]; }), LANES);
    const laneCount = windows.length ? Math.max(...lanes) + 1 : 0;
    const barY = pinHeight + laneCount * LANE + 2;
    const height = barY + BAR + AXIS;

    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, class: "map", role: "group" });
    root.append(axis(strip, width, from, to, barY + BAR));
    if (strip.region) {
      const [left, wide] = clip(...box(strip.region, 2));
      root.append(svg("rect", { class: strip.open === false ? "region closed" : "region", x: left, y: barY, width: wide, height: BAR, rx: 2 }));
    }
    const laneOf = new Map();
    const labels = svg("g", { class: "labels" });
    windows.forEach((one, i) => {
      const y = pinHeight + lanes[i] * LANE;
      laneOf.set(one.id, y);
      const [left, wide] = clip(...box(one, 2));
      const open = one.synthetic ? one.state !== "closed" : openAt(one, moment());
      const chosen = view.object === one.id || (options && options.outlined === one.id) || outlined.has(one.id);
      const group = svg("g", {
        class: `window ${one.kind} ${open ? one.state === "closed" ? "live" : one.state : "closed"} ${chosen ? "chosen" : ""}`,
        "data-object": one.id,
      },
        svg("title", {}, `${title(one)}: ${bytes(one.length)} at ${span(one.start, one.length)}, ${one.rights}, for ${one.scope}`),
        svg("rect", { x: left, y: y + 2, width: wide, height: LANE - 5, rx: 2 }),
        HATCHED.includes(one.kind) ? svg("rect", { class: "hatch", x: left, y: y + 2, width: wide, height: LANE - 5, rx: 2 }) : null);
      root.append(group);
      const name = one.name || one.token;
      const room = Math.min(left + wide, width) - Math.max(left, 0) - 8;
      const text = [`${RIGHTS[one.kind]} ${name}${open ? "" : ", closed"}`.trim(), name, RIGHTS[one.kind]]
        .find((words) => words && room > words.length * 6.4);
      if (text) {
        const at = Math.max(left, 0) + 5;
        labels.append(svg("rect", { class: "label", x: at - 2, y: y + 5, width: text.length * 6.3 + 4, height: LANE - 11, rx: 2 }), svg("text", { x: at, y: y + 15 }, text));
      }
    });
    root.append(svg("g", { class: "flashes" }), labels);
    pinOrder.forEach((i, order) => {
      const one = refusals[i];
      const [left, wide] = clip(...box(one, 4));
      const at = pinAt[i], y = pinRows[order] * PIN;
      const chosen = view.refusal === one.key;
      root.append(svg("rect", { class: "asked", "data-refusal": one.key, x: left, y: pinHeight - 4, width: wide, height: barY + BAR - pinHeight + 6, rx: 1 }));
      root.append(svg("path", { class: "lead", fill: "none", d: `M${at},${y + PIN - 3} V${pinHeight - 4}` }));
      const label = `refusal ${one.id}: ${one.operation || "access"} of ${one.length} bytes at ${one.address}, rule ${one.rule || "none"}`;
      root.append(svg("g", {
        class: `pin ${chosen ? "chosen" : ""}`, "data-refusal": one.key, tabindex: 0, role: "button", "aria-label": label,
      }, svg("title", {}, label),
        svg("path", { d: `M${at - 12},${y + 2} h24 v12 l-8,0 l-4,6 l-4,-6 l-8,0 z` }),
        svg("text", { x: at, y: y + 12 }, `✕${one.id}`)));
    });
    root.geometry = { x, box, clip, laneOf, barY, strip };
    return root;
  }

  // Accesses of the last moments, and what was touched so far, upon a drawing: what stands still stays
  // as it is, so that a click finds it.
  const FLASH = 2000;
  function flash(root, recent) {
    const { box, clip, laneOf, barY, strip } = root.geometry;
    const layer = root.querySelector(".flashes");
    const drawn = [];
    for (const one of strip.windows) {
      const y = laneOf.get(one.id);
      if (y === undefined || !one.uses.touched || !openAt(one, moment())) continue;
      const start = BigInt(one.uses.touched);
      const [left, wide] = clip(...box({ start, end: start + BigInt(one.uses.touched_length || 0) }, 1));
      drawn.push(svg("rect", { class: "touched", x: left, y: y + LANE - 6, width: wide, height: 3 }));
    }
    for (const access of recent) {
      const object = model.objects.get(access.object);
      if (!object) continue;
      const own = strip.region && object.id === strip.region.id;
      const y = own ? barY : laneOf.get(object.id);
      if (y === undefined) continue;
      const [left, wide] = clip(...box(access, 4));
      if (wide <= 0) continue;
      const opacity = Math.max(0, 1 - (moment() - access.at_ms) / FLASH);
      drawn.push(svg("rect", { class: "flash", x: left, y: own ? y : y + 2, width: wide, height: own ? BAR : LANE - 5, rx: 1, opacity }));
    }
    layer.replaceChildren(...drawn);
  }

  function recentAccesses() {
    const at = moment();
    const found = [];
    for (let i = model.accesses.length - 1; i >= 0; i--) {
      const access = model.accesses[i];
      if (access.at_ms > at) continue;
      // In the order of samples: those of one sample are at most a few seconds apart from their place.
      if (access.at_ms < at - FLASH - 10000) break;
      if (access.at_ms > at - FLASH) found.push(access);
    }
    return found;
  }

  // ---- the strips on the page -------------------------------------------------------------------

  let outlined = new Set();
  const cards = new Map();

  function stripCard(strip) {
    const card = {
      strip,
      name: html("h2"), facts: html("span", { class: "facts" }), level: html("span", {}),
      holder: html("div", { class: "holder" }), signature: "",
    };
    const zoomBy = (factor) => () => {
      const { from, to } = shown(card.strip);
      const middle = (from + to) / 2, half = (to - from) / 2 * factor;
      zoomTo(card.strip, middle - half, middle + half);
      render();
    };
    card.element = html("section", { class: "strip" },
      html("div", { class: "head" }, html("div", {}, card.name, card.facts),
        html("span", { class: "zoom" }, card.level,
          html("button", { type: "button", title: "look closer", "aria-label": "look closer", click: zoomBy(0.5) }, "+"),
          html("button", { type: "button", title: "see more around it", "aria-label": "see more around it", click: zoomBy(2) }, "−"),
          html("button", { type: "button", click: () => { view.zooms.delete(card.strip.key); render(); } }, "whole"))),
      card.holder);
    card.holder.addEventListener("dblclick", () => { view.zooms.delete(card.strip.key); render(); });
    card.holder.addEventListener("pointerdown", (event) => drag(card, event));
    card.holder.addEventListener("click", (event) => choose(event.target));
    card.holder.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(event.target); }
    });
    card.holder.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.altKey) return;
      event.preventDefault();
      const { from, to } = shown(card.strip);
      const rect = card.holder.getBoundingClientRect();
      const at = from + (to - from) * (event.clientX - rect.left) / rect.width;
      const factor = event.deltaY < 0 ? 0.8 : 1.25;
      zoomTo(card.strip, at - (at - from) * factor, at + (to - at) * factor);
      render();
    }, { passive: false });
    return card;
  }

  function choose(target) {
    const marked = target.closest("[data-refusal], [data-object]");
    if (!marked) return;
    if (marked.dataset.refusal) open(marked.dataset.refusal);
    else { view.object = Number(marked.dataset.object); view.refusal = null; fragment(); render(); }
  }

  // Drag over a strip: look closer there.
  let dragged = false;
  function drag(card, event) {
    if (event.button !== 0) return;
    const root = card.holder.firstChild;
    const rect = root.getBoundingClientRect();
    const begin = event.clientX;
    const choice = svg("rect", { class: "choice", y: 0, height: rect.height, width: 0 });
    const move = (now) => {
      if (!choice.isConnected && Math.abs(now.clientX - begin) > 4) root.append(choice);
      choice.setAttribute("x", Math.min(begin, now.clientX) - rect.left);
      choice.setAttribute("width", Math.abs(now.clientX - begin));
    };
    const up = (now) => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
      dragged = choice.isConnected;
      choice.remove();
      dragging = false;
      if (!dragged) return;
      const { from, to } = shown(card.strip);
      const at = (client) => from + (to - from) * (client - rect.left) / rect.width;
      zoomTo(card.strip, at(Math.min(begin, now.clientX)), at(Math.max(begin, now.clientX)));
      render();
    };
    dragging = true;
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
  }
  let dragging = false;

  function renderStrips() {
    const holder = $("strips");
    const all = strips();
    const busy = all.filter((one) => !one.region || one.windows.length || one.refusals.length || one.region.name
      || rightsClass(one.region.rights) !== "none");
    const quiet = all.length - busy.length;
    const list = (view.quiet || busy.length === 0 ? all : busy).slice(0, 200);
    const elements = [];
    const width = Math.max(320, holder.clientWidth - 32 - 26);
    const recent = recentAccesses();
    for (const strip of list) {
      let card = cards.get(strip.key);
      if (!card) { card = stripCard(strip); cards.set(strip.key, card); }
      card.strip = strip;
      elements.push(card.element);
      const { from, to, zoomed } = shown(strip);
      const signature = JSON.stringify([width, from, to, strip.open, view.refusal, view.object, [...outlined],
        strip.windows.map((one) => [one.id, one.state, openAt(one, moment()), one.name]),
        strip.refusals.map((one) => one.key)]);
      if (signature !== card.signature && !dragging) {
        card.signature = signature;
        const region = strip.region;
        card.element.className = region ? "strip" : "strip nowhere";
        card.name.textContent = region ? title(region) : "No memory is registered here";
        card.facts.textContent = region
          ? `${bytes(region.length)} at ${region.address}, ${region.rights}`
            + (rightsClass(region.rights) === "none" ? "" : `, for ${region.scope}`)
            + (strip.open ? "" : `; ${region.closed_by || "closed"} ${ago(region.closed_ms)}`)
          : `around ${hex(strip.start)}`;
        card.level.textContent = zoomed > 1.01 ? `${zoomed < 9.95 ? zoomed.toFixed(1) : Math.round(zoomed)}×` : "";
        const focused = document.activeElement && card.holder.contains(document.activeElement)
          ? document.activeElement.getAttribute("data-refusal") : null;
        card.holder.replaceChildren(draw(strip, width));
        if (focused) {
          const again = card.holder.querySelector(`.pin[data-refusal="${focused}"]`);
          if (again) again.focus();
        }
      }
      card.holder.firstChild.geometry.strip = strip;
      flash(card.holder.firstChild, recent);
    }
    for (const key of [...cards.keys()]) if (!list.some((one) => one.key === key)) cards.delete(key);
    if (quiet > 0 && busy.length > 0) {
      elements.push(html("p", { class: "more" }, html("button", {
        type: "button", id: "quiet", click: () => { view.quiet = !view.quiet; render(); },
      }, view.quiet ? "Hide regions that no peer may use" : `Show regions that no peer may use (${quiet})`)));
    }
    if (all.length > list.length + (view.quiet ? 0 : quiet)) {
      elements.push(html("p", { class: "none-yet" }, `${all.length - list.length} strips more are not drawn.`));
    }
    const { objects, open, refusals, accesses, processes } = model.leftOut;
    if (objects || open || refusals || accesses || processes) {
      elements.push(html("p", { class: "none-yet" }, `Left out: ${open || 0} regions and windows that are open, ${objects || 0} closed ones, `
        + `${refusals || 0} refusals, ${accesses || 0} accesses and ${processes || 0} processes that have ended, each the oldest.`));
    }
    if (!all.length) {
      elements.push(html("p", { class: "none-yet" }, model.processes.length
        ? "No memory is registered at this moment."
        : "No process of this user answers. Start one with TRANSOM_INSPECT=1, or with transom run --inspect."));
    }
    const before = [...holder.children];
    if (before.length !== elements.length || elements.some((one, i) => one !== before[i])) holder.replaceChildren(...elements);
  }

  // ---- stories ----------------------------------------------------------------------------------

  const WHO = {
    peer: "The peer asked, and this process refused.", program: "This program asked, and its own adapter refused.",
    by_peer: "This program asked, and its peer refused.", protocol: "The peer broke the protocol.",
  };

  function open(key, quietly) {
    const refusal = model.refusals.get(key);
    if (!refusal) return false;
    view.process = refusal.process;
    view.refusal = key;
    view.object = null;
    if (refusal.at_ms > moment()) view.moment = null;
    fragment();
    render();
    if (!quietly) {
      const mark = $("strips").querySelector(`.pin[data-refusal="${key}"]`);
      if (mark) mark.closest(".strip").scrollIntoView({ block: "nearest" });
      $("side").scrollTop = 0;
    }
    return true;
  }

  // `#refusal=3`, `#refusal=ADAPTER.3` or `#refusal=PROCESS.ADAPTER.3` opens a story.
  function fromFragment() {
    const wanted = new URLSearchParams(location.hash.slice(1)).get("refusal");
    if (!wanted) return false;
    for (const key of [wanted, `${view.process}.${wanted}`]) if (model.refusals.has(key)) return view.refusal === key || open(key);
    for (const one of model.refusals.values()) if (String(one.id) === wanted) return view.refusal === one.key || open(one.key);
    return false;
  }
  function fragment() {
    const wanted = view.refusal ? `#refusal=${view.refusal}` : " ";
    try { history.replaceState(null, "", wanted === " " ? location.pathname + location.search : wanted); } catch { /* a file of another origin */ }
  }

  function grantee(refusal, named) {
    const object = known(refusal, named);
    let peer = object && object.peer;
    let own = false;
    if (named.queue_pair !== null && named.queue_pair !== undefined) {
      own = named.queue_pair === refusal.queue_pair;
      if (!peer && own) peer = refusal.peer;
      if (!peer) {
        for (const one of model.refusals.values()) {
          if (one.process === refusal.process && one.adapter === refusal.adapter && one.queue_pair === named.queue_pair && one.peer) peer = one.peer;
        }
      }
    }
    const who = `${named.scope}${peer ? `, whose peer is ${peer}` : ""}`;
    if (named.queue_pair === null || named.queue_pair === undefined) return `${who}.`;
    return own ? `${who}: the one that asked.` : `${who}: not the one that asked, which is queue pair ${refusal.queue_pair}.`;
  }

  // From when until when a region or a window was there, seen from a refusal.
  function lifetime(refusal, named) {
    const object = known(refusal, named);
    const opened = object ? `Open since ${clock(object.opened_ms)}, ${duration(refusal.at_ms - object.opened_ms)} before this refusal. ` : "";
    if (named.state === "closed") {
      const before = named.closed_before_ns === null || named.closed_before_ns === undefined ? "" : ` ${duration(named.closed_before_ns / 1e6)} before this refusal`;
      return `${opened}There until then: ${named.closed_by}${before}.`;
    }
    if (named.state === "reserved") return `${opened}Not usable at that moment: ${named.what === "window" ? "its Bind had not executed" : "it had no memory yet"}.`;
    if (object && object.closed_ms !== null) {
      const after = object.closed_ms - refusal.at_ms;
      return `${opened}There until ${after < 0.001 ? "this refusal" : `${duration(after)} after this refusal`}: ${object.closed_by}.`;
    }
    return `${opened}There at that moment${object ? ", and still open" : ""}.`;
  }

  function story(refusal) {
    const named = refusal.named, meant = refusal.meant;
    const paragraphs = [];
    const add = (heading, id, ...content) => paragraphs.push(html("h3", {}, heading), html("p", { id: `story-${id}` }, ...content));
    const what = refusal.operation || "Access";
    const by = refusal.peer ? `${WHO[refusal.refused] || ""} The other end is ${refusal.peer}.` : WHO[refusal.refused] || "";
    if (refusal.advice) {
      const advice = refusal.advice.charAt(0).toUpperCase() + refusal.advice.slice(1);
      paragraphs.push(html("h3", {}, "Likeliest mistake, and what would have been right"), html("p", { id: "story-right", class: "right" }, advice));
    }
    if (refusal.start !== undefined) {
      add("Asked for", "asked", `${what}: ${refusal.length} bytes at ${span(refusal.start, refusal.length)}`,
        refusal.token ? [" through token ", html("code", {}, refusal.token)] : "",
        refusal.queue_pair !== null ? `, on queue pair ${refusal.queue_pair}` : "", ". ", by);
    } else {
      add("What happened", "asked", refusal.refused === "by_peer" || !refusal.token ? `${by} ${refusal.explanation}` : [`${what} of token `, html("code", {}, refusal.token), ". ", by]);
    }
    const there = named || meant;
    if (there) {
      const swapped = !named && meant ? "With its bytes in the other order, the token names " : "";
      const last = named && named.state === "closed" ? "The token last named " : swapped || "The token names ";
      add(there.what === "window" ? "The window" : "The region", "window", `${last}${title(there)}${there.name ? ` (${there.token})` : ""}: `
        + `${bytes(there.length)} at ${span(there.start, there.length)}, granting ${there.rights}. `, lifetime(refusal, there));
      add("Granted to", "granted", grantee(refusal, there));
    } else if (refusal.token) {
      add("The window", "window", "The token names nothing, and never did as long as this process remembers.");
    }
    if (refusal.rule) {
      const needs = refusal.rule === "right" && named ? ` Needed: ${refusal.wanted}; granted: ${named.rights}.` : "";
      add("The rule", "rule", html("code", {}, refusal.rule), `.${needs} `, html("code", {}, `transom explain ${refusal.rule}`), " has its page.");
    }
    const strip = strips().find((one) => one.refusals.some((other) => other.key === refusal.key));
    const small = inset(refusal, there);
    return [
      html("p", { class: "dim" }, html("button", { type: "button", id: "back", click: () => { view.refusal = null; fragment(); render(); } }, "All refusals")),
      html("h2", { id: "story", "data-refusal": refusal.key, "data-likely": refusal.likely || "" }, html("span", { class: "sign" }, `✕${refusal.id} `),
        `${what}${refusal.length !== null && refusal.length !== undefined ? ` of ${refusal.length} bytes` : ""}: refused`),
      html("p", { class: "dim" }, `at ${clock(refusal.at_ms)}, ${ago(refusal.at_ms)}`),
      small, paragraphs,
      html("div", { class: "row" },
        strip ? html("button", { type: "button", id: "there", click: () => showPlace(strip, refusal) }, "Show the place") : null,
        html("button", { type: "button", id: "then", click: () => { view.moment = refusal.at_ms; render(); } }, "Go to that moment")),
      html("details", {}, html("summary", {}, "The full record"), html("p", {}, refusal.explanation)),
    ];
  }

  function showPlace(strip, refusal) {
    const start = Number(refusal.start - strip.start), end = Number(refusal.end - strip.start);
    const around = Math.max((end - start) * 4, 128);
    zoomTo(strip, start - around, end + around);
    render();
    const card = cards.get(strip.key);
    if (card) card.element.scrollIntoView({ block: "nearest" });
  }

  // A small drawing, true to scale: the bytes asked for, and the window if it is near.
  function inset(refusal, named) {
    if (refusal.start === undefined) return null;
    const length = Number(refusal.end - refusal.start) || 1;
    const margin = BigInt(Math.ceil(Math.max(length * 1.5, 32)));
    const object = named && {
      ...named, id: -1, kind: rightsClass(named.rights), synthetic: true, uses: null, opened_ms: 0, closed_ms: null,
    };
    const from = refusal.start - margin, to = refusal.end + margin;
    const windows = object && object.what === "window" && object.end > from && object.start < to ? [object] : [];
    const region = named && known(refusal, { ...named, what: "region", token: named.region });
    const strip = { key: "", start: from, end: to, region: region && region.end > from && region.start < to ? region : null, windows, refusals: [refusal], open: true };
    if (!strip.region) strip.region = null;
    const width = Math.max(280, $("side").clientWidth - 34);
    const drawing = draw(strip, width, { range: { from: 0, to: Number(to - from) } });
    for (const pin of drawing.querySelectorAll(".pin")) { pin.removeAttribute("tabindex"); pin.removeAttribute("role"); pin.removeAttribute("data-refusal"); pin.setAttribute("class", "pin small"); }
    return drawing;
  }

  function windowStory(object) {
    const used = object.uses.copies
      ? `${object.uses.copies} copies of ${bytes(object.uses.bytes)} in all, inside ${bytes(object.uses.touched_length || 0)} at ${object.uses.touched || "unknown"}, for ${object.uses.rights}.`
      : "Not used so far.";
    const until = object.closed_ms === null ? "still open" : `until ${clock(object.closed_ms)} (${object.closed_by})`;
    return [
      html("p", { class: "dim" }, html("button", { type: "button", click: () => { view.object = null; render(); } }, "All refusals")),
      html("h2", {}, title(object)),
      html("p", { class: "dim" }, `token ${object.token}, of region ${object.region}`),
      html("h3", {}, "Covers"), html("p", {}, `${bytes(object.length)} at ${span(object.start, object.length)}`),
      html("h3", {}, "Grants"), html("p", {}, object.rights),
      html("h3", {}, "Granted to"), html("p", {}, `${object.scope}${object.peer ? `, whose peer is ${object.peer}` : ""}`),
      html("h3", {}, "There"), html("p", {}, `from ${clock(object.opened_ms)}, ${until}`),
      html("h3", {}, "Used"), html("p", {}, used),
    ];
  }

  function refusalList() {
    const all = refusalsNow().reverse();
    const items = all.slice(0, 300).map((one) => html("li", {}, html("button", { type: "button", "data-refusal": one.key, click: () => open(one.key) },
      html("b", {}, `✕${one.id} ${one.rule || one.refused}`),
      ` ${one.operation || ""}${one.length ? `, ${one.length} bytes` : ""}${one.address ? ` at ${one.address}` : ""}`,
      html("br"), html("span", { class: "dim" }, `${one.likely ? `${one.likely.replaceAll("_", " ")}; ` : ""}${clock(one.at_ms)}, ${ago(one.at_ms)}`))));
    return [
      html("h2", {}, all.length ? `Refusals: ${all.length}` : `Nothing was refused ${view.moment === null ? "so far" : "until this moment"}`),
      all.length ? html("ul", { class: "list" }, items) : null,
    ];
  }

  let sideSignature = "";
  function renderSide() {
    const refusal = view.refusal && model.refusals.get(view.refusal);
    const object = view.object !== null && model.objects.get(view.object);
    const list = refusalsNow();
    const named = refusal && (known(refusal, refusal.named) || known(refusal, refusal.meant));
    const signature = JSON.stringify([view.refusal, view.object, view.process, $("side").clientWidth,
      refusal ? [named && named.id, named && named.closed_ms, named && named.peer] : object ? [object.uses.copies, object.closed_ms]
        : [list.length, list.length && Math.round((model.at - list[0].at_ms) / 1000), model.at - (list.length ? list[list.length - 1].at_ms : 0) > 5000 ? Math.round(model.at / 1000) : model.sample]]);
    outlined = new Set([refusal && refusal.named, refusal && refusal.meant].map((one) => one && known(refusal, one)).filter(Boolean).map((one) => one.id));
    if (signature === sideSignature) return;
    sideSignature = signature;
    const content = refusal ? story(refusal) : object ? windowStory(object) : refusalList();
    $("side").replaceChildren(...content.flat().filter(Boolean));
  }

  // ---- the time ---------------------------------------------------------------------------------

  function timeRange() {
    let from = 0;
    if (view.span === "all") {
      for (const one of model.refusals.values()) if (one.process === view.process) from = Math.min(from, one.at_ms);
      for (const one of model.objects.values()) if (one.process === view.process && one.closed_ms !== null) from = Math.min(from, one.closed_ms);
      for (const one of model.accesses) from = Math.min(from, one.at_ms);
    } else from = end() - Number(view.span);
    const to = Math.max(end(), from + 1);
    return [from - (to - from) * 0.02, to];
  }

  function renderTime() {
    const [from, to] = timeRange();
    const line = $("line");
    const width = Math.max(100, line.clientWidth), height = 44;
    const x = (at) => (at - from) / (to - from) * (width - 2) + 1;
    const buckets = new Float64Array(Math.ceil(width / 4) + 1);
    for (const access of model.accesses) {
      const object = model.objects.get(access.object);
      if (!object || object.process !== view.process || access.at_ms < from) continue;
      buckets[Math.min(buckets.length - 1, Math.max(0, Math.floor(x(access.at_ms) / 4)))] += access.bytes;
    }
    const most = Math.max(1, ...buckets);
    const parts = [];
    buckets.forEach((value, i) => {
      if (value > 0) { const tall = 3 + 21 * Math.log2(1 + value) / Math.log2(1 + most); parts.push(svg("rect", { class: "traffic", x: i * 4, y: 30 - tall, width: 3, height: tall })); }
    });
    let step = 1;
    while ((width - 2) / (to - from) * step < 90) step *= step.toString()[0] === "2" ? 2.5 : 2;
    for (let at = Math.ceil((from - to) / step) * step; at <= 0; at += step) {
      const px = x(to + at);
      parts.push(svg("line", { class: "axis", x1: px, x2: px, y1: 30, y2: 34 }));
      parts.push(svg("text", { x: Math.min(Math.max(px, 20), width - 14), y: 43, "text-anchor": "middle" }, at < 0 ? `−${duration(at)}` : end() < model.at || !live ? "end" : "now"));
    }
    parts.push(svg("line", { class: "axis", x1: 0, x2: width, y1: 30, y2: 30 }));
    for (const one of model.refusals.values()) {
      if (one.process === view.process && one.at_ms >= from) parts.push(svg("line", { class: "refusal", x1: x(one.at_ms), x2: x(one.at_ms), y1: 4, y2: 30 }));
    }
    const at = x(moment());
    parts.push(svg("rect", { class: "later", x: at, y: 0, width: Math.max(0, width - at), height }));
    parts.push(svg("line", { class: "at", x1: at, x2: at, y1: 0, y2: 34 }));
    line.setAttribute("viewBox", `0 0 ${width} ${height}`);
    line.replaceChildren(...parts);
    const output = $("moment");
    output.className = view.moment === null ? "" : "back";
    output.textContent = view.moment === null
      ? `${clock(end())}${end() < model.at ? ", the end of the process" : live ? "" : ", the last look before the export"}`
      : `${clock(view.moment)}, ${ago(view.moment)}: regions and windows as they were`;
    if (document.activeElement !== $("slider") || view.moment === null) $("slider").value = Math.round((moment() - from) / (to - from) * 10000);
    $("now").disabled = view.moment === null;
    $("now").textContent = live && end() === model.at ? "Now" : "End";
  }

  // ---- everything -------------------------------------------------------------------------------

  function renderHead() {
    const select = $("process");
    const names = model.processes.map((one) => `${one.pid} ${one.program}${one.ended_ms === null ? "" : " (ended)"}${one.refusals ? `, ${one.refusals} refusals` : ""}`);
    if (select.children.length !== names.length || [...select.children].some((one, i) => one.textContent !== names[i] || one.value !== String(model.processes[i].process))) {
      select.replaceChildren(...names.map((name, i) => html("option", { value: model.processes[i].process }, name)));
    }
    select.value = String(view.process);
    $("chooser").hidden = names.length < 2;
    const process = chosen();
    $("program").hidden = names.length > 1;
    $("program").textContent = process ? `${process.program} (process ${process.pid})` : "";
    let state = lost ? "the watch has ended; this is the last that it saw" : live ? "live" : `exported ${new Date(model.began + model.at).toLocaleString()} by Transom ${transom}`;
    if (process && process.ended_ms !== null) state = `the process has ended, ${ago(process.ended_ms)}; this is the last look at it`;
    else if (process && process.silent) state = `the process does not answer: ${process.silent}`;
    $("state").textContent = state;
    $("state").className = lost || (process && (process.ended_ms !== null || process.silent)) ? "gone" : "";
  }

  function render() {
    if (!chosen() && model.processes.length) view.process = model.processes[0].process;
    renderHead();
    renderSide();
    renderStrips();
    renderTime();
  }

  let lost = false, transom = "", answered = false;
  const embedded = JSON.parse($("history").textContent);
  const live = embedded === null;

  function take(told) {
    transom = told.transom;
    const first = !model.processes.length;
    merge(told);
    if (first && model.processes.length) {
      // The process with the latest refusal is the one that somebody looks for.
      let latest = -Infinity;
      for (const one of model.refusals.values()) if (one.at_ms > latest) { latest = one.at_ms; view.process = one.process; }
    }
    render();
    if (!answered) { answered = true; fromFragment(); }
    document.documentElement.dataset.sample = model.sample;
  }

  async function follow() {
    for (;;) {
      try {
        const answer = await fetch(`history?since=${model.sample}`, { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.status);
        const told = await answer.json();
        lost = false;
        take(told);
      } catch {
        lost = true;
        renderHead();
      }
      await new Promise((done) => setTimeout(done, lost ? 1000 : 250));
    }
  }

  $("process").addEventListener("change", (event) => {
    view.process = Number(event.target.value);
    view.refusal = null; view.object = null; fragment(); render();
  });
  $("closed").addEventListener("change", (event) => { view.closed = event.target.checked; render(); });
  $("span").addEventListener("change", (event) => { view.span = event.target.value; render(); });
  $("now").addEventListener("click", () => { view.moment = null; render(); });
  $("slider").addEventListener("input", (event) => {
    const [from, to] = timeRange();
    const part = Number(event.target.value) / 10000;
    view.moment = part >= 0.9995 ? null : from + (to - from) * part;
    render();
  });
  window.addEventListener("hashchange", fromFragment);
  window.addEventListener("resize", render);
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { view.refusal = null; view.object = null; fragment(); render(); }
  });

  $("export").hidden = !live;
  if (live) follow();
  else take(embedded);
})();
