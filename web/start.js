// ---- keys, start ----------------------------------------------------------------------------------------------------

// [keys, what they do]; with Alt: [keys, what, code, handler].
const KEYS = [
    [['Enter'], 'send'],
    [['Shift', 'Enter'], 'break the line'],
    [['Esc'], 'stop the answer, close what is open'],
    [['↑'], 'in an empty field: edit what you wrote last'],
    [['/'], 'go to the field'],
    [['Alt', 'N'], 'new chat', 'KeyN', () => { closeDrawer(); startOver(); }],
    [['Alt', 'R'], 'regenerate the last answer', 'KeyR', () => regenerate()],
    [['Alt', 'K'], 'search conversations', 'KeyK', () => goToSearch()],
    [['Alt', 'C'], 'show or hide the conversations', 'KeyC', () => toggle('list')],
    [['Alt', 'P'], 'show or hide the panels', 'KeyP', () => toggle('panels')],
    [['Alt', 'T'], 'light, dark, or as the system', 'KeyT', nextTheme],
    [['Alt', 'A'], 'attach text files', 'KeyA', () => byId('attach').click()],
    [['?'], 'this list'],
    [['← →'], 'along the layers, back in the charts'],
];

function goToSearch() {
    if (!isShown('list')) toggle('list');
    byId('search').select();
}

function onKey(event) {
    if (document.querySelector('dialog[open], :popover-open') || event.ctrlKey || event.metaKey) return;
    const typing = event.target.matches('input, textarea');
    const [, , , chosen] = event.altKey ? KEYS.find(([, , code]) => code === event.code) ?? [] : [];
    if (chosen) chosen();
    else if (event.key === 'Escape' && !byId('layer').hidden) hideLayer();
    else if (event.key === 'Escape' && drawer) closeDrawer();
    else if (event.key === 'Escape' && running) stop();
    else if (event.key === '/' && !typing) field.focus();
    else if (event.key === '?' && !typing) byId('help').showModal();
    else return;
    event.preventDefault();
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
    await Promise.all([loadPlan(), loadDefaults()]);
}

function connect() {
    return connecting ??= meet().finally(() => { connecting = null; });
}

function start() {
    byId('key-list').append(...KEYS.flatMap(([keys, what]) => [
        make('dt', {}, ...keys.flatMap(key => [make('kbd', {}, key), ' '])), make('dd', {}, what)]));
    on('keys', 'click', () => byId('help').showModal());
    on('no-key', 'click', () => byId('key').close());
    on('unlock', 'click', () => connect().catch(() => {}));
    document.addEventListener('keydown', onKey);
    prepareFrame();
    prepareComposer();
    prepareAttachments();
    prepareChats();
    prepareSampling();
    preparePlan();
    prepareCharts();
    openChat(session.get('chat'));
    sampleSoon(0);
}

start();
