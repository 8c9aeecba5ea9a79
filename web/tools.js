// ---- small tools ---------------------------------------------------------------------------------------------------

const byId = id => document.getElementById(id);
const on = (id, type, listener) => byId(id).addEventListener(type, listener);

const SPACES = { svg: 'http://www.w3.org/2000/svg', math: 'http://www.w3.org/1998/Math/MathML' };

// An element; attributes that are functions listen, children that are strings become text. Styles are set through the
// object model: the page's policy forbids them as attributes.
function makeIn(space, tag, attributes, children) {
    const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === 'function') element.addEventListener(name, value);
        else if (name === 'style' && value !== undefined) element.style.cssText = value;
        else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}
const make = (tag, attributes = {}, ...children) => makeIn(null, tag, attributes, children);
const makeSvg = (tag, attributes = {}, ...children) => makeIn(SPACES.svg, tag, attributes, children);

// Buttons: with words, or with an icon whose words are for tooltips and screen readers.
const ICONS = { // strokes in a box of 16 x 16
    copy: 'M5.5 5.5h7v8h-7zM3.5 10.5v-8h7', done: 'M3 8.5l3.2 3.2L13 4.8', edit: 'M3 13l.6-2.9 7-7 2.3 2.3-7 7zM9.3 4.4l2.3 2.3',
    again: 'M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3', branch: 'M4.5 5v6M4.5 8.5c5 0 7-1 7-3.5M4.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM4.5 14a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z',
    remove: 'M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9', more: 'M3.5 8h.01M8 8h.01M12.5 8h.01', before: 'M9.5 4L6 8l3.5 4', after: 'M6.5 4L10 8l-3.5 4',
    close: 'M4 4l8 8M12 4l-8 8', go: 'M5 3.5l7 4.5-7 4.5z', file: 'M4 2.5h5l3 3v8H4zM9 2.5v3h3',
};
const icon = name => makeSvg('svg', { viewBox: '0 0 16 16', class: 'icon', 'aria-hidden': 'true' }, makeSvg('path', { d: ICONS[name] }));
const action = (label, click) => make('button', { type: 'button', class: 'quiet', click }, label);
const iconAction = (name, label, click, more = {}) =>
    make('button', { type: 'button', class: 'quiet small-icon', title: label, click, ...more }, icon(name), make('span', { class: 'unseen' }, label));
// A store that may be full or forbidden: the page then forgets, and works.
const keep = store => ({
    get(name) { try { return JSON.parse(store().getItem(`nibble.${name}`)); } catch { return null; } },
    set(name, value) { // false: it is not kept
        try { store().setItem(`nibble.${name}`, JSON.stringify(value)); } catch { return false; }
        return true;
    },
    remove(name) { try { store().removeItem(`nibble.${name}`); } catch { /* nothing was kept */ } },
    size() { // in characters; null: nothing can be kept
        try { return Object.entries(store()).reduce((sum, [key, value]) => sum + key.length + value.length, 0); } catch { return null; }
    },
    names(prefix) { // of what is kept
        let keys = [];
        try { keys = Object.keys(store()); } catch { /* nothing is */ }
        return keys.filter(key => key.startsWith(`nibble.${prefix}`)).map(key => key.slice('nibble.'.length));
    },
});
const session = keep(() => sessionStorage), local = keep(() => localStorage);

const count = number => Math.round(number).toLocaleString('en');
const percent = share => `${(share * 100).toFixed(share > 0 && share < .1 ? 1 : 0)} %`;
const rate = perSecond => perSecond.toFixed(perSecond < 100 ? 1 : 0);
const seconds = s => s < 1 ? `${Math.round(s * 1000)} ms` : `${s.toFixed(s < 10 ? 2 : 1)} s`;
function bytes(number) {
    const unit = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let i = 0;
    for (; number >= 1024 && i + 1 < unit.length; i++) number /= 1024;
    return `${number >= 100 || i === 0 ? Math.round(number) : number.toFixed(1)} ${unit[i]}`;
}

const say = text => { byId('said').textContent = text; }; // for screen readers

async function copy(text, button) {
    try {
        await navigator.clipboard.writeText(text);
    } catch { // not a secure context, or not allowed: the old way
        document.addEventListener('copy', event => {
            event.clipboardData.setData('text/plain', text);
            event.preventDefault();
        }, { once: true });
        document.execCommand('copy');
    }
    button.querySelector('.icon').replaceWith(icon('done'));
    setTimeout(() => button.querySelector('.icon').replaceWith(icon('copy')), 1500);
    say('Copied');
}

function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    make('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// A line at the foot of the page that goes by itself, with a way back where there is one.
let noticeTimer = 0;
function notice(text, undo) {
    const hide = () => { byId('notice').hidden = true; };
    byId('notice').replaceChildren(make('span', {}, text),
        ...undo ? [action('Undo', () => { hide(); undo(); })] : [], iconAction('close', 'Close', hide));
    byId('notice').hidden = false;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(hide, undo ? 10_000 : 6000);
}

