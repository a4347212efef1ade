"""The console where there are users: who is nobody sees a form, and what one may not do is not offered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.access.broker import BOSS, CLERK, HOST, NOBODY, Guarded, Person, guarded
from tests.console.browser import Browser


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("console"), (BOSS, CLERK, NOBODY)) as one:
        for topic in ("orders", "mail"):
            assert one.act(BOSS, do="publish", topic=topic, body="hello") == 200
        yield one


def offers(pattern: str) -> str:
    return f"[...document.querySelectorAll('button')].some((button) => /{pattern}/.test(button.textContent))"


def log_in(page: Browser, broker: Guarded, person: Person, where: str = "", *, by_token: bool = False) -> None:
    page.size(1200, 800)
    page.open("about:blank")
    page.open(f"http://{HOST}:{broker.ports['http']}/{where}")
    page.wait("document.querySelector('dialog.login') || document.querySelector('#user:not([hidden])')", "it asks who")
    if page.js("!document.querySelector('dialog.login')"):
        page.click("#user")  # who was there before
        page.wait("document.querySelector('dialog.login')", "it asks who")
    if not by_token:
        page.type(person.name)
    page.js("document.querySelector('input[name=secret]').focus()")
    page.type(person.token if by_token else person.password)
    page.key("Enter")
    page.wait(f"document.querySelector('#user').textContent === '{person.name}'", "it knows who")


def test_who_logs_in_is_offered_what_he_may(browser: Browser, watched: Guarded) -> None:
    log_in(browser, watched, CLERK, "#/topic/orders")
    browser.sees("hello")
    assert not browser.js(offers("Publish|Delete|Pause"))
    browser.js("location.hash = '#/topic/mail'")
    browser.wait("document.querySelector('h1')?.innerText === 'mail'", "the other topic")
    browser.wait(offers("Delete"), "it may manage that")
    assert browser.js("!document.body.innerText.includes('hello')"), "and not read"


def test_what_one_may_changes_while_one_looks(browser: Browser, watched: Guarded) -> None:
    log_in(browser, watched, CLERK, "#/topic/mail")
    browser.wait(offers("Delete"), "it may manage that")
    watched.rewrite(BOSS, replace(CLERK, rights={"publish": ["orders"], "read": ["mail"]}), NOBODY)
    browser.wait(f"!{offers('Delete')}", "and now not")
    browser.sees("hello")
    browser.key("n")
    assert browser.js("!document.querySelector('dialog[open]')"), "it may publish, but not to that topic"
    watched.rewrite(BOSS, CLERK, NOBODY)
    browser.wait(offers("Delete"), "it may again")
    assert browser.js("!document.body.innerText.includes('hello')"), "and not read"


def test_pages_that_are_of_no_topic_follow_what_one_may_too(browser: Browser, watched: Guarded) -> None:
    log_in(browser, watched, CLERK, "#/")
    browser.sees("All topics")
    assert not browser.js(offers("Publish"))
    watched.rewrite(BOSS, replace(CLERK, rights={"publish": ["orders"]}), NOBODY)
    browser.wait(offers("Publish"), "it may publish now")
    watched.rewrite(BOSS, CLERK, NOBODY)
    browser.wait(f"!{offers('Publish')}", "and now not")


def test_a_wrong_password_is_said_and_a_token_will_do(browser: Browser, watched: Guarded) -> None:
    browser.open("about:blank")
    browser.open(f"http://{HOST}:{watched.ports['http']}/#/")
    browser.wait("document.querySelector('#user:not([hidden])')", "somebody was here before")
    browser.click("#user")
    browser.wait("document.querySelector('dialog.login')", "it asks who")
    browser.js("document.querySelector('input[name=secret]').focus()")
    browser.type("wrong")
    browser.key("Enter")
    browser.sees("that is not right")
    log_in(browser, watched, BOSS, by_token=True)
    browser.sees("busiest topics")
    assert browser.js("document.cookie") == "", "no script sees it"


def test_the_cookie_is_for_this_site_alone(watched: Guarded) -> None:
    import http.client

    def ask(method: str, target: str, body: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(HOST, watched.ports["http"], timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body, {"Content-Type": "application/json", **given})
        return connection.getresponse()

    own = f"http://{HOST}:{watched.ports['http']}"
    answer = ask("POST", "/v1/login", json.dumps({"token": BOSS.token}).encode(), Origin=own)
    set_cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in set_cookie and "SameSite=Strict" in set_cookie
    cookie = set_cookie.partition(";")[0]
    act = json.dumps({"do": "publish", "topic": "orders", "body": "x"}).encode()
    assert ask("POST", "/v1/act", act, Cookie=cookie, Origin=own).status == 200
    assert ask("POST", "/v1/act", act, Cookie=cookie).status == 401, "no page of ours sends that"
    assert ask("POST", "/v1/act", act, Cookie=cookie, Origin="http://evil.example").status == 403
    assert ask("POST", "/v1/login", act, Origin="http://evil.example").status == 403
    assert ask("GET", "/v1/overview", Cookie=cookie).status == 200
    assert ask("POST", "/v1/logout", b"{}", Cookie=cookie, Origin=own).status == 200
    assert ask("GET", "/v1/overview", Cookie=cookie).status == 401
