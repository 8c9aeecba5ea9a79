# SPDX-License-Identifier: Apache-2.0
"""The page that the server shows at /, in a real browser; and the Grafana dashboard over the same metrics."""

import gzip
import json
import pathlib
import re
import urllib.request

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

import small_model
from page import Page
from serving import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
BRIEF = {"temperature": 0, "max_tokens": 24}
LONG = {"temperature": 0, "max_tokens": 800}
LONG_QUESTION = "Write a very long story about a river that flows through every country of the world."
RECORD_LENGTHS = """
    window.lengths = new Set();
    new MutationObserver(() => {
        const body = document.querySelector('[role=log] .assistant .body');
        if (body?.innerText) window.lengths.add(body.innerText.length);
    }).observe(document.querySelector('[role=log]'), { childList: true, subtree: true, characterData: true });
"""
METRICS_READ = "return performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/metrics')).length"


@pytest.fixture
def open_page(browser):
    """Opens the page with nothing remembered; nothing may have gone wrong in it by the end of the test."""
    yield lambda server, sampling=BRIEF: Page(browser, server.url, sampling)
    complaints = [entry for entry in browser.get_log("browser")
                  if entry["level"] == "SEVERE" and entry["source"] != "network"]
    browser.get("about:blank")
    assert not complaints


def get(url, body=None):
    data = body and json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as answer:
        return answer.read().decode()


# ---- chat -----------------------------------------------------------------------------------------------------------

def test_enter_sends_and_the_answer_streams_in(server, open_page):
    page = open_page(server, {"temperature": 0, "max_tokens": 96})
    field = page.find("#message")
    assert field.accessible_name == "Message" and page.find("[role=log]").accessible_name == "Conversation"
    page.run(RECORD_LENGTHS)  # in the page itself: an answer may be over before a second look from here
    page.ask(LONG_QUESTION)
    assert len(page.run("return [...window.lengths]")) >= 2, "the answer came in one piece"
    assert field.get_property("value") == "" and page.browser.switch_to.active_element == field

    question, answer = page.conversation
    messages = [{"role": "user", "content": question["content"]}]
    request = {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": 96}
    told = json.loads(get(server.url + "/v1/chat/completions", request))["choices"][0]["message"]["content"]
    assert answer["content"] == told
    figures = page.find(".assistant .figures").text
    assert re.match(r"\d+ tokens · [\d.]+ t/s · first token [\d.]+ m?s", figures)


def test_shift_enter_breaks_the_line(server, open_page):
    page = open_page(server)
    page.find("#message").send_keys("one", Keys.SHIFT, Keys.ENTER, Keys.NULL, "two")
    assert page.find("#message").get_property("value") == "one\ntwo" and not page.all("article")


def test_stop_and_regenerate(server, open_page):
    page = open_page(server, LONG)
    page.send(LONG_QUESTION)
    page.wait_for_text(20)
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.answering)
    first = page.conversation[1]["content"]
    assert "stopped" in page.find(".assistant .figures").text
    page.wait(lambda: re.search(r"^vllm:num_requests_running\S* 0$", get(server.url + "/metrics"), re.M))

    page.button("Regenerate").click()
    page.wait_for_text(20)
    page.button("Stop").click()
    page.wait(lambda: not page.answering)
    [_, again] = page.conversation
    assert first.startswith(again["content"]) or again["content"].startswith(first)  # temperature 0: the same again
    page.press(Keys.ALT, "r")
    page.wait_for_text(20)
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.answering)
    assert len(page.answers) == 1 and len(page.all("article")) == 2
    assert page.find(".versions > span").text == "3 / 3"


def test_a_second_turn_finds_the_first_in_the_cache(server, open_page):
    page = open_page(server)
    page.ask("Name three colours, three animals and three cities.")
    page.ask("Which of the colours is the brightest?")
    assert re.search(r"\d+ of \d+ prompt tokens cached", page.all(".assistant .figures")[1].text)
    assert re.search(r"context \d+ of [\d,]+", page.find("#context").text)


def test_edit_new_chat_and_back(server, open_page):
    page = open_page(server)
    page.ask("Say yes.")
    page.ask("Say no.")
    page.press(Keys.ARROW_UP)
    page.browser.switch_to.active_element.send_keys(Keys.CONTROL, "a", Keys.NULL, "Say perhaps.", Keys.ENTER)
    page.wait(lambda: not page.answering and len(page.answers) == 2 and page.answers[1] and "Say perhaps." in page.find("#log").text)
    said = [message["content"] for message in page.conversation if message["role"] == "user"]
    assert said == ["Say yes.", "Say perhaps."]

    page.button("New chat").click()
    page.wait(lambda: not page.all("article"))
    page.button("Say yes.").click()
    assert len(page.all("article")) == 4


# ---- what the browser keeps ------------------------------------------------------------------------------------------

TALK = [{"role": "user", "content": "A question\nof two lines"}, {"role": "assistant", "content": "An answer"}]


def test_a_reload_and_a_new_chat_lose_nothing(server, open_page):
    page = open_page(server)
    page.ask("Say yes.")
    first = page.shown
    page.browser.refresh()
    assert page.shown == first and not page.find("#welcome").is_displayed()
    page.button("New chat").click()
    page.wait(lambda: not page.shown)
    assert page.chats == ["Say yes."]
    page.browser.refresh()
    assert not page.shown and page.chats == ["Say yes."]
    page.ask("Say no.")
    page.press(Keys.ALT, "n")
    page.wait(lambda: page.chats == ["Say no.", "Say yes."])
    page.button("Say yes.").click()
    assert page.shown == first
    page.ask("And again.")
    page.browser.switch_to.new_window("tab")
    page.browser.get(server.url)
    assert not page.shown and page.chats == ["Say yes.", "Say no."], "another tab has a chat of its own"
    page.button("More: Say no.").click()
    page.button("Delete").click()
    assert page.chats == ["Say yes."]
    page.browser.close()
    page.browser.switch_to.window(page.browser.window_handles[0])
    page.browser.refresh()
    assert page.shown[:2] == first and len(page.shown) == 4


def test_a_reload_keeps_what_there_is_of_an_answer(server, open_page):
    page = open_page(server, LONG)
    page.send(LONG_QUESTION)
    page.wait_for_text(20)
    page.browser.refresh()
    assert page.shown[0] == LONG_QUESTION and len(page.shown[1]) >= 20 and not page.answering


DAMAGED = ["", "{", "null", "7", "[]", '{"messages": 3}', '{"messages": [null, 5, {"role": "user"}, {"role": "robot", "content": "x"}]}']


def test_damaged_conversations_are_passed_over(server, open_page):
    page = open_page(server)
    damaged = {f"bad{i}": text for i, text in enumerate(DAMAGED)}
    page.hold({**damaged, "good": json.dumps({"time": 5, "messages": TALK})}, "bad0")
    assert not page.shown and page.chats == ["A question of two lines"]
    page.find("#chats .chat").click()
    assert page.shown == [message["content"] for message in TALK]


def test_of_a_damaged_message_what_can_be_read_is_shown(server, open_page):
    page = open_page(server)
    odd = [{"role": "user", "content": "Kept", "figures": 5, "trouble": {}}, None, {"role": "assistant", "content": "<i>", "figures": {"usage": "x"}}]
    page.hold({"odd": json.dumps({"time": "x", "messages": odd})}, "odd")
    assert page.shown == ["Kept", "<i>"] and not page.all(".note") and "NaN" not in page.find("#chat").text


def test_a_full_store_drops_the_oldest(server, open_page):
    page = open_page(server)
    old = {f"old{i}": json.dumps({"time": i + 1, "messages": [{"role": "user", "content": f"{i} " + "x" * 1_000_000}]}) for i in range(4)}
    page.hold(old)
    page.run("let size = 1 << 20; while (size) try { localStorage.setItem(`more${Math.random()}`, 'x'.repeat(size)) } catch { size >>= 1 }")
    page.ask("Say yes.")
    page.button("New chat").click()
    page.wait(lambda: not page.shown)
    assert [title[0] for title in page.chats] == ["S", "3", "2", "1"]
    page.browser.refresh()
    assert [title[0] for title in page.chats] == ["S", "3", "2", "1"]


def test_a_forbidden_store_costs_a_reload_alone(server, open_page):
    """Conversations stay reachable for as long as the page is open."""
    page = open_page(server)
    page.browser.execute_cdp_cmd("Page.enable", {})
    forbid = ("for (const name of ['localStorage', 'sessionStorage'])"
              " Object.defineProperty(window, name, { get() { throw new DOMException('no', 'SecurityError') } })")
    script = page.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": forbid})
    try:
        page.browser.refresh()
        page.find("#max_tokens").send_keys("4")
        page.ask("Say yes.")
        page.button("New chat").click()
        page.wait(lambda: not page.shown)
        page.button("Say yes.").click()
        assert len(page.shown) == 2
    finally:
        page.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


# ---- versions, branches, other conversations -------------------------------------------------------------------------

def test_edits_and_new_answers_are_versions(server, open_page):
    """Nothing that was asked or answered is lost: each message has its versions, side by side."""
    page = open_page(server)
    page.ask("Say yes.")
    page.ask("Say no.")
    page.all(".user")[0].find_element("xpath", ".//button[normalize-space()='Edit']").click()
    page.browser.switch_to.active_element.send_keys(Keys.CONTROL, "a", Keys.NULL, "Say perhaps.", Keys.ENTER)
    page.wait(lambda: not page.answering and len(page.answers) == 1 and page.of_all(".user .body", "element.innerText") == ["Say perhaps."])
    assert page.find(".user .versions > span").text == "2 / 2"
    page.find(".user .versions button:first-child").click()
    page.wait(lambda: page.of_all(".user .body", "element.innerText") == ["Say yes.", "Say no."])
    page.browser.refresh()
    assert page.of_all(".user .body", "element.innerText") == ["Say yes.", "Say no."] and page.find(".user .versions > span").text == "1 / 2"


def test_an_answer_can_be_rewritten_deleted_and_restored(server, open_page):
    page = open_page(server)
    page.hold_talk(*TALK)
    page.button_of(".assistant", "Edit").click()
    page.browser.switch_to.active_element.send_keys(Keys.CONTROL, "a", Keys.NULL, "**Another**")
    page.button("Save as a new version").click()
    page.wait(lambda: page.answers == ["Another"])
    assert page.find(".assistant strong") and page.find(".assistant .versions > span").text == "2 / 2"
    page.button_of(".assistant", "Delete from here on").click()
    page.wait(lambda: page.answers == ["An answer"])
    assert not page.all(".versions")
    page.button("Undo").click()
    page.wait(lambda: page.answers == ["Another"])


def test_a_branch_leaves_the_conversation_as_it_was(server, open_page):
    page = open_page(server)
    page.hold_talk(*TALK, {"role": "user", "content": "More"}, {"role": "assistant", "content": "Much more"})
    page.button_of(".assistant", "Branch into a new conversation").click()
    page.wait(lambda: len(page.all("article")) == 2)
    assert page.shown == [message["content"] for message in TALK]
    assert page.chats == ["A question of two lines (branch)", "A question of two lines"]
    page.all("#chats .chat")[1].click()
    page.wait(lambda: len(page.all("article")) == 4)


def test_an_answer_that_was_cut_goes_on(server, open_page):
    page = open_page(server, {"temperature": 0, "max_tokens": 8})
    first = page.ask(LONG_QUESTION)
    assert "cut at max tokens" in page.find(".figures").text
    page.button("Continue").click()
    page.wait(lambda: not page.answering and len(page.answers[0]) > len(first))
    told = server.chat(LONG_QUESTION, max_tokens=16)["choices"][0]["message"]["content"]
    assert page.conversation[1]["content"] == told and len(page.all("article")) == 2


def test_conversations_are_found_renamed_and_deleted(server, open_page):
    page = open_page(server)
    chats = {name: json.dumps({"time": i + 1, "messages": [{"role": "user", "content": f"About {name}"}, {"role": "assistant", "content": f"The {name} is deep."}]})
             for i, name in enumerate(("river", "ocean"))}
    page.hold(chats, "river")
    assert page.chats == ["About ocean", "About river"] and page.find("#chats [aria-current]").text == "About river"
    page.press(Keys.ALT, "k")
    page.browser.switch_to.active_element.send_keys("OCEAN is")
    assert page.chats == ["About ocean"] and page.find(".found mark").text == "ocean is"
    page.find("#search").send_keys(" nowhere")
    assert not page.chats and page.find("#no-chats").text == "No conversation contains that."
    page.find("#search").clear()
    page.find("#search").send_keys(" ")
    page.button("More: About river").click()
    page.press(Keys.ARROW_UP)
    assert page.browser.switch_to.active_element.text == "Delete"
    page.press(Keys.HOME)
    page.press(Keys.ENTER)
    page.browser.switch_to.active_element.send_keys("Rivers", Keys.ENTER)
    page.wait(lambda: "Rivers" in page.chats)
    page.browser.refresh()
    assert page.chats == ["About ocean", "Rivers"]
    page.button("More: Rivers").click()
    page.button("Delete").click()
    page.wait(lambda: page.chats == ["About ocean"] and not page.shown)
    page.button("Undo").click()
    page.wait(lambda: page.chats == ["About ocean", "Rivers"] and len(page.shown) == 2)


TAKE_DOWNLOADS = """
    window.downloads = [];
    URL.createObjectURL = blob => { blob.text().then(text => window.downloads.push(text)); return 'data:,'; };
"""


@pytest.mark.parametrize("form", ["JSON", "Markdown"])
def test_what_is_exported_can_be_imported(server, open_page, tmp_path, form):
    talk = [*TALK, {"role": "user", "content": "<!-- nibble: user -->\n# Heading"}, {"role": "assistant", "content": "a | b\n\n```c\nint x;\n```"}]
    page = open_page(server)
    page.hold_talk(*talk)
    page.run(TAKE_DOWNLOADS)
    page.button("More: A question of two lines").click()
    page.button(f"Export as {form}").click()
    text, = page.wait(lambda: page.run("return window.downloads"))
    path = tmp_path / f"export.{'json' if form == 'JSON' else 'md'}"
    path.write_text(text)
    page.run("localStorage.clear()")
    page.browser.refresh()
    page.drop_files("#import", path)
    page.wait(lambda: len(page.all("article")) == 4)
    assert [(message["role"], message["content"]) for message in page.conversation] == [(message["role"], message["content"]) for message in talk]


@pytest.mark.parametrize("text, complaint", [("{", "no valid JSON"), ('{"messages": []}', "holds no conversation"), ("Just words", "holds no conversation")])
def test_a_wrong_import_is_refused_by_name(server, open_page, tmp_path, text, complaint):
    page = open_page(server)
    (tmp_path / "other.json").write_text(text)
    page.drop_files("#import", tmp_path / "other.json")
    page.wait(lambda: page.find("#notice").is_displayed())
    assert "other.json" in page.find("#notice").text and complaint in page.find("#notice").text and not page.chats


def test_an_openai_request_can_be_imported(server, open_page, tmp_path):
    page = open_page(server)
    (tmp_path / "request.json").write_text(json.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}))
    page.drop_files("#import", tmp_path / "request.json")
    page.wait(lambda: page.shown == ["Hi"])
    assert page.find("#system").get_property("value") == "Be brief."


# ---- files, tools, the request ---------------------------------------------------------------------------------------

def test_text_files_are_attached_and_counted(server, open_page, tmp_path):
    page = open_page(server)
    (tmp_path / "notes.txt").write_text("The secret word is ```plum```.\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    page.drop_files("#attach", tmp_path / "picture.png")
    page.wait(lambda: "picture.png is not text in UTF-8" in page.find("#notice").text)
    page.drop_files("#attach", tmp_path / "notes.txt")
    tokens = server.ask("/tokenize", {"prompt": "The secret word is ```plum```.\n", "add_special_tokens": False}).json["count"]
    page.wait(lambda: f"{tokens} tokens" in page.find("#attached").text)
    page.run(KEEP_REQUESTS)
    page.ask("Which word is it?")
    sent = page.run("return window.sent")["messages"][0]["content"]
    assert sent == "notes.txt:\n````\nThe secret word is ```plum```.\n\n````\n\nWhich word is it?"
    assert page.find(".user .file summary").text.startswith("notes.txt") and not page.find("#attached").is_displayed()


KEEP_REQUESTS = """
    const ask = window.fetch;
    window.fetch = (path, options) => { if (options?.body) window.sent = JSON.parse(options.body); return ask(path, options); };
"""
# Answers of a server that this page did not see, as it would send them.
ANSWER_WITH = """
    const events = arguments[0], ask = window.fetch;
    window.fetch = (path, options) => {
        if (!String(path).includes('/chat/completions')) return ask(path, options);
        window.sent = JSON.parse(options.body);
        const stream = new ReadableStream({ async start(controller) {
            for (const event of events) {
                controller.enqueue(new TextEncoder().encode(`data: ${typeof event === 'string' ? event : JSON.stringify(event)}\\n\\n`));
                await new Promise(requestAnimationFrame);
            }
            controller.close();
        } });
        return Promise.resolve(new Response(stream));
    };
"""


def stream_of(*deltas, finish="stop"):
    return [*({"choices": [{"delta": delta}]} for delta in deltas), {"choices": [{"delta": {}, "finish_reason": finish}]}, "[DONE]"]


def test_tool_calls_are_shown_and_answered(server, open_page):
    page = open_page(server)
    calls = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}]
    rest = [{"index": 0, "function": {"arguments": '"<b>Rome"}'}}]
    page.run(ANSWER_WITH, stream_of({"tool_calls": calls}, {"tool_calls": rest}, finish="tool_calls"))
    page.ask("How is the weather?")
    assert page.find(".call-name code").text == "weather" and json.loads(page.find(".call pre").text) == {"city": "<b>Rome"}
    page.find(".call textarea").send_keys("Sunny")
    page.run(ANSWER_WITH, stream_of({"content": "It is sunny."}))
    page.button("Send the result").click()
    page.wait(lambda: not page.answering and page.answers[-1] == "It is sunny.")
    call, result = page.run("return window.sent.messages")[1:]
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"<b>Rome"}'}
    assert result == {"role": "tool", "content": "Sunny", "tool_call_id": "call_1"}
    assert not page.all(".call textarea"), "calls that are answered wait for nothing"


def test_all_fields_show_defaults_and_are_sent(server, open_page):
    """Each number field shows the server's own default and reaches it under a name that it takes."""
    page = open_page(server)
    params = json.loads(get(server.url + "/props"))["default_generation_settings"]["params"]
    page.wait(lambda: page.find("#temperature").get_property("placeholder") == "0.2")  # as advised for SmolLM2
    page.find("#more summary").click()
    shown = dict(page.of_all("#panels input", "[element.id, element.placeholder]"))
    assert len(shown) > 20 and "default" not in shown.values()
    for name in ("dry_base", "typical_p", "xtc_threshold", "repeat_last_n", "mirostat_tau", "top_k"):
        assert float(shown[name]) == params[name], name
    page.run("for (const field of document.querySelectorAll('#panels input:placeholder-shown')) if (!isNaN(field.placeholder))"
             " { field.value = field.placeholder; field.dispatchEvent(new Event('input')) }")
    page.find("#seed").send_keys("3")
    page.find("#stop-strings").send_keys("one\ntwo")
    page.find("#further").send_keys('{"min_tokens": 2}')
    page.run(KEEP_REQUESTS)
    assert page.ask("Hello") and not page.all(".note")
    sent = page.run("return window.sent")
    assert set(shown) - {"max_reasoning_tokens"} <= set(sent) and sent["stop"] == ["one", "two"] and sent["min_tokens"] == 2


def test_further_fields_must_be_an_object(server, open_page):
    page = open_page(server)
    page.find("#more summary").click()
    page.find("#further").send_keys("[1]")
    assert page.find("#further-wrong").is_displayed()
    page.ask("Hello")
    assert "Further request fields" in page.find(".note").text


def test_a_system_prompt_belongs_to_its_conversation(server, open_page):
    page = open_page(server)
    page.find("#system").send_keys("Answer in French.")
    page.ask("Hello")
    page.button("New chat").click()
    page.wait(lambda: not page.shown)
    page.find("#system").clear()
    page.ask("Hi")
    page.button("Hello").click()
    page.wait(lambda: page.find("#system").get_property("value") == "Answer in French.")


# ---- Markdown, maths, code -------------------------------------------------------------------------------------------

# Markdown and the elements that it becomes: tags with their text, written as HTML without attributes.
SHAPE = """(function shape(node) {
    if (node.nodeType === 3) return node.data;
    const tag = node.localName;
    if (tag === 'annotation' || tag === 'button' || node.matches('.code > div')) return '';
    const inner = [...node.childNodes].map(shape).join('');
    return ['div', 'semantics', 'span'].includes(tag) ? inner : `<${tag}${tag === 'input' && node.checked ? ' checked' : ''}>${inner}</${tag}>`;
})(element).trim()"""
MARKDOWN = [
    ("**b** *i* ***bi*** ~~s~~ `c*d*` __b__ _i_ snake_case_name 2*3*4", "<p><strong>b</strong> <em>i</em> <em><strong>bi</strong></em> <del>s</del> <code>c*d*</code>"
     " <strong>b</strong> <em>i</em> snake_case_name 2<em>3</em>4</p>"),
    ("*a **b** c* and **a *b* c**", "<p><em>a <strong>b</strong> c</em> and <strong>a <em>b</em> c</strong></p>"),
    ("2 * 3 * 4 and \\*no\\* and ** no **", "<p>2 * 3 * 4 and *no* and ** no **</p>"),
    ("[a *b*](https://x.org/(y) \"t\") https://x.org/a_b_c. <https://y.org>", "<p><a>a <em>b</em></a> <a>https://x.org/a_b_c</a>. <a>https://y.org</a></p>"),
    ("[click](javascript:alert(1)) ![p](https://x.org/p.png) <img src=x onerror=alert(1)>", "<p>click <a>p</a> <img src=x onerror=alert(1)></p>"),
    ("# One\n## Two *i*\n###### Six #\n#no", "<h3>One</h3><h4>Two <em>i</em></h4><h6>Six</h6><p>#no</p>"),
    ("Title\n===\nSub\n---\ntext\n\n---\n***", "<h3>Title</h3><h4>Sub</h4><p>text</p><hr></hr><hr></hr>"),
    ("> a\n> > b\n>\n> - c\n\nd", "<blockquote><p>a</p><blockquote><p>b</p></blockquote><ul><li>c</li></ul></blockquote><p>d</p>"),
    ("- [x] done\n- [ ] *to do*", "<ul><li><input checked></input> done</li><li><input></input> <em>to do</em></li></ul>"),
    ("1. a\n\n   second\n\n   ```c\n   x\n   ```\n2. b", "<ol><li>a<p>second</p><pre><code>x</code></pre></li><li>b</li></ol>"),
    ("- a\n  - b\n    - c\n- d\n  more", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d\nmore</li></ul>"),
    ("| a | b |\n|:--|--:|\n| `x|y` | **1** |\n| z\\|w |", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>x|y</code></td><td><strong>1</strong></td></tr>"
     "<tr><td>z|w</td><td></td></tr></tbody></table>"),
    ("a | b\n--|--\n1 | 2\n\nafter", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table><p>after</p>"),
    ("a | b is no table", "<p>a | b is no table</p>"),
    ("````md\n```\ninner\n```\n````\nafter", "<pre><code>```\ninner\n```</code></pre><p>after</p>"),
    ("```make\nall:\n\tcc x.c\n```", "<pre><code>all:\n\tcc x.c</code></pre>"),
    ("costs $5 and $6, or $10", "<p>costs $5 and $6, or $10</p>"),
    ("$x$", "<p><math><mrow><mi>x</mi></mrow></math></p>"),
]


def test_markdown_becomes_elements(server, open_page):
    page = open_page(server)
    page.hold_talk(*({"role": "assistant", "content": written} for written, _ in MARKDOWN))
    for (written, shape), found in zip(MARKDOWN, page.of_all(".assistant .body", SHAPE), strict=True):
        assert found == shape, written
    links = page.of_all(".assistant a", "[element.protocol, element.rel, element.target]")
    assert links and all(link == ["https:", "noopener noreferrer", "_blank"] for link in links)


GARBAGE = ["a**b " * 2000, "*a **b " * 1000, "[" * 3000, "[a](" * 1000, "".join("`" * (i % 9 + 1) + "a" for i in range(1000)), ">" * 3000,
           "\n".join(" " * 2 * i + "- a" for i in range(200)), "$$" + "{" * 3000 + "$$", "$$" + "\\frac" * 2000 + "$$", "$$x" + "^" * 2000 + "$$",
           "$$" + "\\left(" * 1000 + "$$", "```css\n" + "a-" * 9000 + "\n```", "```html\n" + "<a " * 5000 + "\n```", "# a" + " " * 9000 + "x", "a|" + " " * 3000 + "\n" + "-" * 3000 + "x|"]


def test_garbage_does_not_hang_the_page(server, open_page):
    """What a model writes when it has lost its way: many marks without an end, and nesting beyond all sense."""
    page = open_page(server)
    page.hold_talk(*({"role": "assistant", "content": text} for text in GARBAGE))
    assert len(page.answers) == len(GARBAGE) and all(page.answers)


MATHS = [
    (r"\frac{a}{b+1}", "<mfrac><mi>a</mi><mrow><mi>b</mi><mo>+</mo><mn>1</mn></mrow></mfrac>"),
    (r"\sqrt[3]{x} \sqrt 2", "<mroot><mi>x</mi><mn>3</mn></mroot><msqrt><mn>2</mn></msqrt>"),
    (r"x_i^{2} y^n_k f'' e^{x^2}", "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup><msubsup><mi>y</mi><mi>k</mi><mi>n</mi></msubsup>"
     "<msup><mi>f</mi><mo>′′</mo></msup><msup><mi>e</mi><msup><mi>x</mi><mn>2</mn></msup></msup>"),
    (r"\sum_{i=1}^n \int_0^\infty \lim_{x\to0}", "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
     "<msubsup><mo>∫</mo><mn>0</mn><mi>∞</mi></msubsup><munder><mo>lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder>"),
    (r"\alpha \Omega \le \mathbb{R} \mathcal L \mathbf{v}", "<mi>α</mi><mi>Ω</mi><mo>≤</mo><mi>ℝ</mi><mi>ℒ</mi><mi>𝐯</mi>"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>"),
    (r"\begin{cases} a & \text{if } b \\ c & \text{else} \end{cases}", "<mrow><mo>{</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mtext>if\u00a0</mtext><mi>b</mi></mtd></mtr>"
     "<mtr><mtd><mi>c</mi></mtd><mtd><mtext>else</mtext></mtd></mtr></mtable></mrow>"),
    (r"a &= b \\ &= c", "<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mo>=</mo><mi>b</mi></mtd></mtr><mtr><mtd></mtd><mtd><mo>=</mo><mi>c</mi></mtd></mtr></mtable>"),
    (r"\left( \frac12 \right| \hat{x}", "<mrow><mo>(</mo><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>|</mo></mrow><mover><mi>x</mi><mo>^</mo></mover>"),
    (r"\sin x \operatorname{softmax} 3.14", "<mrow><mi>sin</mi><mo>\u2061</mo></mrow><mi>x</mi><mrow><mi>softmax</mi><mo>\u2061</mo></mrow><mn>3.14</mn>"),
    (r"\unknown <b> \frac{a}{", "<mtext>\\unknown</mtext><mo><</mo><mi>b</mi><mo>></mo><mfrac><mi>a</mi><mrow></mrow></mfrac>"),
]


def test_tex_becomes_mathml(server, open_page):
    page = open_page(server)
    page.hold_talk(*({"role": "assistant", "content": f"$$\n{tex}\n$$"} for tex, _ in MATHS))
    for (tex, shape), found in zip(MATHS, page.of_all(".assistant .body", SHAPE), strict=True):
        assert found == f"<math><mrow>{shape}</mrow></math>", tex
    sizes = page.of_all("math mfrac, math msqrt, math mtable", "element.getBoundingClientRect().height")
    assert all(height > 12 for height in sizes), "the browser lays formulas out"
    assert page.of_all("annotation", "element.textContent") == [tex for tex, _ in MATHS]


CODE = [  # language, text, what is coloured how
    ("python", "def f(x):  # why\n    return 'a # b'", [["keyword", "def"], ["call", "f"], ["comment", "# why"], ["keyword", "return"], ["string", "'a # b'"]]),
    ("c", "#include <x.h>\nint a = 0x1F; // \"no\"", [["meta", "#include"], ["keyword", "int"], ["number", "0x1F"], ["comment", '// "no"']]),
    ("js", "const a = `x`; /* <b> */", [["keyword", "const"], ["string", "`x`"], ["comment", "/* <b> */"]]),
    ("json", '{"a": [1, true]}', [["key", '"a"'], ["number", "1"], ["keyword", "true"]]),
    ("bash", 'echo "$HOME" # c', [["keyword", "echo"], ["string", '"$HOME"'], ["comment", "# c"]]),
    ("sql", "SELECT 1 -- c", [["keyword", "SELECT"], ["number", "1"], ["comment", "-- c"]]),
    ("rust", "fn a() -> u8 { 1 }", [["keyword", "fn"], ["call", "a"], ["keyword", "u8"], ["number", "1"]]),
    ("diff", "-a\n+b", [["removed", "-a"], ["added", "+b"]]),
    ("html", '<a href="x">', [["keyword", "<a"], ["key", "href"], ["string", '"x"'], ["keyword", ">"]]),
    ("constructor", "int", []),
]


def test_code_is_coloured_and_copied(server, open_page):
    page = open_page(server)
    page.hold_talk(*({"role": "assistant", "content": f"```{language}\n{text}\n```"} for language, text, _ in CODE))
    spans = "[...element.querySelectorAll('pre span')].map(span => [span.className.replace('code-', ''), span.textContent])"
    for (language, text, coloured), found in zip(CODE, page.of_all(".assistant .body", spans), strict=True):
        assert found == coloured, language
    assert page.of_all(".assistant pre", "element.textContent") == [text for _, text, _ in CODE]
    page.run("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }")
    page.run("arguments[0].click()", page.all(".copy-code")[1])
    page.wait(lambda: page.run("return window.copied") == CODE[1][1])


STREAMED = """# Title

Some **bold words**, `code` and [a link](https://example.org) with $x^2$.

| a | b |
|---|---|
| 1 | **2** |

- one
- two
  - three

```python
print("x")
```

\\[ \\frac{a}{b} \\]
"""
WATCH_STREAM = """
    window.seen = []; window.removed = 0; window.shift = 0;
    const log = document.querySelector('#log');
    new MutationObserver(records => {
        const body = document.querySelector('.assistant .body');
        if (!body) return;
        for (const { removedNodes, target } of records) if (body.contains(target)) window.removed += [...removedNodes].filter(node => node.nodeType === 1).length;
        window.seen.push(body.innerText);
    }).observe(log, { childList: true, subtree: true, characterData: true });
    new PerformanceObserver(list => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value; }).observe({ type: 'layout-shift', buffered: false });
"""


def test_markdown_streams_without_flicker(server, open_page):
    """Letter by letter: no mark is shown that will be gone, blocks stay what they are, and nothing moves."""
    page = open_page(server)
    page.wait(lambda: page.all("#strip button"))
    page.run(WATCH_STREAM)
    page.run(ANSWER_WITH, stream_of(*({"content": letter} for letter in STREAMED)))
    page.ask("Go")
    seen, removed, shift = page.run("return [window.seen, window.removed, window.shift]")
    assert len(seen) > 60
    for text in seen:
        assert not re.search(r"\*|\]\(|\||^#|--|`{3}|\\\[", text, re.M), text
    assert removed <= 12 and shift < 0.01, (removed, shift)


def test_a_long_answer_does_not_move_what_is_read(server, open_page):
    page = open_page(server, {"temperature": 0, "max_tokens": 120})
    page.resize(1280, 420)  # it scrolls on its way
    page.wait(lambda: page.all("#strip button"))
    page.run(WATCH_STREAM)
    page.ask(LONG_QUESTION)
    assert page.run("return document.querySelector('#log').scrollTop") > 100 and page.run("return window.shift") < 0.01


# ---- theme, contrast, weight -----------------------------------------------------------------------------------------

def test_the_theme_switch_wins_over_the_system(server, open_page):
    page = open_page(server)
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(paper)
    page.press(Keys.ALT, "t")
    assert page.find("#theme").accessible_name == "Theme: light" and page.run(paper) == light
    page.press(Keys.ALT, "t")
    dark = page.run(paper)
    assert page.find("#theme").accessible_name == "Theme: dark" and dark != light
    page.browser.refresh()
    assert page.run(paper) == dark
    page.find("#theme").click()
    assert page.find("#theme").accessible_name == "Theme: as the system" and page.run(paper) == light


# Text on display whose colour is nearer to what lies behind it than WCAG's AA allows.
LOW_CONTRAST = """
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const rgba = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
    const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
    const behind = element => {
        if (!element) return [255, 255, 255];
        const own = rgba(getComputedStyle(element).backgroundColor);
        return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement));
    };
    const luminance = colour => colour.map(value => (value /= 255) <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4).reduce((sum, value, i) => sum + value * [.2126, .7152, .0722][i], 0);
    const ratio = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + .05) / (low + .05); };
    const found = []; let looked = 0;
    for (const element of document.querySelectorAll('body *')) {
        const text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()), placeholder = element.matches('input, textarea');
        if ((!text && !placeholder) || element.matches(':disabled, annotation') || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const below = behind(element), colour = over(rgba(getComputedStyle(element, placeholder ? '::placeholder' : null).color), below);
        looked++;
        if (ratio(colour, below) < 4.5) found.push([element.outerHTML.slice(0, 90), ratio(colour, below).toFixed(2)]);
    }
    return [looked, found];
"""
# Every control that can be seen has a name.
NAMELESS = "input, textarea, button, summary, [role=group], [role=region], dialog, nav, aside"
RICH = ("# T\n\ntext `code` [link](https://x.org)\n\n> quote\n\n| a |\n|---|\n| 1 |\n\n- [ ] task\n\n" + "\n\n".join(
    f"```{language}\n{text}\n```" for language, text, _ in CODE) + "\n\n$\\unknown$\n\n###### six")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_labels(server, open_page, scheme):
    page = open_page(server)
    call = {"id": "a", "name": "weather", "arguments": '{"a": 1}'}
    page.hold_talk({"role": "user", "content": "Question", "files": [{"name": "a.txt", "text": "text"}]},
                   {"role": "assistant", "content": RICH, "reasoning": "Hm", "calls": [call], "trouble": "It went wrong."})
    page.scheme(scheme)
    page.wait(lambda: page.all("#strip button"))
    page.run("for (const fold of document.querySelectorAll('details')) fold.open = true; document.querySelector('#strip button').focus()")
    looked, low = page.run(LOW_CONTRAST)
    assert looked > 150 and not low
    nameless = [element.get_attribute("outerHTML")[:120] for element in page.all(NAMELESS)
                if element.is_displayed() and not element.accessible_name]
    assert not nameless


WEIGHT = """
    const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].filter(({ name }) => !name.endsWith('/metrics'));
    return [entries.reduce((sum, { transferSize }) => sum + transferSize, 0), performance.getEntriesByName('first-paint')[0]?.startTime];
"""


SHIFT_SO_FAR = """
    new PerformanceObserver(list => arguments[0](list.getEntries().filter(entry => !entry.hadRecentInput).reduce((sum, { value }) => sum + value, 0)))
        .observe({ type: 'layout-shift', buffered: true });
"""


def test_the_page_is_light(server, open_page):
    """Page, plan and defaults together; the time of the first paint is told, as it depends on the machine."""
    page = open_page(server)
    page.wait(lambda: page.all("#strip button") and page.find("#temperature").get_property("placeholder") == "0.2")
    size, painted = page.run(WEIGHT)
    assert page.browser.execute_async_script(SHIFT_SO_FAR) < 0.05, "what comes later finds its place reserved"
    print(f"{size} bytes, first paint after {painted:.0f} ms")
    assert 30_000 < size < 200_000 and len(server.ask("/").body) < 200_000
    packed = server.ask("/", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == server.ask("/", headers={"Accept-Encoding": "gzip;q=0"}).body


def test_the_policy_lets_nothing_foreign_run(server, open_page):
    answer = server.ask("/")
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy and policy.startswith("default-src 'none'") and answer.headers["X-Frame-Options"] == "DENY"
    assert "unsafe" not in re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', answer.body.decode())[1]
    page = open_page(server)
    page.run("const script = document.createElement('script'); script.textContent = 'window.evil = true'; document.body.append(script);"
             "document.body.insertAdjacentHTML('beforeend', '<p id=styled style=\"position:fixed\">')")
    assert page.run("return window.evil") is None and page.run("return getComputedStyle(document.querySelector('#styled')).position") == "static"
    page.browser.get_log("browser")  # both are complained of, as they should be


@pytest.mark.parametrize("width", [1280, 768, 360])
def test_every_width(server, open_page, width):
    """Nothing is cut off to the side: not the chat with wide content, nor the list, nor the panels."""
    page = open_page(server)
    page.resize(width, 800)
    page.hold_talk({"role": "user", "content": "W" * 200}, {"role": "assistant", "content": RICH + "\n\n| " + "wide column | " * 12 + "\n|" + "---|" * 12})
    page.wait(lambda: page.all("#strip button"))
    for button in (None, "chats-toggle", "chats-toggle", "fold"):
        if button:
            page.find(f"#{button}").click()
        assert page.run("return document.scrollingElement.scrollWidth") <= width
        outside = page.of_all("header *, #composer *, #list *, #panels *", "[element.outerHTML.slice(0, 80), element.getBoundingClientRect()]")
        assert not [html for html, box in outside if box["width"] and (box["left"] < -1 or box["right"] > width + 1)]


# ---- errors and text --------------------------------------------------------------------------------------------------

def test_an_error_is_a_note_with_a_retry(server, open_page):
    page = open_page(server, {**BRIEF, "top_p": 5})
    page.ask("Hello")
    assert "top_p" in page.find(".note").text
    page.find("#top_p").clear()
    page.button("Retry").click()
    page.wait(lambda: page.answers and page.answers[0] and not page.answering)
    assert not page.all(".note")


def test_what_a_model_writes_stays_text(server, open_page):
    page = open_page(server)
    written = ("# Title\n**bold** `code` <b id=evil>no</b>\n\n1. one\n   - inner\n2. two\n\n"
               "```c\nint a; // <i>\n```\nend")
    talk = [{"role": "user", "content": "<b id=evil>"}, {"role": "assistant", "content": written}]
    page.hold({"one": json.dumps({"time": 1, "messages": talk})}, "one")
    shape = [child.tag_name for child in page.all(".assistant .body > *")]
    assert shape == ["h3", "p", "ol", "div", "p"] and not page.all("#evil")
    assert page.find(".assistant p").text == "bold code <b id=evil>no</b>"
    assert page.find(".assistant pre").text == "int a; // <i>"
    assert [item.text for item in page.all(".assistant ol > li")] == ["one\ninner", "two"]


def test_a_thought_is_folded(nibble, smollm2, open_page, tmp_path):
    """It streams into a fold of its own, and goes back with the answer for the chat template to use."""
    (tmp_path / "template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: [{{ m.reasoning_content }}] {{ m.content }}\n{% endfor %}assistant: {{ '<think>' }}{{ '' if true else '</think>' }}")
    model = small_model.write(smollm2, tmp_path / "small.gguf")
    flags = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--max-reasoning-tokens", 5)
    with Server(nibble, model, *flags, "--chat-template", tmp_path / "template.jinja") as server:
        page = open_page(server, {"temperature": 0, "max_tokens": 24})
        answer = page.ask("Hi")
        thought = page.find(".assistant details.thought")
        assert thought.get_attribute("open") is None and re.match(r"Thought for [\d.]+ m?s$", page.find(".thought summary").text)
        told = server.chat("Hi", max_tokens=24)["choices"][0]["message"]
        assert page.of_all(".thought .small", "element.textContent") == [told["reasoning"]]
        assert told["reasoning"] and told["reasoning"] not in answer
        page.run("const ask = fetch; window.fetch = (path, options) => { window.sent = options?.body ?? window.sent; return ask(path, options); }")
        page.ask("And?")
        earlier = json.loads(page.run("return window.sent"))["messages"][1]
        assert earlier == {"role": "assistant", "content": told["content"], "reasoning_content": told["reasoning"]}


# The text of an answer, and its lists: their kind, first number and items.
LISTS = [
    ("1. a\n2. b\n\n- c\n- d", [["OL", 1, ["a", "b"]], ["UL", 0, ["c", "d"]]]),
    ("- a\n- b\n1. c\n2. d", [["UL", 0, ["a", "b"]], ["OL", 1, ["c", "d"]]]),
    ("1. a\n2. b\n\n1. c\n2. d", [["OL", 1, ["a", "b"]], ["OL", 1, ["c", "d"]]]),
    ("1. a\n2. b\n\nThen:\n\n1. c", [["OL", 1, ["a", "b"]], ["OL", 1, ["c"]]]),
    ("1. a\n1. b\n1. c", [["OL", 1, ["a", "b", "c"]]]),
    ("3. a\n\n4. b", [["OL", 3, ["a", "b"]]]),
    ("1. a\n```\ncode\n```\n2. b", [["OL", 1, ["a"]], ["OL", 2, ["b"]]]),
    ("1. a\n2) b", [["OL", 1, ["a"]], ["OL", 2, ["b"]]]),
    ("1. a\n   - x\n   - y\n2. b\n   1. z\n   - w\n- c",
     [["OL", 1, ["a", "b"]], ["UL", 0, ["x", "y"]], ["OL", 1, ["z"]], ["UL", 0, ["w"]], ["UL", 0, ["c"]]]),
    ("- a\n\t- b\n\t\t- c\n- d", [["UL", 0, ["a", "d"]], ["UL", 0, ["b"]], ["UL", 0, ["c"]]]),
]
LISTS_SHOWN = """[...element.querySelectorAll('ol, ul')].map(list => [
    list.tagName, list.tagName === 'OL' ? list.start : 0, [...list.children].map(({ firstChild }) => firstChild.textContent)])"""


def test_lists_count_for_themselves(server, open_page):
    page = open_page(server)
    talk = [{"role": "assistant", "content": written} for written, _ in LISTS]
    page.hold({"one": json.dumps({"time": 1, "messages": talk})}, "one")
    for (written, lists), found in zip(LISTS, page.of_all(".assistant .body", LISTS_SHOWN), strict=True):
        assert found == lists, written


def test_settings_are_remembered(server, open_page):
    page = open_page(server)
    page.find("#seed").send_keys("7")
    page.find("#system").send_keys("Answer briefly.")
    page.browser.refresh()
    assert page.find("#seed").get_property("value") == "7" and page.find("#system").get_property("value") == "Answer briefly."
    page.button("Reset").click()
    assert page.find("#seed").get_property("value") == "" and page.find("#system").get_property("value") == ""


# ---- plan and charts ------------------------------------------------------------------------------------------------

def test_the_plan_is_a_strip_of_layers(server, open_page):
    page = open_page(server)
    plan = json.loads(get(server.url + "/v1/plan"))
    buttons = page.wait(lambda: page.all("#strip button"))
    assert len(buttons) == len(plan["layers"])

    card, layer = page.find("#layer"), plan["layers"][3]
    ActionChains(page.browser).move_to_element(buttons[3]).perform()
    words = ["Layer 3", layer["k"], layer["v"], f"{layer['bytes_per_token']:,} bytes", *layer["kernels"].values()]
    assert card.is_displayed() and all(word in card.text for word in words)
    ActionChains(page.browser).move_to_element(page.find("header")).perform()
    assert not card.is_displayed()

    page.run("arguments[0].focus()", buttons[0])
    page.press(Keys.ARROW_RIGHT)
    assert card.is_displayed() and "Layer 1" in card.text
    page.press(Keys.END)
    assert f"Layer {len(buttons) - 1}" in card.text
    page.press(Keys.ESCAPE)
    assert not card.is_displayed()


def test_charts_get_data_and_rest_while_nobody_looks(server, open_page):
    page = open_page(server)
    page.wait(lambda: page.find("figure b").text != "–")
    page.ask("Hello")
    page.wait(lambda: "–" not in page.of_all("figure b", "element.innerText"))
    assert len(page.all("figure")) == 5
    page.wait(lambda: all(page.of_all("figure path.line", "element.getAttribute('d')")))

    page.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
             "document.dispatchEvent(new Event('visibilitychange'))")
    before = page.run(METRICS_READ)
    page.browser.execute_async_script("setTimeout(arguments[0], 2500)")
    assert page.run(METRICS_READ) <= before + 1  # one may have been on its way
    page.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: page.run(METRICS_READ) > before + 1)


# ---- everyone can use it --------------------------------------------------------------------------------------------

def test_the_keyboard_alone_reaches_everything(server, open_page):
    page = open_page(server)
    page.wait(lambda: page.all("#strip button"))
    reached = []
    page.run("document.querySelector('.skip').focus()")
    for _ in range(60):
        element = page.browser.switch_to.active_element
        style = page.run("return getComputedStyle(arguments[0]).outlineStyle", element)
        name = element.get_attribute("id") or element.accessible_name
        assert style != "none" or name == "message", f"after {reached}, {name} does not show that it has the focus"
        reached.append(name)
        if name == "reset":
            break
        page.press(Keys.TAB)
    everything = ("chats-toggle", "new", "theme", "fold", "search", "import", "log", "attach", "message", "send", "keys", "Layer 0", "charts", "pause",
                  "system", "temperature")
    assert set(everything) <= set(reached)

    page.run("document.querySelector('.skip').focus()")
    page.press(Keys.ENTER)
    assert page.browser.switch_to.active_element.get_attribute("id") == "message"
    for key in "Hi":
        page.press(key)
    page.press(Keys.ENTER)
    page.wait(lambda: page.answers and page.answers[0] and not page.answering)


def test_it_asks_for_the_key(guarded_server, open_page):
    page = open_page(guarded_server)
    dialog, field = page.find("#key"), page.find("#key-field")
    page.wait(dialog.is_displayed)
    assert page.all("figure") and not page.all("#strip button")
    field.send_keys("wrong", Keys.ENTER)
    page.wait(lambda: page.find("#refused").is_displayed())
    page.press(Keys.ESCAPE)
    page.wait(page.find("#unlock").is_displayed)
    page.button("Enter the key").click()
    page.wait(dialog.is_displayed)
    field.send_keys(guarded_server.key, Keys.ENTER)
    page.wait(lambda: page.all("#strip button"))
    assert page.ask("Hello") and not dialog.is_displayed()
    assert guarded_server.key not in page.run("return JSON.stringify(localStorage)")


def test_a_phone(server, open_page):
    page = open_page(server)
    page.resize(390, 780)
    assert page.ask("Hello")
    assert page.run("return document.scrollingElement.scrollWidth") <= 390
    assert not page.find("#panels").is_displayed()
    page.find("#fold").click()
    assert page.find("#strip").is_displayed() and page.run("return document.scrollingElement.scrollWidth") <= 390
    page.find("#fold").click()
    assert page.find("#message").is_displayed()


def test_light_and_dark(server, open_page):
    page = open_page(server, {"temperature": 0, "max_tokens": 120})
    page.ask("What is a cache? Answer with a list.")
    page.wait(lambda: page.find("figure b").text != "–")
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(paper)
    page.scheme("dark")
    assert page.run(paper) != light


# ---- the page as a file, the dashboard ------------------------------------------------------------------------------

def test_nothing_comes_from_outside(server):
    text = get(server.url + "/")
    assert "@include" not in text
    assert "default-src 'none'" in text and "innerHTML" not in text
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}  # and no addresses
    assert set(re.findall(r"https?://[\w./]+", text)) == names


def test_the_dashboard_names_metrics_that_exist(server):
    board = json.loads((ROOT / "doc" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    named = set(re.findall(r"(?:vllm|nibble):\w+", " ".join(queries)))
    told = get(server.url + "/metrics")
    assert len(named) > 15 and named <= set(re.findall(r"^(?:# TYPE )?([\w:]+)", told, re.M))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
