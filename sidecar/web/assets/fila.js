// What a page does with script: times in the zone of who looks, and lines over time. The
// rest of it is HTML, and htmx brings the part that changes.
(() => {
  'use strict';

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const style = { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' };
  const there = new Intl.DateTimeFormat(undefined, style);
  const utc = new Intl.DateTimeFormat(undefined, { ...style, timeZone: 'UTC' });

  // Where a viewer has asked for UTC, the tab keeps it.
  let inUTC = false;
  try { inUTC = sessionStorage.getItem('utc') === 'yes'; } catch { /* it is not allowed to keep anything */ }

  // Each time keeps its exact UTC text as a title; what is not a time stays as it is.
  function localise() {
    for (const el of document.querySelectorAll('time[datetime]')) {
      const exact = el.getAttribute('datetime');
      const at = new Date(exact);
      if (isNaN(at)) continue;
      const text = (inUTC ? utc : there).format(at);
      if (el.textContent !== text) el.textContent = text;
      el.title = exact;
    }
    const said = document.querySelector('.zone');
    const turn = document.querySelector('button.utc');
    if (!said || !turn || !zone) return;
    said.textContent = inUTC ? 'Times are UTC.' : 'Times are of ' + zone + '; each has its UTC as a title.';
    turn.textContent = inUTC ? 'Show times of ' + zone : 'Show UTC';
    turn.hidden = false;
  }

  // A chart is drawn of the points that stand in the part of the page that changes:
  // <div class="chart" data-points="id">, and there <data id="id" value="JSON">: names,
  // times and values.
  const charts = new Map();

  function draw() {
    for (const box of document.querySelectorAll('.chart[data-points]')) {
      const data = document.getElementById(box.dataset.points);
      if (!data || typeof uPlot === 'undefined') continue;
      const text = data.getAttribute('value');
      const known = charts.get(box);
      if (known && known.text === text) continue;
      const { names, rows } = JSON.parse(text);
      if (rows[0].length < 2) continue;
      if (known) {
        known.plot.setData(rows);
        known.text = text;
        continue;
      }
      const style = getComputedStyle(document.documentElement);
      const colour = name => getComputedStyle(box).getPropertyValue(name) || style.color;
      const ink = getComputedStyle(document.body).color;
      const probe = document.createElement('i');
      box.append(probe);
      const strokes = ['--link', '--bad', '--good', '--mid'].map(name => {
        probe.style.color = colour(name);
        return getComputedStyle(probe).color;
      });
      probe.remove();
      const unit = box.dataset.unit || '';
      const value = (_, v) => v == null ? '' : +v.toPrecision(3) + unit;
      const figures = (_, all) => all.map(v => +v.toPrecision(3) + unit);
      const axis = { stroke: ink, grid: { stroke: 'rgba(128,128,128,.25)' }, ticks: { stroke: 'rgba(128,128,128,.25)' } };
      const plot = new uPlot({
        width: Math.max(box.clientWidth, 280), height: 200,
        series: [{}, ...names.map((label, i) => ({ label, stroke: strokes[i % strokes.length], width: 1.5, value, dash: i ? [6, 3] : [] }))],
        axes: [axis, { ...axis, size: 70, values: figures }],
        legend: { live: false },
        scales: { y: { range: (_, lo, hi) => [0, hi > 0 ? hi * 1.1 : 1] } },
      }, rows, box);
      charts.set(box, { plot, text });
    }
  }

  document.querySelector('button.utc')?.addEventListener('click', () => {
    inUTC = !inUTC;
    try { sessionStorage.setItem('utc', inUTC ? 'yes' : 'no'); } catch { /* this page alone, then */ }
    localise();
  });

  addEventListener('resize', () => {
    for (const [box, { plot }] of charts) plot.setSize({ width: Math.max(box.clientWidth, 280), height: 200 });
  });

  function refresh() { localise(); draw(); }
  document.addEventListener('htmx:after:swap', refresh);
  document.addEventListener('htmx:sse:after:message', refresh);
  refresh();
})();
