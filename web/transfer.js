// ---- export and import ----------------------------------------------------------------------------------------------

// JSON has everything: all branches, figures, thoughts. Markdown has what is on display, for people, and comes back as
// one line of messages. `marker` lines tell where a message begins; one that a message contains gets a backslash.
const FORMAT = 'nibble conversations', FORMAT_VERSION = 1;
const MARKER = /^<!-- nibble: (user|assistant|tool|system) -->$/, QUOTED_MARKER = /^\\(?=\\*<!-- nibble: )/gm;
const NAMES = { user: 'You', assistant: 'Answer', tool: 'Tool result', system: 'System prompt' };

const exportJson = chats => JSON.stringify({ format: FORMAT, version: FORMAT_VERSION, conversations: chats.map(entryOf) }, null, 1);

function exportMarkdown(chat) {
    const section = (role, text) => `<!-- nibble: ${role} -->\n**${NAMES[role]}**\n\n${text.replace(/^(?=\\*<!-- nibble: )/gm, '\\')}\n`;
    const parts = pathTo(chat.head).map(message => section(message.role, contentOf(message)));
    return [`# ${titleOf(chat)}\n`, ...chat.system ? [section('system', chat.system)] : [], ...parts].join('\n');
}

// null: no message begins anywhere.
function importMarkdown(text) {
    const entry = { time: Date.now(), messages: [] };
    let part = null;
    for (const line of text.split(/\r?\n/)) {
        const [, role] = MARKER.exec(line) ?? [];
        if (role) entry.messages.push(part = { role, lines: [] });
        else if (part) part.lines.push(line);
        else if (line.startsWith('# ')) entry.title = line.slice(2).trim();
    }
    const read = ({ role, lines }) => ({ role, content: lines.slice(lines[0]?.startsWith('**') ? 1 : 0).join('\n').trim().replace(QUOTED_MARKER, '') });
    const messages = entry.messages.map(read), system = messages.find(({ role }) => role === 'system');
    return messages.length ? [{ ...entry, messages: messages.filter(message => message !== system), ...(system && { system: system.content }) }] : null;
}

// Entries of our own export, of one conversation, or of an OpenAI request: { messages: [...] }. System messages become
// the conversation's prompt.
function importJson(text) {
    const data = JSON.parse(text), list = Array.isArray(data) ? data : data?.conversations ?? [data];
    return list.map(entry => {
        const messages = Array.isArray(entry?.messages) ? entry.messages : [];
        const system = messages.find(message => message?.role === 'system')?.content;
        return isText(system) ? { system, ...entry, messages: messages.filter(message => message?.role !== 'system') } : entry;
    });
}

// The conversations of a file's text; throws a sentence where there are none.
function importText(text, name) {
    let entries = null;
    try {
        entries = /^\s*[[{]/.test(text) ? importJson(text) : importMarkdown(text);
    } catch (error) {
        throw new Trouble(`${name} is no valid JSON: ${error.message}`);
    }
    const chats = (entries ?? []).map(entry => readEntry(null, entry)).filter(Boolean);
    if (!chats.length) throw new Trouble(`${name} holds no conversation; an export of this page, or {"messages": [...]}, does.`);
    return chats;
}

async function importFiles(files) {
    const imported = [];
    for (const file of files) {
        try {
            imported.push(...importText(await file.text(), file.name));
        } catch (error) {
            notice(sentenceOf(error));
        }
    }
    for (const chat of imported) saveChat(chat);
    showChats();
    if (imported.length) notice(`${imported.length} conversation${imported.length === 1 ? '' : 's'} imported`);
    if (imported.length === 1) openChat(imported[0].id);
}

const fileNameOf = title => title.replace(/[^\p{L}\p{N}._-]+/gu, '-').replace(/^[-.]+|-+$/g, '').slice(0, 60) || 'conversation';
const saveAsJson = chat => download(`${fileNameOf(titleOf(chat))}.json`, 'application/json', exportJson([chat]));
const saveAsMarkdown = chat => download(`${fileNameOf(titleOf(chat))}.md`, 'text/markdown', exportMarkdown(chat));

function saveAllAsJson() {
    const chats = listChats();
    if (!chats.length) return notice('There is no conversation to export yet.');
    download(`nibble-${new Date().toISOString().slice(0, 10)}.json`, 'application/json', exportJson(chats));
}

