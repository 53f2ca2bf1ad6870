// A sweep: plots of any two numbers, parallel coordinates, marks that they and the table share, search and sorting of the table.
(() => {
  const page = JSON.parse(document.querySelector("#result").textContent).page;
  if (page === undefined) return;
  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const W = 560, H = 360, L = 74, R = 14, T = 12, B = 46, wide = W - L - R, tall = H - T - B;
  const column = (key) => page.dimensions.findIndex((dimension) => dimension.key === key);
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "u"], [1e-9, "n"], [1e-12, "p"]];
  const binary = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""]];
  const short = (value) => String(Number(value.toPrecision(4)));
  const unitOf = (key) => key === "value" ? page.unit : page.dimensions[column(key)].unit;
  const worded = (key, value) => {
    const unit = unitOf(key);
    if (value === 0) return "0";
    if (unit === "m2") return `${short(value * 1e6)} mm2`;
    if (unit === "" && Math.abs(value) < 1e6) return short(value);
    const [size, prefix] = (unit === "B" ? binary : prefixes).find(([least]) => Math.abs(value) >= least * 0.9999) ?? [1, ""];
    return `${short(value / size)} ${prefix}${unit}`;
  };
  const linear = (low, high, unit) => {
    const base = unit === "B" ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024))) : 1;
    const step = base * 10 ** Math.floor(Math.log10((high - low) / base / 4));
    const size = [5, 2, 1].find((factor) => (high - low) / (factor * step) >= 4) * step;
    const made = [];
    for (let count = Math.ceil(low / size - 1e-9); count * size <= high * (1 + 1e-9); count += 1) made.push(count * size);
    return made;
  };
  const powers = (low, high, unit) => {
    const base = high / low <= 1000 ? 2 : unit === "B" ? 16 : 10, made = [];
    for (let power = Math.ceil(Math.log(low) / Math.log(base) - 1e-9); base ** power <= high * 1.0001; power += 1) made.push(base ** power);
    return made;
  };

  const marked = new Set();
  let picked = null;
  const plots = [...document.querySelectorAll(".plot")].map((figure) => ({
    figure, across: figure.querySelector(".across"), up: figure.querySelector(".up"), log: figure.querySelector(".log"), at: [],
  }));
  const draw = (plot) => {
    const keys = [plot.across.value, plot.up.value], places = keys.map(column);
    const able = page.points.filter((point) => !plot.log.checked || places.every((place) => point.x[place] > 0));
    const scales = places.map((place, way) => {
      const values = able.map((point) => point.x[place]);
      let low = Math.min(...values), high = Math.max(...values);
      if (plot.log.checked) {
        const room = (high / low) ** 0.05 || 1.1;
        low /= Math.max(room, 1.05); high *= Math.max(room, 1.05);
        return { low, high, share: (value) => Math.log(value / low) / Math.log(high / low), ticks: powers(low, high, unitOf(keys[way])) };
      }
      const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
      low -= room; high += room;
      return { low, high, share: (value) => (value - low) / (high - low), ticks: linear(low, high, unitOf(keys[way])) };
    });
    const position = (point) => [L + wide * scales[0].share(point.x[places[0]]), T + tall * (1 - scales[1].share(point.x[places[1]]))];
    const made = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "font-size": 12, "font-family": "system-ui, sans-serif",
      "aria-label": `${plot.up.selectedOptions[0].text} by ${plot.across.selectedOptions[0].text}` });
    made.append(svg("rect", { x: 0, y: 0, width: W, height: H, fill: "#fff", class: "paper" }));
    for (const tick of scales[0].ticks) {
      const x = L + wide * scales[0].share(tick), last = x > L + wide - 20;  // its words would go beyond the edge
      made.append(svg("line", { x1: x, y1: T, x2: x, y2: T + tall, stroke: "#d9d9d9" }),
        svg("text", { x: last ? x + R : x, y: T + tall + 18, "text-anchor": last ? "end" : "middle", fill: "#595959" }, worded(keys[0], tick)));
    }
    for (const tick of scales[1].ticks) {
      const y = T + tall * (1 - scales[1].share(tick));
      made.append(svg("line", { x1: L, y1: y, x2: L + wide, y2: y, stroke: "#d9d9d9" }),
        svg("text", { x: L - 6, y: y + 4, "text-anchor": "end", fill: "#595959" }, worded(keys[1], tick)));
    }
    made.append(svg("text", { x: L + wide / 2, y: H - 8, "text-anchor": "middle", fill: "#595959" }, plot.across.selectedOptions[0].text));
    // of a front in more dimensions, the part that is a front in these two
    const both = keys.every((key) => page.minimised.includes(key));
    const below = (a, b) => places.every((place) => a.x[place] <= b.x[place]) && places.some((place) => a.x[place] < b.x[place]);
    const best = able.filter((point) => point.front), edge = best.filter((point) => !best.some((other) => below(other, point)));
    const front = both ? edge.map(position).sort((a, b) => a[0] - b[0]) : [];
    if (front.length > 1) made.append(svg("polyline", { points: front.map((at) => at.join(",")).join(" "), fill: "none", stroke: "#d55e00" }));
    plot.at = able.map((point) => ({ point, at: position(point) }));
    for (const { point, at } of [...plot.at].sort((a, b) => a.point.front - b.point.front)) {
      const dim = marked.size > 0 && !marked.has(point.index);
      const circle = svg("circle", { cx: at[0], cy: at[1], r: point.front ? 5 : 3.5, "data-tip": point.words, "data-design": point.index,
        fill: dim ? "#d9d9d9" : point.front ? "#d55e00" : point.own ? "#0072b2" : "#9ad2f2" });
      if (point.index === picked) { circle.setAttribute("stroke", "#1a1a1a"); circle.setAttribute("stroke-width", 2); circle.setAttribute("r", 7); }
      circle.addEventListener("click", () => pick(point.index));
      made.append(circle);
    }
    brush(plot, made);
    plot.figure.querySelector("svg").replaceWith(made);
  };
  const brush = (plot, made) => {
    let start = null, frame = null;
    const where = (event) => {
      const area = made.getBoundingClientRect();
      return [(event.clientX - area.left) * W / area.width, (event.clientY - area.top) * H / area.height];
    };
    made.addEventListener("pointerdown", (event) => {
      if (event.target.tagName === "circle" || event.button !== 0) return;
      start = where(event);
      frame = svg("rect", { fill: "#0072b2", "fill-opacity": 0.12, stroke: "#0072b2", "pointer-events": "none" });
      made.append(frame);
      made.setPointerCapture(event.pointerId);
    });
    made.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = where(event);
      frame.setAttribute("x", Math.min(start[0], now[0])); frame.setAttribute("width", Math.abs(now[0] - start[0]));
      frame.setAttribute("y", Math.min(start[1], now[1])); frame.setAttribute("height", Math.abs(now[1] - start[1]));
    });
    made.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const now = where(event), from = start;
      start = null;
      marked.clear();
      limits.clear();
      const inside = (value, one, other) => value >= Math.min(one, other) && value <= Math.max(one, other);
      if (Math.abs(now[0] - from[0]) + Math.abs(now[1] - from[1]) > 6) {
        for (const { point, at } of plot.at) if (inside(at[0], from[0], now[0]) && inside(at[1], from[1], now[1])) marked.add(point.index);
      }
      refresh();
    });
  };

  // parallel coordinates: a line for each design, and on each axis the part that is marked
  const limits = new Map();
  const holder = document.querySelector("#parallel");
  const lines = () => {
    const axes = page.parallel, fitting = (holder.clientWidth - 24) / axes.length;
    const step = Math.max(96, fitting, ...axes.map((axis) => 7 * axis.name.length + 12));
    const width = step * axes.length + 24, height = 300, top = 34, bottom = 262;
    const across = (place) => step * (place + 0.5), up = (share) => bottom - (bottom - top) * share;
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "font-size": 12, "font-family": "system-ui, sans-serif",
      "aria-label": "parallel coordinates", style: `min-width: ${width}px` });
    made.append(svg("rect", { x: 0, y: 0, width, height, fill: "#fff", class: "paper" }));
    const dim = (point) => marked.size > 0 && !marked.has(point.index);
    const rank = (point) => 4 * (point.index === picked) + 2 * !dim(point) + point.front;
    for (const point of [...page.points].sort((a, b) => rank(a) - rank(b))) {
      const chosen = point.index === picked;
      const line = svg("polyline", { points: point.at.map((share, place) => `${across(place)},${up(share)}`).join(" "), fill: "none",
        stroke: chosen ? "#1a1a1a" : dim(point) ? "#e6e6e6" : point.front ? "#d55e00" : "#0072b2", "data-design": point.index,
        "stroke-width": chosen ? 3 : point.front ? 2 : 1, "stroke-opacity": chosen || point.front || dim(point) ? 1 : 0.4,
        "data-tip": point.words });
      line.addEventListener("click", () => pick(point.index));
      made.append(line);
    }
    axes.forEach((axis, place) => {
      const x = across(place);
      made.append(svg("line", { x1: x, y1: top, x2: x, y2: bottom, stroke: "#595959" }),
        svg("text", { x, y: 16, "text-anchor": "middle", fill: "#1a1a1a" }, axis.name));
      for (const [share, text] of axis.ticks) made.append(svg("text", { x: x + 6, y: up(share) + 4, fill: "#1a1a1a", stroke: "#fff",
        "stroke-width": 5, "paint-order": "stroke", "pointer-events": "none" }, text));
      const band = limits.get(place);
      if (band !== undefined) made.append(svg("rect", { x: x - 7, y: up(band[1]), width: 14, height: up(band[0]) - up(band[1]),
        fill: "#0072b2", "fill-opacity": 0.25, stroke: "#0072b2", "pointer-events": "none" }));
      const grip = svg("rect", { x: x - 10, y: top - 8, width: 20, height: bottom - top + 16, fill: "#fff", "fill-opacity": 0,
        style: "cursor: ns-resize; touch-action: none", "data-axis": place });
      let from = null;
      const where = (event) => {
        const area = made.getBoundingClientRect();
        return (bottom - (event.clientY - area.top) * height / area.height) / (bottom - top);
      };
      grip.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = where(event); grip.setPointerCapture(event.pointerId); } });
      grip.addEventListener("pointerup", (event) => {
        if (from === null) return;
        const to = where(event), clip = (share) => Math.min(1.02, Math.max(-0.02, share));
        if (Math.abs(to - from) > 0.02) limits.set(place, [clip(Math.min(from, to)), clip(Math.max(from, to))]);
        else limits.delete(place);
        from = null;
        marked.clear();
        const held = (point) => [...limits].every(([axis_, [low, high]]) => point.at[axis_] >= low && point.at[axis_] <= high);
        if (limits.size > 0) for (const point of page.points) if (held(point)) marked.add(point.index);
        refresh();
      });
      made.append(grip);
    });
    holder.replaceChildren(made);
  };

  // the table
  const rows = [...document.querySelectorAll(".sortable tbody tr")];
  const search = document.querySelector("#search"), matches = document.querySelector("#matches");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase(), index = Number(row.dataset.design);
      row.hidden = !words.every((word) => text.includes(word)) || (marked.size > 0 && !marked.has(index));
      row.classList.toggle("picked", index === picked);
      shown += row.hidden ? 0 : 1;
    }
    matches.textContent = shown === rows.length ? "" : ` ${shown} of ${rows.length} rows` + (marked.size > 0 ? "; click beside the points to show all" : "");
  };
  search.addEventListener("input", filter);
  document.querySelectorAll(".sortable th").forEach((head, place) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      document.querySelectorAll(".sortable th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const number = (row) => {
        const cell = row.cells[place], value = cell.dataset.n;
        return value === undefined ? cell.textContent : value === "inf" ? Infinity : Number(value);
      };
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? (a === b ? 0 : a - b) : String(a).localeCompare(String(b)));
      rows.sort((a, b) => (down ? -1 : 1) * compare(number(a), number(b)));
      rows[0]?.parentElement.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
  for (const row of rows) row.addEventListener("click", () => pick(Number(row.dataset.design)));

  // one design: its setting, its figures, and its mappings
  const result = JSON.parse(document.querySelector("#result").textContent);
  const box = document.querySelector("#picked");
  const element = (tag, text) => { const made = document.createElement(tag); made.textContent = text; return made; };
  const pick = (index) => {
    picked = picked === index ? null : index;
    const design = result.designs.find((each) => each.index === picked);
    box.hidden = design === undefined;
    box.replaceChildren();
    if (design !== undefined) {
      box.append(element("h3", `Design ${design.index}`));
      const pairs = Object.entries(design.setting).map(([name, value]) => `${name} ${value}`).join(", ");
      box.append(element("p", pairs), element("p", design.why || design.standing.replaceAll("_", " ")));
      for (const [workload, from] of Object.entries(design.mappings_of)) {
        const found = result.mappings[String(from)]?.[workload];
        if (found === undefined) continue;
        box.append(element("h3", `${workload}${from === index ? "" : `, found on design ${from}`}`), element("pre", found.mapping));
      }
    }
    refresh();
  };
  const refresh = () => { plots.forEach(draw); lines(); filter(); };
  for (const plot of plots) for (const control of [plot.across, plot.up, plot.log]) control.addEventListener("change", () => draw(plot));
  refresh();
})();
