// What a page does with script: times as the viewer wants them, copying, the dialogs, and
// lines over time. The rest of it is HTML, and htmx brings the part that changes.
(() => {
  'use strict';

  const root = document.documentElement;
  root.classList.add('js');

  // A page may keep the choice of the viewer, if the browser allows it to keep anything.
  const kept = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(name);
      localStorage.setItem(name, value);
    } catch { /* this page alone, then */ }
    return value;
  };

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const style = { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' };
  const there = new Intl.DateTimeFormat(undefined, style);
  const utc = new Intl.DateTimeFormat(undefined, { ...style, timeZone: 'UTC' });
  const clock = zone => new Intl.DateTimeFormat(undefined, { timeStyle: 'medium', hourCycle: 'h23', timeZone: zone });
  const clocks = { zone: clock(zone), utc: clock('UTC') };
  const choice = document.querySelector('#times');
  if (choice) choice.value = ['ago', 'zone', 'utc'].includes(kept('fila-times')) ? kept('fila-times') : 'ago';

  // span and ago print what the server prints; see span and relative in looks.go.
  function span(ms) {
    const s = Math.floor(ms / 1000), min = Math.floor(s / 60), h = Math.floor(min / 60);
    if (s < 120) return s + ' s';
    if (min < 60) return min + ' min';
    if (h < 48) return h + ' h' + (min % 60 ? ' ' + min % 60 + ' min' : '');
    return Math.floor(h / 24) + ' days';
  }
  function ago(at) {
    const ms = Date.now() - at;
    if (Math.abs(ms) < 1000) return 'now';
    return ms < 0 ? 'in ' + span(Math.round(-ms / 1000) * 1000) : span(ms) + ' ago';
  }

  // Each time has the exact text as a title, and outside of tables also on focus.
  function localise() {
    const mode = choice ? choice.value : 'ago';
    for (const el of document.querySelectorAll('time[datetime]')) {
      const at = new Date(el.getAttribute('datetime'));
      if (isNaN(at)) continue;
      const exact = mode === 'utc' ? utc.format(at) + ' UTC' : there.format(at);
      const near = Math.abs(Date.now() - at) < 12 * 3600e3; // in a sentence the date is then clear
      const text = el.className === 'at' ? near ? clocks[mode === 'utc' ? 'utc' : 'zone'].format(at) : exact
        : mode === 'ago' ? ago(at) : mode === 'utc' ? utc.format(at) : exact;
      if (el.textContent !== text) el.textContent = text;
      el.title = exact + '\n' + el.getAttribute('datetime');
      if (!el.closest('table, a, summary')) {
        el.tabIndex = 0;
        el.dataset.at = exact;
      }
    }
    const said = document.querySelector('.zone');
    if (said) said.textContent = mode === 'utc' ? 'Times are UTC.' : (mode === 'ago' ? 'Exact times are of ' : 'Times are of ') + zone + '.';
  }
  choice?.addEventListener('change', () => {
    kept('fila-times', choice.value);
    localise();
    for (const { plot } of charts.values()) plot.redraw(false, true);
  });
  setInterval(() => { if (!document.hidden) localise(); }, 1000);

  // Copying: <button class="copy" data-copy="text">.
  document.addEventListener('click', async event => {
    const button = event.target.closest?.('.copy');
    if (!button) return;
    event.preventDefault();
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch { // it needs HTTPS or this host
      const field = document.createElement('textarea');
      field.value = text;
      button.after(field);
      field.select();
      document.execCommand('copy');
      field.remove();
      button.focus();
    }
    button.classList.add('done');
    setTimeout(() => button.classList.remove('done'), 1500);
  });

  // dialog shows nodes in a dialog, which is gone when it is closed.
  function dialog(name, label, ...nodes) {
    const box = document.createElement('dialog');
    box.className = name;
    box.setAttribute('aria-label', label);
    box.append(...nodes);
    document.body.append(box);
    box.addEventListener('close', () => box.remove());
    box.addEventListener('click', event => { if (event.target === box) box.close(); });
    box.showModal();
    return box;
  }

  // A form that asks first shows its question as a dialog instead of as a page:
  // <form data-asks>.
  document.addEventListener('submit', async event => {
    const form = event.target.closest('form[data-asks]');
    if (!form || event.defaultPrevented) return;
    event.preventDefault();
    const data = new URLSearchParams(new FormData(form, event.submitter));
    try {
      const reply = await fetch(form.action, { method: 'POST', body: data });
      const page = new DOMParser().parseFromString(await reply.text(), 'text/html');
      const question = page.querySelector('.dialog');
      if (!question || !reply.ok) throw new Error('no question');
      form.closest('[popover]')?.hidePopover();
      const heading = document.createElement('h2');
      heading.textContent = page.querySelector('h1').textContent;
      const box = dialog('asks', heading.textContent, heading, document.adoptNode(question));
      box.querySelector('.cancel').addEventListener('click', cancel => { cancel.preventDefault(); box.close(); });
      box.querySelector('input:not([type=hidden]), .cancel').focus();
    } catch {
      form.removeAttribute('data-asks');
      form.requestSubmit(event.submitter);
    }
  });

  // The search opens with / or Ctrl-K. Its results are HTML of the server.
  const search = document.querySelector('[data-search]');
  let open = null;
  function find() {
    if (!search || open?.open) return;
    const form = document.createElement('form');
    form.action = search.href;
    form.setAttribute('role', 'search');
    const field = Object.assign(document.createElement('input'), { name: 'text', type: 'search', maxLength: 1024, autocomplete: 'off', placeholder: 'Queue, key, gate, message id, page or action' });
    field.setAttribute('aria-label', field.placeholder);
    const hint = document.createElement('kbd');
    hint.textContent = 'Esc';
    form.append(field, hint);
    const results = document.createElement('div');
    results.className = 'find-results results';
    results.setAttribute('aria-live', 'polite');
    open = dialog('find-dialog', 'Search', form, results);
    let turn = 0, timer;
    const ask = async () => {
      const mine = ++turn, asked = field.value;
      try {
        const reply = await fetch(search.dataset.search + '?text=' + encodeURIComponent(asked));
        const text = await reply.text();
        if (mine !== turn || !reply.ok) return;
        results.innerHTML = text;
        results.dataset.text = asked;
      } catch { /* the page of results remains: Enter opens it */ }
    };
    field.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
    open.addEventListener('keydown', event => {
      const links = [field, ...results.querySelectorAll('a')];
      const at = links.indexOf(document.activeElement);
      if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
      event.preventDefault();
      links[(at + (event.key === 'ArrowDown' ? 1 : links.length - 1)) % links.length].focus();
    });
    form.addEventListener('submit', event => { // the first result, if the results are up to date
      const first = results.querySelector('a');
      if (!first || !field.value || results.dataset.text !== field.value) return;
      event.preventDefault();
      first.click();
    });
    results.addEventListener('click', event => { if (event.target.closest('a')) open.close(); });
    ask();
    field.focus();
  }
  search?.addEventListener('click', event => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    find();
  });
  document.addEventListener('keydown', event => {
    const typing = event.target.closest?.('input, select, textarea, [contenteditable], dialog');
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey || event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      find();
    }
  });

  // unfold opens the menu around an element, at its button.
  function unfold(el) {
    const menu = el?.closest('[popover]');
    if (menu && !menu.matches(':popover-open')) document.querySelector('[popovertarget="' + menu.id + '"]')?.click();
  }

  // A link to a form in a menu opens the menu.
  function reveal() {
    const at = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!at) return;
    at.closest('details')?.setAttribute('open', '');
    unfold(at);
    at.querySelector?.('input:not([type=hidden]), select, textarea, button')?.focus();
  }
  addEventListener('hashchange', reveal);
  const wrong = document.querySelector('[aria-invalid]') || document.querySelector('.menu.refused input:not([type=hidden]), .menu.refused select');
  unfold(wrong);
  wrong?.focus();

  // A chart is drawn of the points that stand in the part of the page that changes:
  // <div class="chart" data-points="id">, and there <data id="id" value="JSON">: names,
  // times and values.
  const charts = new Map();

  // hours prints the times of an axis, with seconds if its marks are less than a minute apart.
  function hours(_, marks, axis, space, step) {
    const print = new Intl.DateTimeFormat(undefined, {
      hour: '2-digit', minute: '2-digit', second: step < 60 ? '2-digit' : undefined, hourCycle: 'h23',
      timeZone: choice?.value === 'utc' ? 'UTC' : zone,
    });
    return marks.map(at => print.format(at * 1000));
  }

  // drawMarks draws marks, as times and their numbers in the list of the page, as dashed lines. A
  // mark that is newer than the last point is at the right edge.
  function drawMarks(plot, marks, ink) {
    const { ctx, bbox } = plot, { min, max } = plot.scales.x;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.font = '600 ' + 11 * devicePixelRatio + 'px ' + getComputedStyle(document.body).fontFamily;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'top';
    const places = marks.filter(([at]) => at >= min).map(([at, number]) => [plot.valToPos(Math.min(at, max), 'x', true), number]).sort((a, b) => a[0] - b[0]);
    for (let i = 0; i < places.length;) { // marks that are too near to each other are one line
      const x = places[i][0], numbers = [];
      for (; i < places.length && places[i][0] - x < 14 * devicePixelRatio; i++) numbers.push(places[i][1]);
      const least = Math.min(...numbers), most = Math.max(...numbers);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const label = least === most ? least : least + '–' + most, room = ctx.measureText(label).width + 3 * devicePixelRatio;
      ctx.fillText(label, x + room > bbox.left + bbox.width ? x - room : x + 3 * devicePixelRatio, bbox.top);
    }
    ctx.restore();
  }

  function draw() {
    for (const box of document.querySelectorAll('.chart[data-points]')) {
      const data = document.getElementById(box.dataset.points);
      if (!data || typeof uPlot === 'undefined') continue;
      const text = data.getAttribute('value');
      const known = charts.get(box);
      if (known && known.text === text) continue;
      const { names, rows, marks = [] } = JSON.parse(text);
      if (rows[0].length < 2) continue;
      if (known) {
        known.marks = marks;
        known.plot.setData(rows);
        known.text = text;
        continue;
      }
      const chart = { text, marks };
      const style = getComputedStyle(document.documentElement);
      const colour = name => getComputedStyle(box).getPropertyValue(name) || style.color;
      const ink = getComputedStyle(document.body).color;
      const probe = document.createElement('i');
      box.append(probe);
      let next = 0; // only failures are red
      const strokes = names.map(label => {
        probe.style.color = colour(label === 'failed' ? '--bad' : '--s' + (next++ % 4 + 1));
        return getComputedStyle(probe).color;
      });
      probe.remove();
      const unit = box.dataset.unit || '';
      const value = (_, v) => v == null ? '' : +v.toPrecision(3) + unit;
      const three = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
      const figures = (_, all) => all.map(v => three.format(v) + unit);
      const faint = { stroke: 'rgba(128,128,128,.18)', width: 1 };
      const axis = { stroke: ink, font: '12px ' + getComputedStyle(document.body).fontFamily, grid: faint, ticks: faint };
      const plot = new uPlot({
        width: Math.max(box.clientWidth, 280), height: 200,
        series: [{}, ...names.map((label, i) => ({ label, stroke: strokes[i], width: 1.5, value, dash: i ? [6, 3] : [] }))],
        axes: [{ ...axis, space: 80, values: hours }, { ...axis, size: 70, values: figures }],
        padding: [null, 24, null, null], // for the last time of the axis
        legend: { live: false },
        scales: { y: { range: (_, lo, hi) => [0, hi > 0 ? hi * 1.1 : 1] } },
        hooks: { draw: [plot => drawMarks(plot, chart.marks, ink)] },
      }, rows, box);
      chart.plot = plot;
      charts.set(box, chart);
    }
  }

  addEventListener('resize', () => {
    for (const [box, { plot }] of charts) plot.setSize({ width: Math.max(box.clientWidth, 280), height: 200 });
  });

  // A chart keeps the colours that it was drawn in, so it is drawn again in another scheme.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    draw();
  });

  function refresh() { localise(); draw(); }
  document.addEventListener('htmx:after:swap', refresh);
  document.addEventListener('htmx:sse:after:message', refresh);
  refresh();
  reveal();
})();
