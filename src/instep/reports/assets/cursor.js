// A cursor over the charts, and buttons that copy.
for (const plot of document.querySelectorAll(".plot")) {
  const { lines } = data.charts[plot.dataset.chart];
  const svg = plot.querySelector("svg");
  const updates = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const where = new Map(lines.flatMap((line) => line.points.map((point) => [point[0], point[1]])));
  const mark = document.createElement("div"), tip = document.createElement("div");
  mark.className = "cursor"; tip.className = "tip";
  mark.hidden = tip.hidden = true;
  plot.append(mark, tip);
  let chosen = -1;

  const nearest = (points, update) => {
    const index = bisect(points, update, (point) => point[0]);
    const [before, after] = [points[index - 1], points[index]];
    if (!before || !after) return before ?? after;
    return update - before[0] < after[0] - update ? before : after;
  };
  const show = (index) => {
    chosen = Math.min(Math.max(index, 0), updates.length - 1);
    const update = updates[chosen], box = svg.getBoundingClientRect(), home = plot.getBoundingClientRect();
    const left = box.left - home.left + where.get(update) / 1000 * box.width;
    mark.style.left = `${left}px`;
    tip.replaceChildren();
    const title = document.createElement("b");
    title.textContent = `update ${update.toLocaleString("en")}`;
    tip.append(title);
    for (const line of lines) {
      const { points } = line;
      if (update < points[0][0] || update > points[points.length - 1][0]) continue;
      const row = document.createElement("span");
      row.textContent = `${line.label}: ${nearest(points, update)[3]}`;
      row.style.display = "block";
      tip.append(row);
    }
    mark.hidden = tip.hidden = false;
    tip.style.left = `${Math.min(Math.max(left - tip.offsetWidth / 2, 0), home.width - tip.offsetWidth)}px`;
    tip.style.top = `${box.height + 26}px`;
  };
  const hide = () => { mark.hidden = tip.hidden = true; };
  plot.addEventListener("pointermove", (pointer) => {
    const box = svg.getBoundingClientRect(), share = (pointer.clientX - box.left) / box.width * 1000;
    const index = bisect(updates, share, (update) => where.get(update));
    const before = where.get(updates[index - 1]) ?? -Infinity, after = where.get(updates[index]) ?? Infinity;
    show(share - before < after - share ? index - 1 : index);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (key) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[key.key];
    if (key.key === "Home") show(0);
    else if (key.key === "End") show(updates.length - 1);
    else if (step) show(chosen < 0 && step < 0 ? updates.length - 1 : chosen + step);
    else if (key.key === "Escape") hide();
    else return;
    key.preventDefault();
  });
}
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
