// ---- an answer: the request, and the stream that comes back ---------------------------------------------------------

let model = null, maxModelLen = 0;

const toolCalls = calls => calls.map(({ id, name, arguments: given }) => ({ id, type: 'function', function: { name, arguments: given } }));

function turnOf(message) {
    const { role, reasoning, calls, callId } = message;
    return {
        role, content: contentOf(message), ...(reasoning && { reasoning_content: reasoning }), ...(calls && { tool_calls: toolCalls(calls) }),
        ...(callId && { tool_call_id: callId }),
    };
}

// The conversation as sent to the model: missing answers are left out, and the questions around them are joined. The
// chat template keeps of earlier thoughts what the model wants.
function history() {
    const shown = systemPrompt ? [{ role: 'system', content: systemPrompt }] : [];
    for (const message of messages) {
        const turn = turnOf(message);
        if (!turn.content && !turn.tool_calls && message.role !== 'tool') continue;
        if (message.role === 'user' && shown.at(-1)?.role === 'user') shown.at(-1).content += `\n\n${turn.content}`;
        else shown.push(turn);
    }
    return shown;
}

// Calls come in parts, each with its number.
function takeCalls(message, parts) {
    for (const { index, id, function: part } of parts) {
        const call = (message.calls ??= [])[index] ??= { id: '', name: '', arguments: '' };
        call.id ||= id ?? '';
        call.name += part?.name ?? '';
        call.arguments += part?.arguments ?? '';
    }
}

// Takes in what one event of the stream says.
function takeEvent(event, message, started) {
    const { figures } = message, choice = event.choices?.[0], now = (performance.now() - started) / 1000;
    if (event.error) throw new Trouble(event.error.message);
    figures.usage = event.usage ?? figures.usage;
    figures.finish = choice?.finish_reason ?? figures.finish;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice?.delta ?? {};
    if (!content && !reasoning && !calls) return;
    message.content += content ?? '';
    if (reasoning) message.reasoning = (message.reasoning ?? '') + reasoning;
    if (calls) takeCalls(message, calls);
    figures.pieces++;
    figures.firstToken ??= now;
    if (message.reasoning && (reasoning || message.content === (content ?? ''))) message.thinking = now - figures.firstToken; // up to the first word
    const writing = now - figures.firstToken;
    figures.speed = writing > 0 ? (figures.pieces - 1) / writing : null;
}

async function read(message, signal, more) {
    const started = performance.now(), { figures } = message;
    const body = JSON.stringify({
        model, messages: history(), stream: true, stream_options: { include_usage: true }, ...sampling(), ...more,
    });
    const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body, signal };
    let frame = 0;
    try {
        for await (const event of eventsOf(await ask('/v1/chat/completions', options))) {
            takeEvent(event, message, started);
            frame ||= requestAnimationFrame(() => { frame = 0; show(message); });
        }
    } finally {
        cancelAnimationFrame(frame);
    }
    if (figures.speed && figures.usage) // a piece may have been several tokens
        figures.speed *= (figures.usage.completion_tokens - 1) / (figures.pieces - 1);
}

async function produce(message, signal, more) {
    try {
        if (!model) await connect();
        await read(message, signal, more);
    } catch (error) {
        if (error.name === 'AbortError') message.figures.finish = 'stopped';
        else message.trouble = sentenceOf(error);
    }
    running = null;
    setBusy(false);
    if (!message.figures.pieces && message.trouble) delete message.figures;
    settle(message);
    showContext(message.figures?.usage);
    say(message.trouble ?? 'The answer is complete');
    remember();
}

const noFigures = () => ({ usage: null, pieces: 0, speed: null, firstToken: null, finish: null });

function run(message, more) {
    const controller = new AbortController();
    following = true;
    running = { message, controller };
    setBusy(true);
    settle(message);
    running.finished = produce(message, controller.signal, more);
}

function answer() {
    const message = { role: 'assistant', content: '', model, figures: noFigures() };
    append(message);
    run(message);
}

// An answer that was cut goes on where it ends.
function goOn(message) {
    message.figures = noFigures();
    run(message, { add_generation_prompt: false, continue_final_message: true });
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

