// ---- small tools ---------------------------------------------------------------------------------------------------

const byId = id => document.getElementById(id);
const on = (id, type, listener) => byId(id).addEventListener(type, listener);

// An element; attributes that are functions listen, children that are strings become text.
function make(tag, attributes = {}, ...children) {
    const svg = ['svg', 'path'].includes(tag);
    const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === 'function') element.addEventListener(name, value);
        else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}

const action = (label, click) => make('button', { type: 'button', class: 'quiet', click }, label);

// A store that may be full or forbidden: the page then forgets, and works.
const keep = store => ({
    get(name) { try { return JSON.parse(store().getItem(`nibble.${name}`)); } catch { return null; } },
    set(name, value) { // false: it is not kept
        try { store().setItem(`nibble.${name}`, JSON.stringify(value)); } catch { return false; }
        return true;
    },
    remove(name) { try { store().removeItem(`nibble.${name}`); } catch { /* nothing was kept */ } },
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
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    byId('said').textContent = 'Copied'; // for screen readers
}

function makeEditable(element) {
    try { element.contentEditable = 'plaintext-only'; } catch { element.contentEditable = 'true'; }
}
// A trailing line break is the browser's own.
const typedIn = element => element.innerText.replace(/\n$/, '');

