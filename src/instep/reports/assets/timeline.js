"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

// Seconds as people read them.
const clock = (seconds, step) => {
  if (step >= 60) {
    const minutes = Math.floor(seconds / 60), rest = Math.round(seconds % 60);
    return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min`
      : rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  }
  if (step < 1e-3 && seconds >= 1) return `${seconds.toFixed(Math.min(6, Math.ceil(-Math.log10(step))))} s`;
  if (step < 1e-3) return `${+(seconds * 1e3).toFixed(Math.min(6, Math.ceil(-Math.log10(step)) - 3))} ms`;
  if (step < 1 && seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  return `${+seconds.toFixed(step < 1 ? Math.min(3, Math.ceil(-Math.log10(step))) : 0)} s`;
};

// The first index whose value is not below x.
const bisect = (values, x, key = (value) => value) => {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(values[middle]) < x) low = middle + 1; else high = middle;
  }
  return low;
};

// Time on paper. Where moments were left out, the time between is folded to a narrow strip, so
// that the beginning and the end of a long job can both be read.
const fold = (() => {
  const { gap, times, seconds } = data.timeline;
  const start = times.length ? Math.min(times[0], data.timeline.spans[0]?.[1] ?? times[0]) : 0;
  const end = Math.max(times.length ? times[times.length - 1] : seconds, start + 1e-6);
  const away = gap ? gap[1] - gap[0] : 0;
  const strip = gap ? Math.min((end - start - away) * 0.06, away) : 0;
  return {
    low: start,
    high: end - away + strip,
    paper: (time) => !gap || time <= gap[0] ? time
      : time >= gap[1] ? time - away + strip
      : gap[0] + (time - gap[0]) / away * strip,
    time: (at) => !gap || at <= gap[0] ? at
      : at >= gap[0] + strip ? at + away - strip
      : gap[0] + (at - gap[0]) / strip * away,
    strip,
  };
})();

const lanes = (() => {
  const canvas = document.getElementById("lanes");
  if (!canvas) return null;
  const { rows, events, times, which, spans, gap } = data.timeline;
  const at = times.map(fold.paper);
  const byRow = rows.map((_, row) => spans.filter((span) => span[0] === row)
    .map((span) => ({ from: fold.paper(span[1]), to: fold.paper(span[2]), span })));
  const on = new Set(Object.keys(data.timeline.kinds));
  const MAP = 34, ROW = 78, AXIS = 26, SIDE = 14;
  // How each kind stands in its row: from where, to where (0 is the top of the band), how wide.
  const SHAPES = {
    clear: [0.62, 1, 2], backward: [0.3, 1, 2], unscale: [0.16, 0.52, 2], clip: [0.1, 0.62, 2],
    step: [0, 1, 2], skipped: [0, 1, 2], epoch: [-0.1, 1.1, 2],
  };
  const view = { from: fold.low, to: fold.high };
  const least = Math.max((fold.high - fold.low) * 1e-6, 2e-6);
  let width = 0, chosen = -1, paint = {}, due = 0;

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    paint = {};
    for (const name of [...on, ...Object.keys(data.timeline.kinds), "ink", "soft", "hair", "faint",
      "card", "brand", "window", "window-skipped", "sans", "mono"]) {
      paint[name] = style.getPropertyValue(`--${name}`).trim();
    }
  };
  const x = (paper) => SIDE + (paper - view.from) / (view.to - view.from) * (width - 2 * SIDE);
  const paperAt = (px) => view.from + (px - SIDE) / (width - 2 * SIDE) * (view.to - view.from);
  const top = (row) => MAP + AXIS + row * ROW;
  const height = MAP + AXIS + Math.max(rows.length, 1) * ROW + 8;

  const look = (from, to) => {
    let wide = Math.min(Math.max(to - from, least), fold.high - fold.low);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - wide / 2, fold.low), fold.high - wide);
    view.to = view.from + wide;
    canvas.dataset.from = view.from;
    canvas.dataset.to = view.to;
    later();
  };
  const zoom = (factor, centre = (view.from + view.to) / 2) =>
    look(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  const later = () => { due = due || requestAnimationFrame(() => { due = 0; draw(); }); };

  const strip = (pen, from, to, y, tall) => {
    pen.save();
    pen.beginPath(); pen.rect(from, y, to - from, tall); pen.clip();
    pen.strokeStyle = paint.faint; pen.lineWidth = 1;
    for (let line = from - tall; line < to; line += 7) {
      pen.beginPath(); pen.moveTo(line, y + tall); pen.lineTo(line + tall, y); pen.stroke();
    }
    pen.restore();
  };

  const overview = (pen) => {
    const inner = width - 2 * SIDE, scale = inner / (fold.high - fold.low);
    const px = (paper) => SIDE + (paper - fold.low) * scale;
    pen.fillStyle = paint.hair; pen.fillRect(SIDE, 10, inner, 14);
    for (const kind of ["step", "skipped", "epoch"]) {
      if (!on.has(kind)) continue;
      pen.fillStyle = paint[kind]; pen.globalAlpha = kind === "step" ? 0.55 : 1;
      let last = -9;
      for (let i = 0; i < at.length; i++) {
        const place = px(at[i]);
        if (events[which[i]].kind === kind && place - last >= 1) { pen.fillRect(place, 10, 1, 14); last = place; }
      }
    }
    pen.globalAlpha = 1;
    if (gap) { pen.fillStyle = paint.card; const a = px(gap[0]), b = px(gap[0] + fold.strip); pen.fillRect(a, 10, b - a, 14); strip(pen, a, b, 10, 14); }
    const from = px(view.from), to = Math.max(px(view.to), from + 3);
    pen.strokeStyle = paint.brand; pen.lineWidth = 2; pen.strokeRect(from, 8, to - from, 18);
  };

  const axis = (pen) => {
    pen.font = `11.5px ${paint.sans}`; pen.textBaseline = "middle"; pen.textAlign = "center";
    const wanted = (view.to - view.from) / Math.max(2, Math.floor(width / 110));
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted);
    const pieces = gap ? [[fold.low, gap[0]], [gap[1], fold.time(fold.high)]] : [[fold.low, fold.high]];
    for (const [begin, end] of pieces) {
      const first = Math.max(begin, fold.time(view.from)), last = Math.min(end, fold.time(view.to));
      for (let number = Math.ceil(first / step); number * step <= last; number++) {
        const place = x(fold.paper(number * step));
        if (place < SIDE + 8 || place > width - SIDE - 8) continue;
        pen.strokeStyle = paint.hair; pen.lineWidth = 1;
        pen.beginPath(); pen.moveTo(place, MAP + AXIS); pen.lineTo(place, height - 8); pen.stroke();
        pen.fillStyle = paint.soft; pen.fillText(clock(number * step, step), place, MAP + AXIS / 2 + 2);
      }
    }
  };

  const windows = (pen, row) => {
    const y = top(row) + 26, tall = ROW - 34, each = byRow[row];
    let last = -9;
    for (let i = bisect(each, view.from, (item) => item.to); i < each.length && each[i].from <= view.to; i++) {
      const a = Math.max(x(each[i].from), SIDE), b = Math.min(Math.max(x(each[i].to), a + 1), width - SIDE);
      if (b - last < 0.5) continue;
      last = b;
      const skipped = each[i].span[5] !== "";
      pen.fillStyle = paint[skipped ? "window-skipped" : "window"];
      pen.beginPath(); pen.roundRect(a, y, b - a, tall, Math.min(5, (b - a) / 2)); pen.fill();
      if (b - a > 46) {
        pen.fillStyle = paint.soft; pen.font = `11px ${paint.sans}`; pen.textAlign = "left"; pen.textBaseline = "top";
        pen.fillText(String(each[i].span[4]), a + 6, y + 4);
      }
    }
  };

  const marks = (pen) => {
    const begin = bisect(at, view.from), end = bisect(at, view.to + 1e-12);
    const room = (width - 2 * SIDE) / Math.max(end - begin, 1);
    const slim = Math.min(1, Math.max(0.4, room / 4));
    for (const kind of Object.keys(SHAPES)) {
      if (!on.has(kind)) continue;
      const [from, to, wide] = SHAPES[kind];
      const last = rows.map(() => -9);
      pen.fillStyle = paint[kind];
      for (let i = begin; i < end; i++) {
        const event = events[which[i]];
        if (event.kind !== kind) continue;
        const place = x(at[i]);
        for (const row of event.rows ?? rows.keys()) {
          if (place - last[row] < 0.7) continue;
          last[row] = place;
          const y = top(row) + 26, tall = ROW - 34, w = Math.max(1, Math.round(wide * slim));
          // On whole pixels, so that thin marks keep their colour.
          pen.fillRect(Math.round(place - w / 2), Math.round(y + from * tall), w, Math.round((to - from) * tall));
          if (slim < 0.6) continue;
          if (kind === "step" || kind === "skipped") { pen.beginPath(); pen.arc(place, y, 4, 0, 7); pen.fill(); }
          if (kind === "clip") { pen.beginPath(); pen.moveTo(place - 4.5, y + from * tall); pen.lineTo(place + 4.5, y + from * tall); pen.lineTo(place, y + from * tall + 7); pen.fill(); }
          if (kind === "skipped") { pen.strokeStyle = paint.card; pen.lineWidth = 1.4; pen.beginPath(); pen.moveTo(place - 2, y - 2); pen.lineTo(place + 2, y + 2); pen.moveTo(place + 2, y - 2); pen.lineTo(place - 2, y + 2); pen.stroke(); }
        }
      }
    }
  };

  const draw = () => {
    width = canvas.clientWidth;
    if (!width) return;
    const dots = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * dots); canvas.height = Math.round(height * dots);
    const pen = canvas.getContext("2d");
    pen.scale(dots, dots);
    pen.clearRect(0, 0, width, height);
    overview(pen);
    axis(pen);
    pen.save();
    pen.beginPath(); pen.rect(SIDE - 6, MAP, width - 2 * SIDE + 12, height - MAP); pen.clip();
    rows.forEach((_, number) => windows(pen, number));
    marks(pen);
    rows.forEach((row, number) => {
      pen.fillStyle = paint.ink; pen.font = `600 12px ${paint.mono}`; pen.textAlign = "left"; pen.textBaseline = "top";
      pen.fillText(row.name, SIDE, top(number) + 4, width - 2 * SIDE);
    });
    if (gap) {
      const a = x(gap[0]), b = x(gap[0] + fold.strip);
      if (b > 0 && a < width) { pen.fillStyle = paint.card; pen.fillRect(a, MAP + AXIS, b - a, height); strip(pen, a, b, MAP + AXIS, height - MAP - AXIS - 8); }
    }
    if (chosen >= 0) {
      const place = x(at[chosen]);
      pen.strokeStyle = paint.brand; pen.lineWidth = 1.5; pen.setLineDash([3, 3]);
      pen.beginPath(); pen.moveTo(place, MAP + AXIS); pen.lineTo(place, height - 6); pen.stroke(); pen.setLineDash([]);
    }
    pen.restore();
  };

  const some = (side) => {
    const most = 12, ends = spans.map((span) => [fold.paper(span[1]), fold.paper(span[2])]);
    if (!ends.length) return look(fold.low, fold.high);
    const part = side === "first" ? ends.slice(0, most) : ends.slice(-most);
    const from = Math.min(...part.map((each) => each[0])), to = Math.max(...part.map((each) => each[1]));
    const room = (to - from) * 0.04 || least;
    return look(from - room, to + room);
  };

  return {
    canvas, view, at, rows, events, times, which, byRow, on, MAP, SIDE, height, top, x, paperAt, look, zoom, some, later, draw,
    colours, row: (y) => Math.floor((y - MAP - AXIS) / ROW), choose: (index) => { chosen = index; later(); }, chosen: () => chosen,
    all: () => look(fold.low, fold.high), width: () => width,
  };
})();
