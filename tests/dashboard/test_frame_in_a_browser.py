"""What every page shares, in a real browser: signing in, themes, keys, live updates."""

from collections.abc import Callable

from evervec import Evervec
from support.browser import Visitor, expect
from support.processes import until
from support.service import Served


def test_signing_in_leads_to_the_page_that_was_asked_for(served: Served, visitor: Visitor) -> None:
    key = served.key(role="admin")
    page = visitor.sign_in(key, "/?tenant=default")
    assert page.url == f"{served.url}/?tenant=default"
    visitor.assert_sound()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    visitor.assert_sound()
    visitor.go("/")
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_wrong_key_is_refused_with_a_sentence(served: Served, visitor: Visitor) -> None:
    served.key()
    visitor.expected = ("status of 401",)
    page = visitor.go("/")
    page.get_by_label("API key").fill("ev_0123456789ab_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid API key")
    visitor.assert_sound()


def test_a_link_from_another_site_finds_the_visitor_signed_in(
    served: Served, visitor: Visitor
) -> None:
    """People send each other links to what they look at."""
    page = visitor.sign_in(served.key(role="reader"))
    visitor.context.route("http://elsewhere.example/", lambda route: route.fulfill(
        body=f'<a href="{served.url}/">look</a>', content_type="text/html"
    ))  # fmt: skip
    page.goto("http://elsewhere.example/")
    visitor.findings.clear()  # of the other site
    page.get_by_role("link", name="look").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def test_the_theme_is_chosen_by_the_visitor(served: Served, visitor: Visitor) -> None:
    page = visitor.go("/")
    page.get_by_label("Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") is not None
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_label("Theme").select_option("light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != dark


def test_the_keyboard_reaches_everything(served: Served, visitor: Visitor) -> None:
    page = visitor.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    visitor.assert_sound("light")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_label("Theme").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    reached = page.evaluate("document.querySelectorAll('a[href], button, select').length")
    for _ in range(reached + 5):
        page.keyboard.press("Tab")
        place = page.evaluate("document.activeElement.textContent.trim()")
        if place == "HTTP API":
            break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert place == "" or outline != "none", place
    else:
        raise AssertionError("the footer was not reached")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{served.url}/")


def test_a_live_page_follows_the_store(ev: Evervec, served: Served, visitor: Visitor) -> None:
    page = visitor.go("/")
    visitor.until_live()
    ev.add("note", "one", id="1")
    expect(page.locator("#live")).to_contain_text("1")
    before = page.locator("#live").inner_text()
    for number in range(20):
        ev.add("note", "one", id=f"n{number}")
    expect(page.locator("#live")).not_to_have_text(before)


OLD = """
<p>first</p><details><summary>more</summary><p>inside</p></details>
<form><input id="typed" name="a" value=""><input type="checkbox" id="box" name="b"></form>
<table><tbody>{rows}</tbody></table><div id="tall" class="scroll">{wide}</div>
"""


def rows(*keys: str) -> str:
    return "".join(f'<tr data-key="{key}"><td>{key}</td></tr>' for key in keys)


def test_an_update_keeps_what_the_visitor_does(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.evaluate("disconnect()")
    wide = "<pre>" + "wide " * 2000 + "</pre>"
    page.evaluate("update", OLD.format(rows=rows("a", "b", "c"), wide=wide))
    page.locator("summary").click()
    page.locator("#box").check()
    page.locator("#typed").fill("half")
    page.locator("#typed").press("ArrowLeft")
    page.evaluate("for (const key of 'abc') document.querySelector(`[data-key=${key}]`).mark = key")
    page.evaluate("scrollTo(0, 300); window.scrolled = scrollY")
    new = OLD.replace("first", "second").replace("inside", "changed")
    page.evaluate("update", new.format(rows=rows("z", "b", "a"), wide=wide))
    live = page.locator("#live")
    expect(live).to_contain_text("second")
    expect(page.get_by_text("changed")).to_be_visible()
    marks = page.evaluate("[...document.querySelectorAll('[data-key]')].map((row) => row.mark)")
    assert marks == [None, "b", "a"]
    assert page.locator("tr").all_inner_texts() == ["z", "b", "a"]
    assert page.locator("#box").is_checked()
    assert page.locator("#typed").input_value() == "half"
    assert page.evaluate("document.activeElement.id") == "typed"
    assert page.evaluate("document.activeElement.selectionStart") == 3
    assert page.evaluate("scrollY === scrolled")


def test_an_update_keeps_the_focus_in_a_row_that_moves(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.evaluate("disconnect()")
    links = {key: f'<p data-key="{key}"><a href="/" id="to-{key}">{key}</a></p>' for key in "abcd"}
    page.evaluate("update", "".join(links[key] for key in "abc"))
    page.locator("#to-c").focus()
    for order in ("cab", "dbca", "cd", "abdc"):
        page.evaluate("update", "".join(links[key] for key in order))
        assert "".join(page.locator("#live p").all_inner_texts()) == order
        assert page.evaluate("document.activeElement.id") == "to-c"


def test_an_opened_action_does_not_become_another(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.evaluate("disconnect()")
    action = '<details data-key="step-{0}"><summary>{0}</summary>sure?</details>'
    page.evaluate("update", action.format("switch"))
    page.get_by_text("switch").click()
    page.evaluate("update", action.format("retire"))
    expect(page.locator("#live details")).not_to_have_attribute("open", "")


def test_a_denied_clipboard_is_gone_around(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.evaluate(
        "void (navigator.clipboard.writeText = async () => { throw new Error('denied'); })"
    )
    page.evaluate("void (document.execCommand = (what) => (window.done = what))")
    page.evaluate("copy('text')")
    assert page.evaluate("window.done") == "copy"


def test_an_update_keeps_the_selection(visitor: Visitor) -> None:
    page = visitor.go("/")
    page.evaluate("disconnect()")
    page.evaluate("update", "<p>copy this</p><p>1</p>")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#live p'))")
    page.evaluate("update", "<p>copy this</p><p>2</p>")
    assert page.evaluate("getSelection().toString()").strip() == "copy this"


def test_what_an_update_brings_is_not_run(visitor: Visitor) -> None:
    """The page escapes whatever it shows; if it did not, the policy would still hold."""
    visitor.expected = ("Content Security Policy", "policy: ")
    page = visitor.go("/")
    page.evaluate("disconnect()")
    page.evaluate(
        "update",
        "<script>window.ran = 1</script><details open ontoggle='window.ran = 1'></details>",
    )
    until(lambda: bool(visitor.findings), "the policy to be violated")
    assert page.evaluate("window.ran") is None


def test_a_page_says_when_it_is_no_longer_live(
    ev: Evervec, served: Served, visitor: Visitor
) -> None:
    visitor.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "503")
    page = visitor.go("/")
    visitor.until_live()
    served.close()
    expect(page.locator("#live-state")).to_have_text("reconnecting")


def test_everything_is_there_without_scripts(served: Served, visit: Callable[..., Visitor]) -> None:
    visitor = visit(served, java_script_enabled=False)
    served.key()
    page = visitor.go("/")
    page.get_by_label("API key").fill(served.key(role="admin"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()


def test_the_page_that_is_shown_is_in_sight_in_the_navigation(
    served: Served, visitor: Visitor
) -> None:
    page = visitor.page
    for width in (360, 800):
        page.set_viewport_size({"width": width, "height": 740})
        for path in ("/", "/ui/workers", "/ui/audit"):
            visitor.go(path)
            box = page.locator("nav [aria-current]").bounding_box()
            assert box
            assert box["x"] >= 0, (path, width)
            assert box["x"] + box["width"] <= width, (path, width)
            assert page.evaluate("scrollY") == 0
    assert page.locator("nav ul").bounding_box()["height"] < 50  # type: ignore[index]


def test_each_term_of_a_filter_has_suggestions(
    ev: Evervec, served: Served, visitor: Visitor
) -> None:
    for kind in ("note", "odd kind"):
        ev.add(kind, "a text", id="1")
    for job in ev.queue.claim(2):
        ev.queue.fail(job, "no such model", permanent=True)
    ev.queue.recorder.flush()
    page = visitor.go("/ui/jobs")

    def offered(typed: str) -> list[str]:
        page.locator("#q").fill(typed)
        found: list[str] = page.evaluate(
            "[...document.querySelectorAll('#suggestions option')].map((each) => each.value)"
        )
        return found

    assert offered("status:failed ki") == [
        "status:failed kind:note", 'status:failed kind:"odd kind"',
    ]  # fmt: skip
    assert "status:failed kind:note age:>1h" in offered("status:failed kind:note ")
    assert not any("status:done" in each for each in offered("status:failed "))
    assert offered("st") == [
        f"status:{name}" for name in ("pending", "processing", "done", "failed")
    ]
    groups = {f"kind:note group:{group.fingerprint}" for group in ev.failures()}
    assert set(offered("kind:note group:")) == groups
    assert offered('<b>"') == []
    assert page.locator("#suggestions b").count() == 0
