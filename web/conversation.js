// ---- the conversation ----------------------------------------------------------------------------------------------

const log = byId('log'), field = byId('message');
const newChat = () => ({ id: null, all: [], head: null });
let chat = newChat(); // the one on display (history.js); without an id it has not begun
const messages = [];  // of it, those from the first to its head; the articles in the log are their views, in that order
let running = null;   // the answer under way: { message, controller, finished }
let following = true;

const siblingsOf = message => chat.all.filter(({ parent }) => parent === message.parent);

function follow() {
    if (following) log.scrollTop = log.scrollHeight;
    byId('latest').hidden = following || !messages.length;
}

// Not where focus makes a keyboard cover half the screen.
function backToField() {
    if (!matchMedia('(pointer: coarse)').matches) field.focus();
}

// Puts a message of the tree below those on display.
function display(message) {
    const before = messages.at(-1);
    messages.push(message);
    chat.head = message;
    log.append(makeArticle(message));
    byId('welcome').hidden = true;
    if (before) settle(before); // it is not the last any more
    settle(message);
}

// A new message follows those on display.
function append(message) {
    message.parent = messages.at(-1) ?? null;
    chat.all.push(message);
    display(message);
}

// Takes what follows the first so many off display; the tree keeps it.
function truncate(length) {
    messages.length = Math.min(length, messages.length);
    while (log.children.length > length) log.lastChild.remove();
    chat.head = messages.at(-1) ?? null;
    byId('welcome').hidden = messages.length > 0;
    showContext(null);
}

function displayPath(head) {
    const path = pathTo(head);
    let same = 0;
    while (same < path.length && path[same] === messages[same]) same++;
    truncate(same);
    path.slice(same).forEach(display);
    showContext(messages.at(-1)?.figures?.usage);
}

function remember() {
    if (chat.all.length) saveChat(Object.assign(chat, { time: Date.now(), system: systemPrompt || undefined }));
    session.set('chat', chat.id);
    showChats();
}

function showContext(usage) {
    const known = usage && maxModelLen;
    byId('context').textContent = known ? `context ${count(usage.total_tokens)} of ${count(maxModelLen)}` : '';
}

// ---- what is done with messages -------------------------------------------------------------------------------------

async function switchTo(version) {
    await stop();
    const at = messages.indexOf(version.parent) + 1;
    displayPath(leafOf(chat.all, version));
    remember();
    articleOf(version).querySelector('.versions button:not(:disabled)')?.focus();
    say(`Version ${siblingsOf(version).indexOf(version) + 1} of ${siblingsOf(version).length}`);
    return at;
}

const isBelow = (message, above) => pathTo(message).includes(above);

// Takes a message and all that follows it out of the tree; what was beside it comes on display.
async function removeFrom(message) {
    await stop();
    const { all, head } = chat, { id } = chat;
    const beside = siblingsOf(message).filter(other => other !== message).at(-1);
    chat.all = all.filter(other => !isBelow(other, message));
    displayPath(beside ? leafOf(chat.all, beside) : message.parent);
    messages.forEach(settle); // counts of versions have changed
    if (chat.all.length) remember();
    else forget();
    backToField();
    notice('Deleted from here on', () => {
        if (chat.id !== id && chat.all.length) return;
        Object.assign(chat, { id, all });
        displayPath(head);
        messages.forEach(settle);
        remember();
    });
}

function forget() {
    deleteChat(chat.id);
    chat.id = null;
    session.set('chat', null);
    showChats();
}

// A new conversation with a copy of all up to a message.
async function branch(message) {
    await stop();
    const path = pathTo(message), copies = [];
    for (const { parent, ...rest } of path) copies.push({ ...structuredClone(rest), parent: copies.at(-1) ?? null });
    const copied = { ...newChat(), all: copies, head: copies.at(-1), title: `${titleOf(chat)} (branch)`, system: chat.system, time: Date.now() };
    saveChat(copied);
    openChat(copied.id);
    notice('This is a branch; the conversation it comes from stays as it was.');
}

async function regenerate(message = messages.findLast(({ role }) => role === 'assistant')) {
    await stop();
    if (!message) return messages.length && answer();
    if (message.trouble && !message.content) chat.all.splice(chat.all.indexOf(message), 1); // it is no version of anything
    truncate(messages.indexOf(message));
    backToField();
    answer();
}

function submit(text, files = []) {
    append({ role: 'user', content: text, ...(files.length && { files }) });
    remember();
    answer();
}

// Results for the calls of an answer: [[id, text]].
function answerCalls(message, results) {
    for (const [callId, content] of results) append({ role: 'tool', content, callId });
    remember();
    answer();
}

async function startOver() {
    await stop();
    openChat(null);
}

// A conversation that is kept, or with null, or one that is gone, a new one.
async function openChat(id) {
    if (running) await stop();
    truncate(0);
    chat = readChat(id) ?? newChat();
    if (chat.id) setSystemPrompt(chat.system ?? '');
    if (chat.head) displayPath(chat.head);
    following = true;
    follow();
    session.set('chat', chat.id);
    showChats();
    backToField();
}

// ---- editing --------------------------------------------------------------------------------------------------------

// An edited question is asked again, an edited answer takes the place of the old one; both as new versions.
async function sendEdited(message, text) {
    await stop();
    truncate(messages.indexOf(message));
    if (message.role === 'user') return submit(text, message.files);
    append({ role: 'assistant', content: text, ...(message.reasoning && { reasoning: message.reasoning }) });
    remember();
}

// Turns a message into a field with its source.
function edit(message) {
    const article = articleOf(message), body = article.querySelector('.body'), isUser = message.role === 'user';
    const box = make('textarea', { class: 'edit', 'aria-label': isUser ? 'What you wrote' : 'What was answered' });
    const fit = () => { box.style.height = 'auto'; box.style.height = `${box.scrollHeight + 2}px`; };
    const leave = () => { box.replaceWith(body); settle(message); backToField(); };
    const send = () => { if (box.value.trim()) { leave(); sendEdited(message, box.value.trim()); } };
    box.value = message.content;
    box.addEventListener('input', fit);
    box.addEventListener('keydown', event => {
        if (event.key === 'Escape') leave();
        else if (isSend(event) && (isUser || event.ctrlKey)) send();
        else return;
        event.preventDefault();
        event.stopPropagation();
    });
    body.replaceWith(box);
    article.querySelector('.foot').replaceChildren(action(isUser ? 'Send again' : 'Save as a new version', send), action('Cancel', leave));
    fit();
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
}

function editLast() {
    const last = messages.findLast(message => message.role === 'user');
    if (last) edit(last);
}

