'use strict';

// The page shows the answers of the API below api/. Everything from messages may be hostile, so it is
// set with textContent and never as markup.

const $ = id => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in made && name !== 'list') made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined && child !== ''));
  return made;
}

const show = (node, visible) => { node.hidden = !visible; };

// fill replaces the children of a node. It changes existing nodes instead of replacing them where it can, so that the focus
// and the selection stay. A handler must not refer to the node that it was passed with: that node may be discarded, and the handler
// moved to an existing node.
function fill(node, ...children) {
  children.forEach((child, at) => at < node.childNodes.length ? patch(node.childNodes[at], child) : node.append(child));
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

function patch(old, made) {
  if (old.nodeName !== made.nodeName) {
    old.replaceWith(made);
  } else if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
  } else {
    for (const name of old.getAttributeNames()) if (!made.hasAttribute(name)) old.removeAttribute(name);
    for (const name of made.getAttributeNames()) if (old.getAttribute(name) !== made.getAttribute(name)) old.setAttribute(name, made.getAttribute(name));
    old.onclick = made.onclick;
    if (made.type === 'checkbox') old.checked = made.checked;
    fill(old, ...made.childNodes);
  }
}

// iso encloses a name in Unicode isolates, so that its direction doesn't affect the text around it.
const iso = name => `\u2068${name}\u2069`;

// --- State ---

let session = {role: 'nobody', sources: [], changeable: false};
let source = '';
let overview = null;
let listed = [], chosen = -1, next = 0, filter = new URLSearchParams(), findTurn = 0; // findTurn counts requests, so that late answers to earlier ones are ignored
let open = null, openUntil = 0, openTurn = 0, shownAs = ''; // the message in the panel, and the time until which it is requested every second
let openKey = null; // the key whose timeline is in the panel
let ticked = new Set(); // the ids of the ticked messages of the list
let jobs = [];
let seenAt = 0; // the time of the last overview

const canChange = () => session.role === 'operator';

// --- Formats ---

const number = n => Number(n).toLocaleString('en-US', {maximumFractionDigits: n < 10 && n % 1 ? 1 : 0});

function duration(seconds) {
  if (seconds < 0.001) return '0 ms';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 && seconds % 1 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

let skew = 0; // by how many milliseconds the server's clock is ahead of the browser's
const now = () => Date.now() + skew;
const ago = time => {
  const seconds = (now() - new Date(time)) / 1000;
  return seconds < -1 ? `in ${duration(-seconds)}` : seconds < 1 ? 'now' : `${duration(Math.floor(seconds))} ago`;
};
const local = time => new Date(time).toLocaleString([], {dateStyle: 'medium', timeStyle: 'long'}); // with its time zone
const when = time => el('time', {dateTime: time, title: local(time)}, ago(time));
const exactly = time => `${local(time)} (${ago(time)})`;
const stateName = state => state === 'error' ? 'parked' : state;
const badge = (text, kind = text) => el('span', {className: `badge ${kind}`}, text);
// count formats the count of a state, which may be an estimate or a lower bound.
function count(status, state) {
  if ((status.absent || []).includes('counts')) return 'not counted';
  if ((status.estimated || []).includes(state)) return `≈ ${number(status[state])}`;
  if ((status.at_least || []).includes(state)) return `≥ ${number(status[state])}`;
  return number(status[state]);
}
const messages = n => n === 1 ? '1 message' : `${number(n)} messages`;

// --- The API ---

// A click is lost if its button is replaced between pressing and releasing it, so updates of the page wait for the release.
let released = Promise.resolve(), release = () => {};
addEventListener('pointerdown', () => { release(); released = new Promise(resolve => { release = resolve; }); }, true);
for (const over of ['pointerup', 'pointercancel', 'blur']) addEventListener(over, () => setTimeout(release), true); // after the click

// parse parses an answer. It turns ids that are too large for a JavaScript number into strings. The regular expression can't
// match within a string, because a name follows a brace or a comma, and quotes within strings are escaped.
const parse = text => JSON.parse(text.replace(/([{,]"(?:id|next|looked_until)":)(\d{16,})/g, '$1"$2"'));

async function api(path, body, tries = 12) {
  const url = new URL(`api/${path}`, document.baseURI);
  if (source && !url.searchParams.has('source')) url.searchParams.set('source', source);
  const options = body === undefined ? {} : {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)};
  let answer;
  try {
    answer = await fetch(url, {...options, credentials: 'same-origin'});
  } catch {
    throw new Error('The server does not answer.');
  }
  const again = answer.headers.get('Retry-After');
  if (answer.status === 429 && again !== null && body === undefined && tries > 9) { // too many concurrent requests
    await new Promise(resolve => setTimeout(resolve, again * 1000));
    return api(path, body, tries - 1);
  }
  // The header Date has whole seconds, so a difference of less than two seconds isn't corrected.
  const date = Date.parse(answer.headers.get('Date'));
  if (date) skew = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  const text = await answer.text();
  let read;
  try { read = parse(text); } catch { read = {error: `HTTP ${answer.status}`}; }
  if (answer.status === 401 && path !== 'login') await enter();
  if (read.elsewhere && tries > 0) { // several processes share the address: the next request may reach the right one
    await new Promise(resolve => setTimeout(resolve, 100));
    return api(path, body, tries - 1);
  }
  if (!answer.ok) throw new Error(read.error || `HTTP ${answer.status}`);
  await released;
  return read;
}

function trouble(error) {
  $('gone').textContent = error ? error.message : '';
  show($('gone'), Boolean(error));
}

// tell returns a function that calls the given one and shows its error.
const tell = work => async (...args) => {
  try { await work(...args); trouble(null); } catch (error) { trouble(error); }
};

async function enter() {
  const was = session;
  session = await (await fetch(new URL('api/session', document.baseURI))).json();
  if (!session.sources.includes(source)) source = session.sources[0] || '';
  $('source').replaceChildren(...session.sources.map(name => el('option', {value: name, selected: name === source}, name)));
  show($('source'), session.sources.length > 1);
  $('only-source').textContent = session.sources.length === 1 ? source : '';
  $('role').textContent = [session.role === 'nobody' ? '' : session.changeable ? session.role : 'read-only', session.user ? iso(session.user) : ''].filter(text => text).join(' · ');
  show($('login-open'), session.role !== 'operator' && (session.changeable || session.role === 'nobody'));
  show($('logout'), session.logged_in);
  for (const node of document.querySelectorAll('.operator')) show(node, canChange());
  if (session.role === 'nobody' && was.role !== 'nobody' || session.role === 'nobody' && !$('login').open) askToken();
}

// --- Overview ---

async function refresh() {
  if (session.role === 'nobody') return;
  try {
    overview = await api('overview');
  } catch (error) {
    showUnknown(error);
    throw error;
  }
  seenAt = now();
  const status = overview.status;
  const worst = overview.problems.some(p => p.level === 'bad') ? 'bad' : overview.problems.some(p => p.level === 'warn') ? 'warn' : 'good';
  $('state-dot').className = `dot ${worst}`;
  $('state-dot').title = {bad: 'Something is wrong', warn: 'Something needs attention', good: 'Nothing is wrong'}[worst];
  announce(overview.problems.length === 0 ? 'Nothing is wrong' : `${overview.problems.length} problems, such as ${overview.problems[0].kind}`, overview.problems.map(p => p.level + p.kind).join());
  document.title = `${{bad: '● ', warn: '○ ', good: ''}[worst]}rowrelay ${source}`;
  if (status) {
    fill($('counts'), ...['pending', 'claimed', 'scheduled', 'retry', 'error', 'done']
      .filter(state => status[state] > 0 || ['pending', 'error', 'done'].includes(state))
      .map(state => el('div', {className: state === 'error' && status[state] > 0 ? 'alarm' : ''}, el('dt', {}, stateName(state)), el('dd', {id: `count-${state}`}, count(status, state)))));
    showRelays(status.relays);
    showControls(status.controls);
  }
  showProblems(overview.problems);
  showSinks(overview.sinks);
}

// announce sends a text to screen readers if its second argument has changed since the previous call. The second argument has no
// counts, so that a changed count isn't announced.
let announced = null;
function announce(text, what) {
  if (announced !== null && announced !== what) $('announce').textContent = text;
  announced = what;
}

const severity = {bad: 'Error', warn: 'Warning', info: 'Note'};

// showUnknown shows that the state is unknown, because the server doesn't answer.
function showUnknown(error) {
  $('state-dot').className = 'dot bad';
  $('state-dot').title = 'The state is unknown';
  announce('The state is unknown', 'unknown');
  document.title = `● rowrelay ${source}`;
  fill($('problems'), el('li', {className: 'bad'}, el('span', {className: 'dot bad'}), el('b', {}, el('span', {className: 'severity'}, 'Error: '), 'The state is unknown'),
    el('p', {}, `${error.message} ${seenAt ? `Everything below is as it was ${ago(seenAt)}.` : ''}`)));
}

function showProblems(problems) {
  if (problems.length === 0) {
    fill($('problems'), el('li', {className: 'fine'}, el('span', {className: 'dot good'}), el('b', {}, 'Nothing is wrong.')));
    return;
  }
  fill($('problems'), ...problems.map(problem => el('li', {className: problem.level},
    el('span', {className: `dot ${problem.level}`}), el('b', {}, el('span', {className: 'severity'}, `${severity[problem.level]}: `), problem.title),
    problem.select ? el('button', {type: 'button', className: 'plain small', onclick: () => search(problem.select)}, 'Show') : null,
    problem.detail ? el('p', {}, problem.detail) : null)));
}

const empty = (node, text) => fill(node, el('li', {className: 'quiet none'}, text));
const emptyRow = (table, text) => fill(table.tBodies[0], el('tr', {}, el('td', {colSpan: table.tHead.rows[0].cells.length, className: 'quiet'}, text)));

function showSinks(sinks) {
  const names = ['', ...sinks.map(sink => sink.name)], of = names.includes($('chart-sink').value) ? $('chart-sink').value : '';
  if ([...$('chart-sink').options].map(option => option.value).join() !== names.join()) {
    $('chart-sink').replaceChildren(...names.map(name => el('option', {value: name}, name || 'all sinks')));
    $('chart-sink').value = of;
  }
  show($('chart-of'), sinks.length > 1);
  if (sinks.length === 0) {
    empty($('sinks'), 'This process has no sinks.');
    return;
  }
  fill($('sinks'), ...sinks.map(sink => {
    const parked = Object.entries(sink.parked).map(([reason, count]) => `${reason || 'other'} ${number(count)}`).join(', ');
    return el('li', {},
      el('h3', {}, sink.name, sink.down ? badge('unavailable', 'down') : badge('available', 'up'),
        sink.paused ? badge('paused') : null, sink.limit ? badge(`${number(sink.limit.rate)}/s`, 'limited') : null),
      el('p', {className: 'quiet'}, `${number(sink.rate)}/s · ${number(sink.in_flight)} in flight · ${number(sink.buffered)} in memory`),
      el('p', {className: 'quiet'}, `${number(sink.delivered)} delivered, ${sink.failed === 1 ? '1 attempt' : `${number(sink.failed)} attempts`} failed since the start`),
      parked ? el('p', {}, `Parked since the start: ${parked}`) : null,
      sink.down ? el('p', {className: 'bad'}, `${sink.reason}: ${iso(sink.detail)}`) : null,
      canChange() ? el('div', {className: 'buttons'},
        el('button', {type: 'button', className: 'plain small', onclick: () => steer('sink', sink.name, sink.paused)}, sink.paused ? 'Resume' : 'Pause…'),
        el('button', {type: 'button', className: 'plain small', onclick: () => steer('limit', sink.name, sink.limit)}, sink.limit ? 'End the limit' : 'Limit…')) : null);
  }));
}

function showControls(controls) {
  fill($('controls'), ...controls.map(control => el('li', {},
    badge(control.kind === 'limit' ? `limit ${control.rate}/s` : `paused ${control.kind}`, 'paused'), el('b', {}, control.name),
    el('span', {className: 'quiet'}, `since ${ago(control.since)}${control.ends ? `, until ${local(control.ends)}` : ''}${control.by ? `, by ${iso(control.by)}` : ''}${control.reason ? `: ${iso(control.reason)}` : ''}`),
    canChange() ? el('button', {type: 'button', className: 'plain small', onclick: () => steer(control.kind, control.name, control)}, 'End') : null)));
}

function showRelays(relays) {
  if (relays.length === 0) {
    emptyRow($('relays'), 'No relay has run here yet.');
    return;
  }
  fill($('relays').tBodies[0], ...relays.map(relay => el('tr', {},
    el('td', {}, relay.name), el('td', {}, relay.host), el('td', {}, relay.version), el('td', {}, relay.claim), el('td', {className: 'number'}, number(relay.lanes)),
    el('td', {}, when(relay.since)), el('td', {}, !relay.alive ? badge('dead', 'down') : relay.config.membership === 'standby' ? badge('waits', 'paused') : badge('alive', 'up'), ' ', when(relay.last_heartbeat)))));
}

async function refreshLogs() {
  if (session.role === 'nobody') return;
  const [actions, replays] = await Promise.all([api('actions'), api('replays')]);
  if (actions.length === 0) emptyRow($('actions'), 'Nothing yet.');
  else fill($('actions').tBodies[0], ...actions.map(action => el('tr', {},
    el('td', {}, when(action.at)), el('td', {title: action.by || ''}, action.by || ''), el('td', {}, action.action), el('td', {title: action.target || ''}, action.target || ''),
    el('td', {className: 'number'}, action.changed < 0 ? '–' : number(action.changed)), el('td', {title: action.reason || ''}, action.reason || ''))));
  show($('replays-section'), replays.length > 0);
  fill($('replays'), ...replays.map(replay => el('li', {}, el('b', {}, replay.name), badge(replay.state, replay.state === 'finished' ? 'done' : ''),
    el('span', {className: 'quiet'}, `${number(replay.written || 0)} written, ${number(replay.rate || 0)}/s${replay.topic ? `, topic ${replay.topic}` : ''}${replay.to ? `, to ${replay.to}` : ''}`),
    canChange() && replay.state === 'unfinished' ? el('button', {type: 'button', className: 'plain small', onclick: tell(async () => { await api(`replays/${encodeURIComponent(replay.name)}/stop`, {}); await refreshLogs(); })}, 'Stop') : null,
    canChange() && replay.state !== 'finished' && !jobs.some(job => !job.ended && job.request.name === replay.name) ? el('button', {type: 'button', className: 'plain small', onclick: tell(() => begin({action: 'replay', name: replay.name, select: {}}))}, 'Continue') : null)));
}

// --- Charts ---

function svg(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// chart draws series of [time, value] between two times. A null value makes a gap.
function chart(node, what, series, label, from, to) {
  const width = node.clientWidth || 300, height = node.clientHeight || 110, bottom = height - 16, top = 14;
  node.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const points = series.flat().filter(([, value]) => value !== null);
  if (points.length === 0) {
    node.replaceChildren(svg('text', {x: 0, y: height / 2}, from === null ? 'The first point appears ten seconds after the start.' : 'No data for this time.'));
    node.setAttribute('aria-label', `${what}: no data yet`);
    hovers.delete(node);
    return;
  }
  const most = points.reduce((most, [, value]) => Math.max(most, value), 0) || 1;
  node.setAttribute('aria-label', `${what}: now ${label(points.at(-1)[1])}, at most ${label(most)}`);
  const x = time => (time - from) / (to - from) * width, y = value => bottom - value / most * (bottom - top);
  hovers.set(node, {series, label, x, y, width, top, bottom, names: [...node.closest('figure').querySelectorAll('.key')].map(key => key.textContent)});
  const drawn = [svg('line', {class: 'grid', x1: 0, x2: width, y1: bottom, y2: bottom}), svg('line', {class: 'grid', x1: 0, x2: width, y1: top, y2: top}),
    svg('text', {x: 0, y: top - 4, class: 'most'}, label(most)), svg('text', {x: 0, y: height - 3}, clock(from)), svg('text', {x: width, y: height - 3, 'text-anchor': 'end'}, `${clock(to)} ${zone}`)];
  series.forEach((line, index) => {
    const parts = []; // the parts of the line between gaps
    for (const [time, value] of line) {
      if (value === null) continue;
      if (parts.length === 0 || time - parts.at(-1).at(-1)[0] >= 60000) parts.push([]);
      parts.at(-1).push([time, value]);
    }
    const path = part => part.map(([time, value], at) => `${at ? 'L' : 'M'}${x(time).toFixed(1)} ${y(value).toFixed(1)}${at ? '' : 'h.1'}`).join('');
    if (index === 0) drawn.push(svg('path', {class: 'area s1', d: parts.map(part => `${path(part)}L${x(part.at(-1)[0]).toFixed(1)} ${bottom}L${x(part[0][0]).toFixed(1)} ${bottom}Z`).join('')}));
    drawn.push(svg('path', {class: `line s${index + 1}`, d: parts.map(path).join('')}));
  });
  node.replaceChildren(...drawn);
  hover(node);
}

// hovers has the scales and series of each chart, for the function hover. pointed is the chart under the pointer, and the
// pointer's horizontal position in it.
const hovers = new Map();
let pointed = {node: null, at: 0};

// hover shows the values of the point that is nearest to the pointer.
function hover(node) {
  node.querySelector('.hover')?.remove();
  const chart = hovers.get(node), on = pointed.node === node && chart;
  node.classList.toggle('hovered', Boolean(on));
  if (!on) return;
  const distance = ([time]) => Math.abs(chart.x(time) - pointed.at);
  const index = chart.series[0].reduce((best, point, at, line) => distance(point) < distance(line[best]) ? at : best, 0);
  const time = chart.series[0][index][0], x = chart.x(time);
  const values = chart.series.map((line, at) => [line[index][1], at]).filter(([value]) => value !== null);
  const text = values.map(([value, at]) => `${chart.names[at] ? `${chart.names[at]} ` : ''}${chart.label(value)}`).join(', ') || 'nothing';
  node.append(svg('g', {class: 'hover'}));
  node.lastChild.append(svg('line', {x1: x, x2: x, y1: chart.top, y2: chart.bottom}),
    ...values.map(([value, at]) => svg('circle', {class: `s${at + 1}`, cx: x, cy: chart.y(value), r: 3.5})),
    svg('text', {x: x < chart.width / 2 ? 0 : chart.width, y: chart.top - 4, 'text-anchor': x < chart.width / 2 ? 'start' : 'end'}, `${new Date(time).toLocaleTimeString()}: ${text}`));
}

for (const node of document.querySelectorAll('.charts svg')) {
  const point = event => {
    pointed = {node, at: event.clientX - node.getBoundingClientRect().left};
    hover(node);
  };
  node.addEventListener('pointermove', point);
  node.addEventListener('pointerdown', point); // on a touch screen
  node.addEventListener('pointerleave', () => { pointed = {node: null, at: 0}; hover(node); });
}

const zone = new Date().toLocaleTimeString('en-US', {timeZoneName: 'short'}).split(' ').at(-1);
const clock = time => new Date(time).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});

async function refreshCharts() {
  if (session.role === 'nobody') return;
  const sink = $('chart-sink').value;
  const [points, ofSink] = await Promise.all([api('history'), sink ? api(`history?sink=${encodeURIComponent(sink)}`) : null]);
  const shown = ofSink || points; // for all charts except the backlog, which always shows the whole table
  const line = (value, of = shown) => of.map(point => [new Date(point.at).getTime(), value(point)]);
  const known = n => n < 0 ? null : n;
  const from = points.length ? new Date(points[0].at).getTime() : null, to = points.length ? Math.max(new Date(points.at(-1).at).getTime(), from + 60000) : null;
  chart($('chart-rate'), 'Delivered', [line(p => p.delivered / p.seconds)], n => `${number(n)}/s`, from, to);
  chart($('chart-lag'), 'Lag', [line(p => p.delivered ? p.lag : null), line(p => p.delivered ? p.most_lag : null)], duration, from, to);
  chart($('chart-backlog'), 'Backlog', [line(p => known(p.pending), points), line(p => known(p.waiting), points), line(p => known(p.error), points)], number, from, to);
  const now = shown.at(-1), last = points.at(-1);
  $('rate-now').textContent = now ? number(now.delivered / now.seconds) : '';
  $('lag-now').textContent = now && now.delivered ? duration(now.lag) : '';
  $('backlog-now').textContent = last && last.pending >= 0 ? number(last.pending + last.waiting + last.error) : '';
}

// --- Messages ---

function search(select) {
  const form = $('filter');
  form.reset();
  form.elements.state.value = '';
  for (const [name, value] of Object.entries(select)) if (form.elements[name]) form.elements[name].value = value;
  find();
  $('messages-title').scrollIntoView({block: 'start'});
}

// selected returns the filter as the API's parameters: a topic that ends with * is the beginning of topics.
function selected() {
  const query = new URLSearchParams(filter), topic = query.get('topic') || '';
  if (topic.length > 1 && topic.endsWith('*')) {
    query.delete('topic');
    query.set('topic_prefix', topic.slice(0, -1));
  }
  return query;
}

// place puts what the page shows into its address, so that the address can be shared: the filter, the message or the key in the
// panel, and the source if there are several.
function place() {
  const at = new URLSearchParams(filter);
  if (session.sources.length > 1) at.set('source', source);
  if (open !== null) at.set('message', open);
  if (openKey !== null) at.set('line', openKey);
  history.replaceState(null, '', at.size ? `#${at}` : location.pathname);
}

// arrive takes the filter and the source from an address of the page. It also stores the address's message or key, which
// the function start opens later.
function arrive(address) {
  const at = new URLSearchParams(new URL(address).hash.slice(1)), form = $('filter');
  if (at.has('source')) source = at.get('source');
  const filtered = [...at.keys()].some(name => form.elements[name]);
  for (const field of [...form.elements].filter(field => field.name)) field.value = at.get(field.name) ?? (field.name === 'state' && !filtered ? 'error' : '');
  arriving = {message: at.get('message'), line: at.get('line')};
}
let arriving = {}, startTurn = 0;

const find = tell(async (after = 0, all = false) => {
  filter = new URLSearchParams([...new FormData($('filter'))].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));
  if (filter.has('id')) filter = new URLSearchParams({id: filter.get('id')}); // an id finds a message in any state
  place();
  const query = selected();
  if (after) query.set('after', after);
  if (all) query.set('all', 'yes');
  const turn = ++findTurn;
  const answer = await api(`messages?${query}`);
  if (turn !== findTurn) return; // a later search was started
  const was = listed[chosen]?.id;
  listed = answer.messages;
  next = answer.next || 0;
  chosen = listed.findIndex(message => message.id === was); // keep the chosen message
  ticked = new Set(listed.map(message => String(message.id)).filter(id => ticked.has(id)));
  show($('next'), next > 0);
  show($('first'), after > 0);
  show($('all'), Boolean(answer.looked_until) || Boolean(answer.looked_through) && total() > answer.looked_through);
  $('messages-none').textContent = answer.looked_until ? `Not found in the rows up to id ${answer.looked_until}.` : filter.toString() === 'state=error' ? 'No message is parked.' : filter.size ? 'No message matches.' : 'The table is empty.';
  show($('messages-none'), listed.length === 0);
  showList();
});

// total returns the number of messages in the table, or Infinity if it is unknown.
const total = () => overview && overview.status && !(overview.status.absent || []).includes('counts') ? ['pending', 'claimed', 'scheduled', 'retry', 'error', 'done'].reduce((sum, state) => sum + overview.status[state], 0) : Infinity;

function showList() {
  fill($('messages').tBodies[0], ...listed.map((message, index) => el('tr', {className: index === chosen ? 'chosen' : '', tabIndex: 0, onclick: () => choose(index, true)},
    el('td', {className: 'tick', hidden: !canChange(), onclick: event => event.stopPropagation()}, el('input', {type: 'checkbox', checked: ticked.has(String(message.id)), disabled: !tickable(message), 'aria-label': `Tick message ${message.id}`, onclick: () => tick(index)})),
    el('td', {}, String(message.id)), el('td', {}, badge(stateName(message.state), message.state), message.holds_key ? ' ' : '', message.holds_key ? badge('holds its key', 'paused') : ''),
    el('td', {className: 'topic', title: message.topic}, message.topic), el('td', {className: 'of', title: message.key || ''}, message.key || ''), el('td', {className: 'number tries'}, String(message.attempts)),
    el('td', {className: 'written'}, when(message.created_at)), el('td', {className: 'text', title: message.last_error || message.receipt || ''}, message.state === 'done' ? message.receipt || '' : message.last_error || ''))));
  showTicked();
  const state = filter.get('state') || '';
  show($('bulk'), canChange() && listed.length > 0 && (state === 'error' || state === 'retry'));
  show($('bulk-done'), canChange() && listed.length > 0 && state === 'done' && !filter.has('error'));
  $('bulk-what').textContent = `All ${state === 'retry' ? 'messages waiting for their next attempt' : 'parked messages'} that match this filter:`;
  $('bulk').querySelector('[data-action=requeue]').textContent = state === 'retry' ? 'Retry all now…' : 'Requeue all…';
}

const tickable = message => ['error', 'retry', 'done'].includes(message.state);

function tick(index) {
  const message = listed[index], id = String(message?.id);
  if (!message || !tickable(message) || !canChange()) return;
  if (!ticked.delete(id)) ticked.add(id);
  showList();
}

// showTicked shows the actions for the ticked messages. Each action applies to the messages in one state.
function showTicked() {
  const all = listed.filter(tickable), chosenOnes = listed.filter(message => ticked.has(String(message.id)));
  $('tick-all').checked = all.length > 0 && chosenOnes.length === all.length;
  $('tick-all').indeterminate = chosenOnes.length > 0 && chosenOnes.length < all.length;
  show($('ticked'), canChange() && chosenOnes.length > 0);
  const of = state => [...new Set(chosenOnes.filter(message => message.state === state).map(message => String(message.id)))];
  const act = (text, action, ids, state, className) => ids.length === 0 ? null
    : el('button', {type: 'button', className, onclick: () => ask(action, {ids, ...(state ? {state} : {})})}, `${text} ${number(ids.length)}…`);
  const parked = of('error'), retry = of('retry'), done = of('done'), holding = [...new Set(chosenOnes.filter(message => message.holds_key).map(message => String(message.id)))];
  fill($('ticked'), ...[el('span', {}, `${messages(chosenOnes.length)} ticked:`),
    act('Requeue', 'requeue', parked), act('Skip', 'skip', holding, '', 'plain'), act('Discard', 'discard', parked, '', 'plain danger'),
    act('Retry now', 'requeue', retry, 'retry'), act('Skip', 'skip', retry, 'retry', 'plain'), act('Discard', 'discard', retry, 'retry', 'plain danger'),
    act('Replay', 'replay', done),
    el('button', {type: 'button', className: 'plain', onclick: () => { ticked.clear(); showList(); }}, 'Untick')].filter(node => node));
}

function choose(index, andOpen) {
  if (index < 0 || index >= listed.length) return;
  chosen = index;
  [...$('messages').tBodies[0].rows].forEach((row, at) => row.classList.toggle('chosen', at === chosen));
  $('messages').tBodies[0].rows[chosen].scrollIntoView({block: 'nearest'});
  if (andOpen || open) openMessage(listed[index].id);
}

const openMessage = tell(async id => {
  const same = open === id, turn = ++openTurn;
  const parts = await api(`messages/${id}`).catch(error => { if (same && turn === openTurn) closePanel(); throw error; });
  if (turn !== openTurn) return; // another message was opened, or the panel was closed
  if (!same) openUntil = 0;
  open = parts[0].id;
  openKey = null;
  place();
  const text = JSON.stringify(parts);
  if (same && text === shownAs && !$('panel').hidden) return;
  shownAs = text;
  showPanel(same, parts.flatMap((message, index) => messageParts(message, index === 0)));
});

// showPanel shows these nodes in the panel. If it shows the same thing as before, the focus and the scroll position stay.
function showPanel(same, nodes) {
  const scrolled = same ? $('panel').scrollTop : 0;
  const focused = [...$('panel').querySelectorAll('a, button, pre')].indexOf(document.activeElement);
  $('panel').replaceChildren(...nodes);
  show($('panel'), true);
  $('panel').scrollTop = scrolled;
  if (!same) $('panel').focus();
  else if (focused >= 0) ([...$('panel').querySelectorAll('a, button, pre')][focused] || $('panel')).focus();
}

// showKey shows the timeline of a key: its delivered messages, the messages that block it, and its waiting messages.
const showKey = tell(async (key, more = '') => {
  const same = openKey === key, turn = ++openTurn;
  const line = await api(`keys?key=${encodeURIComponent(key)}${more}`);
  if (turn !== openTurn) return;
  open = null;
  openKey = key;
  place();
  const row = (kind, text, actions = []) => message => el('li', {className: kind},
    el('button', {type: 'button', className: 'link', onclick: () => openMessage(message.id)}, `${message.id} ${message.topic}`), ' ', badge(stateName(message.state), message.state), message.holds_key ? ' ' : '', message.holds_key ? badge('holds its key', 'paused') : '',
    el('small', {className: 'quiet'}, text(message)),
    canChange() ? el('div', {className: 'buttons'}, ...actions.filter(([, fits]) => fits(message)).map(([name, , act]) =>
      el('button', {type: 'button', className: 'plain small', onclick: tell(async () => { await act(message); await showKey(key, more); })}, name))) : null);
  const change = (action, state) => async message => {
    const job = await api('jobs', {action, select: {ids: [String(message.id)], ...(state ? {state} : {})}, by: who()});
    if (job.error) throw new Error(job.error);
  };
  const is = state => message => message.state === state;
  const held = row('bad', message => `${message.available_at && message.state !== 'error' ? `due ${exactly(message.available_at)} · ` : ''}${message.last_error || 'scheduled'}`,
    [['Requeue', is('error'), change('requeue')], ['Skip: unblock the key', message => message.holds_key, change('skip')], ['Retry now', is('retry'), change('requeue', 'retry')]]);
  const blocks = line.held.filter(message => message.holds_key || message.state === 'retry');
  const list = (nodes, none) => nodes.length ? el('ol', {className: 'timeline'}, ...nodes) : el('p', {className: 'quiet'}, none);
  showPanel(same, [
    el('div', {className: 'head'}, el('h2', {}, 'Key ', iso(key)), el('span', {className: 'grow'}), el('button', {type: 'button', className: 'plain small', onclick: closePanel, 'aria-label': 'Close'}, '✕')),
    el('div', {className: 'buttons'}, el('button', {type: 'button', className: 'plain small', onclick: () => { closePanel(); search({key}); }}, 'List its messages'),
      canChange() ? el('button', {type: 'button', className: 'plain small', onclick: () => steer('key', key)}, 'Pause it…') : null, el('button', {type: 'button', className: 'plain small', onclick: () => showKey(key, more)}, 'Refresh')),
    el('h3', {}, `Delivered since ${local(line.delivered_since)}`), list(line.delivered.map(row('good', message => `${exactly(message.finished_at)}${message.receipt ? ` · ${message.receipt}` : ''}`)), 'Nothing.'),
    more.includes('since') ? '' : el('p', {}, el('button', {type: 'button', className: 'link', onclick: () => showKey(key, `${more}&since=24h`)}, 'Search a day')),
    el('h3', {}, blocks.length ? 'Blocks the key: later messages wait' : 'Parked or scheduled'), list(line.held.map(held), 'Nothing.'), line.more_held ? el('p', {className: 'quiet'}, 'And more.') : '',
    el('h3', {}, 'Waits to be delivered'), list(line.waiting.map(row('', message => `written ${exactly(message.created_at)}`)), 'Nothing.'), line.more_waiting ? el('p', {className: 'quiet'}, 'And more.') : '',
    line.looked_through && total() > line.looked_through ? el('p', {}, el('button', {type: 'button', className: 'link', onclick: () => showKey(key, `${more}&all=yes`)}, 'Search everything')) : '',
  ].filter(node => node !== ''));
});

function closePanel() {
  const focused = $('panel').contains(document.activeElement), row = $('messages').tBodies[0].rows[listed.findIndex(message => message.id === open)];
  if (focused && row) row.focus({preventScroll: true}); // the row that opened the panel
  open = null;
  openKey = null;
  openTurn++;
  place();
  show($('panel'), false);
  fill($('panel'));
}

function messageParts(message, first) {
  const facts = [
    ['Topic', message.topic], ['Key', message.key], ['Sinks', (message.sinks || []).join(', ')], ['Message id', message.message_id], ['Lane', String(message.lane)],
    ['Attempts', String(message.attempts)], ['Crashes', message.crashes ? String(message.crashes) : ''], ['Priority', message.priority ? String(message.priority) : ''],
    ['Claimed by', message.claimed_by], ['Expires', message.expires_at && exactly(message.expires_at)],
  ].filter(([, value]) => value).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]);
  const isID = value => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);
  const headers = Object.entries(message.headers).sort().flatMap(([name, value]) => [el('dt', {}, name),
    el('dd', {}, name === 'copy-of' && isID(value) ? el('button', {type: 'button', className: 'link', onclick: () => openMessage(value)}, value) : value)]);
  return [
    el('div', {className: 'head'}, el('h2', {}, `Message ${message.id}`), badge(stateName(message.state), message.state), message.holds_key ? badge('holds its key', 'paused') : null,
      el('span', {className: 'grow'}), first ? el('a', {href: `#${new URLSearchParams(session.sources.length > 1 ? {source, message: message.id} : {message: message.id})}`}, 'Link') : null,
      first ? el('button', {type: 'button', className: 'plain small', onclick: closePanel, 'aria-label': 'Close'}, '✕') : null),
    canChange() && message.state === 'error' ? el('div', {className: 'buttons'},
      el('button', {type: 'button', onclick: () => one('requeue', message.id)}, 'Requeue'),
      message.holds_key ? el('button', {type: 'button', className: 'plain', onclick: () => one('skip', message.id)}, 'Skip: unblock its key') : null,
      el('button', {type: 'button', className: 'plain danger', onclick: () => ask('discard', {ids: [String(message.id)]})}, 'Discard…')) : '',
    canChange() && message.state === 'retry' ? el('div', {className: 'buttons'},
      el('button', {type: 'button', onclick: () => one('requeue', message.id, 'retry')}, 'Retry now'),
      el('button', {type: 'button', className: 'plain', onclick: () => ask('skip', {ids: [String(message.id)], state: 'retry'})}, 'Skip…'),
      el('button', {type: 'button', className: 'plain danger', onclick: () => ask('discard', {ids: [String(message.id)], state: 'retry'})}, 'Discard…')) : '',
    canChange() && message.state === 'done' ? el('div', {className: 'buttons'}, el('button', {type: 'button', className: 'plain', onclick: () => ask('replay', {ids: [String(message.id)]})}, 'Replay…')) : '',
    el('div', {className: 'buttons'},
      message.key ? el('button', {type: 'button', className: 'plain small', onclick: () => showKey(message.key)}, 'Timeline of its key') : null,
      /^https?:/.test(message.trace_url || '') ? el('a', {href: message.trace_url, target: '_blank', rel: 'noopener noreferrer'}, 'Trace') : null,
      canChange() && message.key ? el('button', {type: 'button', className: 'plain small', onclick: () => steer('key', message.key)}, 'Pause its key…') : null,
      canChange() ? el('button', {type: 'button', className: 'plain small', onclick: () => steer('topic', message.topic)}, 'Pause its topic…') : null,
      canChange() && message.copyable && !message.payload_cut && !message.payload_hidden ? el('button', {type: 'button', className: 'plain small', onclick: () => copy(message)}, 'Copy as new message…') : null),
    el('dl', {className: 'facts'}, ...facts),
    el('h3', {}, 'History'), timeline(message),
    message.malformed ? el('p', {className: 'bad'}, message.malformed) : '', headers.length ? el('h3', {}, 'Headers') : '', headers.length ? el('dl', {className: 'facts'}, ...headers) : '',
    el('h3', {}, `Payload, ${number(message.payload_bytes)} bytes`), payload(message),
  ].filter(node => node !== '' && node !== null);
}

// timeline shows the history of a message. If the message's row has no failed attempts yet, it shows the failed attempts in the
// server process's memory.
function timeline(message) {
  const line = (kind, time, text, detail) => el('li', {className: kind}, el('span', {}, text), el('small', {className: 'quiet'}, time ? exactly(time) : '', time && detail ? ' · ' : '', detail || ''));
  const lines = [line('', message.created_at, 'Written')];
  const log = message.attempt_log || [], known = log.length ? [] : message.attempted;
  if (message.attempts > 0 && log.length + known.length === 0 && message.state !== 'done') lines.push(line('', null, `${message.attempts} earlier attempts, without a record`));
  for (const attempt of log) lines.push(line('bad', attempt.at, `Attempt${attempt.sink ? ` to ${iso(attempt.sink)}` : ''} by ${iso(attempt.relay)} failed after ${duration(attempt.duration_ms / 1000)}`, attempt.answer));
  for (const attempt of known) lines.push(line('bad', attempt.at, `Attempt ${attempt.number} to ${iso(attempt.sink)} failed (${attempt.reason}), and the message ${attempt.became}`, attempt.detail));
  if (message.state === 'done') lines.push(line('good', message.finished_at, `Delivered${message.claimed_by ? ` by ${message.claimed_by}` : ''}`, message.receipt));
  if (message.state === 'error') lines.push(line('bad', null, 'Parked: it waits for an operator', message.last_error));
  if (message.state === 'retry') lines.push(line('', message.available_at, 'Next attempt', message.last_error));
  if (message.state === 'scheduled') lines.push(line('', message.available_at, 'To be delivered'));
  if (message.state === 'pending') lines.push(line('', null, 'Waits to be delivered', message.last_error));
  return el('ol', {className: 'timeline'}, ...lines);
}

function payload(message) {
  if (message.payload_hidden) return el('p', {className: 'quiet'}, 'Payloads are not shown here.');
  if (message.payload === null && !message.payload_base64) return el('p', {className: 'quiet'}, 'NULL');
  const bytes = message.payload_base64 ? Uint8Array.from(atob(message.payload_base64), c => c.charCodeAt(0)) : new TextEncoder().encode(message.payload);
  const forms = {};
  if (message.payload !== null) {
    try { JSON.parse(message.payload); forms.JSON = () => pretty(message.payload); } catch { /* the payload isn't JSON */ }
    forms.Text = () => message.payload;
  }
  forms.Hex = () => hex(bytes);
  const box = el('pre', {tabIndex: 0}), tabs = el('div', {className: 'tabs'});
  const choosing = name => {
    box.textContent = forms[name]() + (message.payload_cut ? '\n… and more' : '');
    for (const tab of tabs.children) tab.setAttribute('aria-pressed', tab.textContent === name);
  };
  tabs.append(...Object.keys(forms).map(name => el('button', {type: 'button', className: 'plain small', onclick: () => choosing(name)}, name)));
  choosing(Object.keys(forms)[0]);
  return el('div', {}, tabs, box);
}

// pretty breaks JSON into lines. It works on tokens, because parsing would change large numbers, escapes and repeated names.
function pretty(json) {
  let out = '', depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
  tokens.forEach((token, at) => {
    if (token === '{' || token === '[') {
      depth++;
      out += token + (tokens[at + 1] === '}' || tokens[at + 1] === ']' ? '' : line());
    } else if (token === '}' || token === ']') {
      depth--;
      out += (tokens[at - 1] === '{' || tokens[at - 1] === '[' ? '' : line()) + token;
    } else {
      out += token === ',' ? token + line() : token === ':' ? ': ' : token;
    }
  });
  return out;
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 16384); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    lines.push(`${at.toString(16).padStart(6, '0')}  ${part.map(b => b.toString(16).padStart(2, '0')).join(' ').padEnd(47)}  ${part.map(b => b >= 32 && b < 127 ? String.fromCharCode(b) : '.').join('')}`);
  }
  if (bytes.length > 16384) lines.push('…');
  return lines.join('\n');
}

// --- Changes ---

const who = () => session.user || localStorage.getItem('rowrelay-who') || '';

const one = tell(async (action, id, state) => {
  const job = await api('jobs', {action, select: {ids: [String(id)], ...(state ? {state} : {})}, by: who()});
  if (job.error) throw new Error(job.error);
  openUntil = Date.now() + 30000;
  await Promise.all([openMessage(id), refreshJobs(), refreshLogs()]);
  const listedAt = listed.findIndex(message => message.id === id);
  if (listedAt >= 0) $('messages').tBodies[0].rows[listedAt].classList.add('changed');
});

async function begin(request) {
  const job = await api('jobs', {...request, by: who()});
  jobs = [{...job, seen: Date.now()}, ...jobs]; // show the job now, because another process may answer the next request for jobs
  await Promise.all([refreshJobs(), refreshLogs()]);
  return job;
}

// dialog shows a question with fields, and calls the function work when the user confirms it.
function dialog(title, text, fields, button, danger, work) {
  $('confirm-title').textContent = title;
  $('confirm-text').replaceChildren(...text);
  const whoField = {name: 'by', label: 'Your name, for the log', value: who()};
  $('confirm-fields').replaceChildren(...[...fields, {name: 'reason', label: 'Reason, for the log', required: danger}, ...(session.user ? [] : [whoField])].map(field => {
    const input = field.area ? el('textarea', {name: field.name, value: field.value, spellcheck: false}) : field.options ? el('select', {name: field.name}, ...field.options.map(([value, shown]) => el('option', {value}, shown)))
      : el('input', {name: field.name, type: field.check ? 'checkbox' : 'text', value: field.value ?? '', placeholder: field.placeholder || '', required: Boolean(field.required), autocomplete: 'off'});
    return field.check ? el('label', {className: 'check'}, input, field.label) : el('label', {}, field.label, input);
  }));
  $('confirm-error').textContent = '';
  $('confirm-do').textContent = button;
  $('confirm-do').classList.toggle('danger', danger);
  $('confirm-do').disabled = false;
  const form = $('confirm').querySelector('form');
  form.onsubmit = async event => {
    event.preventDefault();
    const given = Object.fromEntries([...form.elements].filter(input => input.name).map(input => [input.name, input.type === 'checkbox' ? input.checked : input.type === 'textarea' ? input.value : input.value.trim()]));
    if (!session.user) localStorage.setItem('rowrelay-who', given.by);
    $('confirm-do').disabled = true;
    try {
      await work(given);
      $('confirm').close();
    } catch (error) {
      $('confirm-error').textContent = error.message;
    }
    $('confirm-do').disabled = false;
  };
  $('confirm').showModal();
}

// ask asks for confirmation of an action, and shows how many messages it changes.
const ask = tell(async (action, select) => {
  const request = {action, select};
  if (Object.keys(select).length === 0) request.all = true;
  const waiting = select.state === 'retry';
  const done = {requeue: waiting ? 'Retry' : 'Requeue', skip: 'Skip', discard: 'Discard', replay: 'Replay'}[action];
  if (!overview) await refresh();
  const sinks = [['', 'unchanged'], ...overview.sinks.map(sink => [sink.name, sink.name])];
  const rate = {name: 'rate', label: 'Messages per second (0: no limit)', value: action === 'replay' ? '100' : '0'};
  const fields = {
    requeue: waiting ? [rate] : [rate, {name: 'to', label: 'Sink', options: sinks}, {name: 'in_order', label: 'Leave messages parked if later ones of their keys were delivered', check: true}],
    skip: [], discard: [],
    replay: [{...rate, label: 'Messages per second'}, {name: 'to', label: 'Sink', options: sinks}, {name: 'name', label: 'Name of the replay (lower-case letters, digits)', placeholder: 'the time'}],
  }[action];
  let plan = '', turn = 0;
  const counting = el('div', {id: 'preview'}, action === 'replay' ? el('p', {className: 'quiet'}, 'Copies are written as new messages with the same message ids, and sent after the messages that wait now.') : el('p', {className: 'quiet'}, 'Counting…'));
  dialog(`${done} messages`, [counting], fields, done, action === 'discard', async given => {
    const more = action === 'replay' ? {...request, reason: given.reason} : {plan, reason: given.reason};
    if (given.rate !== undefined) {
      more.rate = Number(given.rate);
      if (!Number.isInteger(more.rate) || more.rate < 0) throw new Error('The rate must be a whole number.');
    }
    if (action === 'replay' && given.to) more.to = given.to;
    if (given.name) more.name = given.name;
    const job = await begin(more);
    if (job.state === 'failed') throw new Error(job.error);
    if (job.ended) await find();
    if (open) openMessage(open);
  });
  if (action === 'replay') return;
  // The action changes exactly the messages of the preview, so a change of these fields needs a new preview.
  const form = $('confirm').querySelector('form');
  const preview = async () => {
    const mine = ++turn;
    $('confirm-do').disabled = true;
    $('confirm-error').textContent = '';
    const more = {};
    if (form.elements.to?.value) more.to = form.elements.to.value;
    if (form.elements.in_order?.checked) more.in_order = true;
    try {
      let job = await api('jobs', {...request, ...more, preview: true, by: who()});
      while (!job.ended) {
        await new Promise(resolve => setTimeout(resolve, 500));
        job = await api(`jobs/${job.id}`);
      }
      if (mine !== turn) return;
      if (job.error) throw new Error(job.error);
      const stay = (job.left || 0) + (job.unfit || 0);
      plan = job.id;
      fill(counting, el('p', {}, el('b', {id: 'preview-count'}, messages(job.total)), ` will be ${{requeue: waiting ? 'tried again now' : 'requeued', skip: waiting ? 'parked without another attempt, and their keys unblocked' : 'skipped: they stay parked, and their keys are unblocked', discard: 'deleted for good'}[action]}.`),
        ...(job.topics || []).slice(0, 6).map(topic => el('p', {className: 'quiet'}, `${number(topic.parked)} with topic ${iso(topic.topic)}${topic.sinks ? ` for ${iso(topic.sinks)}` : ''}`)),
        job.overtaken ? el('p', {className: 'bad'}, `${number(job.overtaken)} were overtaken: later messages of their keys have been delivered.`) : '',
        stay ? el('p', {className: 'quiet'}, stay === 1 ? '1 other stays as it is.' : `${number(stay)} others stay as they are.`) : '');
      $('confirm-do').textContent = job.total === 0 ? 'Nothing to do' : `${done} ${messages(job.total)}`;
      $('confirm-do').disabled = job.total === 0;
    } catch (error) {
      if (mine === turn) $('confirm-error').textContent = error.message;
    }
  };
  for (const name of ['to', 'in_order']) form.elements[name]?.addEventListener('change', preview);
  await preview();
});

// copy writes a new message with another payload, and opens it.
function copy(message) {
  const binary = message.payload === null && message.payload_base64;
  dialog('Copy as new message', [el('p', {className: 'quiet'}, `The new message has the topic, key, headers and priority of message ${message.id}, and a header copy-of. It is sent after the messages of its key that wait now.`)],
    [{name: 'payload', label: binary ? 'Payload, in base64' : message.payload === null ? 'Payload (empty: NULL)' : 'Payload', value: binary ? message.payload_base64 : message.payload ?? '', area: true}], 'Write', false, async given => {
      const request = {copy_of: String(message.id), by: who(), reason: given.reason, payload: null};
      if (binary) request.payload_base64 = given.payload.trim();
      else if (message.payload !== null || given.payload !== '') request.payload = given.payload;
      const made = await api('messages', request);
      await Promise.all([openMessage(made.message_id), find(), refreshLogs()]);
    });
}

// steer sets a pause or a limit, or ends the one that is in force.
function steer(kind, name, inForce) {
  const after = tell(async () => { await Promise.all([refresh(), refreshLogs()]); });
  if (inForce) {
    tell(async () => { await api('controls/lift', {kind, name, by: who()}); await after(); })();
    return;
  }
  const limits = kind === 'limit';
  dialog(limits ? `Limit the sink ${iso(name)}` : `Pause the ${kind} ${iso(name)}`,
    [el('p', {className: 'quiet'}, limits ? 'This limits the rate of all relays together.' : 'All relays apply the pause within a second. Batches that are being sent are finished. No attempt is charged and no message is lost.')],
    [...(limits ? [{name: 'rate', label: 'Messages per second', value: '100', required: true}] : []), {name: 'for', label: 'Duration', placeholder: '30m, 2h, 1d (empty: until it is ended)'}],
    limits ? 'Limit' : 'Pause', false, async given => {
      const request = {kind, name, for: given.for, reason: given.reason, by: given.by};
      if (limits) request.rate = Number(given.rate) || 0;
      await api('controls', request);
      await after();
    });
}

// --- Jobs ---

async function refreshJobs() {
  if (session.role === 'nobody') return;
  const was = jobs.filter(job => !job.ended).length;
  // If several processes share the address, each answers with its own jobs only. The other processes' jobs stay listed for 15 s.
  const at = Date.now(), got = (await api('jobs')).filter(job => !job.request.preview && job.source === source).map(job => ({...job, seen: at}));
  const processOf = job => job.id.slice(job.id.indexOf('.')), from = new Set(got.map(processOf));
  jobs = [...got, ...jobs.filter(job => job.source === source && !from.has(processOf(job)) && at - job.seen < 15000)].sort((a, b) => new Date(b.began) - new Date(a.began));
  const shown = jobs.filter(job => !job.ended || now() - new Date(job.ended) < 600000).slice(0, 6);
  show($('jobs-section'), shown.length > 0);
  fill($('jobs'), ...shown.map(job => {
    const what = job.request.action === 'replay' ? `Replay ${iso(job.request.name)}` : `${{requeue: job.request.select.state === 'retry' ? 'Retry' : 'Requeue', skip: 'Skip', discard: 'Discard'}[job.request.action]} ${describe(job.request.select)}`;
    const done = job.total ? `${number(job.done)} of ${number(job.total)}` : number(job.done);
    return el('li', {className: `job ${job.state}`}, el('span', {className: 'what'}, what, ' ', badge(job.state, {done: 'done', failed: 'error', stopped: 'retry'}[job.state] || '')),
      canChange() && !job.ended ? el('button', {type: 'button', className: 'plain small', onclick: tell(async () => { await api(`jobs/${job.id}/stop`, {}); await refreshJobs(); await refreshLogs(); })}, 'Stop') : null,
      canChange() && (job.state === 'stopped' || job.state === 'failed') ? el('button', {type: 'button', className: 'plain small', onclick: tell(() => begin(job.request.action === 'replay' ? job.request : {plan: job.id, rate: job.request.rate, reason: job.request.reason}))}, 'Continue') : null,
      !job.ended ? el('progress', {max: job.total || 1, value: job.total ? job.done : 0}) : null,
      el('small', {}, `${done}${job.error ? ` · ${job.error}` : ''} · ${job.by} · ${ago(job.began)}`));
  }));
  if (was > 0 && jobs.every(job => job.ended)) { await refreshLogs(); await refresh(); }
}

const describe = select => Object.entries(select).map(([name, value]) => `${name === 'ids' ? 'message' : name} ${iso(value)}`).join(', ') || 'all';

// --- Log in ---

function askToken() {
  $('login-error').textContent = '';
  if (!$('login').open) $('login').showModal();
}

$('login').querySelector('form').addEventListener('submit', async event => {
  event.preventDefault();
  try {
    await api('login', {token: $('token').value});
    await enter();
    if (session.role === 'nobody') throw new Error('The token is right, but the browser did not keep the cookie. The proxy must set X-Forwarded-Proto to https if the browser uses HTTPS, and to http otherwise.');
    $('token').value = '';
    $('login').close();
    await start();
  } catch (error) {
    $('login-error').textContent = error.message;
  }
});

// --- Events ---

for (const button of document.querySelectorAll('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close());
for (const button of document.querySelectorAll('[data-action]')) {
  button.addEventListener('click', () => {
    const select = Object.fromEntries([...selected()].filter(([name]) => name !== 'id' && name !== 'state'));
    if (select.holds) select.holds = true;
    if (filter.get('id')) select.ids = [filter.get('id')];
    if (filter.get('state') === 'retry') select.state = 'retry';
    ask(button.dataset.action, select);
  });
}
$('login-open').addEventListener('click', askToken);
$('logout').addEventListener('click', tell(async () => { await api('logout', {}); closePanel(); await start(); }));
$('help-open').addEventListener('click', () => $('help').showModal());
$('filter').addEventListener('submit', event => { event.preventDefault(); find(); });
$('filter').addEventListener('reset', () => setTimeout(() => find()));
$('filter').elements.state.addEventListener('change', () => find());
$('next').addEventListener('click', () => find(next));
$('all').addEventListener('click', () => find(0, true));
$('first').addEventListener('click', () => find());
$('source').addEventListener('change', () => { source = $('source').value; closePanel(); start(); });
$('chart-sink').addEventListener('change', tell(refreshCharts));
$('tick-all').addEventListener('click', () => {
  ticked = new Set($('tick-all').checked ? listed.filter(tickable).map(message => String(message.id)) : []);
  showList();
});
addEventListener('hashchange', event => { arrive(event.newURL); start(); }); // event.newURL, because the function place may have changed location again
$('pause').addEventListener('submit', event => {
  event.preventDefault();
  tell(async () => {
    const given = Object.fromEntries(new FormData($('pause')));
    await api('controls', {...given, by: who()});
    $('pause').reset();
    await Promise.all([refresh(), refreshLogs()]);
  })();
});

document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
    if (document.activeElement.matches('input, select')) document.activeElement.blur();
    else closePanel();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select, textarea, dialog')) return;
  const keys = {
    '/': () => $('filter').elements.error.focus(),
    j: () => choose(chosen + 1), k: () => choose(chosen - 1),
    n: () => next && find(next),
    x: () => tick(chosen),
    r: () => { const message = listed[chosen]; if (canChange() && message && ['error', 'retry'].includes(message.state)) ask('requeue', {ids: [String(message.id)], ...(message.state === 'retry' ? {state: 'retry'} : {})}); },
    '?': () => $('help').showModal(),
  };
  const row = event.target.closest('#messages tbody tr');
  if (row && (event.key === 'Enter' || event.key === ' ')) keys[event.key] = () => choose(row.sectionRowIndex, true);
  else if (event.key === 'Enter' && chosen >= 0 && event.target === document.body) keys.Enter = () => choose(chosen, true);
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

// --- Updates ---

async function start() {
  const turn = ++startTurn;
  await tell(enter)();
  if (session.role === 'nobody') return;
  await Promise.all([tell(refresh)(), tell(refreshCharts)(), tell(refreshLogs)(), tell(refreshJobs)(), find()]);
  if (turn !== startTurn) return; // a later call of start opens the message or the key
  const to = arriving;
  arriving = {};
  if (to.message) await openMessage(to.message);
  else if (to.line) await showKey(to.line);
}

// every calls the function work repeatedly while the page is visible. Each call ends before the next one is scheduled.
function every(milliseconds, work) {
  setTimeout(async () => {
    if (!document.hidden && session.role !== 'nobody') {
      try { await work(); } catch (error) { trouble(error); }
    }
    every(milliseconds, work);
  }, milliseconds);
}

// The page lists parked messages first: they need an operator, and listing them is cheap in any table.
arrive(location.href);
every(3000, async () => { await refresh(); trouble(null); });
every(10000, refreshCharts);
every(10000, refreshLogs);
every(10000, refreshJobs);
every(1000, async () => {
  if (jobs.some(job => !job.ended)) await refreshJobs();
  if (open && Date.now() < openUntil) await openMessage(open);
});
addEventListener('resize', () => tell(refreshCharts)());
start();
