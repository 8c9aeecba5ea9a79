// ---- a message on display -------------------------------------------------------------------------------------------

const WRITERS = { user: 'You', assistant: 'Answer', tool: 'Tool result' };
const countOf = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;

function figuresText({ usage, pieces, speed, firstToken, finish }) {
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0, tokens = usage?.completion_tokens ?? pieces;
    return [
        countOf(tokens, 'token'),
        speed && `${rate(speed)} t/s`,
        firstToken !== null && `first token ${seconds(firstToken)}`,
        cached && `${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens cached`,
        finish === 'length' && 'cut at max tokens',
        finish === 'stopped' && 'stopped',
    ].filter(Boolean).join(' · ');
}

// The text that the model reads: a message's files come before its words.
function contentOf({ content, files = [] }) {
    const fenceFor = text => '`'.repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([run]) => run.length + 1)));
    const parts = files.map(({ name, text }) => `${name}:\n${fenceFor(text)}\n${text}\n${fenceFor(text)}`);
    return [...parts, content].filter(Boolean).join('\n\n');
}

// ‹ 2 / 3 ›: the versions of a message, and the ones to its sides.
function versionsOf(message) {
    const versions = siblingsOf(message), at = versions.indexOf(message);
    if (versions.length < 2) return [];
    const step = (name, label, to) => iconAction(name, label, () => switchTo(versions[to]), versions[to] ? {} : { disabled: '' });
    return [make('span', { class: 'versions', role: 'group', 'aria-label': 'Versions' }, step('before', 'Version before', at - 1),
        make('span', {}, `${at + 1} / ${versions.length}`), step('after', 'Next version', at + 1))];
}

function actionsOf(message) {
    const isAnswer = message.role === 'assistant', isLast = message === messages.at(-1);
    const cut = isAnswer && isLast && message.content && ['length', 'stopped'].includes(message.figures?.finish);
    return [
        contentOf(message) && iconAction('copy', 'Copy', function () { copy(contentOf(message), this); }),
        message.role !== 'tool' && (message.content || !isAnswer) && iconAction('edit', 'Edit', () => edit(message)),
        isAnswer && !message.trouble && iconAction('again', 'Regenerate', () => regenerate(message)),
        cut && iconAction('go', 'Continue', () => goOn(message)),
        iconAction('branch', 'Branch into a new conversation', () => branch(message)),
        iconAction('remove', 'Delete from here on', () => removeFrom(message)),
    ].filter(Boolean);
}

function showFoot(message, article) {
    const busy = running?.message === message;
    const foot = make('div', { class: 'foot' }, ...busy ? [] : [...versionsOf(message),
        ...message.figures ? [make('span', { class: 'figures' }, figuresText(message.figures))] : [],
        make('span', { class: 'actions', role: 'group', 'aria-label': 'Actions' }, ...actionsOf(message))]);
    article.querySelector('.foot').replaceWith(foot);
}

function showTrouble(message, article) {
    article.querySelector('.note')?.remove();
    if (!message.trouble) return;
    const retry = make('button', { type: 'button', click: () => regenerate(message) }, 'Retry');
    article.querySelector('.foot').before(make('div', { class: 'note', role: 'alert' }, make('span', {}, message.trouble), retry));
}

function thoughtTitle({ content, calls, thinking }, busy) {
    if (busy && !content && !calls) return thinking ? `Thinking for ${seconds(thinking)}` : 'Thinking';
    return thinking !== undefined ? `Thought for ${seconds(thinking)}` : 'Thought';
}

// A thought is folded, above the answer; it is plain text, in which no markup counts.
function showThought(message, article) {
    let fold = article.querySelector('.thought');
    if (!message.reasoning) return fold?.remove();
    if (!fold) {
        fold = make('details', { class: 'thought' }, make('summary', {}), make('div', { class: 'small' }, ''));
        article.querySelector('.body').before(fold);
    }
    fold.firstChild.textContent = thoughtTitle(message, running?.message === message);
    patch(fold.lastChild, make('div', {}, message.reasoning));
}

const prettyJson = text => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };

// A call with what it was given; where it has no result yet, a field to write one.
function callNode(call, waits) {
    const result = make('textarea', { rows: 2, placeholder: 'What the tool says', 'aria-label': `Result of ${call.name}`, 'data-call': call.id });
    return make('div', { class: 'call' }, make('div', { class: 'call-name' }, make('span', { class: 'small' }, 'calls'), make('code', {}, call.name)),
        make('pre', { tabindex: 0, 'aria-label': `Arguments of ${call.name}` }, make('code', {}, ...highlight(prettyJson(call.arguments), 'json'))), ...waits ? [result] : []);
}

function showCalls(message, article) {
    article.querySelector('.calls')?.remove();
    if (!message.calls) return;
    const waits = message === messages.at(-1) && running?.message !== message;
    const node = make('div', { class: 'calls' }, ...message.calls.map(call => callNode(call, waits)));
    const send = () => answerCalls(message, [...node.querySelectorAll('textarea')].map(field => [field.dataset.call, field.value]));
    if (waits) node.append(make('button', { type: 'button', click: send }, message.calls.length > 1 ? 'Send the results' : 'Send the result'));
    article.querySelector('.foot').before(node);
}

const fileNode = ({ name, text }) => make('details', { class: 'file' }, make('summary', {}, icon('file'), make('span', {}, name),
    make('span', { class: 'small' }, bytes(new Blob([text]).size))), make('pre', { tabindex: 0, 'aria-label': name }, text));

const articleOf = message => log.children[messages.indexOf(message)];

function show(message) {
    const article = articleOf(message), body = article.querySelector('.body'), busy = running?.message === message;
    if (message.role === 'assistant') render(body, message.content, busy);
    else body.textContent = message.content;
    showThought(message, article);
    if (busy) byId('context').textContent = figuresText({ ...message.figures, firstToken: null });
    follow();
}

// A message that does not change any more, with all that belongs to it.
function settle(message) {
    const article = articleOf(message);
    show(message);
    showCalls(message, article);
    showTrouble(message, article);
    showFoot(message, article);
    follow();
}

const makeArticle = ({ role, files = [] }) => make('article', { class: role }, make('h2', { class: 'unseen' }, WRITERS[role]),
    ...files.map(fileNode), make('div', { class: role === 'assistant' ? 'body text' : 'body' }), make('div', { class: 'foot' }));

