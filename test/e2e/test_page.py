# SPDX-License-Identifier: Apache-2.0
"""The page that the server shows at /, in a real browser; and the Grafana dashboard over the same metrics."""

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


def shown(page):
    return page.of_all("[role=log] article .body", "element.innerText")


def earlier(page):
    return page.of_all("#chats .chat", "element.innerText")


def test_a_reload_and_a_new_chat_lose_nothing(server, open_page):
    page = open_page(server)
    page.ask("Say yes.")
    first = shown(page)
    page.browser.refresh()
    assert shown(page) == first and not page.find("#welcome").is_displayed()
    page.button("New chat").click()
    page.wait(lambda: not shown(page))
    assert earlier(page) == ["Say yes."]
    page.browser.refresh()
    assert not shown(page) and earlier(page) == ["Say yes."]
    page.ask("Say no.")
    page.press(Keys.ALT, "n")
    page.wait(lambda: earlier(page) == ["Say no.", "Say yes."])
    page.button("Say yes.").click()
    assert shown(page) == first
    page.ask("And again.")
    page.browser.switch_to.new_window("tab")
    page.browser.get(server.url)
    assert not shown(page) and earlier(page) == ["Say yes.", "Say no."], "another tab has a chat of its own"
    page.button("More: Say no.").click()
    page.button("Delete").click()
    assert earlier(page) == ["Say yes."]
    page.browser.close()
    page.browser.switch_to.window(page.browser.window_handles[0])
    page.browser.refresh()
    assert shown(page)[:2] == first and len(shown(page)) == 4


def test_a_reload_keeps_what_there_is_of_an_answer(server, open_page):
    page = open_page(server, LONG)
    page.send(LONG_QUESTION)
    page.wait_for_text(20)
    page.browser.refresh()
    assert shown(page)[0] == LONG_QUESTION and len(shown(page)[1]) >= 20 and not page.answering


DAMAGED = ["", "{", "null", "7", "[]", '{"messages": 3}', '{"messages": [null, 5, {"role": "user"}, {"role": "robot", "content": "x"}]}']


def test_damaged_conversations_are_passed_over(server, open_page):
    page = open_page(server)
    damaged = {f"bad{i}": text for i, text in enumerate(DAMAGED)}
    page.hold({**damaged, "good": json.dumps({"time": 5, "messages": TALK})}, "bad0")
    assert not shown(page) and earlier(page) == ["A question of two lines"]
    page.find("#chats .chat").click()
    assert shown(page) == [message["content"] for message in TALK]


def test_of_a_damaged_message_what_can_be_read_is_shown(server, open_page):
    page = open_page(server)
    odd = [{"role": "user", "content": "Kept", "figures": 5, "trouble": {}}, None, {"role": "assistant", "content": "<i>", "figures": {"usage": "x"}}]
    page.hold({"odd": json.dumps({"time": "x", "messages": odd})}, "odd")
    assert shown(page) == ["Kept", "<i>"] and not page.all(".note") and "NaN" not in page.find("#chat").text


def test_a_full_store_drops_the_oldest(server, open_page):
    page = open_page(server)
    old = {f"old{i}": json.dumps({"time": i + 1, "messages": [{"role": "user", "content": f"{i} " + "x" * 1_000_000}]}) for i in range(4)}
    page.hold(old)
    page.run("let size = 1 << 20; while (size) try { localStorage.setItem(`more${Math.random()}`, 'x'.repeat(size)) } catch { size >>= 1 }")
    page.ask("Say yes.")
    page.button("New chat").click()
    page.wait(lambda: not shown(page))
    assert [title[0] for title in earlier(page)] == ["S", "3", "2", "1"]
    page.browser.refresh()
    assert [title[0] for title in earlier(page)] == ["S", "3", "2", "1"]


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
        page.wait(lambda: not shown(page))
        page.button("Say yes.").click()
        assert len(shown(page)) == 2
    finally:
        page.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


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
