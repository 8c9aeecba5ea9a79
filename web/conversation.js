// ---- the conversation ----------------------------------------------------------------------------------------------

const log = byId('log'), field = byId('message');
const messages = []; // { role, content, reasoning, figures, trouble }; the articles in the log are their views, in the same order
let model = null, maxModelLen = 0;
let running = null;  // the answer under way: { message, controller, finished }
let chatId = null;   // of this conversation among those that are kept (history.js); null: it has not begun
let following = true;

function follow() {
    if (following) log.scrollTop = log.scrollHeight;
    byId('latest').hidden = following || !messages.length;
}

// Not where focus makes a keyboard cover half the screen.
function backToField() {
    if (!matchMedia('(pointer: coarse)').matches) field.focus();
}

function figuresText({ usage, pieces, speed, firstToken, finish }) {
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0, tokens = usage?.completion_tokens ?? pieces;
    return [
        `${count(tokens)} token${tokens === 1 ? '' : 's'}`,
        speed && `${rate(speed)} t/s`,
        firstToken !== null && `first token ${seconds(firstToken)}`,
        cached && `${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens cached`,
        finish === 'length' && 'cut at max tokens',
        finish === 'stopped' && 'stopped',
    ].filter(Boolean).join(' · ');
}

function showFoot(message, article) {
    const foot = make('div', { class: 'foot' }), isLast = message === messages.at(-1);
    if (message.figures) foot.append(make('span', { class: 'figures' }, figuresText(message.figures)));
    if (message.content) foot.append(action('Copy', function () { copy(message.content, this); }));
    if (message.role === 'user') foot.append(action('Edit', () => edit(message)));
    else if (isLast && !message.trouble) foot.append(action('Regenerate', regenerate));
    article.querySelector('.foot').replaceWith(foot);
}

function showTrouble(message, article) {
    article.querySelector('.note')?.remove();
    if (!message.trouble) return;
    const retry = make('button', { type: 'button', click: regenerate }, 'Retry');
    article.querySelector('.foot').before(make('div', { class: 'note' }, make('span', {}, message.trouble), retry));
}

// A thought is folded, above the answer; it is plain text, in which no markup counts.
function showThought(message, article) {
    let fold = article.querySelector('.thought');
    if (!message.reasoning) return fold?.remove();
    if (!fold) {
        fold = make('details', { class: 'thought' }, make('summary', {}), make('div', { class: 'small' }));
        article.querySelector('.body').before(fold);
    }
    const thinking = running?.message === message && !message.content;
    fold.firstChild.textContent = thinking ? 'Thinking…' : 'Thought';
    fold.lastChild.textContent = message.reasoning;
}

const articleOf = message => log.children[messages.indexOf(message)];

function show(message) {
    const article = articleOf(message), body = article.querySelector('.body');
    if (message.role === 'user') body.textContent = message.content;
    else render(body, message.content);
    showThought(message, article);
    if (running?.message === message) article.querySelector('.foot').textContent = figuresText(message.figures);
    follow();
}

function settle(message) {
    show(message);
    showTrouble(message, articleOf(message));
    showFoot(message, articleOf(message));
    follow();
}

function append(message) {
    const before = messages.at(-1), isUser = message.role === 'user';
    messages.push(message);
    log.append(make('article', { class: message.role }, make('h2', { class: 'unseen' }, isUser ? 'You' : 'Answer'),
        make('div', { class: isUser ? 'body' : 'body text' }), make('div', { class: 'foot' })));
    byId('welcome').hidden = true;
    if (before) settle(before); // it is not the last any more
    settle(message);
}

function truncate(length) {
    messages.length = Math.min(length, messages.length);
    while (log.children.length > length) log.lastChild.remove();
    byId('welcome').hidden = messages.length > 0;
    if (!messages.length) showChats(openChat);
    showContext(null);
}

function remember() {
    if (messages.length) chatId = saveChat(chatId, messages);
    session.set('chat', chatId);
}

function showContext(usage) {
    const known = usage && maxModelLen;
    byId('context').textContent = known ? `context ${count(usage.total_tokens)} of ${count(maxModelLen)}` : '';
}

// The conversation as sent to the model: missing answers are left out, and the questions around them are joined. The
// chat template keeps of earlier thoughts what the model wants.
function history() {
    const shown = systemPrompt ? [{ role: 'system', content: systemPrompt }] : [];
    for (const { role, content, reasoning } of messages) {
        if (!content) continue;
        if (role === 'user' && shown.at(-1)?.role === 'user') shown.at(-1).content += `\n\n${content}`;
        else shown.push({ role, content, ...(reasoning && { reasoning_content: reasoning }) });
    }
    return shown;
}

// Takes in what one event of the stream says.
function apply(event, message, started) {
    const { figures } = message, choice = event.choices?.[0], now = performance.now();
    if (event.error) throw new Trouble(event.error.message);
    figures.usage = event.usage ?? figures.usage;
    figures.finish = choice?.finish_reason ?? figures.finish;
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if (!content && !reasoning) return;
    message.content += content ?? '';
    if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
    figures.pieces++;
    figures.firstToken ??= (now - started) / 1000;
    const writing = (now - started) / 1000 - figures.firstToken;
    figures.speed = writing > 0 ? (figures.pieces - 1) / writing : null;
}

async function read(message, signal) {
    const started = performance.now(), { figures } = message;
    const body = JSON.stringify({
        model, messages: history(), stream: true, stream_options: { include_usage: true }, ...sampling(),
    });
    const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body, signal };
    let frame = 0;
    try {
        for await (const event of eventsOf(await ask('/v1/chat/completions', options))) {
            apply(event, message, started);
            frame ||= requestAnimationFrame(() => { frame = 0; show(message); });
        }
    } finally {
        cancelAnimationFrame(frame);
    }
    if (figures.speed && figures.usage) // a piece may have been several tokens
        figures.speed *= (figures.usage.completion_tokens - 1) / (figures.pieces - 1);
}

async function produce(message, signal) {
    try {
        if (!model) await connect();
        await read(message, signal);
    } catch (error) {
        if (error.name === 'AbortError') message.figures.finish = 'stopped';
        else message.trouble = sentenceOf(error);
    }
    running = null;
    setBusy(false);
    if (!message.figures.pieces && message.trouble) delete message.figures;
    settle(message);
    showContext(message.figures?.usage);
    remember();
}

function answer() {
    const controller = new AbortController();
    const figures = { usage: null, pieces: 0, speed: null, firstToken: null, finish: null };
    const message = { role: 'assistant', content: '', figures };
    following = true;
    append(message);
    setBusy(true);
    running = { message, controller, finished: produce(message, controller.signal) };
    show(message);
}

function setBusy(busy) {
    log.lastChild.classList.toggle('busy', busy);
    log.setAttribute('aria-busy', busy); // screen readers read the answer when it is whole
    byId('send').hidden = busy;
    byId('stop').hidden = !busy;
    if (document.activeElement === document.body) backToField(); // its button has gone
}

async function stop() {
    while (running) {
        running.controller.abort();
        await running.finished;
    }
}

function submit(text) {
    append({ role: 'user', content: text });
    remember();
    answer();
}

async function regenerate() {
    await stop();
    if (!messages.length) return;
    if (messages.at(-1).role === 'assistant') truncate(messages.length - 1);
    backToField();
    answer();
}

async function startOver() {
    await stop();
    openChat(null);
}

// A conversation that is kept, or with null, or one that is gone, a new one.
function openChat(id) {
    const chat = readChat(id);
    chatId = chat && id;
    truncate(0);
    for (const message of chat?.messages ?? []) append(message);
    showContext(messages.at(-1)?.figures?.usage);
    session.set('chat', chatId);
    backToField();
}

// Turns a question into a field; what followed it goes when it is sent again.
function edit(message) {
    const article = articleOf(message), body = article.querySelector('.body');
    const attributes = { role: 'textbox', 'aria-multiline': 'true', 'aria-label': 'What you wrote' };
    const leave = () => {
        for (const name of ['contenteditable', ...Object.keys(attributes)]) body.removeAttribute(name);
        body.onkeydown = null;
        settle(message);
        backToField();
    };
    const send = async () => {
        const text = typedIn(body).trim();
        if (!text) return;
        leave();
        await stop();
        truncate(messages.indexOf(message));
        submit(text);
    };
    makeEditable(body);
    for (const [name, value] of Object.entries(attributes)) body.setAttribute(name, value);
    body.onkeydown = event => {
        if (event.key === 'Escape') leave();
        else if (isSend(event)) send();
        else return;
        event.preventDefault();
        event.stopPropagation();
    };
    article.querySelector('.foot').replaceChildren(action('Send again', send), action('Cancel', leave));
    body.focus();
    getSelection().selectAllChildren(body);
    getSelection().collapseToEnd();
}

function editLast() {
    const last = messages.findLast(message => message.role === 'user');
    if (last) edit(last);
}

// Enter, but neither with Shift nor the one that picks a word of an input method.
const isSend = event => event.key === 'Enter' && !event.shiftKey && !event.isComposing;

function fitField() {
    field.style.height = 'auto';
    field.style.height = `${field.scrollHeight}px`;
}

function prepareComposer() {
    for (const idea of ['What is a KV cache?', 'Write a haiku about four bits', 'Reverse a string in C'])
        byId('ideas').append(make('button', { type: 'button', click: () => submit(idea) }, idea));
    field.addEventListener('input', fitField);
    field.addEventListener('keydown', event => {
        if (isSend(event)) {
            event.preventDefault();
            byId('composer').requestSubmit();
        } else if (event.key === 'ArrowUp' && !field.value) {
            event.preventDefault();
            editLast();
        }
    });
    on('composer', 'submit', event => {
        event.preventDefault();
        const text = field.value.trim();
        if (!text || running) return;
        field.value = '';
        fitField();
        submit(text);
    });
    on('stop', 'click', stop);
    on('new', 'click', startOver);
    window.addEventListener('pagehide', () => { if (running) remember(); }); // what there is of an answer
    on('latest', 'click', () => { following = true; follow(); backToField(); });
    log.addEventListener('scroll', () => {
        following = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
        byId('latest').hidden = following || !messages.length;
    }, { passive: true });
}

