// ---- keys, panels, start -------------------------------------------------------------------------------------------

const KEYS = [
    [['Enter'], 'send'],
    [['Shift', 'Enter'], 'break the line'],
    [['Esc'], 'stop the answer'],
    [['Alt', 'R'], 'regenerate the last answer'],
    [['↑'], 'in an empty field: edit what you wrote last'],
    [['Alt', 'N'], 'new chat'],
    [['Alt', 'P'], 'show or hide the panels'],
    [['/'], 'go to the field'],
    [['← →'], 'along the layers, back in the charts'],
];

function onKey(event) {
    if (document.querySelector('dialog[open]') || event.ctrlKey || event.metaKey) return;
    const typing = event.target.matches('input, textarea, [contenteditable]');
    if (event.key === 'Escape' && !byId('layer').hidden) hideLayer();
    else if (event.key === 'Escape' && running) stop();
    else if (event.altKey && event.code === 'KeyR') regenerate();
    else if (event.altKey && event.code === 'KeyN') startOver();
    else if (event.altKey && event.code === 'KeyP') fold();
    else if (event.key === '/' && !typing) field.focus();
    else return;
    event.preventDefault();
}

const narrow = matchMedia('(max-width: 860px)');

function fold(folded = !document.body.classList.contains('folded')) {
    if (folded && byId('panels').contains(document.activeElement)) byId('fold').focus();
    document.body.classList.toggle('folded', folded);
    byId('fold').setAttribute('aria-expanded', !folded);
    byId('fold').textContent = narrow.matches && !folded ? 'Chat' : 'Panels';
    if (!narrow.matches) local.set('folded', folded);
    follow();
}

// Fetches the server's version and model, and again after a connection loss, as it may be another server.
let connecting = null;

async function meet() {
    const { data: [card] } = await (await ask('/v1/models')).json();
    const { version } = await (await ask('/version')).json();
    model = card.id;
    maxModelLen = card.max_model_len;
    byId('model').textContent = byId('model').title = model;
    byId('version').textContent = version;
    document.title = `${model} · nibble`;
    showContext(messages.at(-1)?.figures?.usage);
    await loadPlan();
}

function connect() {
    return connecting ??= meet().finally(() => { connecting = null; });
}

function start() {
    byId('key-list').append(...KEYS.flatMap(([keys, what]) => [
        make('dt', {}, ...keys.flatMap(key => [make('kbd', {}, key), ' '])), make('dd', {}, what)]));
    on('keys', 'click', () => byId('help').showModal());
    on('fold', 'click', () => fold());
    on('no-key', 'click', () => byId('key').close());
    on('unlock', 'click', () => connect().catch(() => {}));
    document.addEventListener('keydown', onKey);
    narrow.addEventListener('change', () => fold(narrow.matches || local.get('folded') === true));
    fold(narrow.matches || local.get('folded') === true);
    prepareComposer();
    prepareSampling();
    preparePlan();
    prepareCharts();
    openChat(session.get('chat'));
    sampleSoon(0);
}

start();
