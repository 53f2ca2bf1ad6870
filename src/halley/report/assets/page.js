"use strict";
// Folding, tips, zoom and the download of the result. The page is complete without it.
(() => {
  // tips: an SVG's own titles would come late and unstyled, so their text moves to an attribute
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  for (const title of document.querySelectorAll("svg title")) {
    title.parentElement.setAttribute("data-tip", title.textContent);
    title.parentElement.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const place = (event) => {
    const room = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - room.width - 8);
    const below = event.clientY + 18;
    const y = below + room.height > innerHeight ? event.clientY - room.height - 12 : below;
    tip.style.left = Math.max(x, 4) + "px";
    tip.style.top = Math.max(y, 4) + "px";
  };
  document.addEventListener("pointermove", (event) => {
    const owner = event.target.closest("[data-tip]");
    tip.hidden = owner === null;
    if (owner === null) return;
    tip.textContent = owner.getAttribute("data-tip");
    place(event);
  });
  document.documentElement.addEventListener("pointerleave", () => { tip.hidden = true; });

  // the tree: a row hides when any row around it is folded
  const rows = [...document.querySelectorAll(".tree tbody tr")];
  const depth = (row) => Number(row.dataset.depth);
  const refresh = () => {
    let closed = Infinity;
    for (const row of rows) {
      if (depth(row) <= closed) closed = Infinity;
      row.hidden = depth(row) > closed;
      if (!row.hidden && row.querySelector(".fold").getAttribute("aria-expanded") === "false") closed = depth(row);
    }
  };
  const fold = (row, open) => {
    const button = row.querySelector(".fold");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "\u25be" : "\u25b8";
  };
  for (const row of rows) {
    row.querySelector(".fold").addEventListener("click", (event) => {
      fold(row, event.currentTarget.getAttribute("aria-expanded") === "false");
      refresh();
    });
  }
  const all = (open) => () => { rows.forEach((row) => fold(row, open || depth(row) < 1)); refresh(); };
  document.querySelector("#unfold")?.addEventListener("click", all(true));
  document.querySelector("#fold")?.addEventListener("click", all(false));

  // the timeline: a click on a phase zooms to it, the button shows the whole again
  const gantt = document.querySelector("svg.gantt");
  if (gantt !== null) {
    const left = Number(gantt.getAttribute("data-left")), room = Number(gantt.getAttribute("data-room"));
    const time = Number(gantt.getAttribute("data-time")), bottom = Number(gantt.getAttribute("data-bottom"));
    const axis = gantt.querySelector(".axis"), original = [...axis.childNodes];
    const spans = [...gantt.querySelectorAll(".span")].map((node) => ({
      node, rect: node.querySelector("rect"), text: node.querySelector("text"), whole: node.querySelector("text").textContent,
      x: node.querySelector("rect").getAttribute("x"), width: node.querySelector("rect").getAttribute("width"),
      from: Number(node.dataset.from), to: Number(node.dataset.to),
    }));
    const back = document.querySelector("#whole");
    const units = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"], [1e-12, "ps"]];
    const worded = (value) => {
      const [size, unit] = units.find(([least]) => Math.abs(value) >= least * 0.9999) ?? [1, "s"];
      return String(Number((value / size).toPrecision(6))) + " " + unit;
    };
    const shape = (name, attributes, text) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
      if (text !== undefined) made.textContent = text;
      return made;
    };
    const ticks = (from, to) => {
      const step = 10 ** Math.floor(Math.log10((to - from) / 4));
      const size = [5, 2, 1].find((factor) => (to - from) / (factor * step) >= 4) * step;
      const made = [];
      for (let count = Math.ceil(from / size - 1e-9); count * size <= to * (1 + 1e-9); count += 1) made.push(count * size);
      return made;
    };
    const zoom = (from, to) => {
      const scale = room / (to - from);
      for (const span of spans) {
        const begin = Math.max(span.from, from), end = Math.min(span.to, to);
        span.node.style.display = end > begin ? "" : "none";
        const x = left + (begin - from) * scale, width = Math.max((end - begin) * scale, 1);
        span.rect.setAttribute("x", x);
        span.rect.setAttribute("width", width);
        span.text.setAttribute("x", x + 4);
        const fit = Math.floor((width - 10) / 7);
        const name = span.node.dataset.name;
        span.text.textContent = name.length <= fit ? name : fit > 2 ? name.slice(0, fit - 1) + "\u2026" : "";
      }
      axis.replaceChildren(...ticks(from * time, to * time).flatMap((value) => {
        const x = left + (value / time - from) * scale;
        return [
          shape("line", { x1: x, y1: 20, x2: x, y2: bottom + 4, stroke: "#d9d9d9" }),
          shape("text", { x, y: bottom + 18, "text-anchor": "middle", fill: "#595959", "font-size": 12 }, worded(value)),
        ];
      }));
      back.hidden = false;
    };
    const whole = () => {
      for (const span of spans) {
        span.node.style.display = "";
        span.rect.setAttribute("x", span.x);
        span.rect.setAttribute("width", span.width);
        span.text.setAttribute("x", Number(span.x) + 4);
        span.text.textContent = span.whole;
      }
      axis.replaceChildren(...original);
      back.hidden = true;
    };
    for (const span of spans) {
      if (span.node.classList.contains("phase")) span.node.addEventListener("click", () => zoom(span.from, span.to));
    }
    back.addEventListener("click", whole);
    addEventListener("beforeprint", whole);
  }

  // what goes on to the right of a narrow screen fades there
  const wide = [...document.querySelectorAll("table, .scroll")];
  const fade = (node) => node.classList.toggle("more", node.scrollLeft + node.clientWidth < node.scrollWidth - 4);
  for (const node of wide) node.addEventListener("scroll", () => fade(node), { passive: true });
  const fadeAll = () => wide.forEach(fade);
  fadeAll();
  addEventListener("resize", fadeAll);
  document.addEventListener("toggle", fadeAll, true);

  // the result as the file that it is
  document.querySelector("#save")?.addEventListener("click", (event) => {
    const content = JSON.parse(document.querySelector("#result").textContent);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 2) + "\n"], { type: "application/json" }));
    link.download = event.currentTarget.dataset.file;
    link.click();
    URL.revokeObjectURL(link.href);
  });

  // paper shows everything
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) { details.open = true; opened.push(details); }
  });
  addEventListener("afterprint", () => { for (const details of opened.splice(0)) details.open = false; });
})();
