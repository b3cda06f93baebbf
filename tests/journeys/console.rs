//! The console in a real browser: a conversation, an approval, a gateway that is killed while text streams, foreign text, the
//! link. Pictures of what was seen are in target/console.

use std::path::PathBuf;

use base64::Engine;
use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::{Browser, Builder, System, Tab, chromium, root, skip, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const WIDE: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);
/// An answer that is everything but text in other pages.
const HOSTILE: &str = "<script>window.taken = 1</script> <img src=x onerror=\"window.taken = 1\">\n\n![cat](http://evil.test/cat.png) \
                       [click](javascript:window.taken=1) <b>bold?</b> **bold** &lt;i&gt;&amp;amp; &copy;&#x41;&#66;&#0;&nothing; \
                       `&lt;code` [a&amp;b](http://evil.test/) \u{202e}gnp.exe \u{200d}\n\n| a | b |\n|---|---|\n| 1 | `x<y` |\n";

fn script() -> Vec<Value> {
    let slow: Vec<Value> =
        (0..60).flat_map(|number| [json!({"text": format!("word{number} ")}), json!({"sleep_ms": 60})]).collect();
    let line = "x".repeat(1 << 20);
    let huge: String = (0..20_000).map(|number| format!("line {number:05} of a huge file\n")).collect();
    let note = "Adds numbers.\nrun \u{202e}txt.sh\u{200b}\n";
    let write = json!({"tool": {"name": "write_file", "arguments": {"path": "repos/site/NOTE", "content": note}}});
    let delegate =
        json!({"tool": {"name": "task", "arguments": {"agent": "coding-worker", "prompt": "worker: the note"}}});
    vec![
        json!({"when": "slowly", "events": slow}),
        json!({"when": "hostile", "events": [{"think": "Is <i>this</i> safe?"}, {"text": HOSTILE}]}),
        json!({"when": "one line", "events": [{"text": line}]}),
        json!({"when": "wait for ever", "events": [{"text": "begun"}, {"sleep_ms": 60_000}]}),
        json!({"when": "worker: the huge file", "after_tools": 0, "events": [{"tool": {"name": "write_file", "arguments": {"path": "repos/site/HUGE", "content": huge}}}]}),
        json!({"when": "worker: the huge file", "after_tools": 1, "events": [{"text": "Tried."}]}),
        json!({"when": "the huge file", "after_tools": 0, "events": [{"tool": {"name": "task", "arguments": {"agent": "coding-worker", "prompt": "worker: the huge file"}}}]}),
        json!({"when": "the huge file", "after_tools": 1, "events": [{"text": "The turn is over."}]}),
        json!({"when": "worker: the note", "after_tools": 0, "events": [write]}),
        json!({"when": "worker: the note", "after_tools": 1, "events": [{"text": "Tried."}]}),
        json!({"when": "the note", "after_tools": 0, "events": [delegate]}),
        json!({"when": "the note", "after_tools": 1, "events": [{"text": "The turn is over."}]}),
        json!({"when": "remember", "after_tools": 0, "events": [{"tool": {"name": "knowledge_add", "arguments": {"title": "Cat", "content": "The cat is black."}}}]}),
        json!({"when": "remember", "after_tools": 1, "events": [{"text": "It is remembered."}]}),
        json!({"when": "refused", "events": [{"text": "I "}, {"error": {"class": "auth", "message": "the key is not taken"}}]}),
        json!({"events": [{"text": "Hello, **you**."}]}),
    ]
}

fn started() -> System {
    let system = Builder::default().script(&script()).start();
    std::fs::create_dir_all(system.home().join("state/workspace/repos/site")).unwrap();
    system
}

fn browser() -> Option<Browser> {
    let Some(program) = chromium() else {
        skip("chromium is not installed");
        return None;
    };
    Some(Browser::open(&program))
}

fn picture(tab: &Tab, name: &str) {
    tab.picture(&root().join(format!("target/console/{name}.png")));
}

/// Opens a new conversation and sends its first message.
fn say(tab: &Tab, text: &str) {
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait("document.querySelector('h1')?.innerText === 'A new conversation' && document.activeElement.tagName === 'TEXTAREA'");
    tab.type_text(text);
    tab.press("Enter");
    tab.wait("/^#.chat.tui-/.test(location.hash)");
}

/// Chooses a file, whose content is an expression of the page.
fn choose(tab: &Tab, name: &str, kind: &str, content: &str) {
    tab.eval(&format!(
        "(() => {{ const files = new DataTransfer(); files.items.add(new File([{content}], '{name}', {{type: '{kind}'}})); \
         const input = document.querySelector('input[type=file]'); input.files = files.files; input.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
    ));
}

const IMAGE: &str = "new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10])";
/// A chequered one of 64 by 48 pixels.
const CHEQUERED: &str = "Uint8Array.from(atob('iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAAAAACEICPDAAAANUlEQVR42mPQgIL/UEAqn2HUgGFhALkaYfxRA4aHAaN5YdSA0fJg1IDR8mDUgNHyYNQAND4AdEzqW46+H+sAAAAASUVORK5CYII='), c => c.charCodeAt(0))";

/// Attaches a text and a picture to messages, and learns that another file is neither.
fn attachments(tab: &Tab) {
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait("document.querySelector('h1')?.innerText === 'A new conversation'");
    choose(tab, "program.bin", "application/octet-stream", IMAGE);
    tab.sees("program.bin is neither an image nor a text.");
    choose(tab, "notes.txt", "text/plain", "'A text, ```and a fence```\\n'");
    tab.sees("notes.txt");
    tab.eval("void document.querySelector('textarea').focus()");
    tab.type_text("What does it say?");
    tab.press("Enter");
    tab.sees("Hello, you.");
    tab.sees("Attached file \"notes.txt\":");
    tab.sees("A text, ```and a fence```");
    tab.wait("document.querySelector('.prompt').innerText.includes('````')");
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait("document.querySelector('h1')?.innerText === 'A new conversation'");
    choose(tab, "photo.png", "image/png", IMAGE);
    tab.sees("photo.png");
    tab.eval("void document.querySelector('textarea').focus()");
    tab.type_text("What is in this picture?");
    tab.press("Enter");
    tab.sees("Hello, you.");
    tab.wait("!document.body.innerText.includes('photo.png')");
    tab.sees("1 image");
    tab.call("Page.reload", json!({}));
    tab.sees("1 image");
    // It is the beginning of an image only.
    tab.sees("Image 1 of 1 is not kept here or cannot be shown.");
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait("document.querySelector('h1')?.innerText === 'A new conversation'");
    choose(tab, "photo.png", "image/png", CHEQUERED);
    choose(tab, "second.png", "image/png", CHEQUERED);
    tab.sees("second.png");
    tab.eval("void document.querySelector('textarea').focus()");
    tab.type_text("What is in these?");
    tab.press("Enter");
    let widths = "[...document.querySelectorAll('.picture img')].map(i => i.naturalWidth).join()";
    tab.wait(&format!("{widths} === '64,64'"));
    tab.call("Page.reload", json!({}));
    tab.wait(&format!("{widths} === '64,64'"));
    let first = "document.querySelector('.picture')";
    tab.is(&format!("{first}.ariaLabel + {first}.ariaExpanded"), "Image 1 of 2false");
    tab.click(first);
    tab.wait(&format!("{first}.ariaExpanded === 'true' && document.querySelector('img.whole')"));
    picture(tab, "pictures-wide-light");
}

const ANSWER: &str = "document.querySelector('.turn:last-of-type .answer').innerText";
const LIVE: &str = "[...document.querySelectorAll('.turn')].at(-1)?.classList.contains('completed')";

#[test]
fn a_person_starts_a_conversation_stops_it_and_finds_it_again() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("Nothing waits for you.");
    tab.click_text("Chat");
    tab.click_text("New");
    tab.wait("document.activeElement.tagName === 'TEXTAREA'");
    tab.type_text("Good morning");
    tab.press("Enter");
    tab.sees("Hello, you.");
    tab.wait(LIVE);
    tab.is("document.querySelector('.answer strong').innerText", "you");
    tab.wait("document.querySelector('.sessions .name')?.innerText === 'Good morning'");
    say(&tab, "please wait for ever");
    tab.sees("begun");
    // The page says for how long nothing has come, and what ken says of the reason.
    tab.wait("/Nothing for \\d.* s\\. \\w+/.test(document.querySelector('.working')?.innerText)");
    tab.click_text("Stop");
    tab.sees("Stopped.");
    assert!(tab.text().contains("begun"), "what was written stays");
    say(&tab, "refused");
    tab.sees("the key is not taken");
    attachments(&tab);
    // A search, and the transcript after a reload, which is another way to the same page.
    tab.click("document.querySelector('[data-search]')");
    tab.type_text("morning");
    tab.wait("document.querySelectorAll('.sessions li').length === 1");
    tab.click("document.querySelector('.sessions li a')");
    tab.sees("Hello, you.");
    tab.call("Page.reload", json!({}));
    tab.sees("Hello, you.");
    tab.is("document.querySelectorAll('.turn').length", 1);
    // Another client goes on in the same conversation.
    let id = tab.eval("decodeURIComponent(location.hash.split('/')[2])").as_str().unwrap().to_owned();
    let said = system.ken(&["chat", "-s", &id, "And from the terminal"]);
    assert!(said.status.success(), "{said:?}");
    tab.sees("And from the terminal");
    tab.wait(LIVE);
    tab.is("document.querySelectorAll('.turn').length", 2);
    // What was said is found, too, with the place.
    tab.click("document.querySelector('[data-search]')");
    tab.type_text("terminals");
    tab.wait("document.querySelector('.sessions .passage')?.innerText === 'And from the terminal'");
    tab.is("document.querySelectorAll('.sessions li').length", 1);
    picture(&tab, "search-wide-light");
    tab.has_no_faults();
}

#[test]
fn foreign_text_stays_text() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "be hostile <script>window.taken = 1</script>");
    tab.wait(LIVE);
    let answer = tab.eval(ANSWER);
    let answer = answer.as_str().unwrap();
    for shown in [
        "<script>window.taken = 1</script>",
        "<img src=x",
        "[image: cat]",
        "<b>bold?</b>",
        "x<y",
        "<i>&amp; ©AB\u{fffd}&nothing; &lt;code a&b",
    ] {
        assert!(answer.contains(shown), "{shown}: {answer}");
    }
    assert!(tab.text().contains("be hostile <script>"), "the prompt is text, too");
    assert_eq!(tab.eval("window.taken"), Value::Null);
    assert_eq!(tab.eval("document.querySelectorAll('.turns img, .turns script, .turns b, .turns i').length"), 0);
    tab.is("[...document.querySelectorAll('.turns a')].map(a => a.protocol).join()", "http:,http:");
    say(&tab, "one line");
    tab.wait(LIVE);
    tab.sees("of 1.0 MB are shown");
    tab.click_text("Show all");
    tab.wait("document.querySelector('.answer').innerText.length > 1000000");
    let asked = tab.events("Network.requestWillBeSent");
    let foreign: Vec<_> = asked
        .iter()
        .filter_map(|one| one["request"]["url"].as_str())
        .filter(|url| !url.starts_with(&system.url()))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    tab.has_no_faults();
}

#[test]
fn nothing_is_lost_or_doubled_when_the_gateway_is_killed_while_text_streams() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "slowly");
    for word in ["word5 ", "word20 ", "word35 "] {
        tab.wait(&format!("{ANSWER}.includes('{word}')"));
        system.signal("gateway", Signal::SIGKILL);
    }
    tab.wait(LIVE);
    let whole: String = (0..60).map(|number| format!("word{number} ")).collect();
    let answer = tab.eval("document.querySelector('.turn:last-of-type .prose').innerText");
    assert_eq!(answer.as_str().unwrap().trim(), whole.trim());
    tab.is("document.querySelectorAll('.turn').length", 1);
    tab.has_no_faults();
}

/// The connection breaks in the middle of a character.
#[test]
fn a_stream_that_ends_within_a_character_goes_on_behind_the_last_whole_event() {
    let Some(browser) = browser() else { return };
    let said: String = (0..30).map(|number| format!("{number}€ ")).collect();
    let pieces = said.split_inclusive(' ').flat_map(|piece| [json!({"text": piece}), json!({"sleep_ms": 20})]);
    let system = Builder::default().script(&[json!({"events": pieces.collect::<Vec<_>>()})]).start();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("Nothing waits for you.");
    // Of the first byte of the sign for the euro nothing follows.
    tab.eval(
        "void (window.old = fetch, window.cuts = 0, window.fetch = async (...all) => { const answer = await old(...all); \
         if (!/orchestrator.*live=sse/.test(all[0]) || window.cuts > 2) return answer; const reader = answer.body.getReader(); \
         return new Response(new ReadableStream({ async pull(to) { const { value, done } = await reader.read(); \
         if (done) return to.close(); const at = value.lastIndexOf(0xe2); window.seen = (window.seen ?? 0) + 1; \
         if (at < 0 || window.seen % 3) return to.enqueue(value); \
         window.cuts++; to.enqueue(value.slice(0, at + 1)); to.close(); reader.cancel(); } }), answer); })",
    );
    say(&tab, "Count your money");
    tab.wait(LIVE);
    let answer = tab.eval("document.querySelector('.turn:last-of-type .prose').innerText");
    assert_eq!(answer.as_str().unwrap().trim(), said.trim());
    assert_ne!(tab.eval("window.cuts"), 0);
    tab.has_no_faults();
}

#[test]
fn an_approval_is_shown_whole_and_decided_once() {
    let Some(browser) = browser() else { return };
    let system = started();
    let (one, two) = (browser.tab(WIDE.0, WIDE.1, false), browser.tab(PHONE.0, PHONE.1, true));
    for tab in [&one, &two] {
        tab.open(&system.url());
        tab.sees("Nothing waits for you.");
    }
    say(&one, "the note");
    one.sees("It waits for a decision.");
    // In the conversation, and in the inbox of the other tab, without a reload.
    for tab in [&one, &two] {
        tab.sees("+Adds numbers.");
        assert!(tab.text().contains("run <U+202E>txt.sh<U+200B>"), "{}", tab.text());
        for fact in ["repos/site/NOTE", "risk", "asked by coding-worker"] {
            assert!(tab.text().contains(fact), "{fact}: {}", tab.text());
        }
    }
    two.wait("document.title.startsWith('(1)')");
    // A key acts on the focused card alone.
    two.press("a");
    assert_eq!(system.get("/api/approvals/pending").expect(200).json().as_array().unwrap().len(), 1);
    // Both decide at the same moment: the network of one is slow.
    let buttons = |tab: &Tab| {
        tab.wait("[...document.querySelectorAll('.choices button')].some(b => b.innerText === 'Approve once' && !b.disabled)")
    };
    buttons(&one);
    buttons(&two);
    picture(&one, "approval-wide-light");
    picture(&two, "approval-phone-dark");
    two.eval("void (window.slow = fetch, window.fetch = async (...all) => { if (/decision/.test(all[0])) await new Promise(go => { window.go = go; }); return window.slow(...all); })");
    two.click_text("Approve once");
    two.wait("window.go");
    one.wait("(document.querySelector('.approval').focus(), true)");
    one.press("d");
    one.wait("document.activeElement.tagName === 'INPUT'");
    one.type_text("not today");
    one.press("Enter");
    one.sees("denied by console");
    two.eval("window.go()");
    for tab in [&one, &two] {
        tab.sees("denied by console, uid");
        tab.sees("not today");
    }
    one.wait("document.activeElement.matches('.approval')");
    two.wait("!document.title.startsWith('(')");
    one.sees("The turn is over.");
    assert!(!system.home().join("state/workspace/repos/site/NOTE").exists());
    // Again, and this time with the key.
    say(&one, "the note");
    one.wait(
        "[...document.querySelectorAll('.choices button')].some(b => b.innerText === 'Approve once' && !b.disabled)",
    );
    one.wait("(document.querySelector('.approval').focus(), true)");
    one.press("a");
    one.sees("approved by console");
    until("the file is written", || system.home().join("state/workspace/repos/site/NOTE").exists());
    // Later everybody sees who has decided what.
    two.call("Page.reload", json!({}));
    two.sees("Decided lately");
    two.sees("approved by console");
    one.has_no_faults();
    two.has_no_faults();
}

#[test]
fn every_other_page_shows_what_there_is_and_does_what_it_says() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "Good morning");
    tab.wait(LIVE);
    tab.click_text("Knowledge");
    tab.click_text("Add an entry");
    tab.eval("void document.querySelector('form input').focus()");
    tab.type_text("The <b>site</b>");
    tab.eval("void document.querySelector('form textarea').focus()");
    tab.type_text("It is deployed on Mondays.");
    tab.click_text("Add");
    tab.sees("added by a person");
    tab.click("document.querySelector('.card summary')");
    tab.sees("It is deployed on Mondays.");
    looks(&tab, "knowledge-wide-light", axe.as_deref());
    tab.sees("No turn has used it yet.");
    tab.click_text("Delete …");
    tab.click_text("Delete it");
    tab.sees("Nothing is known yet.");
    choose(&tab, "zones.md", "text/markdown", "'# Zones\\n\\nThe office is in Zone 7.\\n'");
    tab.sees("1 file: 1 added, 0 removed");
    tab.sees("Zones");
    choose(&tab, "zones.bin", "", IMAGE);
    tab.sees("zones.bin: It is no text in UTF-8.");
    // What the agent has written leads to the conversation in which it did.
    say(&tab, "remember the cat");
    tab.wait(LIVE);
    let conversation = tab.eval("location.hash");
    tab.click_text("Knowledge");
    tab.sees("written by the agent");
    tab.click("[...document.querySelectorAll('.card summary')].find(one => one.innerText.startsWith('Cat'))");
    looks(&tab, "written-wide-light", axe.as_deref());
    tab.click_text("this conversation");
    tab.sees("It is remembered.");
    tab.is("location.hash", conversation);
    tab.click_text("Schedules");
    tab.sees("Nothing is scheduled.");
    tab.click_text("New schedule");
    let fill = |label: &str, text: &str| {
        tab.eval(&format!("void [...document.querySelectorAll('label')].find(l => l.innerText.startsWith('{label}')).querySelector('input, textarea').focus()"));
        tab.eval("void document.activeElement.select()");
        tab.type_text(text);
    };
    fill("Name", "morning");
    fill("When", "0 9 * * 1");
    fill("Time zone", "Europe/Berlin");
    tab.sees("It fires at:");
    tab.is("document.querySelectorAll('form ol li').length", 10);
    fill("What to do", "Say good morning.");
    looks(&tab, "new-schedule-wide-light", axe.as_deref());
    tab.click_text("Create");
    tab.sees("Say good morning.");
    tab.click_text("Run now");
    tab.wait("document.querySelector('.strip .ok')");
    looks(&tab, "schedules-wide-light", axe.as_deref());
    tab.click_text("Pause");
    tab.sees("paused");
    tab.click_text("Usage");
    tab.sees("By model");
    tab.wait("[...document.querySelectorAll('th a')].some(a => a.innerText === 'Good morning')");
    looks(&tab, "usage-wide-light", axe.as_deref());
    tab.click_text("System");
    tab.sees("scheduler");
    let before = system.pid("scheduler");
    tab.click("document.querySelector('[aria-label=\"Restart scheduler\"]')");
    until("it is restarted", || system.pid("scheduler") != before);
    tab.wait("document.querySelector('.log span')");
    // A log is followed as it grows.
    let choice = |name: &str| {
        format!("[...document.querySelectorAll('label')].find(l => l.innerText.trim().startsWith('{name}'))")
    };
    tab.click(&format!("{}.querySelector('input')", choice("follow")));
    tab.eval(&format!(
        "(s => {{ s.value = 'kend'; s.dispatchEvent(new Event('change', {{bubbles: true}})); }})({}.querySelector('select'))",
        choice("Part")
    ));
    assert!(system.ken(&["reload"]).status.success());
    tab.wait("/reloaded: 0 added/.test(document.querySelector('.log').innerText)");
    tab.click_text("Check it");
    tab.sees("Unchanged: ");
    // The tests may run as root, of which the doctor says nothing good.
    tab.wait("/As of /.test(document.querySelector('main').innerText)");
    tab.click_text("Settings in force, and where they come from");
    tab.wait("document.querySelector('.settings tbody tr')");
    assert!(tab.text().contains("3940 from default"), "{}", tab.text());
    tab.click("document.querySelector('main input[type=search]')");
    tab.type_text("gateway.port");
    tab.wait("document.querySelectorAll('.settings tbody tr').length === 1");
    assert!(tab.text().contains("MB"), "the memory of the parts: {}", tab.text());
    looks(&tab, "system-wide-light", axe.as_deref());
    system.post("/workflows/full_reasoning", &json!({"text": "I am glad."})).expect(202);
    tab.click_text("Runs");
    tab.sees("full_reasoning");
    tab.click_text("full_reasoning");
    tab.sees("Result");
    tab.sees("Steps");
    looks(&tab, "run-wide-light", axe.as_deref());
    tab.has_no_faults();
    // All of it again on a telephone in the dark.
    let phone = browser.tab(PHONE.0, PHONE.1, true);
    phone.open(&system.url());
    phone.sees("Nothing waits for you.");
    for page in ["Runs", "Schedules", "Knowledge", "Usage", "System"] {
        phone.click_text(page);
        phone.wait(&format!("document.querySelector('h1')?.innerText === '{page}'"));
        looks(&phone, &format!("{}-phone-dark", page.to_lowercase()), axe.as_deref());
        let fits = "[document.documentElement, document.querySelector('main')].every(e => e.scrollWidth <= innerWidth)";
        assert_eq!(phone.eval(fits), true, "{page}");
    }
    phone.press("g");
    phone.press("i");
    phone.sees("Nothing waits for you.");
    phone.press("g");
    phone.press("y");
    phone.wait("document.querySelector('h1')?.innerText === 'System'");
    // The row of pages shows where one is.
    phone.wait("(r => r.left >= 0 && r.right <= innerWidth)(document.querySelector('nav [aria-current]').getBoundingClientRect())");
    phone.has_no_faults();
}

/// What was chosen first is answered last: the log that is shown is that of the part that is named.
#[test]
fn a_log_that_comes_late_is_not_shown_below_another_name() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.click_text("System");
    tab.wait("document.querySelector('.log span')");
    // From now on the answers of the store wait until they are let go, and are counted when the page has them.
    tab.eval(
        "void (window.held = [], window.late = 0, window.whole = fetch, window.fetch = async (...all) => { \
         const answer = await whole(...all), text = answer.text.bind(answer); \
         if (!/part=store/.test(all[0])) return answer; \
         await new Promise(go => held.push(go)); \
         answer.json = async () => { const value = JSON.parse(await text()); setTimeout(() => { late += 1; }); return value; }; \
         return answer; })",
    );
    let choose = |part: &str| {
        tab.eval(&format!(
            "(s => {{ s.value = '{part}'; s.dispatchEvent(new Event('change', {{bubbles: true}})); }})\
             ([...document.querySelectorAll('label')].find(l => l.innerText.trim().startsWith('Part')).querySelector('select'))"
        ));
    };
    let shown = "document.querySelector('.log').innerText";
    choose("scheduler");
    tab.wait(&format!("{shown}.includes('ready')"));
    let scheduler = tab.eval(shown);
    for part in ["store", "scheduler", "store", "scheduler"] {
        choose(part);
    }
    tab.wait(&format!("held.length === 2 && {shown}.includes('ready')"));
    tab.eval("void held.forEach(go => go())");
    tab.wait("late === 2");
    assert_eq!(tab.eval(shown), scheduler);
    tab.has_no_faults();
}

/// The message is written again, and a new conversation goes on from there; the old one stays.
#[test]
fn a_message_is_edited_and_sent_again() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "Good morning");
    tab.wait(LIVE);
    let old = tab.eval("location.hash");
    // The conversation has a page of its own now, and a person goes on writing.
    tab.type_text("And in the evning?");
    tab.press("Enter");
    tab.wait("document.querySelectorAll('.turn.completed').length === 2");
    tab.click("[...document.querySelectorAll('.turn')].at(-1).querySelector('.prompt button')");
    tab.wait("document.activeElement.matches('.prompt textarea')");
    tab.eval("void document.activeElement.select()");
    tab.type_text("And in the evening?");
    looks(&tab, "edit-wide-light", axe.as_deref());
    // The gateway is killed meanwhile, and again: there is one new conversation with one new turn.
    tab.click("document.querySelector('form.prompt button.main')");
    system.signal("gateway", Signal::SIGKILL);
    // A turn outside the view has no innerText (content-visibility). The address is the new one before the turns are.
    let prompts = "[...document.querySelectorAll('.turn.completed .prompt .plain')].map(one => one.textContent).join()";
    tab.wait(&format!("location.hash !== {old} && {prompts} === 'Good morning,And in the evening?'"));
    tab.wait("document.querySelectorAll('.sessions li').length === 2");
    tab.eval(&format!("void (location.hash = {old})"));
    tab.wait(&format!("{prompts} === 'Good morning,And in the evning?'"));
    tab.has_no_faults();
}

#[test]
fn what_a_turn_has_changed_is_shown_and_put_back() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let system = started();
    let note = system.home().join("state/workspace/repos/site/NOTE");
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "the note");
    tab.click_text("Approve once");
    tab.sees("The turn is over.");
    assert!(note.exists());
    tab.wait(LIVE);
    tab.click_text("Changed files");
    tab.wait("document.querySelector('.did .diff')?.innerText.includes('+Adds numbers.')");
    assert!(tab.text().contains("repos/site/NOTE"), "{}", tab.text());
    tab.click_text("Details");
    tab.sees("no price is known");
    assert!(tab.text().contains("write_file") && tab.text().contains("by a worker"), "{}", tab.text());
    looks(&tab, "changes-wide-light", axe.as_deref());
    let conversation = tab.eval("location.hash");
    tab.click_text("Runs");
    tab.sees("Work given to workers");
    tab.click("document.querySelector('main details summary')");
    tab.sees("Steps");
    tab.is("document.querySelector('.timeline li span').innerText", "coding-worker");
    looks(&tab, "delegated-wide-light", axe.as_deref());
    tab.click_text("The conversation");
    tab.wait(&format!("location.hash === {conversation}"));
    tab.click_text("Changed files");
    tab.click_text("Undo these changes");
    tab.sees("Put back: repos/site/NOTE.");
    assert!(!note.exists());
    tab.click_text("Have it again");
    tab.sees("Changed again: repos/site/NOTE.");
    assert!(note.exists());
    // A file that somebody else has changed since stays as it is.
    tab.call("Page.reload", json!({}));
    tab.wait(LIVE);
    std::fs::write(&note, "mine\n").unwrap();
    tab.click_text("Changed files");
    tab.sees("changed since");
    assert_eq!(
        tab.eval("[...document.querySelectorAll('button')].find(b => b.innerText === 'Undo these changes').disabled"),
        true
    );
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "mine\n");
    tab.has_no_faults();
}

/// From now on what is posted to an address that fits arrives, and its answer is lost, until `window.lost` is false.
fn lose_answers(tab: &Tab, fits: &str) {
    tab.eval(&format!(
        "void (window.lost = true, window.whole = fetch, window.fetch = async (...all) => {{ const answer = await whole(...all); \
         if (window.lost && all[1].method === 'POST' && {fits}.test(all[0])) throw new TypeError('lost'); return answer; }})"
    ));
}

const BOX: &str = "document.querySelector('.composer textarea')";
const PROMPTS: &str =
    "[...document.querySelectorAll('.turn.completed .prompt .plain')].map(one => one.textContent).join()";

/// The message has arrived, but nobody knows: it is sent again by hand.
#[test]
fn what_is_sent_again_after_a_lost_answer_is_carried_out_once() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tabs: Vec<Tab> = (0..5).map(|_| browser.tab_behind(WIDE.0, WIDE.1)).collect();
    let [begun, open, edited, image, decided] = tabs.as_slice() else { unreachable!() };
    for tab in &tabs {
        tab.call("Page.bringToFront", json!({}));
        tab.open(&system.url());
        tab.sees("Nothing waits for you.");
    }
    // The answers of all are lost at the same time, because to give up takes a page a while.
    begun.call("Page.bringToFront", json!({}));
    lose_answers(begun, "/api.chat.events$/");
    begun.eval("void (location.hash = '#/chat/new')");
    begun.wait("document.activeElement.matches('.composer textarea')");
    begun.type_text("Good morning");
    begun.press("Enter");
    for (tab, lost) in [(open, "/api.chat.events$/"), (edited, "/fork$|api.chat.events$/")] {
        tab.call("Page.bringToFront", json!({}));
        say(tab, "Good day");
        tab.wait(LIVE);
        lose_answers(tab, lost);
    }
    decided.call("Page.bringToFront", json!({}));
    say(decided, "the note");
    decided.sees("It waits for a decision.");
    lose_answers(decided, "/decision$/");
    open.call("Page.bringToFront", json!({}));
    open.eval(&format!("void {BOX}.focus()"));
    open.type_text("And once more");
    open.press("Enter");
    edited.call("Page.bringToFront", json!({}));
    edited.click("document.querySelector('.prompt button')");
    edited.wait("document.activeElement.matches('.prompt textarea')");
    edited.eval("void document.activeElement.select()");
    edited.type_text("Good night");
    edited.click("document.querySelector('form.prompt button.main')");
    decided.call("Page.bringToFront", json!({}));
    decided.click_text("Approve once");
    image.call("Page.bringToFront", json!({}));
    lose_answers(image, "/orchestrator/");
    image.eval("void (location.hash = '#/chat/new')");
    image.wait("document.activeElement.matches('.composer textarea')");
    choose(image, "photo.png", "image/png", CHEQUERED);
    image.sees("photo.png");
    image.type_text("What is it?");
    image.press("Enter");
    for tab in [begun, open, image] {
        tab.call("Page.bringToFront", json!({}));
        tab.sees("The gateway cannot be reached.");
        tab.wait(&format!("{BOX}.value !== '' && (window.lost = false, true)"));
    }
    // The key outlasts a reload, as the text does.
    begun.call("Page.bringToFront", json!({}));
    begun.call("Page.reload", json!({}));
    begun.wait(&format!("{BOX}?.value === 'Good morning' && document.activeElement === {BOX}"));
    begun.press("Enter");
    begun.wait(&format!("{PROMPTS} === 'Good morning'"));
    begun.is(&format!("{BOX}.value"), "");
    open.call("Page.bringToFront", json!({}));
    open.press("Enter");
    open.wait(&format!("{PROMPTS} === 'Good day,And once more' && {BOX}.value === ''"));
    open.call("Page.reload", json!({}));
    open.wait(&format!("{PROMPTS} === 'Good day,And once more' && {BOX}.value === ''"));
    // The same words, written anew, are another message.
    open.type_text("And once more");
    open.press("Enter");
    open.wait(&format!("{PROMPTS} === 'Good day,And once more,And once more'"));
    image.call("Page.bringToFront", json!({}));
    image.click_text("Send");
    image.wait("document.querySelectorAll('.turn.completed').length === 1 && !document.querySelector('.files')");
    edited.call("Page.bringToFront", json!({}));
    edited.wait("/cannot be reached/.test(document.querySelector('form.prompt .failed')?.innerText)");
    edited.eval("void (window.lost = false)");
    edited.click("document.querySelector('form.prompt button.main')");
    edited.wait(&format!("{PROMPTS} === 'Good night'"));
    decided.call("Page.bringToFront", json!({}));
    decided.sees("approved by console");
    let sessions = system.get("/api/chat/sessions?limit=100").expect(200).json();
    let begun_with = |text: &str| {
        let all = sessions["sessions"].as_array().unwrap().iter();
        all.filter(|one| one["title"] == text).count()
    };
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 6, "{sessions:#}");
    assert_eq!((begun_with("Good morning"), begun_with("What is it?"), begun_with("Good night")), (1, 1, 1));
    for tab in &tabs {
        tab.has_no_faults();
    }
}

/// What a person writes is theirs until it is sent, whatever happens meanwhile.
#[test]
fn what_is_written_and_not_sent_yet_stays() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    let address = format!("http://ken.test:{}", system.address().port());
    let link = || String::from_utf8(system.ken(&["open", "--print"]).stdout).unwrap();
    let come_in = |tab: &Tab| tab.open(&format!("{address}/#{}", link().trim().split_once('#').unwrap().1));
    come_in(&tab);
    tab.sees("Nothing waits for you.");
    let hold = "void (window.held = [], window.whole = fetch, window.fetch = async (...all) => { if (all[0] === '/api/chat/events') \
                await new Promise(go => window.held.push(go)); return whole(...all); })";
    tab.eval(hold);
    let go = "window.held.length === 1 && (window.held.pop()(), true)";
    // What is written while the first message is on its way goes along to its conversation; what was on its way does not.
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait("document.querySelector('h1')?.innerText === 'A new conversation' && document.activeElement.matches('.composer textarea')");
    tab.type_text("One");
    tab.press("Enter");
    tab.sees("Sending …");
    tab.type_text(" Two");
    choose(&tab, "notes.txt", "text/plain", "'a note'");
    tab.sees("notes.txt");
    tab.wait(go);
    tab.wait(&format!("{PROMPTS} === 'One'"));
    tab.is(&format!("{BOX}.value + document.querySelector('.files').innerText.slice(0, 9)"), "Twonotes.txt");
    // In the conversation itself the same, with a file that was on its way.
    tab.press("Enter");
    tab.sees("Sending …");
    tab.type_text(" Three");
    choose(&tab, "more.txt", "text/plain", "'more'");
    tab.sees("more.txt");
    tab.wait(go);
    tab.wait(&format!("{BOX}.value === 'Three' && document.querySelectorAll('.files li').length === 1"));
    tab.is("document.querySelector('.files').innerText.slice(0, 8)", "more.txt");
    // What is changed while it is on its way stays as it was changed.
    tab.click("document.querySelector('.files button')");
    tab.eval(&format!("void {BOX}.focus()"));
    tab.press("Enter");
    tab.sees("Sending …");
    tab.eval(&format!("void {BOX}.select()"));
    tab.type_text("Four");
    tab.wait(go);
    tab.wait(&format!("{PROMPTS}.endsWith(',Three') && {BOX}.value === 'Four'"));
    // Another conversation has a draft of its own.
    let here = tab.eval("location.hash");
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait(&format!("document.querySelector('h1')?.innerText === 'A new conversation' && {BOX}.value === ''"));
    tab.click_text("Folder and model");
    tab.eval("void document.querySelector('.conversation details input').focus()");
    tab.type_text("/nowhere");
    tab.eval(&format!("void {BOX}.focus()"));
    tab.type_text("Five");
    tab.click_text("Usage");
    tab.sees("By model");
    tab.eval(&format!("void (location.hash = {here})"));
    tab.wait(&format!("{BOX}?.value === 'Four'"));
    tab.call("Page.reload", json!({}));
    tab.wait(&format!("{BOX}?.value === 'Four'"));
    // The token ends, and with it the page.
    std::fs::remove_file(system.home().join("state/gateway/console.key")).unwrap();
    system.signal("gateway", Signal::SIGKILL);
    tab.sees("This browser needs a way in.");
    come_in(&tab);
    tab.sees("Nothing waits for you.");
    tab.eval(&format!("void (location.hash = {here})"));
    tab.wait(&format!("{BOX}?.value === 'Four'"));
    tab.eval("void (location.hash = '#/chat/new')");
    tab.wait(&format!("document.querySelector('h1')?.innerText === 'A new conversation' && {BOX}.value === 'Five'"));
    tab.is("document.querySelector('.conversation details input').value", "/nowhere");
    tab.has_no_faults();
}

/// A long text of a tool, of which the model sees a part, is there as a whole; so is the conversation, as a file.
#[test]
fn what_a_tool_has_said_and_what_was_said_are_saved() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let tool = json!({"name": "count", "description": "Counts.", "command": ["seq", "1", "9999"], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "approval": "none"});
    let system = Builder::default()
        .script(&[
            json!({"when": "count", "after_tools": 0, "events": [{"tool": {"name": "count", "arguments": {}}}]}),
            json!({"events": [{"text": "Counted."}]}),
        ])
        .file("tools.d/count.json", &tool.to_string())
        .start();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "count");
    tab.wait(LIVE);
    for _ in 0..2 {
        tab.click_text("Whole output, 47.7 KB");
        tab.wait("document.querySelector('[aria-label=\"Whole output\"]')?.innerText.startsWith('1\\n2\\n')");
        // Once as it was followed, and once as it is read again.
        looks(&tab, "output-wide-light", axe.as_deref());
        tab.call("Page.reload", json!({}));
        tab.sees("Counted.");
    }
    tab.click_text("Whole output, 47.7 KB");
    tab.eval(
        "void (window.saved = [], window.made = URL.createObjectURL, URL.createObjectURL = blob => { \
         blob.text().then(text => window.saved.push(text)); return window.made(blob); })",
    );
    tab.click_text("Save as a file");
    tab.wait("window.saved[0]?.trim().endsWith('\\n9999')");
    tab.click_text("More");
    tab.click_text("Export as Markdown");
    tab.wait("/^# count\\n\\n## You, [^]*Counted\\./.test(window.saved[1])");
    tab.click_text("Export as JSON");
    tab.wait("window.saved[2] && JSON.parse(window.saved[2]).exchanges.length === 1");
    tab.has_no_faults();
}

/// What failed waits for a person, too, and what the doctor has found.
#[test]
fn failures_and_findings_stand_in_the_inbox() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let system = started();
    // A file of secrets that others can read.
    let secrets = system.home().join("secrets.env");
    std::fs::write(&secrets, "").unwrap();
    std::fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    let session = system.session();
    system.say(&session, "refused").expect(500);
    tab.sees("Failed in the last day");
    tab.sees("the key is not taken");
    assert!(!tab.text().contains("Nothing waits for you."), "{}", tab.text());
    tab.wait("document.querySelector('section[aria-label=Findings]')?.innerText.includes('secrets.env')");
    looks(&tab, "failures-wide-light", axe.as_deref());
    tab.eval("void document.querySelector('section[aria-label=Failures] a').click()");
    tab.wait(&format!("location.hash.endsWith({})", json!(session)));
    tab.has_no_faults();
}

/// A provider that is down stands at the top of the page as soon as a turn has failed, not when the page next asks by itself.
#[test]
fn a_provider_that_is_down_stands_at_the_top_at_once() {
    let Some(browser) = browser() else { return };
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        .secrets("OPENAI_API_KEY=none\n")
        .start();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "Good morning");
    let reason = "The model openai/m failed: cannot reach 127.0.0.1:9: it refuses connections";
    tab.wait(&format!("document.querySelector('.answer .failed')?.innerText === '{reason}'"));
    let failed = std::time::Instant::now();
    tab.wait("/^openai is down since /.test(document.querySelector('.now .bad')?.innerText)");
    assert!(failed.elapsed() < std::time::Duration::from_secs(20), "{:?}", failed.elapsed());
    tab.click_text("Inbox");
    tab.sees("Not as it should be");
    tab.has_no_faults();
}

/// While the part that knows is down, nothing is said of what it knows.
#[test]
fn a_part_that_is_down_is_named_and_what_it_knows_is_not_taken_for_none() {
    let Some(browser) = browser() else { return };
    let system = Builder::default().script(&script()).config("[model.budget]\ntokens_per_day = 100000\n").start();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.wait("document.querySelector('.now').innerText.includes('budget 0 % used')");
    assert!(system.ken(&["stop", "model"]).status.success());
    tab.open(&format!("{}/#/usage", system.url()));
    tab.sees("The budget is not known: ");
    tab.wait("/^model is stopped since .*\\d/.test(document.querySelector('.now a.bad')?.innerText)");
    let text = tab.text();
    assert!(text.contains("the model is not known: the part model does not answer"), "{text}");
    assert!(!text.contains("no model") && !text.contains("No budget is set"), "{text}");
    assert!(system.ken(&["start", "model"]).status.success());
    tab.call("Page.reload", json!({}));
    tab.sees("0 of 100,000");
    tab.wait(
        "document.querySelector('.now').innerText.includes('budget 0 % used') && !document.querySelector('.now .bad')",
    );
    tab.has_no_faults();
}

/// However long a conversation is, only a part of it is in the page.
#[test]
fn a_long_conversation_opens_at_its_end_and_is_read_back_to_its_beginning() {
    let Some(browser) = browser() else { return };
    let system = started();
    let session = system.session();
    for number in 0..208 {
        system.say(&session, &format!("message {number}")).expect(200);
    }
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&format!("{}/#/chat/{session}", system.url()));
    let opened = tab.sees("message 207");
    tab.is("document.querySelectorAll('.turn').length", 30);
    let log = "document.querySelector('.turns')";
    tab.wait(&format!("({log}.scrollTop = 0, document.body.innerText.includes('message 0\\n\\n'))"));
    tab.is("document.querySelectorAll('.turn').length", 200);
    println!("a conversation of 208 exchanges opens in {opened:?}");
    // What comes meanwhile is there when the person goes to the end, and a message goes there.
    system.say(&session, "from elsewhere").expect(200);
    tab.eval(&format!("void ({log}.scrollTop = {log}.scrollHeight)"));
    tab.click_text("To the newest messages");
    tab.sees("from elsewhere");
    tab.wait(&format!("({log}.scrollTop = 0, document.querySelectorAll('.turn').length === 200)"));
    tab.eval("void document.querySelector('.composer textarea').focus()");
    tab.type_text("The last one");
    tab.press("Enter");
    tab.wait("[...document.querySelectorAll('.prompt .plain')].at(-1)?.innerText === 'The last one'");
    tab.wait(LIVE);
    tab.has_no_faults();
}

/// A change elsewhere takes nothing away from a person who has read on.
#[test]
fn a_list_that_was_read_on_stays_as_long_when_something_changes() {
    let Some(browser) = browser() else { return };
    let system = started();
    let add = |title: &str| {
        system.post("/api/knowledge", &json!({"title": title, "content": title})).expect(201).text("/record/id")
    };
    let ids: Vec<String> = (0..151).map(|number| add(&format!("entry {number:03}"))).collect();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&format!("{}/#/knowledge", system.url()));
    let rows = "document.querySelectorAll('main .card').length";
    let (main, more) = (
        "document.querySelector('main')",
        "[...document.querySelectorAll('button')].some(b => b.innerText === 'More')",
    );
    tab.is(rows, 50);
    tab.click_text("More");
    tab.is(rows, 100);
    tab.click_text("More");
    tab.is(rows, 150);
    tab.is(more, true);
    tab.eval(&format!("void ({main}.scrollTop = 1e9)"));
    let seen = "Math.round([...document.querySelectorAll('.card')].find(one => one.innerText.includes('entry 001')).getBoundingClientRect().top)";
    let place = tab.eval(seen);
    system.delete(&format!("/api/knowledge/{}", ids[10])).expect(200);
    tab.wait("!document.body.innerText.includes('entry 010')");
    tab.is(rows, 150);
    tab.is(more, false);
    tab.is(seen, place.clone());
    add("newest of all");
    tab.sees("newest of all");
    tab.is(rows, 150);
    tab.is(seen, place);
    // What is read on while something changes comes all the same.
    tab.eval(
        "void (window.whole = fetch, window.fetch = async (...all) => { if (/limit=100/.test(all[0]) && !window.slow) \
              await new Promise(go => { window.slow = go; }); return whole(...all); })",
    );
    tab.click_text("More");
    tab.wait("window.slow");
    add("newer still");
    tab.is(rows, 152);
    tab.is(more, false);
    // A search begins at the beginning.
    tab.click("document.querySelector('[data-search]')");
    tab.type_text("entry");
    tab.is(rows, 50);
    let session = system.session();
    for number in 0..101 {
        let id = if number == 0 { session.clone() } else { system.session() };
        system.say(&id, &format!("message {number}")).expect(200);
    }
    tab.eval("void (location.hash = '#/chat')");
    let rows = "document.querySelectorAll('.sessions li').length";
    tab.is(rows, 50);
    tab.click_text("More");
    tab.is(rows, 100);
    tab.click_text("More");
    tab.is(rows, 101);
    let removed = system.ken(&["sessions", "rm", "--yes", &session]);
    assert!(removed.status.success(), "{removed:?}");
    tab.is(rows, 100);
    system.say(&system.session(), "the newest").expect(200);
    tab.is(rows, 101);
    tab.has_no_faults();
}

/// A browser opens six connections to a host at most, over all of its tabs. A tab that nobody sees holds none.
#[test]
fn eight_open_tabs_work_and_catch_up_when_they_are_shown() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tabs: Vec<Tab> = (0..8).map(|_| browser.tab_behind(WIDE.0, WIDE.1)).collect();
    for tab in &tabs {
        tab.call("Page.bringToFront", json!({}));
        tab.open(&system.url());
        tab.sees("Nothing waits for you.");
    }
    let first = &tabs[0];
    first.wait("document.hidden");
    first.call("Page.bringToFront", json!({}));
    first.wait("!document.hidden");
    say(first, "slowly");
    first.wait(&format!("{ANSWER}.includes('word3 ')"));
    let last = &tabs[7];
    last.call("Page.bringToFront", json!({}));
    first.wait("document.hidden");
    // The turn ends while its tab is hidden.
    until("the turn is over", || {
        let runs = system.get("/api/telemetry/runs").expect(200);
        runs.text("/runs/0/status") == "completed"
    });
    assert!(!first.text().contains("word59"), "a hidden tab reads nothing");
    first.call("Page.bringToFront", json!({}));
    first.wait(LIVE);
    let whole: String = (0..60).map(|number| format!("word{number} ")).collect();
    assert_eq!(
        first.eval("document.querySelector('.turn:last-of-type .prose').innerText").as_str().unwrap().trim(),
        whole.trim()
    );
    first.has_no_faults();
}

/// Windows beside each other are all visible. Those that hold no connection look every two seconds what has come.
#[test]
fn four_windows_beside_each_other_work() {
    let Some(browser) = browser() else { return };
    let system = started();
    let windows: Vec<Tab> = (0..4).map(|_| browser.tab(WIDE.0, WIDE.1, false)).collect();
    for tab in &windows {
        tab.open(&system.url());
        tab.sees("Nothing waits for you.");
        say(tab, "Good morning");
        tab.wait(LIVE);
    }
    let [first, second, third, last] = windows.as_slice() else { unreachable!() };
    let held = "navigator.locks.query().then(({held}) => held.map(one => one.clientId))";
    let held = |tab: &Tab| {
        let held = tab.eval(held);
        let mut held: Vec<String> = held.as_array().unwrap().iter().map(|one| one.to_string()).collect();
        let streams = held.len();
        held.sort();
        held.dedup();
        (streams, held.len())
    };
    assert_eq!(held(last), (4, 2));
    last.type_text("slowly");
    last.press("Enter");
    last.wait("document.querySelectorAll('.turn').length === 2");
    last.wait(LIVE);
    let whole: String = (0..60).map(|number| format!("word{number} ")).collect();
    let answer = last.eval("document.querySelector('.turn:last-of-type .prose').innerText");
    assert_eq!(answer.as_str().unwrap().trim(), whole.trim());
    // A log has no offsets.
    last.eval("void (location.hash = '#/system')");
    last.click("document.querySelector('.choices input[type=checkbox]')");
    last.eval("(s => { s.value = 'kend'; s.dispatchEvent(new Event('change', {bubbles: true})); })([...document.querySelectorAll('.choices select')].at(-2))");
    assert!(system.ken(&["reload"]).status.success());
    last.wait("/reloaded: 0 added/.test(document.querySelector('.log').innerText)");
    last.wait("document.querySelectorAll('.log > span').length > 3");
    // An approval stands in all of them, and what is decided in the last is seen in the first.
    say(first, "the note");
    for tab in &windows {
        tab.wait("document.title.startsWith('(1)')");
    }
    last.eval("void (location.hash = '#/inbox')");
    last.click_text("Approve once");
    for tab in &windows {
        tab.wait("!document.title.startsWith('(')");
    }
    first.sees("The turn is over.");
    // Who is closed leaves its connections to the others.
    first.open("about:blank");
    until("another window has them", || held(last) == (4, 2) || held(last) == (4, 3));
    second.open("about:blank");
    until("both windows have theirs", || matches!(held(last), (3, 2)));
    for tab in [third, last] {
        tab.has_no_faults();
    }
}

/// Over plain HTTP at another name a browser has no locks. The window with which a person works has connections, the others look.
#[test]
fn four_windows_beside_each_other_work_from_another_machine() {
    let Some(browser) = browser() else { return };
    let system = started();
    let windows: Vec<Tab> = (0..4).map(|_| browser.tab(WIDE.0, WIDE.1, false)).collect();
    let (last, others) = windows.split_last().unwrap();
    for tab in others {
        tab.call("Emulation.setFocusEmulationEnabled", json!({"enabled": false}));
        tab.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": "document.hasFocus = () => false"}));
    }
    for tab in &windows {
        let link = String::from_utf8(system.ken(&["open", "--print"]).stdout).unwrap();
        let code = link.trim().split_once('#').unwrap().1;
        tab.open(&format!("http://ken.test:{}/#{code}", system.address().port()));
        tab.sees("Nothing waits for you.");
        assert_eq!(tab.eval("isSecureContext"), false);
    }
    for tab in &windows {
        tab.eval("void (location.hash = '#/chat/new')");
        tab.wait(&format!("document.querySelector('h1')?.innerText === 'A new conversation' && {BOX}"));
        tab.eval(&format!("void {BOX}.focus()"));
        tab.type_text("slowly");
        tab.click_text("Send");
    }
    let whole: String = (0..60).map(|number| format!("word{number} ")).collect();
    for tab in &windows {
        tab.wait(LIVE);
        let answer = tab.eval("document.querySelector('.turn:last-of-type .prose').innerText");
        assert_eq!(answer.as_str().unwrap().trim(), whole.trim());
    }
    let streams = "performance.getEntriesByType('resource').filter(one => /live=sse/.test(one.name)).length";
    let before = last.eval(streams).as_u64().unwrap();
    others[0].wait(&format!("{streams} > 10"));
    assert!(last.eval(streams).as_u64().unwrap() <= before + 1, "it holds its streams");
    // It is left, and looked at again.
    last.eval("void (document.hasFocus = () => false, dispatchEvent(new Event('blur')))");
    last.wait(&format!("{streams} > {}", before + 4));
    last.eval("void (document.hasFocus = () => true, dispatchEvent(new Event('focus')))");
    others[0].eval("void (location.hash = '#/inbox')");
    say(last, "the note");
    others[0].sees("Approve once");
    last.sees("Approve once");
    last.has_no_faults();
}

/// The files of a page come when it is opened, and the gateway can be away then. That is no upgrade.
#[test]
fn what_cannot_be_loaded_is_loaded_when_the_gateway_is_there_again() {
    let Some(browser) = browser() else { return };
    let mut system = started();
    let (inbox, tab) = (browser.tab(WIDE.0, WIDE.1, false), browser.tab(WIDE.0, WIDE.1, false));
    inbox.open(&system.url());
    inbox.sees("Nothing waits for you.");
    tab.open(&system.url());
    say(&tab, "Good morning");
    tab.wait(LIVE);
    let block = |tab: &Tab, files: &[&str]| tab.call("Network.setBlockedURLs", json!({"urls": files}));
    block(&inbox, &["*/approval.js"]);
    block(&tab, &["*/changes.js"]);
    tab.click_text("Details");
    tab.sees("The gateway cannot be reached.");
    block(&tab, &[]);
    tab.click_text("Details");
    tab.click_text("Details");
    tab.sees("model calls");
    assert!(!tab.text().contains("cannot be reached"), "{}", tab.text());
    say(&tab, "the note");
    inbox.sees("1 approval to decide");
    inbox.sees("The gateway cannot be reached.");
    block(&inbox, &[]);
    inbox.sees("+Adds numbers.");
    inbox.wait("!document.querySelector('main > .failed')");
    system.down();
    inbox.click_text("Schedules");
    inbox.sees("Loading …");
    inbox.wait("document.querySelector('main .failed p')?.innerText === 'The gateway cannot be reached.'");
    inbox.click_text("Try again");
    inbox.sees("Loading …");
    assert!(!inbox.text().contains("Another version"), "{}", inbox.text());
    system.up();
    inbox.sees("Nothing is scheduled.");
    inbox.has_no_faults();
}

/// A gateway that hangs answers nothing, also not that it is away.
#[test]
fn a_request_without_an_answer_ends() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("Nothing waits for you.");
    tab.click_text("Usage");
    tab.sees("Of the turns and runs");
    tab.click_text("Inbox");
    tab.sees("Nothing waits for you.");
    tab.eval(
        "void (window.later = setTimeout, window.setTimeout = (work, ms) => later(work, ms === 90_000 ? 500 : ms))",
    );
    system.signal("gateway", Signal::SIGSTOP);
    tab.click_text("Usage");
    tab.sees("The gateway has not answered for 90 s.");
    system.signal("gateway", Signal::SIGCONT);
    tab.click_text("Try again");
    tab.sees("Of the turns and runs");
}

#[test]
fn keys_an_upgrade_and_a_deleted_conversation() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("Nothing waits for you.");
    tab.press("?");
    tab.sees("approve the focused request once");
    tab.press("Escape");
    tab.wait("!document.querySelector('dialog')");
    for (key, title) in [("y", "System"), ("k", "Knowledge"), ("i", "Inbox")] {
        tab.press("g");
        tab.press(key);
        tab.wait(&format!("document.querySelector('h1')?.innerText === '{title}'"));
    }
    say(&tab, "Good morning");
    tab.wait(LIVE);
    say(&tab, "Good evening");
    tab.wait(LIVE);
    tab.wait("document.querySelectorAll('.sessions li').length === 2");
    tab.eval("void document.querySelector('main').focus()");
    tab.press("/");
    tab.wait("document.activeElement.matches('[data-search]')");
    tab.press("Tab");
    tab.eval("void document.querySelector('main').focus()");
    tab.press("j");
    tab.press("j");
    tab.is("document.activeElement.innerText.startsWith('Good morning')", true);
    tab.press("Enter");
    tab.wait("document.querySelector('h1')?.innerText === 'Good morning'");
    // Deleted in the terminal, it leaves the screen here.
    let id = tab.eval("decodeURIComponent(location.hash.split('/')[2])").as_str().unwrap().to_owned();
    tab.sees("Hello, you.");
    let removed = system.command(&["sessions", "rm", "--yes", &id]).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    tab.sees("it may have been deleted");
    assert!(!tab.text().contains("Hello, you."), "{}", tab.text());
    // After an upgrade the page that is open asks to be loaded again.
    tab.eval("void (window.old = fetch, window.fetch = async (...all) => { const answer = await old(...all); if (all[0] !== '/api/system') return answer; \
              return new Response(JSON.stringify({...await answer.json(), version: '9.9.9'})); })");
    tab.eval("document.dispatchEvent(new Event('visibilitychange'))");
    tab.sees("Another version of ken is installed.");
    tab.click_text("Reload");
    tab.wait("!document.body.innerText.includes('Another version')");
    tab.has_no_faults();
}

/// A change of which the record of the request holds only the beginning: the page reads all of it and names its digest.
#[test]
fn a_long_change_can_be_approved_once_and_not_for_the_session() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "the huge file");
    tab.sees("It can be approved once, not for the session.");
    let request = system.get("/api/approvals/pending").expect(200).json()[0]["request"].clone();
    assert!(request["metadata"]["whole"]["digest"].is_string(), "it has more than the record holds");
    tab.wait(
        "[...document.querySelectorAll('.choices button')].some(b => b.innerText === 'Approve once' && !b.disabled)",
    );
    let session = "[...document.querySelectorAll('.choices button')].find(b => b.innerText === 'Approve for this session').disabled";
    assert_eq!(tab.eval(session), true);
    tab.click("[...document.querySelectorAll('.diff button')].find(b => b.innerText === 'Show all')");
    tab.wait("document.querySelector('.diff').innerText.includes('+line 19999 of a huge file')");
    tab.click_text("Approve once");
    tab.sees("approved by console");
    tab.sees("The turn is over.");
    let written = std::fs::read_to_string(system.home().join("state/workspace/repos/site/HUGE")).unwrap();
    assert!(written.ends_with("line 19999 of a huge file\n"));
    tab.has_no_faults();
}

#[test]
fn where_the_risk_is_high_the_target_is_typed() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("Nothing waits for you.");
    // The shipped calls of this risk need a remote repository, so that the record is changed on its way.
    tab.eval(
        "void (window.old = fetch, window.fetch = async (...all) => { const answer = await old(...all); \
         if (!/approvals.apr_[0-9A-Z]+$/.test(all[0])) return answer; const record = await answer.json(); \
         record.request.risk = 'high'; return new Response(JSON.stringify(record)); })",
    );
    say(&tab, "the note");
    tab.sees("The risk is high.");
    let approve = "[...document.querySelectorAll('.choices button')].find(b => b.innerText === 'Approve once')";
    tab.wait("[...document.querySelectorAll('.choices button')].some(b => b.innerText === 'Deny …' && !b.disabled)");
    tab.is(&format!("{approve}.disabled"), true);
    tab.wait("(document.querySelector('.approval').focus(), true)");
    tab.press("a");
    tab.eval("void document.querySelector('.choices input').focus()");
    tab.type_text("repos/site/NOT");
    tab.is(&format!("{approve}.disabled"), true);
    assert_eq!(system.get("/api/approvals/pending").expect(200).json().as_array().unwrap().len(), 1);
    tab.type_text("E");
    tab.click(approve);
    tab.sees("approved by console");
    tab.has_no_faults();
}

/// Without a language model: the answer names its source, and a stranger in the messenger is let in.
#[test]
fn sources_stand_below_an_answer_and_a_stranger_in_the_messenger_is_admitted() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let platform = BotApi::start();
    let secrets = format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n");
    let system = Builder::default()
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_PAIRING_CODES", "true")
        .secrets(&secrets)
        .start();
    let entry = json!({"title": "Deploy <i>window</i>", "content": "The site is deployed on Tuesdays at 14:00 UTC."});
    system.post("/api/knowledge", &entry).expect(201);
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    tab.sees("no model: ken setup");
    say(&tab, "When is the site deployed?");
    tab.wait(LIVE);
    tab.sees("Tuesdays");
    tab.is("document.querySelectorAll('.sources li').length", 1);
    assert!(tab.text().contains("Deploy <i>window</i>"), "{}", tab.text());
    tab.click("document.querySelector('.sources summary')");
    tab.sees("The site is deployed on Tuesdays at 14:00 UTC.");
    tab.wait(
        "document.querySelector('.sources .plain')?.innerText === 'The site is deployed on Tuesdays at 14:00 UTC.'",
    );
    looks(&tab, "sources-wide-light", axe.as_deref());
    let update = json!({"update_id": 1, "message": {"message_id": 1, "date": 1_800_000_000, "text": "hello",
        "from": {"id": 77, "is_bot": false, "first_name": "Zoe"}, "chat": {"id": 77, "type": "private"}}});
    let mut client = system.client();
    let request = client.request("POST", "/channels/messenger/webhook");
    request.header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(&update).send().expect(200);
    tab.eval("void (location.hash = '#/system')");
    tab.sees("77 asks with the code");
    looks(&tab, "messenger-wide-light", axe.as_deref());
    tab.click_text("Admit");
    tab.sees("77 may write");
    tab.click_text("Remove");
    tab.wait("!document.body.innerText.includes('77 may write')");
    tab.has_no_faults();
}

/// A model's answer is compared with its sources, sentence by sentence.
#[test]
fn an_answer_says_what_supports_each_of_its_sentences() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let text = "Überdruck: the site is deployed on Tuesdays at 14:00 UTC [1]. Bring two large blue umbrellas.";
    let system = Builder::default().script(&[json!({"events": [{"text": text}]})]).start();
    let entry = json!({"title": "Deploy window", "content": "Ask Ana. The site is deployed on Tuesdays at 14:00 UTC."});
    system.post("/api/knowledge", &entry).expect(201);
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&system.url());
    say(&tab, "When is the site deployed?");
    tab.wait(LIVE);
    // As it was followed, and as it is read again.
    for _ in 0..2 {
        tab.click_text("Support by sentence");
        tab.sees("[1] “The site is deployed on Tuesdays at 14:00 UTC.”");
        let rows = "[...document.querySelectorAll('.did .rows li')].map(one => one.innerText)";
        let rows = tab.eval(rows);
        assert_eq!(rows.as_array().unwrap().len(), 2, "{rows}");
        assert!(rows[1].as_str().unwrap().starts_with("Bring two large blue umbrellas."), "{rows}");
        looks(&tab, "support-wide-light", axe.as_deref());
        tab.call("Page.reload", json!({}));
        tab.sees("Bring two large blue umbrellas.");
    }
    tab.has_no_faults();
}

/// At an address that is not local nobody comes in but by a link.
#[test]
fn a_link_lets_a_browser_in_and_leaves_the_address() {
    let Some(browser) = browser() else { return };
    let system = started();
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    let address = format!("http://ken.test:{}", system.address().port());
    tab.open(&address);
    tab.sees("This browser needs a way in.");
    let link = system.ken(&["open", "--print"]).stdout;
    let link = String::from_utf8(link).unwrap();
    let code = link.trim().split_once("#link=").unwrap().1;
    tab.open(&format!("{address}/#link={code}"));
    tab.sees("Nothing waits for you.");
    tab.is("location.hash", "#/inbox");
    // Who uses the browser later finds no code in its history.
    let history = tab.call("Page.getNavigationHistory", json!({})).to_string();
    assert!(history.contains("#/inbox") && !history.contains(code), "{history}");
    say(&tab, "Hello");
    tab.sees("Hello, you.");
    assert_eq!(tab.eval("document.cookie"), "");
    // Another tab has to come in by itself, and the link has been used.
    let other = browser.tab(WIDE.0, WIDE.1, false);
    other.open(&format!("{address}/#link={code}"));
    other.sees("the link was used before");
    // A local browser needs none.
    other.open(&format!("http://127.0.0.1:{}/#link={code}", system.address().port()));
    other.sees("Nothing waits for you.");
    other.eval("void (location.hash = '#/chat/100%')");
    other.sees("There is no such conversation");
}

/// A double click, an answer that comes late, a secret from a word processor, a telephone, a printer.
#[test]
fn small_things_that_people_do() {
    let Some(browser) = browser() else { return };
    let system = started();
    let plan = json!({"slug": "morning", "kind": "every", "schedule": "1h", "tz": "UTC", "prompt": "Good morning"});
    system.post("/api/schedules", &plan).expect(201);
    system.post("/workflows/full_reasoning", &json!({"text": "I am glad."})).expect(202);
    let tab = browser.tab(WIDE.0, WIDE.1, false);
    tab.open(&format!("{}/#/schedules", system.url()));
    let double = |tab: &Tab, button: &str| {
        let button = format!("[...document.querySelectorAll('button')].find(b => b.innerText === '{button}')");
        tab.wait(&button);
        let place =
            || tab.eval(&format!("(r => [r.x + r.width / 2, r.y + r.height / 2])({button}.getBoundingClientRect())"));
        // What is still being loaded moves the button.
        let mut seen = place();
        until("the button stands still", || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            std::mem::replace(&mut seen, place()) == seen
        });
        let place = seen;
        for count in 1..=2 {
            for kind in ["mousePressed", "mouseReleased"] {
                let click = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": count});
                tab.call("Input.dispatchMouseEvent", click);
            }
        }
    };
    let slots = || system.get("/api/schedules/morning/runs").expect(200).at("/runs").as_array().unwrap().len();
    double(&tab, "Run now");
    tab.wait("document.querySelectorAll('.strip .ok').length === 1");
    assert_eq!(slots(), 1);
    // A second click later is a second run. One after a lost answer is not.
    tab.click_text("Run now");
    tab.wait("document.querySelectorAll('.strip .ok').length === 2");
    lose_answers(&tab, "/morning.run$/");
    tab.click_text("Run now");
    tab.sees("The gateway cannot be reached.");
    tab.eval("void (window.lost = false)");
    tab.click_text("Run now");
    tab.wait("document.querySelectorAll('.strip .ok').length === 3 && !document.querySelector('.card .failed')");
    assert_eq!(slots(), 3);
    // Of two previews the answer to the first comes last.
    tab.click_text("New schedule");
    tab.eval(
        "void (window.fetch = async (...all) => { const answer = await whole(...all); if (/1h/.test(all[0])) { \
              await new Promise(go => { window.go = go; }); } return answer; })",
    );
    let when =
        "[...document.querySelectorAll('label')].find(l => l.innerText.startsWith('When')).querySelector('input')";
    tab.eval("(s => { s.value = 'every'; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('form select'))");
    tab.eval(&format!("void {when}.focus()"));
    tab.type_text("1h");
    tab.wait("window.go");
    tab.eval(&format!("void {when}.select()"));
    tab.type_text("soon");
    tab.sees("soon");
    tab.wait("document.querySelector('form [role=status] .failed')");
    tab.eval("window.go()");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(
        tab.eval("document.querySelector('form ol') === null && document.querySelector('form .main').disabled"),
        true
    );
    tab.click_text("Runs");
    tab.click_text("full_reasoning");
    tab.sees("Run again");
    let first = tab.eval("location.hash");
    double(&tab, "Run again");
    tab.wait(&format!("location.hash !== {first}"));
    tab.click_text("‹ Runs");
    tab.wait("document.querySelectorAll('main a[data-row]').length === 2");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(system.get("/runs").expect(200).at("/runs").as_array().unwrap().len(), 2);
    // A long conversation has more than one page of paper.
    say(&tab, "one line");
    tab.wait(LIVE);
    let paper = tab.call("Page.printToPDF", json!({}));
    let paper = base64::engine::general_purpose::STANDARD.decode(paper["data"].as_str().unwrap()).unwrap();
    let pages = String::from_utf8_lossy(&paper).matches("/Type /Page\n").count();
    assert!(pages > 2, "{pages} pages");
    tab.has_no_faults();
    let phone = browser.tab(PHONE.0, PHONE.1, false);
    phone.call("Emulation.setTouchEmulationEnabled", json!({"enabled": true}));
    phone.open(&format!("{}/#/chat/new", system.url()));
    phone.wait(
        "document.querySelector('h1')?.innerText === 'A new conversation' && document.activeElement.id === 'main'",
    );
    assert_eq!(phone.eval("matchMedia('(pointer: coarse)').matches"), true);
    let stranger = browser.tab(WIDE.0, WIDE.1, false);
    stranger.open(&format!("http://ken.test:{}", system.address().port()));
    stranger.sees("This browser needs a way in.");
    stranger.eval("void document.querySelector('input[type=password]').focus()");
    stranger.type_text("s3cret\u{201d}");
    stranger.press("Enter");
    stranger.sees("This has a character that a secret cannot have");
    stranger.has_no_faults();
}

/// Rules of accessibility, pictures, and what the first look costs.
#[test]
fn it_is_small_and_can_be_read_by_everybody() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let system = started();
    for (size, (width, height)) in [("wide", WIDE), ("phone", PHONE)] {
        for (scheme, is_dark) in [("light", false), ("dark", true)] {
            let tab = browser.tab(width, height, is_dark);
            tab.open(&system.url());
            tab.sees("Nothing waits for you.");
            if size == "wide" && !is_dark {
                first_load(&tab);
                first_paint(&tab, &system.url());
                tab.open(&system.url());
                tab.sees("Nothing waits for you.");
            }
            looks(&tab, &format!("inbox-{size}-{scheme}"), axe.as_deref());
            say(&tab, "be hostile");
            tab.wait(LIVE);
            looks(&tab, &format!("chat-{size}-{scheme}"), axe.as_deref());
            tab.click_text("More");
            looks(&tab, &format!("menu-{size}-{scheme}"), axe.as_deref());
            assert_eq!(
                tab.eval("document.documentElement.scrollWidth <= innerWidth"),
                true,
                "{size} is as wide as the screen"
            );
            tab.eval("void (location.hash = '#/chat')");
            tab.sees("archived ones");
            looks(&tab, &format!("sessions-{size}-{scheme}"), axe.as_deref());
            tab.has_no_faults();
        }
    }
    let narrow = browser.tab(360, 640, false);
    narrow.open(&system.url());
    narrow.sees("Nothing waits for you.");
    assert_eq!(narrow.eval("document.documentElement.scrollWidth <= innerWidth"), true);
}

fn axe() -> Option<String> {
    let file: PathBuf = root().join("tests/console/node_modules/axe-core/axe.min.js");
    let text = std::fs::read_to_string(file).ok();
    if text.is_none() {
        skip("axe-core is not installed");
    }
    text
}

/// Takes a picture, and fails the test for a serious fault that axe-core finds.
#[track_caller]
fn looks(tab: &Tab, name: &str, axe: Option<&str>) {
    picture(tab, name);
    // Only parts of the page scroll, and never the page itself.
    let beyond = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().bottom > innerHeight + 1 && \
                  !e.parentElement.closest('main, .sessions')).map(e => e.outerHTML.slice(0, 120))";
    let is_whole = "document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollTop === 0";
    assert_eq!(tab.eval(is_whole), true, "{name}: {}", tab.eval(beyond));
    let Some(axe) = axe else { return };
    tab.eval(&format!("{axe}; void 0"));
    let found = tab.eval(
        "axe.run().then(({violations}) => violations.filter(v => ['serious', 'critical'].includes(v.impact)) \
         .map(v => ({id: v.id, at: v.nodes.map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)})))",
    );
    assert_eq!(found, json!([]), "{name}: {found:#}");
}

fn first_load(tab: &Tab) {
    let asked = tab.events("Network.requestWillBeSent");
    let urls: Vec<&str> = asked.iter().filter_map(|one| one["request"]["url"].as_str()).collect();
    let sizes = tab.eval(
        "(async () => { let all = 0; for (const {name} of [{name: location.href}, ...performance.getEntriesByType('resource')]) { \
         if (/api/.test(name)) continue; const text = await (await fetch(name)).blob(); \
         all += (await new Response(text.stream().pipeThrough(new CompressionStream('gzip'))).blob()).size; } return all; })()",
    );
    let long = tab.eval(
        "new Promise(done => { const found = []; new PerformanceObserver(list => found.push(...list.getEntries().map(e => Math.round(e.duration)))) \
         .observe({type: 'longtask', buffered: true}); setTimeout(() => done(found.join(' + ')), 300); })",
    );
    println!("first load: {} requests, {sizes} bytes compressed; long tasks: {long} ms", urls.len());
    assert!(urls.len() <= 12, "{urls:#?}");
    assert!(sizes.as_u64().unwrap() <= 150_000, "{sizes}");
}

/// The first paint is compared with that of an empty page of the same server; what else the machine does makes either late.
fn first_paint(tab: &Tab, url: &str) {
    tab.call("Network.setCacheDisabled", json!({"cacheDisabled": true}));
    let paint = |target: &str, seen: &str| {
        tab.open(target);
        tab.sees(seen);
        let entry = "performance.getEntriesByName('first-contentful-paint')[0]";
        tab.wait(entry);
        tab.eval(&format!("Math.ceil({entry}.startTime)")).as_u64().unwrap()
    };
    let (mut own, mut empty) = (u64::MAX, u64::MAX);
    for _ in 0..5 {
        own = own.min(paint(url, "Nothing waits for you."));
        empty = empty.min(paint(&format!("{url}/health"), "true"));
    }
    println!("first paint after {own} ms, of an empty page after {empty} ms");
    assert!(own <= 4 * empty, "{own} ms, {empty} ms");
}
