// Every page and action works without this script. It refreshes what is shown, and adds keys.
'use strict';
const body = document.body, every = Number(body.dataset.refresh) * 1000, refreshable = ['main', 'nav'];
let etag = '', failing = false;

// busy says that somebody is using a part: replacing it would lose focus, a selection or what was typed.
function busy() {
  const active = document.activeElement, selection = getSelection();
  return main.contains(active) || document.querySelector('main details[open]') || selection && !selection.isCollapsed ||
    [...document.querySelectorAll('main input, main textarea')].some((f) => f.value !== f.defaultValue || f.checked !== f.defaultChecked) ||
    [...document.querySelectorAll('main option')].some((o) => o.selected !== o.defaultSelected && o.selected && o.index > 0);
}

function note(text) {
  const at = document.querySelector('.updated');
  if (at) at.textContent = text;
}

async function refresh() {
  if (document.hidden || busy()) return;
  try {
    const answer = await fetch(location.href, {headers: {'If-None-Match': etag, 'Postrider-Part': '1'}, redirect: 'error', credentials: 'same-origin'});
    if (answer.status === 401) return note('You are signed out. Reload to sign in.');
    if (answer.status === 304) { failing = false; return touch(answer); }
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (busy()) return;
    for (const id of refreshable) {
      const now = document.getElementById(id), next = page.getElementById(id);
      if (now && next) now.replaceWith(document.importNode(next, true));
    }
    document.title = page.title;
    etag = answer.headers.get('ETag') || '';
    failing = false;
  } catch (e) {
    if (!failing) note('Not updating since ' + new Date().toISOString().slice(11, 19) + ' · Retrying');
    failing = true;
  }
}

function touch(answer) {
  const at = new Date(answer.headers.get('Date'));
  if (!isNaN(at)) note('Updated ' + at.toISOString().slice(11, 19));
}

const main = {contains: (e) => e && e !== body && document.getElementById('main').contains(e)};
if (every > 0) setInterval(refresh, every);

// A form is sent once.
addEventListener('submit', (e) => {
  if (e.target.dataset.sent) return e.preventDefault();
  if (e.target.method === 'post') {
    e.target.dataset.sent = '1';
    for (const b of e.target.querySelectorAll('button')) setTimeout(() => { b.disabled = true; });
  }
});
addEventListener('pageshow', () => {
  for (const f of document.querySelectorAll('form[data-sent]')) {
    delete f.dataset.sent;
    for (const b of f.querySelectorAll('button')) b.disabled = false;
  }
});
addEventListener('change', (e) => { if (e.target.matches('.pick select')) e.target.form.requestSubmit(); });

// "/" goes to the search, "?" to the help, "g" and a letter to a page.
let went = 0;
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, textarea, select')) return;
  if (e.key === '/') {
    e.preventDefault();
    document.getElementById('q').focus();
  } else if (e.key === '?') {
    document.getElementById('help').click();
  } else if (e.key === 'g') {
    went = Date.now();
  } else if (Date.now() - went < 1000) {
    const links = [...document.querySelectorAll('#nav a')], names = {o: 'Overview', d: 'Dead letters', m: 'Messages', h: 'Held keys', s: 'Sagas', e: 'Health', a: 'Activity'};
    const link = links.find((a) => a.firstChild.textContent === names[e.key]);
    if (link) link.click();
  }
});
const current = document.querySelector('#nav [aria-current]');
if (current) current.scrollIntoView({block: 'nearest', inline: 'center'});
