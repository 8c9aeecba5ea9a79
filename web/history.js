// ---- conversations that this browser keeps -------------------------------------------------------------------------

// Each is an entry of localStorage, `chat.ID`: { time, messages }. There is no index that could disagree with them. The
// tab knows which one it shows, in sessionStorage. Where the store is full the oldest give way; what it still does not
// take, or takes from nobody, is kept for as long as the page is open.
const CHAT = 'chat.', TITLE_LENGTH = 80;
const unsaved = new Map(); // id -> { time, messages }

const isCount = value => Number.isFinite(value) && value >= 0;
const isUsage = usage => ['prompt_tokens', 'completion_tokens', 'total_tokens'].every(name => isCount(usage?.[name]));
const isFigures = figures => isCount(figures?.pieces) && (figures.usage === null || isUsage(figures.usage))
    && [figures.speed, figures.firstToken].every(value => value === null || isCount(value));
const isMessage = message => ['user', 'assistant'].includes(message?.role) && typeof message.content === 'string';

// Keeps a stored message's valid fields.
const readMessage = ({ role, content, reasoning, figures, trouble }) => ({
    role, content, ...(typeof reasoning === 'string' && { reasoning }), ...(isFigures(figures) && { figures }), ...(typeof trouble === 'string' && { trouble }),
});

// null: it is not there, or nothing of it can be read.
function readChat(id) {
    const { time, messages } = unsaved.get(id) ?? local.get(CHAT + id) ?? {};
    const read = Array.isArray(messages) ? messages.filter(isMessage).map(readMessage) : [];
    return read.length ? { id, time: isCount(time) ? time : 0, messages: read } : null;
}

// All of them, the latest first.
function listChats() {
    const ids = new Set([...unsaved.keys(), ...local.names(CHAT).map(name => name.slice(CHAT.length))]);
    return [...ids].map(readChat).filter(Boolean).sort((a, b) => b.time - a.time);
}

// Older conversations go, the oldest first, but only where that makes enough room.
function makeRoom(id, record) {
    const older = listChats().filter(chat => chat.id !== id && !unsaved.has(chat.id)).reverse();
    const size = value => JSON.stringify(value).length;
    if (older.reduce((sum, chat) => sum + size(chat), 0) < size(record)) return false;
    return older.some(chat => {
        local.remove(CHAT + chat.id);
        return local.set(CHAT + id, record);
    });
}

// Returns the id, a new one for a conversation that had none.
function saveChat(id, messages) {
    const name = id ?? `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
    const record = { time: Date.now(), messages: [...messages] };
    if (local.set(CHAT + name, record) || makeRoom(name, record)) unsaved.delete(name);
    else unsaved.set(name, record);
    return name;
}

function deleteChat(id) {
    unsaved.delete(id);
    local.remove(CHAT + id);
}

function titleOf({ messages }) {
    const text = (messages.find(({ role }) => role === 'user') ?? messages[0]).content.trim().replace(/\s+/g, ' ');
    return text.length > TITLE_LENGTH ? `${text.slice(0, TITLE_LENGTH - 1)}…` : text || 'Untitled';
}

// The conversations to go back to, below the welcome.
function showChats(open) {
    const entries = listChats().map(chat => make('li', {},
        make('button', { type: 'button', class: 'chat', click: () => open(chat.id) }, titleOf(chat)),
        make('time', { class: 'small' }, chat.time ? new Date(chat.time).toLocaleString() : ''),
        make('button', {
            type: 'button', class: 'quiet', 'aria-label': `Delete: ${titleOf(chat)}`,
            click() { deleteChat(chat.id); showChats(open); backToField(); },
        }, 'Delete')));
    byId('chats').replaceChildren(...entries);
    byId('earlier').hidden = !entries.length;
}

