// The chart as a page: the SVGs with zoom. Zooming stretches time only; labels appear as soon as they fit.
#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/charts/chart_parts.hpp>

namespace ppengine::schedules {
namespace {

constexpr const char* head = R"(<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { margin: 0; font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; background: #f6f7f9; color: #1b2130; }
header { display: flex; gap: 1rem; align-items: center; padding: .6rem 1.2rem; background: #1b2130; color: #fff; position: sticky; top: 0; z-index: 1; }
header h1 { font-size: 1.05rem; margin: 0 auto 0 0; font-weight: 600; }
header button { font: inherit; padding: .15rem .7rem; border: 0; border-radius: 4px; background: #3b455c; color: #fff; cursor: pointer; }
header span { color: #b9c1d1; font-size: .85rem; }
section { margin: 1rem 1.2rem; background: #fff; border-radius: 8px; box-shadow: 0 1px 4px #0002; overflow-x: auto; }
#tip { position: fixed; display: none; pointer-events: none; background: #1b2130; color: #fff; padding: .35rem .6rem; border-radius: 5px; font-size: .85rem; white-space: pre; z-index: 2; }
</style>
)";

constexpr const char* script = R"(<div id="tip"></div>
<script>
"use strict";
let zoom = 1, fitted = true;
const charts = [...document.querySelectorAll("svg.timeline")];
const set = (e, values) => { for (const k in values) e.setAttribute(k, values[k]); };
for (const svg of charts) {
  const d = svg.dataset;
  svg.geometry = {left: +d.left, width: +d.width, end: +d.end, full: +svg.getAttribute("width"), height: +svg.getAttribute("height")};
}
// Lays every chart out anew: x = left + time * scale.
function layout() {
  for (const svg of charts) {
    const g = svg.geometry, plot = g.width * zoom, scale = g.end > 0 ? plot / g.end : 1, grow = plot - g.width;
    set(svg, {width: g.full + grow, viewBox: `0 0 ${g.full + grow} ${g.height}`});
    for (const b of svg.querySelectorAll(".block")) {
      const x = g.left + b.dataset.s * scale, w = Math.max(0.4, (b.dataset.e - b.dataset.s) * scale - 0.6);
      for (const r of b.getElementsByTagName("rect")) set(r, {x, width: w});
      for (const t of b.getElementsByTagName("text")) {
        set(t, {x: x + w / 2});
        t.style.display = w >= t.dataset.n ? "inline" : "none";
        t.removeAttribute("display");
      }
    }
    for (const r of svg.querySelectorAll("rect.idle[x='" + g.left + "']")) set(r, {width: plot});
    for (const l of svg.querySelectorAll(".grid, .axis > line")) set(l, {x2: g.left + plot});
    let clear = -Infinity;  // ticks that would stand on each other are left out
    for (const k of svg.querySelectorAll(".tick")) {
      const x = g.left + k.dataset.s * scale;
      k.style.display = x >= clear ? "inline" : "none";
      if (x >= clear) clear = x + 40;
      set(k.querySelector("line"), {x1: x, x2: x});
      set(k.querySelector("text"), {x});
    }
    for (const c of svg.querySelectorAll(".curve")) {
      const points = c.dataset.p.split(";").filter(p => p).map(p => p.split(","));
      c.setAttribute("d", points.map(([t, a, b], i) => `${i ? "L" : "M"}${g.left + t * scale} ${a}L${g.left + t * scale} ${b}`).join(""));
    }
    for (const t of svg.querySelectorAll(".share")) {
      t.home ??= +t.getAttribute("x");
      set(t, {x: t.home + grow});
    }
  }
}
// The zoom at which the whole of every chart is in the window.
function least() {
  const room = document.querySelector("section").clientWidth;
  return Math.max(0.05, Math.min(...charts.map(s => (room - (s.geometry.full - s.geometry.width)) / s.geometry.width)));
}
function fit() {
  fitted = true;
  zoom = least();
  layout();
}
// Zooms around a place on the screen, so that what is under the pointer stays there.
function zoom_by(factor, section, at) {
  const before = zoom, left = charts[0].geometry.left;
  fitted = false;
  zoom = Math.min(200, Math.max(least(), zoom * factor));
  const time = (section.scrollLeft + at - left) / before;
  layout();
  for (const s of document.querySelectorAll("section")) s.scrollLeft = time * zoom + left - at;
}
const first = document.querySelector("section");
document.getElementById("in").onclick = () => zoom_by(1.5, first, first.clientWidth / 2);
document.getElementById("out").onclick = () => zoom_by(1 / 1.5, first, first.clientWidth / 2);
document.getElementById("fit").onclick = fit;
addEventListener("resize", () => { if (fitted) fit(); });
fit();
for (const section of document.querySelectorAll("section"))
  section.addEventListener("wheel", e => {
    if (!e.ctrlKey && !e.shiftKey) return;
    e.preventDefault();
    zoom_by(Math.exp(-(e.deltaY || e.deltaX) / 300), section, e.clientX - section.getBoundingClientRect().left);
  }, {passive: false});
// Hover: action, rank, start and end at once, without the browser's delay.
const tip = document.getElementById("tip");
document.addEventListener("mousemove", e => {
  const shape = e.target.closest?.(".block, .curve"), title = shape?.querySelector("title");
  tip.style.display = title ? "block" : "none";
  if (!title) return;
  tip.textContent = title.textContent;
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
});
</script>
)";

}  // namespace

std::string chart_html(const std::vector<Timeline>& timelines, const std::string& heading, CellLabels labels) {
  const std::string title = escape_xml(heading);
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" + title + "</title>\n" + head;
  out += "</head>\n<body>\n<header><h1>" + title + "</h1><span>shift or ctrl + wheel zooms</span>";
  out += "<button id=\"out\">&minus;</button><button id=\"in\">+</button><button id=\"fit\">fit</button></header>\n";
  for (const auto& timeline : timelines) out += "<section>\n" + chart_svg(timeline, labels) + "</section>\n";
  return out + script + "</body>\n</html>\n";
}

}  // namespace ppengine::schedules
