// The script of the pages: it loads a page again when events say that something has changed, and
// shows the events of the page of events. Every page works without it.
'use strict';

const $ = (id) => document.getElementById(id);
const live = $('live'), pauseButton = $('pause'), away = $('away');
const fixed = document.body.dataset.page === 'act'; // a question or a result is not loaded again
let tail = $('tail');
let paused = false, source = null, loading = false, retry = 0;
let pending = 'failed' in document.body.dataset; // the page is to be loaded again

// Times in the zone of the reader.
function localTimes(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const d = new Date(t.dateTime);
    if (!isNaN(d)) t.title = d.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) + '\n' + t.dateTime;
  }
}

// Commands can be copied where the browser allows it.
function copyButtons(root) {
  if (!navigator.clipboard) return;
  for (const code of root.querySelectorAll('code.cmd')) {
    if (code.nextElementSibling?.classList.contains('copy')) continue;
    const b = document.createElement('button');
    b.type = 'button';
    b.className = 'copy';
    b.textContent = 'Copy';
    b.setAttribute('aria-label', 'Copy the command');
    b.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        b.textContent = 'Copied';
      } catch {
        b.textContent = 'Not allowed';
      }
      setTimeout(() => { b.textContent = 'Copy'; }, 1500);
    });
    code.after(b);
  }
}

function dressed(root) {
  localTimes(root);
  copyButtons(root);
}

function say(text, state) {
  live.hidden = pauseButton.hidden = false;
  live.className = 'live ' + state;
  if ($('live-text').textContent !== text) $('live-text').textContent = text;
}

const partsOf = (root) => [...root.querySelectorAll('[data-live][id]')];

// A field differs from what the server has sent.
function edited(field) {
  if (field.options) return [...field.options].some((o) => o.selected !== o.defaultSelected);
  return field.type !== 'hidden' && field.value !== field.defaultValue;
}

// A part in use stays as it is until it is left. One with an edited field stays until it is sent.
function inUse(part) {
  const active = document.activeElement;
  const fields = 'input, select, textarea';
  const typing = part.contains(active) && active.matches(fields) || [...part.querySelectorAll(fields)].some(edited);
  const parts = part.matches('[data-live]') ? [part] : partsOf(part);
  return typing || parts.some((p) => p.matches(':hover') || [...p.querySelectorAll('details')].some((d) => d.open));
}

async function reload() {
  if (fixed) return;
  pending = true;
  if (loading || paused || document.hidden) return;
  loading = true;
  pending = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, cache: 'no-store' });
    if (answer.status >= 500) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (!fresh.getElementById('content')) throw new Error('no page');
    swap(fresh);
    away.hidden = true;
    connect();
  } catch {
    away.hidden = false;
    pending = true;
  }
  loading = false;
}

function swap(fresh) {
  const ids = (root) => [...root.querySelectorAll('[data-live][id], #tail')].map((p) => p.id).join();
  // a part has come or gone, such as all of them with an error: then the whole content is exchanged
  const parts = ids(document) === ids(fresh) ? partsOf(document) : [$('content')];
  for (const part of parts) exchange(part, fresh.getElementById(part.id));
  if (!tail && $('tail')) {
    tail = $('tail');
    disconnect(); // the page of events needs another stream
  }
  $('loaded').textContent = fresh.getElementById('loaded').textContent;
}

function exchange(part, now) {
  dressed(now);
  if (now.innerHTML === part.innerHTML) return;
  if (inUse(part)) {
    pending = true;
    return;
  }
  const focused = part.contains(document.activeElement) ? [...part.querySelectorAll('a, button')].indexOf(document.activeElement) : -1;
  const left = [...part.querySelectorAll('.scroll')].map((s) => s.scrollLeft);
  part.replaceChildren(...now.childNodes);
  part.querySelectorAll('.scroll').forEach((s, i) => { s.scrollLeft = left[i] ?? 0; });
  if (focused >= 0) part.querySelectorAll('a, button')[focused]?.focus({ preventScroll: true });
}

// Events of the page of events.
const maxRows = 500;
let lastSeq = null, lastId = '';

function cell(tr, content) {
  const td = tr.insertCell();
  if (content instanceof Node) td.append(content);
  else td.textContent = content;
  td.className = 'clip';
  return td;
}

function anchor(page, name, value, className) {
  if (!value) return '';
  const a = document.createElement('a');
  a.href = page + '?' + new URLSearchParams([[name, value]]);
  a.textContent = value;
  a.className = className;
  return a;
}

function addEvent(e) {
  if (lastSeq !== null && BigInt(e.seq) <= lastSeq) return; // sent twice after an interruption
  lastSeq = BigInt(e.seq);
  const body = tail.tBodies[0];
  body.querySelector('.waiting')?.remove();
  const tr = body.insertRow(0);
  tr.className = 'new';
  const time = document.createElement('time');
  time.dateTime = e.at;
  time.textContent = new Date(e.at).toLocaleTimeString();
  cell(tr, time).className = '';
  const state = document.createElement('span');
  state.className = 'state ' + e.class;
  const sign = document.createElement('span');
  sign.setAttribute('aria-hidden', 'true');
  sign.textContent = e.sign + ' ';
  state.append(sign, e.type);
  cell(tr, state);
  cell(tr, anchor('task', 'id', e.task, 'id'));
  cell(tr, e.name);
  cell(tr, anchor('queue', 'name', e.queue, ''));
  cell(tr, anchor('worker', 'node', e.node, 'id'));
  cell(tr, e.text);
  localTimes(tr);
  while (body.rows.length > maxRows) body.deleteRow(-1);
}

function missed() {
  lastSeq = null;
  if (!tail) {
    reload();
    return;
  }
  const tr = tail.tBodies[0].insertRow(0);
  const td = cell(tr, 'Events before this line are missing.');
  td.colSpan = 7;
  td.className = 'empty';
}

// The stream. A hidden page has none, since browsers allow few per host.
function connect() {
  clearTimeout(retry);
  if (fixed || source || paused || document.hidden) return;
  const params = new URLSearchParams(tail ? location.search : '');
  if (tail) params.set('all', '1');
  if (lastId) params.set('after', lastId);
  const from = source = new EventSource('live?' + params);
  source.onopen = () => {
    if (away.hidden === false || pending) reload();
    away.hidden = true;
    say('Live', 'on');
  };
  source.addEventListener('changed', reload);
  source.addEventListener('event', (m) => {
    lastId = m.lastEventId;
    addEvent(JSON.parse(m.data));
  });
  source.addEventListener('lost', missed);
  source.onerror = () => {
    if (from.readyState === EventSource.CLOSED) {
      // no events here, or too many pages are open
      source = null;
      say('Not live', 'off');
      retry = setTimeout(connect, 30000);
      return;
    }
    away.hidden = false;
    say('Connection lost', 'off');
  };
}

function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    disconnect();
    return;
  }
  reload();
  connect();
});

pauseButton.addEventListener('click', () => {
  paused = !paused;
  pauseButton.setAttribute('aria-pressed', String(paused));
  pauseButton.textContent = paused ? 'Resume' : 'Pause';
  if (paused) {
    disconnect();
    say('Paused', '');
  } else {
    reload();
    connect();
  }
});

// What was held up by the pointer or by a form is loaded when it is free.
setInterval(() => { if (pending) reload(); }, 2000);

const help = $('help');
$('help-open').hidden = false;
$('help-open').addEventListener('click', () => help.showModal());
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, select, textarea')) return;
  if (e.key === '/') {
    e.preventDefault();
    $('search').focus();
  } else if (e.key === '?' && !help.open) {
    help.showModal();
  }
});

// On a narrow screen the menu is a line that scrolls: the current page is in sight.
const here = document.querySelector('.menu [aria-current]');
if (here) here.closest('ul').scrollLeft = here.offsetLeft - (innerWidth - here.offsetWidth) / 2;

dressed(document);
connect();
