// What a hand does to the timeline: wheel, drag, pinch, keys and buttons.
if (lanes) {
  const { canvas } = lanes;
  const tip = document.getElementById("tip"), said = document.getElementById("said");
  canvas.closest(".drawn").hidden = false;
  lanes.colours();

  const put = (parent, tag, text) => {
    if (!text) return;
    const made = document.createElement(tag);
    made.textContent = text;
    parent.append(made);
  };
  const show = (px, y, lines) => {
    tip.replaceChildren();
    for (const [tag, text] of lines) put(tip, tag, text);
    tip.hidden = false;
    const left = Math.min(Math.max(px - tip.offsetWidth / 2, 6), lanes.width() - tip.offsetWidth - 6);
    tip.style.left = `${Math.max(left, 6)}px`;
    tip.style.top = `${y}px`;
  };
  const ofEvent = (index) => {
    const event = lanes.events[lanes.which[index]];
    const when = clock(lanes.times[index], 1e-4);
    return [["b", event.note ? `${event.label} · ${event.note}` : event.label],
      ["span", event.where ? `${event.where} · ${when}` : when], ["code", event.code]];
  };
  const ofWindow = ([, from, to, backwards, number, skipped]) => [
    ["b", skipped ? `window ${number} · skipped: ${skipped}` : `window ${number}`],
    ["span", `${backwards} backward${backwards === 1 ? "" : "s"} · ${clock(to - from, 1e-4)}`],
  ];
  const isShown = (index, row) => {
    const event = lanes.events[lanes.which[index]];
    return lanes.on.has(event.kind) && (row === null || event.rows === null || event.rows.includes(row));
  };
  const below = (row) => lanes.top(Math.max(row, 0)) + 78;

  const hover = (px, y) => {
    const row = lanes.row(y);
    if (row < 0 || row >= lanes.rows.length) { tip.hidden = true; return; }
    const paper = lanes.paperAt(px), reach = lanes.paperAt(px + 6) - paper;
    let best = -1;
    for (let i = bisect(lanes.at, paper - reach); i < lanes.at.length && lanes.at[i] <= paper + reach; i++) {
      if (isShown(i, row) && (best < 0 || Math.abs(lanes.at[i] - paper) < Math.abs(lanes.at[best] - paper))) best = i;
    }
    if (best >= 0) { show(px, below(row), ofEvent(best)); return; }
    const each = lanes.byRow[row], i = bisect(each, paper, (item) => item.to);
    if (i < each.length && each[i].from <= paper) show(px, below(row), ofWindow(each[i].span));
    else tip.hidden = true;
  };

  canvas.addEventListener("wheel", (wheel) => {
    const { view } = lanes, wide = view.to - view.from;
    if (wheel.shiftKey || Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY)) {
      const moved = (wheel.deltaX || wheel.deltaY) / lanes.width() * wide;
      lanes.look(view.from + moved, view.to + moved);
    } else {
      const isAll = wide >= (fold.high - fold.low) * (1 - 1e-9);
      if (isAll && wheel.deltaY > 0) return; // nothing left to zoom out of: the page scrolls
      const lines = wheel.deltaMode === 1 ? 20 : 1;
      lanes.zoom(Math.exp(Math.min(Math.max(wheel.deltaY * lines, -240), 240) * 0.0025), lanes.paperAt(wheel.offsetX));
    }
    wheel.preventDefault();
    tip.hidden = true;
  }, { passive: false });

  const held = new Map();
  let isMap = false;
  const jump = (px) => {
    const wide = lanes.view.to - lanes.view.from;
    const centre = fold.low + (px - lanes.SIDE) / (lanes.width() - 2 * lanes.SIDE) * (fold.high - fold.low);
    lanes.look(centre - wide / 2, centre + wide / 2);
  };
  canvas.addEventListener("pointerdown", (pointer) => {
    canvas.setPointerCapture(pointer.pointerId);
    held.set(pointer.pointerId, pointer.offsetX);
    isMap = pointer.offsetY < lanes.MAP;
    if (isMap) jump(pointer.offsetX);
  });
  canvas.addEventListener("pointermove", (pointer) => {
    const px = pointer.offsetX, before = held.get(pointer.pointerId);
    if (before === undefined) { hover(px, pointer.offsetY); return; }
    if (isMap) { jump(px); return; }
    const { view } = lanes, other = [...held].find(([id]) => id !== pointer.pointerId);
    if (other) {
      const was = Math.abs(before - other[1]) || 1, now = Math.abs(px - other[1]) || 1;
      lanes.zoom(was / now, lanes.paperAt((px + other[1]) / 2));
    } else {
      const moved = lanes.paperAt(before) - lanes.paperAt(px);
      lanes.look(view.from + moved, view.to + moved);
    }
    held.set(pointer.pointerId, px);
    tip.hidden = true;
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (pointer) => {
      held.delete(pointer.pointerId);
      if (pointer.pointerType !== "mouse") hover(pointer.offsetX, pointer.offsetY);
    });
  }
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("blur", () => { tip.hidden = true; lanes.choose(-1); });

  const walk = (step) => {
    const { view, at } = lanes;
    let index = lanes.chosen();
    if (index < 0 || at[index] < view.from || at[index] > view.to) {
      index = step > 0 ? bisect(at, view.from) - 1 : bisect(at, view.to);
    }
    for (index += step; index >= 0 && index < at.length; index += step) {
      if (!isShown(index, null)) continue;
      const wide = view.to - view.from;
      if (at[index] < view.from || at[index] > view.to) lanes.look(at[index] - wide / 2, at[index] + wide / 2);
      lanes.choose(index);
      const event = lanes.events[lanes.which[index]], lines = ofEvent(index);
      show(lanes.x(at[index]), below(event.rows ? event.rows[0] : 0), lines);
      said.textContent = lines.map((line) => line[1]).filter(Boolean).join(", ");
      return;
    }
  };
  const pan = (share) => {
    const { view } = lanes, moved = (view.to - view.from) * share;
    lanes.look(view.from + moved, view.to + moved);
  };
  const keys = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), PageUp: () => pan(-0.9), PageDown: () => pan(0.9),
    "+": () => lanes.zoom(0.7), "=": () => lanes.zoom(0.7), "-": () => lanes.zoom(1 / 0.7), "0": lanes.all,
    Home: () => lanes.some("first"), End: () => lanes.some("last"), "[": () => walk(-1), "]": () => walk(1),
    Escape: () => { tip.hidden = true; lanes.choose(-1); },
  };
  canvas.addEventListener("keydown", (key) => {
    if (key.ctrlKey || key.metaKey || key.altKey || !Object.hasOwn(keys, key.key)) return;
    if (!"[]".includes(key.key)) tip.hidden = true;
    keys[key.key]();
    key.preventDefault();
  });

  const deeds = { in: keys["+"], out: keys["-"], all: lanes.all, first: keys.Home, last: keys.End };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", deeds[button.dataset.do]);
  const met = new Set(lanes.events.map((event) => event.kind));
  for (const button of document.querySelectorAll("[data-kind]")) {
    const { kind } = button.dataset;
    button.hidden = !met.has(kind);
    button.style.display = met.has(kind) ? "" : "none";
    button.addEventListener("click", () => {
      const isOn = !lanes.on.delete(kind);
      if (isOn) lanes.on.add(kind);
      button.setAttribute("aria-pressed", String(isOn));
      lanes.later();
    });
  }
  if (data.timeline.gap) {
    const [from, to, count] = data.timeline.gap;
    said.textContent = `${count.toLocaleString("en")} moments between ${clock(from, 1)} and ${clock(to, 1)} were not kept; the hatched strip stands for them.`;
  }
  new ResizeObserver(lanes.later).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { lanes.colours(); lanes.later(); });
  if (data.timeline.spans.length > 40) lanes.some("first"); else lanes.all();
}
