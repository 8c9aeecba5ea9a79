// ---- the list of conversations --------------------------------------------------------------------------------------

const DAY_MS = 24 * 3600 * 1000;
const AGES = [['Today', 1], ['The last seven days', 7], ['The last thirty days', 30], ['Older', Infinity]];

function ageOf(time) {
    const midnight = new Date().setHours(0, 0, 0, 0);
    return AGES.find(([, days]) => time >= midnight - (days - 1) * DAY_MS)[0];
}

const SNIPPET_BEFORE = 24, SNIPPET_LENGTH = 90;

// Where a conversation contains the text: '' for its title, else the words around; null where nowhere.
function findIn(chat, wanted) {
    if (titleOf(chat).toLowerCase().includes(wanted)) return '';
    for (const { content, reasoning = '' } of chat.all)
        for (const text of [content, reasoning]) {
            const at = text.toLowerCase().indexOf(wanted);
            if (at >= 0) return text.slice(Math.max(0, at - SNIPPET_BEFORE), at + SNIPPET_LENGTH).replace(/\s+/g, ' ');
        }
    return null;
}

function marked(text, wanted) {
    const at = text.toLowerCase().indexOf(wanted);
    if (at < 0 || !wanted) return [text];
    return [text.slice(0, at), make('mark', {}, text.slice(at, at + wanted.length)), text.slice(at + wanted.length)];
}

function chatItem(entry, found, wanted) {
    const title = titleOf(entry), current = entry.id === chat.id;
    const when = entry.time ? new Date(entry.time).toLocaleString() : '';
    return make('li', { 'data-id': entry.id },
        make('button', { type: 'button', class: 'chat', title: `${title}\n${when}`, ...(current && { 'aria-current': 'true' }), click: () => { openChat(entry.id); closeDrawer(); } },
            ...marked(title, wanted)),
        iconAction('more', `More: ${title}`, event => openMenu(event.currentTarget, entry.id), { class: 'quiet small-icon', 'aria-haspopup': 'menu' }),
        ...found ? [make('div', { class: 'found' }, ...marked(found, wanted))] : []);
}

function showChats() {
    const wanted = byId('search').value.trim().toLowerCase(), all = listChats(), groups = new Map();
    for (const entry of all) {
        const found = wanted ? findIn(entry, wanted) : '';
        if (found === null) continue;
        const age = ageOf(entry.time);
        groups.set(age, [...groups.get(age) ?? [], chatItem(entry, found, wanted)]);
    }
    byId('chats').replaceChildren(...[...groups].flatMap(([age, items]) => [make('h3', {}, age), make('ul', { role: 'list', 'aria-label': age }, ...items)]));
    byId('no-chats').hidden = groups.size > 0;
    byId('no-chats').textContent = all.length ? 'No conversation contains that.' : 'Conversations appear here. This browser keeps them, and nobody else.';
    const used = local.size();
    byId('store').textContent = used === null ? 'This browser keeps nothing' : `${bytes(used)} of about 5 MiB used`;
    byId('export').disabled = !all.length;
}

// ---- the menu of one ------------------------------------------------------------------------------------------------

const MENU = [
    ['Rename', id => renameChat(id)],
    ['Export as Markdown', id => saveAsMarkdown(readChat(id))],
    ['Export as JSON', id => saveAsJson(readChat(id))],
    ['Delete', id => removeChat(id)],
];

function openMenu(button, id) {
    const menu = byId('menu'), box = button.getBoundingClientRect();
    const choose = does => () => { menu.hidePopover(); does(id); };
    menu.replaceChildren(...MENU.map(([label, does]) => make('button', { type: 'button', role: 'menuitem', tabindex: -1, click: choose(does) }, label)));
    menu.showPopover();
    menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
    menu.style.top = `${box.bottom + menu.offsetHeight > innerHeight ? box.top - menu.offsetHeight : box.bottom}px`;
    menu.onkeydown = event => {
        const items = [...menu.children], at = items.indexOf(document.activeElement);
        const to = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
        if (event.key === 'Tab') menu.hidePopover();
        if (to === undefined) return;
        event.preventDefault();
        items[to % items.length].focus();
    };
    menu.firstChild.focus();
}

function renameChat(id) {
    const item = byId('chats').querySelector(`[data-id="${CSS.escape(id)}"]`), entry = readChat(id);
    const field = make('input', { type: 'text', value: titleOf(entry), 'aria-label': 'Title', maxlength: TITLE_LENGTH });
    let open = true;
    const leave = keep => {
        if (!open) return;
        open = false;
        if (keep && field.value.trim()) {
            if (id === chat.id) chat.title = field.value.trim();
            saveChat({ ...readChat(id), title: field.value.trim() });
        }
        showChats();
        byId('chats').querySelector(`[data-id="${CSS.escape(id)}"] .chat`)?.focus();
    };
    field.addEventListener('keydown', event => {
        if (event.key !== 'Enter' && event.key !== 'Escape') return;
        event.preventDefault();
        event.stopPropagation();
        leave(event.key === 'Enter');
    });
    field.addEventListener('blur', () => leave(true));
    item.querySelector('.chat').replaceWith(field);
    field.select();
}

function removeChat(id) {
    const entry = readChat(id), wasOpen = id === chat.id;
    if (wasOpen) openChat(null);
    deleteChat(id);
    showChats();
    notice(`Deleted: ${titleOf(entry)}`, () => {
        saveChat(entry);
        showChats();
        if (wasOpen) openChat(id);
    });
    byId('search').focus();
}

function prepareChats() {
    const files = make('input', { type: 'file', accept: '.json,.md,application/json,text/markdown', multiple: '', change() { importFiles([...files.files]); files.value = ''; } });
    on('import', 'click', () => files.click());
    on('export', 'click', saveAllAsJson);
    on('search', 'input', showChats);
    window.addEventListener('storage', showChats); // another tab
}

