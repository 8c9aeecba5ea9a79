// ---- the field and its attachments ----------------------------------------------------------------------------------

const FILE_MOST = 1 << 20, PASTE_AS_FILE = 4000; // bytes; characters
const attached = []; // { name, text, tokens }; tokens: null until the server has counted them

// Enter, but neither with Shift nor the one that picks a word of an input method.
const isSend = event => event.key === 'Enter' && !event.shiftKey && !event.isComposing;

function fitField() {
    field.style.height = 'auto';
    field.style.height = `${field.scrollHeight}px`;
}

function showAttached() {
    byId('attached').replaceChildren(...attached.map(file => make('li', {}, icon('file'), make('span', {}, file.name),
        make('span', { class: 'small' }, file.tokens === null ? bytes(new Blob([file.text]).size) : countOf(file.tokens, 'token')),
        iconAction('close', `Remove ${file.name}`, () => { attached.splice(attached.indexOf(file), 1); showAttached(); backToField(); }))));
    byId('attached').hidden = !attached.length;
    const tokens = attached.reduce((sum, file) => sum + (file.tokens ?? 0), 0);
    byId('too-long').hidden = !(maxModelLen && tokens > maxModelLen);
    byId('too-long').textContent = `These files have ${countOf(tokens, 'token')}; the context holds ${count(maxModelLen)}.`;
}

async function countTokens(file) {
    try {
        const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ prompt: file.text, add_special_tokens: false }) };
        file.tokens = (await (await ask('/tokenize', options)).json()).count;
        showAttached();
    } catch { /* its size is shown in bytes */ }
}

function attach(name, text) {
    const file = { name, text, tokens: null };
    attached.push(file);
    showAttached();
    say(`${name} attached`);
    return countTokens(file);
}

// Text alone: what is not UTF-8, or has a zero byte, is refused by name.
async function attachFiles(files) {
    for (const file of files) {
        if (file.size > FILE_MOST) {
            notice(`${file.name} has ${bytes(file.size)}; attachments have at most ${bytes(FILE_MOST)}.`);
            continue;
        }
        try {
            const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
            if (text.includes('\0')) throw new TypeError();
            attach(file.name, text);
        } catch {
            notice(`${file.name} is not text in UTF-8; this model reads text alone.`);
        }
    }
    backToField();
}

function onPaste(event) {
    const files = [...event.clipboardData.files], text = event.clipboardData.getData('text/plain');
    if (!files.length && text.length < PASTE_AS_FILE) return;
    event.preventDefault();
    if (files.length) attachFiles(files);
    else attach('pasted.txt', text);
}

function prepareAttachments() {
    const files = make('input', { type: 'file', multiple: '', change() { attachFiles([...files.files]); files.value = ''; } });
    const drop = shown => byId('chat').classList.toggle('dropping', shown);
    const isFiles = event => event.dataTransfer?.types.includes('Files');
    on('attach', 'click', () => files.click());
    field.addEventListener('paste', onPaste);
    document.addEventListener('dragover', event => { if (isFiles(event)) { event.preventDefault(); drop(true); } });
    document.addEventListener('dragleave', event => { if (!event.relatedTarget) drop(false); });
    document.addEventListener('drop', event => {
        drop(false);
        if (!isFiles(event)) return;
        event.preventDefault();
        attachFiles([...event.dataTransfer.files]);
    });
}

function prepareComposer() {
    for (const idea of ['What is a KV cache?', 'Write a haiku about four bits', 'Reverse a string in C'])
        byId('ideas').append(make('button', { type: 'button', click: () => submit(idea) }, idea));
    field.addEventListener('input', fitField);
    window.addEventListener('resize', fitField);
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
        if ((!text && !attached.length) || running) return;
        const files = attached.splice(0).map(({ name, text }) => ({ name, text }));
        field.value = '';
        fitField();
        showAttached();
        submit(text, files);
    });
    on('stop', 'click', stop);
    on('new', 'click', startOver);
    window.addEventListener('pagehide', () => { if (running) remember(); }); // what there is of an answer
    on('latest', 'click', () => { following = true; follow(); backToField(); });
    log.addEventListener('click', event => {
        const button = event.target.closest('.copy-code');
        if (button) copy(button.closest('.code').querySelector('pre').textContent, button);
    });
    log.addEventListener('scroll', () => {
        following = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
        byId('latest').hidden = following || !messages.length;
    }, { passive: true });
}

