# SPDX-License-Identifier: Apache-2.0
"""The page that the server shows at /, as its reader uses it: by what can be seen, typed and clicked."""

import json

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_SECONDS = 60


class Page:
    """Opened with nothing remembered but these sampling fields."""

    def __init__(self, browser, url, sampling):
        self.browser = browser
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.scheme("light")
        browser.get(url + "/version")  # the same origin, where the stores can be set before the page reads them
        self.run("sessionStorage.clear(); localStorage.clear();"
                 "localStorage.setItem('nibble.sampling', arguments[0])", json.dumps(sampling))
        browser.get(url)
        browser.get_log("browser")

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def button(self, label):
        found = self.browser.find_elements(By.XPATH, f"//button[normalize-space()='{label}']")
        [seen] = [button for button in found if button.is_displayed()]
        return seen

    def button_of(self, selector, label):
        """That button of the first such element."""
        return self.find(selector).find_element(By.XPATH, f".//button[normalize-space()='{label}']")

    def drop_files(self, button, *paths):
        """What happens when a button asks for files and gets these. Its field for files is in no document."""
        self.run("const click = HTMLInputElement.prototype.click; HTMLInputElement.prototype.click = function () {"
                 " HTMLInputElement.prototype.click = click; document.body.append(this); this.id = 'chosen'; };"
                 "document.querySelector(arguments[0]).click();", button)
        field = self.find("#chosen")
        field.send_keys("\n".join(map(str, paths)))
        self.run("arguments[0].removeAttribute('id'); arguments[0].remove()", field)

    def of_all(self, selector, expression):
        """A JavaScript expression of every such `element`, at one moment of a page that changes."""
        return self.run(f"return [...document.querySelectorAll(arguments[0])].map(element => {expression})", selector)

    def wait(self, condition):
        return WebDriverWait(self.browser, PATIENCE_SECONDS, poll_frequency=0.02).until(lambda _: condition())

    def press(self, *keys):
        """Keys at once, wherever the focus is."""
        chain = ActionChains(self.browser)
        for key in keys:
            chain.key_down(key)
        for key in reversed(keys):
            chain.key_up(key)
        chain.perform()

    def scheme(self, word):
        """Light or dark, and no animations: screenshots are of the end, not of the way there."""
        media = {"prefers-color-scheme": word, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def hold(self, chats, current=None):
        """Puts conversations where the page keeps them, and opens it anew."""
        self.run("for (const [id, text] of Object.entries(arguments[0])) localStorage.setItem(`nibble.chat.${id}`, text);"
                 "sessionStorage.setItem('nibble.chat', JSON.stringify(arguments[1]))", chats, current)
        self.browser.refresh()

    def hold_talk(self, *messages):
        """One conversation of such messages, on display."""
        self.hold({"one": json.dumps({"time": 1, "messages": messages})}, "one")

    # ---- the conversation ------------------------------------------------------------------------------------------

    @property
    def answers(self):
        return self.of_all("[role=log] .assistant .body", "element.innerText")

    @property
    def shown(self):
        return self.of_all("[role=log] article .body", "element.innerText")

    @property
    def chats(self):
        """Titles in the list of conversations."""
        return self.of_all("#chats .chat", "element.innerText")

    @property
    def conversation(self):
        """The messages on display, as this browser keeps them."""
        entry = self.run("return JSON.parse(localStorage.getItem('nibble.chat.' + JSON.parse(sessionStorage.getItem('nibble.chat'))))")
        path, at = [], entry["head"] if entry else -1
        while at >= 0:
            path.insert(0, entry["messages"][at])
            at = path[0]["parent"]
        return path

    @property
    def answering(self):
        return self.find("#stop").is_displayed()

    def send(self, text):
        self.find("#message").send_keys(text, Keys.ENTER)

    def ask(self, text):
        """Sends a text and waits for the whole answer."""
        before = len(self.answers)
        self.send(text)
        self.wait(lambda: len(self.answers) == before + 1 and not self.answering)
        return self.answers[-1]

    def wait_for_text(self, length=1):
        self.wait(lambda: self.answering and self.answers and len(self.answers[-1]) >= length)
