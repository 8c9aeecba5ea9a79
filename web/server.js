// ---- the server ----------------------------------------------------------------------------------------------------

// An error whose message is meant for the reader.
class Trouble extends Error {}

function sentenceOf(error) {
    return error instanceof Trouble ? error.message : `What the server sent cannot be read (${error.message}).`;
}

async function troubleOf(response) {
    let message = '';
    try {
        const { error } = await response.json();
        message = typeof error === 'string' ? error : error.message;
    } catch { /* not JSON: the status has to do */ }
    const wait = response.headers.get('Retry-After');
    message ||= `The server answered with status ${response.status}.`;
    return new Trouble(wait ? `${message} It asks to wait ${wait} s.` : message);
}

let asking = null; // one dialog, however many requests wait for it

function askForKey(refused) {
    return asking ??= new Promise((resolve, reject) => {
        const dialog = byId('key'), field = byId('key-field');
        byId('refused').hidden = !refused;
        field.value = '';
        dialog.returnValue = '';
        dialog.showModal();
        field.focus();
        dialog.addEventListener('close', () => {
            asking = null;
            byId('unlock').hidden = dialog.returnValue === 'use';
            if (dialog.returnValue !== 'use') return reject(new Trouble('This server wants a key.'));
            session.set('key', field.value);
            resolve();
        }, { once: true });
    });
}

async function ask(path, options = {}) {
    for (;;) {
        const key = session.get('key');
        const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
        let response;
        try {
            response = await fetch(path, { ...options, headers });
        } catch (error) {
            if (error.name === 'AbortError') throw error;
            throw new Trouble('The server cannot be reached. Is it still running?');
        }
        if (response.ok) return response;
        if (response.status !== 401) throw await troubleOf(response);
        if (session.get('key') === key) await askForKey(key !== null);
    }
}

// The JSON of each server-sent event, up to [DONE].
async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '', done = false;
    while (!done) {
        let piece;
        try {
            piece = await reader.read();
        } catch (error) {
            if (error.name === 'AbortError') throw error;
            piece = { done: true };
        }
        if (piece.done) throw new Trouble('The connection broke off before the answer was complete.');
        const parts = (rest + piece.value).split(/\r?\n\r?\n/);
        rest = parts.pop();
        for (const part of parts) {
            const lines = part.split(/\r?\n/).filter(line => line.startsWith('data:'));
            const data = lines.map(line => line.slice(5).trim()).join('\n');
            if (data === '[DONE]') done = true;
            else if (data) yield JSON.parse(data);
        }
    }
}

