// The page to chat with: one file, no framework, nothing from elsewhere.
#include <ppengine/runs/serving/service.hpp>

namespace ppengine::runs::serving {

const char* chat_page() {
  return R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>ppengine</title>
<style>
*{box-sizing:border-box}body{margin:0;font:16px/1.5 system-ui,sans-serif;background:#f6f6f4;color:#222;height:100vh;display:flex;flex-direction:column}
header{padding:.6rem 1rem;background:#fff;border-bottom:1px solid #ddd;display:flex;gap:1rem;align-items:center;flex-wrap:wrap}
header b{font-size:1.1rem}header label{font-size:.85rem;color:#555}header input{width:5rem;padding:.2rem;border:1px solid #ccc;border-radius:4px}
header input.wide{width:12rem}main{flex:1;overflow:auto;padding:1rem;max-width:50rem;width:100%;margin:0 auto}
.m{white-space:pre-wrap;overflow-wrap:anywhere;padding:.6rem .9rem;border-radius:10px;margin:.5rem 0;max-width:90%}
.user{background:#dbe9ff;margin-left:auto;width:fit-content}.assistant{background:#fff;border:1px solid #e2e2e2;width:fit-content}.error{color:#a00}
footer{padding:.8rem 1rem;background:#fff;border-top:1px solid #ddd}form{display:flex;gap:.5rem;max-width:50rem;margin:0 auto}
textarea{flex:1;font:inherit;padding:.5rem;border:1px solid #ccc;border-radius:6px;resize:none;height:4.2rem}
button{font:inherit;padding:.4rem 1rem;border:1px solid #888;border-radius:6px;background:#fff;cursor:pointer}button:disabled{opacity:.4}
#rate{font-size:.85rem;color:#555;text-align:center;min-height:1.4em}
</style></head><body>
<header><b id="name">ppengine</b><select id="model" hidden></select>
<label>Temperature <input id="temperature" type="number" value="0.7" min="0" max="2" step="0.1"></label>
<label>Top p <input id="top_p" type="number" value="1" min="0.01" max="1" step="0.05"></label>
<label>Tokens <input id="max_tokens" type="number" value="256" min="1"></label>
<label>System <input id="system" class="wide" type="text"></label>
<label>Key <input id="key" type="password" autocomplete="off"></label>
<button id="clear" type="button">New chat</button></header>
<main id="chat"></main>
<div id="rate"></div>
<footer><form id="form"><textarea id="text" placeholder="Write a message; Enter sends" autofocus></textarea>
<button id="send">Send</button><button id="stop" type="button" disabled>Stop</button></form></footer>
<script>
const $ = id => document.getElementById(id);
let messages = [], running = null;
const headers = () => $('key').value ? {'Content-Type': 'application/json', Authorization: 'Bearer ' + $('key').value} : {'Content-Type': 'application/json'};
async function models() {
  const r = await fetch('/v1/models', {headers: headers()}).catch(() => null);
  if (!r || !r.ok) { $('rate').textContent = r && r.status === 401 ? 'This server wants a key' : ''; return; }
  const ids = (await r.json()).data.map(m => m.id);
  $('rate').textContent = ''; $('name').textContent = ids[0]; $('model').replaceChildren(...ids.map(id => new Option(id)));
  $('model').hidden = ids.length < 2; $('name').hidden = ids.length > 1;
}
models(); $('key').onchange = models;
function show(role, text) { const d = document.createElement('div'); d.className = 'm ' + role; d.textContent = text; $('chat').append(d); d.scrollIntoView(); return d; }
const at_end = () => $('chat').scrollHeight - $('chat').scrollTop - $('chat').clientHeight < 40;
async function ask() {
  const text = $('text').value.trim();
  if (!text || running) return;
  $('text').value = '';
  const chat = messages, asked = show('user', text);  // 'New chat' begins another list meanwhile
  chat.push({role: 'user', content: text});
  const box = show('assistant', ''); let answer = '', tokens = 0, begin = 0, stopped = false;
  running = new AbortController(); $('stop').disabled = false; $('send').disabled = true; $('rate').textContent = '';
  const all = $('system').value ? [{role: 'system', content: $('system').value}, ...chat] : chat;
  try {
    const r = await fetch('/v1/chat/completions', {method: 'POST', headers: headers(), signal: running.signal, body: JSON.stringify({
      model: $('model').value || undefined, messages: all, stream: true, stream_options: {include_usage: true}, temperature: +$('temperature').value, top_p: +$('top_p').value, max_tokens: +$('max_tokens').value})});
    if (!r.ok) throw new Error((await r.json()).error.message);
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader(); let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      const lines = (rest + value).split('\n'); rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
        const d = JSON.parse(line.slice(6));
        if (d.error) throw new Error(d.error.message);
        const piece = d.choices.length && d.choices[0].delta.content;
        if (piece) { if (!begin) begin = performance.now(); else tokens++; answer += piece; const follows = at_end(); box.textContent = answer; if (follows) box.scrollIntoView(false);
          if (tokens) $('rate').textContent = (1000 * tokens / (performance.now() - begin)).toFixed(1) + ' tokens per second'; }
        if (d.usage) $('rate').textContent += ', ' + d.usage.prompt_tokens + ' tokens read, ' + d.usage.completion_tokens + ' written';
      }
    }
  } catch (e) { stopped = e.name === 'AbortError'; if (!stopped) { box.className += ' error'; box.textContent = e.message; } }
  if (answer) chat.push({role: 'assistant', content: answer});
  else if (stopped && chat === messages) { chat.pop(); box.remove(); asked.remove(); $('text').value = $('text').value || text; }  // as before
  else { chat.pop(); box.textContent = box.textContent || '(no text)'; }
  running = null; $('stop').disabled = true; $('send').disabled = false; $('text').focus();
}
$('form').onsubmit = e => { e.preventDefault(); ask(); };
$('text').onkeydown = e => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); ask(); } };
$('stop').onclick = () => running && running.abort();
$('clear').onclick = () => { if (running) running.abort(); messages = []; $('chat').textContent = ''; $('rate').textContent = ''; };
</script></body></html>
)html";
}

}  // namespace ppengine::runs::serving
