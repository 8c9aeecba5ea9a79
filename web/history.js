// ---- conversations that this browser keeps -------------------------------------------------------------------------

// A conversation is a tree: a question that was edited and an answer that was written again are siblings of the one
// before. In memory a message knows its parent; of a conversation { id, time, title, system, all, head }, `all` has its
// messages, parents first, and `head` is the last one on display.
//
// Each is an entry of localStorage, `chat.ID`: { time, title, system, messages, head }, where `parent` and `head` are
// places in `messages` (a message without `parent` follows the one before). There is no index that could disagree with
// them. The tab knows which one it shows, in sessionStorage. Where the store is full the oldest give way, with a notice;
// what it still does not take, or takes from nobody, is kept for as long as the page is open.
const CHAT = 'chat.', TITLE_LENGTH = 80;
const unsaved = new Map(); // id -> the entry

const isCount = value => Number.isFinite(value) && value >= 0;
const isText = value => typeof value === 'string';
const isUsage = usage => ['prompt_tokens', 'completion_tokens', 'total_tokens'].every(name => isCount(usage?.[name]));
const isFigures = figures => isCount(figures?.pieces) && (figures.usage === null || isUsage(figures.usage))
    && [figures.speed, figures.firstToken].every(value => value === null || isCount(value));
const isListOf = (isOne, list) => Array.isArray(list) && list.length > 0 && list.every(isOne);
const isCall = call => [call?.id, call?.name, call?.arguments].every(isText);
const isFile = file => isText(file?.name) && isText(file?.text);
const ROLES = ['user', 'assistant', 'tool'];
const isMessage = message => ROLES.includes(message?.role) && isText(message.content);

// A message may have these fields beside its role and content; each has a check that a stored value can be used.
const MESSAGE_FIELDS = {
    reasoning: isText, thinking: isCount, figures: isFigures, trouble: isText, callId: isText, model: isText,
    calls: calls => isListOf(isCall, calls), files: files => isListOf(isFile, files),
};

function readMessage(stored) {
    const message = { role: stored.role, content: stored.content, parent: null };
    for (const [name, isValid] of Object.entries(MESSAGE_FIELDS)) if (isValid(stored[name])) message[name] = stored[name];
    return message;
}

// Messages with their parents, from a stored list in which some may not be readable: theirs take the place.
function readMessages(stored) {
    const read = [];
    stored.forEach((entry, i) => {
        const parent = Number.isInteger(entry?.parent) && entry.parent < i ? entry.parent : i - 1;
        const above = entry?.parent === -1 ? null : read[parent] ?? null;
        read[i] = isMessage(entry) ? Object.assign(readMessage(entry), { parent: above }) : above;
    });
    return { all: [...new Set(read)].filter(Boolean), at: read };
}

// null: nothing of the entry can be read.
function readEntry(id, entry) {
    const { all, at } = readMessages(Array.isArray(entry?.messages) ? entry.messages : []);
    if (!all.length) return null;
    return {
        id, all, time: isCount(entry.time) ? entry.time : 0, head: at[entry.head] ?? all.at(-1),
        ...(isText(entry.title) && { title: entry.title }), ...(isText(entry.system) && { system: entry.system }),
    };
}

const readChat = id => readEntry(id, unsaved.get(id) ?? local.get(CHAT + id));

function entryOf({ time, title, system, all, head }) {
    const place = new Map(all.map((message, i) => [message, i]));
    const messages = all.map(({ parent, ...rest }) => ({ ...rest, parent: place.get(parent) ?? -1 }));
    return { time, title, system, messages, head: place.get(head) };
}

// From the first message to this one.
function pathTo(message) {
    const path = [];
    for (let at = message; at; at = at.parent) path.unshift(at);
    return path;
}

// The end of what was last written below a message.
function leafOf(all, message) {
    for (let leaf = message; ; message = leaf) {
        leaf = all.findLast(({ parent }) => parent === message);
        if (!leaf) return message;
    }
}

// All of them, the latest first.
function listChats() {
    const ids = new Set([...unsaved.keys(), ...local.names(CHAT).map(name => name.slice(CHAT.length))]);
    return [...ids].map(readChat).filter(Boolean).sort((a, b) => b.time - a.time);
}

// Older conversations go, the oldest first, but only where that makes enough room. Returns how many went, or 0.
function makeRoom(id, entry) {
    const older = listChats().filter(chat => chat.id !== id && !unsaved.has(chat.id)).reverse();
    const size = value => JSON.stringify(value).length;
    if (older.reduce((sum, chat) => sum + size(entryOf(chat)), 0) < size(entry)) return 0;
    const last = older.findIndex(chat => {
        local.remove(CHAT + chat.id);
        return local.set(CHAT + id, entry);
    });
    return last + 1;
}

// Gives a conversation that has none an id.
function saveChat(chat) {
    chat.id ??= `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
    const entry = entryOf(chat), kept = local.set(CHAT + chat.id, entry), gone = kept ? 0 : makeRoom(chat.id, entry);
    if (kept || gone) unsaved.delete(chat.id);
    else unsaved.set(chat.id, entry);
    if (gone) notice(`This browser's store is full: the oldest ${gone === 1 ? 'conversation' : `${gone} conversations`} made room.`);
}

function deleteChat(id) {
    unsaved.delete(id);
    local.remove(CHAT + id);
}

function titleOf({ title, all }) {
    const text = (title ?? (all.find(({ role }) => role === 'user') ?? all[0]).content).trim().replace(/\s+/g, ' ');
    return text.length > TITLE_LENGTH ? `${text.slice(0, TITLE_LENGTH - 1)}…` : text || 'Untitled';
}

