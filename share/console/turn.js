// One turn of a conversation as a list of items, from the transcript or, while it runs, from its events (ken-stream(5)).

/** A turn that has settled, from an exchange of the transcript. */
export function ofExchange(exchange) {
  const items = exchange.activities.filter(one => one.kind !== "operation").map(ofActivity).filter(Boolean);
  if (exchange.assistant) items.push({ kind: "text", text: exchange.assistant.text, done: true });
  return {
    id: exchange.submissionId, status: exchange.status, prompt: exchange.prompt?.text, images: exchange.prompt?.images, at: exchange.prompt?.receivedAt,
    items, sources: exchange.assistant?.sources, sentences: exchange.assistant?.sentences, error: exchange.error?.message,
  };
}

function ofActivity(activity) {
  const { id, kind, name, status, durationMs, preview, approval } = activity;
  if (kind === "approval") return { kind, id: approval?.requestId ?? id };
  if (kind === "thinking") return { kind, id, text: preview ?? "", done: true };
  if (kind === "tool" && name === "task") return null;
  return { kind, id, name, state: status, durationMs, text: preview ?? activity.error ?? "", output: activity.output };
}

export const fresh = (id, prompt, at) => ({ id, status: "running", prompt, at, items: [] });

const last = (turn, kind) => turn.items.findLast(item => item.kind === kind && !item.done);

/** Takes an event into the turn that it belongs to. */
export function take(turn, event) {
  turn.eventAt = Date.now();
  turn.changes = (turn.changes ?? 0) + 1;
  turn.at ??= event.timestamp;
  if (event.parentSession) return takeOfWorker(turn, event);
  TAKE[event.type]?.(turn, event);
}

// What a worker does within its task is a number at the row of the task.
function takeOfWorker(turn, event) {
  const task = turn.items.findLast(item => item.kind === "task" && item.id === event.taskId);
  if (task && event.type === "tool") task.calls = (task.calls ?? 0) + 1;
}

const TAKE = {
  message_start(turn, { message }) {
    if (message.role !== "user") return;
    turn.prompt ??= textOf(message);
    turn.images = message.content?.filter(block => block.type === "image").length;
  },
  text_delta(turn, { text }) {
    add(turn, "text", text);
    dropRepeated(turn);
  },
  thinking_delta(turn, { delta }) { add(turn, "thinking", delta); },
  thinking_end(turn) { close(turn, "thinking"); },
  message_end(turn, { message }) {
    if (message.role !== "assistant") return;
    const whole = textOf(message), item = last(turn, "text");
    if (!item && whole) turn.items.push({ kind: "text", text: whole });
    close(turn, "thinking");
    const closed = close(turn, "text");
    if (message.stopReason === "interrupted" && closed) closed.cut = true;
    else turn.items = turn.items.filter(item => !item.cut);
    if (message.stopReason === "error") turn.error ??= reason(message.error);
  },
  tool_start(turn, { toolCallId, toolName }) {
    if (toolName !== "task" && !find(turn, toolCallId)) turn.items.push({ kind: "tool", id: toolCallId, name: toolName, state: "running", since: Date.now() });
  },
  tool_progress(turn, { toolCallId, progress, total, message }) {
    const tool = find(turn, toolCallId);
    if (tool) tool.text = [progress !== undefined && `${progress}${total ? ` of ${total}` : ""}`, message].filter(Boolean).join(", ");
  },
  tool(turn, event) { end(turn, event.toolCallId, event); },
  task_start(turn, { taskId, agent }) { turn.items.push({ kind: "task", id: taskId, name: agent, state: "running", since: Date.now() }); },
  task(turn, event) { end(turn, event.taskId, event); },
  approval_requested(turn, { requestId }) {
    if (!find(turn, requestId)) turn.items.push({ kind: "approval", id: requestId });
  },
  approval_decided(turn, { requestId, timestamp }) {
    const approval = find(turn, requestId);
    if (approval) approval.stamp = timestamp;
  },
  turn(turn, { usage, model, provider }) {
    turn.tokens = (turn.tokens ?? 0) + (usage?.totalTokens ?? 0);
    turn.cost = (turn.cost ?? 0) + (usage?.cost?.total ?? 0);
    if (model) turn.model = `${provider}/${model}`;
  },
  operation(turn, { result, error, durationMs }) {
    Object.assign(turn, { sources: result?.sources ?? turn.sources, durationMs });
    // It names the model, which the error of a call does not.
    if (error) turn.error = reason(error);
  },
  validation(turn, { sentences }) { turn.sentences = sentences; },
  log(turn, { level, message }) {
    if (level !== "info") turn.items.push({ kind: "log", id: `log-${turn.made = (turn.made ?? 0) + 1}`, name: level, text: message, state: "completed" });
  },
  submission_resumed(turn) { turn.resumed = true; },
  submission_settled(turn, { outcome, error }) {
    turn.status = outcome === "aborted" ? "cancelled" : outcome;
    if (error) turn.error = reason(error);
    for (const item of turn.items) {
      item.done = true;
      if (item.state === "running") item.state = "failed";
    }
  },
};

const find = (turn, id) => turn.items.find(item => item.id === id);
const reason = error => (typeof error === "string" ? error : error?.message);
const textOf = ({ content }) => content?.find(block => block.type === "text")?.text ?? "";

function add(turn, kind, text) {
  const item = last(turn, kind);
  if (item) item.text += text;
  else turn.items.push({ kind, id: `${kind}-${turn.made = (turn.made ?? 0) + 1}`, text });
}

function close(turn, kind) {
  const item = last(turn, kind);
  if (item) item.done = true;
  return item;
}

/** After a crash the next message repeats the text that was cut. Until it has, or says something else, the old one stays. */
function dropRepeated(turn) {
  const cut = turn.items.find(item => item.cut), now = last(turn, "text");
  if (!cut || !now) return;
  now.hidden = cut.text.length > now.text.length && cut.text.startsWith(now.text);
  if (!now.hidden) turn.items.splice(turn.items.indexOf(cut), 1);
}

function end(turn, id, { isError, durationMs, interrupted, result }) {
  const item = find(turn, id);
  if (item) Object.assign(item, { state: isError ? "failed" : "completed", durationMs, interrupted, output: result?.output });
}
